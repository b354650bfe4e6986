"""The gateway under test, configured as an operator would, and the floor beneath it."""

import json
import os
import re
import signal
import urllib.request

from scenario import GENERATION_HOST, PROXIED_HOST, File, Forward, Page
from servers.base import REQUESTS_PER_CONNECTION, Server, Unsupported, first_line, free_port


class Portcullis(Server):
    """The gateway."""

    def __init__(self, name: str, folder, options):
        super().__init__(name, folder, options)
        self.admin_port = free_port()

    def version(self) -> str:
        return first_line([self.options.binary, "version"])

    def configure(self) -> list[str]:
        if not isinstance(self.scenario.answer, Forward):
            self.write("page.html", self.scenario.answer.body)
        for generation in (1, 2) if self.scenario.reloads else (1,):
            self.write(f"deny-{generation % 2}.txt", "\n".join(self.scenario.denied(generation)) + "\n")
        file = self.write("portcullis.yaml", self.configuration())
        return [self.options.binary, "run", "-c", str(file)]

    def reload(self) -> None:
        self.generation += 1
        self.write("portcullis.yaml", self.configuration())
        os.kill(self.process.pid, signal.SIGHUP)

    def settled(self) -> bool:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.admin_port}/readyz", timeout=2) as answer:
                return answer.status == 200
        except OSError:
            return False

    def codes(self) -> dict[str, float]:
        with urllib.request.urlopen(f"http://127.0.0.1:{self.admin_port}/metrics", timeout=10) as answer:
            return codes_in(answer.read().decode())

    def configuration(self) -> str:
        """JSON is YAML, and needs no quoting of ours."""
        scenario = self.scenario
        tls = "auto" if scenario.mixed else "required" if scenario.tls else "off"
        written = {
            "workers": self.options.workers,
            "admin": {"address": f"127.0.0.1:{self.admin_port}"},
            "listeners": [{"address": f"127.0.0.1:{self.port}", "tls": tls, "http2": scenario.http2}],
            "routes": self.routes(),
            "limits": {"requests_per_connection": REQUESTS_PER_CONNECTION},
            "access_log": {"output": "off"},
            "log": {"level": "warn"},
            "shutdown": {"drain": "2s"},
        }
        if scenario.tls:
            written |= {"certificates": [{"cert": "cert.pem", "key": "key.pem"}], "tls": {"min_version": "1.3"}}
        if scenario.prefixes:
            written["access"] = {"deny": [{"file": f"deny-{self.generation % 2}.txt"}]}
        if isinstance(scenario.answer, Page):
            written["not_found"] = {"body_file": "page.html"}
        if scenario.log != "off":
            written["access_log"] = {"output": "access.log", "format": "combined"}
        if scenario.log == "excluded":
            written["access_log"]["exclude"] = {"clients": ["127.0.0.0/8"]}
        if scenario.needs_origin:
            origin = {"endpoints": [f"127.0.0.1:{self.origin_port}"], "keepalive": self.room}
            most = getattr(scenario.answer, "most_at_once", 0)
            written["upstreams"] = {"origin": origin | ({"max_requests": most} if most else {})}
        return json.dumps(written | self.more(), indent=1)

    def more(self) -> dict:
        """Keys a variant adds."""
        return {}

    def routes(self) -> list[dict]:
        routes = [{"hosts": [host], "respond": {"body": "ok"}} for host in self.scenario.host_names()]
        if self.scenario.reloads:
            routes.append({"hosts": [GENERATION_HOST], "respond": {"body": str(self.generation)}})
        if self.scenario.mixed:
            routes.append({"hosts": [PROXIED_HOST], "upstream": "origin"})
        if isinstance(self.scenario.answer, File):
            routes.append({"respond": {"body_file": "page.html", "headers": {"content-type": "text/html"}}})
        elif isinstance(self.scenario.answer, Forward):
            routes.append({"upstream": "origin"})
        return routes


class PortcullisEngine(Portcullis):
    """The gateway without the straight lane: everything goes through the engine's proxy."""

    def configure(self) -> list[str]:
        if not self.scenario.needs_origin:
            raise Unsupported("differs in what is proxied only")
        return super().configure()

    def more(self) -> dict:
        return {"proxy": {"lane": "off"}}


class Floor(Server):
    """What the engine alone costs: one page or one origin, and nothing else. A lower bound, not a gateway."""

    has_tables = False

    def version(self) -> str:
        return f"floor of {first_line([self.options.binary, 'version'])}"

    def configure(self) -> list[str]:
        scenario = self.scenario
        if scenario.reloads or scenario.mixed:
            raise Unsupported("has nothing to reload")
        if scenario.log != "off":
            raise Unsupported("has no access log")
        command = [self.options.floor, "proxy", "--listen", f"127.0.0.1:{self.port}",
                   "--workers", str(self.options.workers)]
        if scenario.tls:
            command += ["--cert", "cert.pem", "--key", "key.pem"]
        if isinstance(scenario.answer, Forward):
            if scenario.answer.most_at_once:
                raise Unsupported("refuses nothing")
            return command + ["--origin", f"127.0.0.1:{self.origin_port}"]
        status = "404" if isinstance(scenario.answer, Page) else "200"
        return command + ["--page", str(self.write("page.html", scenario.answer.body)), "--status", status]


class Origin(Server):
    """The server behind all gateways; never measured."""

    def configure(self) -> list[str]:
        return [self.options.floor, "origin", "--listen", f"127.0.0.1:{self.port}"]


def codes_in(metrics: str) -> dict[str, float]:
    """Sums portcullis_http_requests_total over everything but the status."""
    found: dict[str, float] = {}
    for code, value in re.findall(r'^portcullis_http_requests_total\{[^}]*code="(\d+)"[^}]*\} (\S+)', metrics, re.M):
        found[code] = found.get(code, 0) + float(value)
    return found
