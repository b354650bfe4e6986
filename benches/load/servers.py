"""The servers: how each is configured for a workload, started, found in /proc and stopped.

Every server runs in the foreground as our child with a folder of its own, so nothing outlives the run and nothing
outside the folder is written. It knows nothing of measuring.
"""

import contextlib
import json
import os
import pathlib
import re
import socket
import subprocess
import sys
import time
import urllib.request

import measure

START_SECONDS = 30
STOP_SECONDS = 10
REQUESTS_PER_CONNECTION = 1_000_000_000


class Server:
    """One server process family, ready between entering and leaving `serving`."""

    def __init__(self, name: str, folder: pathlib.Path, options):
        self.name, self.folder, self.options = name, folder, options
        self.port = free_port()
        self.process: subprocess.Popen | None = None

    @contextlib.contextmanager
    def serving(self, workload):
        certificate(self.folder)
        command = self.configure(workload)
        with open(self.folder / "output.log", "wb") as output:
            self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output, stderr=output)
        try:
            self.wait_until_ready()
            yield self
        finally:
            self.stop()

    def configure(self, workload) -> list[str]:
        """Writes the configuration and returns the command that serves it in the foreground."""
        raise NotImplementedError

    def pids(self) -> list[int]:
        return measure.family(self.process.pid)

    def codes(self) -> dict[str, float]:
        """Answers per status so far, if the server counts them."""
        return {}

    def settled(self) -> bool:
        """Whether everything that will run is running; asked after the port accepts."""
        return True

    def wait_until_ready(self) -> None:
        deadline = time.monotonic() + START_SECONDS
        while time.monotonic() < deadline:
            if self.process.poll() is not None:
                break
            try:
                socket.create_connection(("127.0.0.1", self.port), timeout=1).close()
                if self.settled():
                    return
            except OSError:
                pass
            time.sleep(0.05)
        output = (self.folder / "output.log").read_text(errors="replace")[-2000:]
        sys.exit(f"{self.name} does not serve within {START_SECONDS} s: {output}")

    def stop(self) -> None:
        """Asks, waits, then kills whatever of the family is left."""
        left = self.pids()
        self.process.terminate()
        try:
            self.process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            for pid in reversed(left):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, 9)
            self.process.wait()


class Nginx(Server):
    """nginx as its manual would have it for this job: `geo` (a tree, not a list) for the prefixes, cached descriptors
    for the page, and room for twice the connections, because its tables for them count as memory."""

    def configure(self, workload) -> list[str]:
        (self.folder / "404.html").write_bytes(workload.body)
        (self.folder / "nginx.conf").write_text(nginx_configuration(self, workload), encoding="utf-8")
        return ["nginx", "-p", str(self.folder), "-c", "nginx.conf", "-e", "error.log"]

    def settled(self) -> bool:
        return len(self.pids()) == 1 + self.options.workers


def nginx_configuration(server: Server, workload) -> str:
    log = "access.log combined buffer=64k flush=1s" if server.options.log == "on" else "off"
    listen = f"listen 127.0.0.1:{server.port} ssl"
    denied = "\n".join(f"        {prefix} 1;" for prefix in workload.denied)
    routes = "\n".join(
        f'    server {{ {listen}; server_name {host}; if ($denied) {{ return 403; }} '
        f'location / {{ return 200 "ok"; }} }}' for host in workload.hosts)
    return f"""\
{'user root;' if os.geteuid() == 0 else ''}
daemon off;
worker_processes {server.options.workers};
worker_rlimit_nofile 65536;
pid nginx.pid;
error_log error.log crit;
events {{ worker_connections {max(1024, 2 * max(server.options.connections))}; }}
http {{
    access_log {log};
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
    keepalive_requests {REQUESTS_PER_CONNECTION};
    server_names_hash_max_size 16384;
    server_names_hash_bucket_size 128;
    ssl_certificate cert.pem;
    ssl_certificate_key key.pem;
    ssl_protocols TLSv1.3;
    geo $denied {{
        default 0;
{denied}
    }}
    server {{
        {listen} default_server;
        server_name _;
        error_page 404 /404.html;
        if ($denied) {{ return 403; }}
        location / {{ return 404; }}
        location = /404.html {{ internal; root {server.folder}; }}
    }}
{routes}
}}
"""


class Portcullis(Server):
    """The gateway under test."""

    def __init__(self, name: str, folder: pathlib.Path, options):
        super().__init__(name, folder, options)
        self.admin_port = free_port()

    def configure(self, workload) -> list[str]:
        (self.folder / "404.html").write_bytes(workload.body)
        (self.folder / "deny.txt").write_text("\n".join(workload.denied) + "\n", encoding="ascii")
        file = self.folder / "portcullis.yaml"
        file.write_text(portcullis_configuration(self, workload), encoding="utf-8")
        return [self.options.binary, "run", "-c", str(file)]

    def settled(self) -> bool:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.admin_port}/readyz", timeout=2) as answer:
                return answer.status == 200
        except OSError:
            return False

    def codes(self) -> dict[str, float]:
        with urllib.request.urlopen(f"http://127.0.0.1:{self.admin_port}/metrics", timeout=10) as answer:
            return codes_in(answer.read().decode())


def portcullis_configuration(server: Portcullis, workload) -> str:
    """JSON is YAML, and needs no quoting of ours."""
    log = {"output": "access.log", "format": "combined"} if server.options.log == "on" else {"output": "off"}
    return json.dumps({
        "workers": server.options.workers,
        "admin": {"address": f"127.0.0.1:{server.admin_port}"},
        "listeners": [{"address": f"127.0.0.1:{server.port}", "tls": "required"}],
        "certificates": [{"cert": "cert.pem", "key": "key.pem"}],
        "tls": {"min_version": "1.3"},
        "access": {"deny": [{"file": "deny.txt"}]},
        "routes": [{"hosts": [host], "respond": {"body": "ok"}} for host in workload.hosts],
        "not_found": {"body_file": "404.html"},
        "limits": {"requests_per_connection": REQUESTS_PER_CONNECTION},
        "access_log": log,
        "log": {"level": "warn"},
        "shutdown": {"drain": "2s"},
    }, indent=1)


def codes_in(metrics: str) -> dict[str, float]:
    """Sums portcullis_http_requests_total over everything but the status."""
    found: dict[str, float] = {}
    for code, value in re.findall(r'^portcullis_http_requests_total\{[^}]*code="(\d+)"[^}]*\} (\S+)', metrics, re.M):
        found[code] = found.get(code, 0) + float(value)
    return found


# `nginx-again` shows how far two runs of one program lie apart on this machine.
BY_NAME = {"portcullis": Portcullis, "nginx": Nginx, "nginx-again": Nginx}


def certificate(folder: pathlib.Path) -> None:
    """A self-signed ECDSA P-256 certificate; one per folder, so that no server reads another's."""
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2",
         "-subj", "/CN=load.test", "-addext", "subjectAltName=DNS:load.test,DNS:*.example.test",
         "-keyout", str(folder / "key.pem"), "-out", str(folder / "cert.pem")],
        check=True, capture_output=True)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]
