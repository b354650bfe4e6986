"""The servers: how each is configured for a scenario, started, found in /proc, reloaded and stopped."""

from servers.haproxy import HaProxy
from servers.nginx import Nginx, NginxCurrent, NginxMap
from servers.others import Caddy, Envoy, Pingap, Traefik
from servers.portcullis import Floor, Portcullis, PortcullisEngine

# `nginx-again` shows how far two runs of one program lie apart on this machine.
BY_NAME = {"portcullis": Portcullis, "portcullis-engine": PortcullisEngine, "floor": Floor,
           "nginx": Nginx, "nginx-current": NginxCurrent, "nginx-map": NginxMap, "nginx-again": Nginx,
           "haproxy": HaProxy, "envoy": Envoy, "caddy": Caddy, "traefik": Traefik, "pingap": Pingap}
