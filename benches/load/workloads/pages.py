"""W0: the page for unknown hosts over TLS, with big tables loaded; its latency; W5: the operators' port beside it."""

import contextlib
import dataclasses
import threading

import measure
from clients import Load, oha, own, wrk
from scenario import Page, Scenario, page
from servers.base import Unsupported
from workloads.base import Workload, only

PAGE = Page(page(11_776))
W0 = Scenario(PAGE, prefixes=10_000, hosts=1_000)
WORDS = "HTTPS 404 of 11,776 bytes, 10,000 prefixes, 1,000 routes"


class Latency(Workload):
    """W0 measured from when all connections are open and warm."""

    def rate(self, options) -> int:
        return 0

    def load(self, server, connections: int, options) -> Load:
        return own.run(self.request(server), options, connections, self.length(options),
                       lambda: self.cpu_seconds(server), port=server.port, rate=self.rate(options))


class OpenLoop(Latency):
    """W0 at a fixed rate, whatever the answers do."""

    def rate(self, options) -> int:
        return options.rate


class OpenLoopOha(Workload):
    """The same with another client, which measures from its start."""

    def check(self, name: str) -> None:
        if not oha.is_installed():
            raise Unsupported(oha.REMEDY)

    def load(self, server, connections: int, options) -> Load:
        return oha.run(self.request(server), connections, self.length(options), options.rate)


class Readiness(Workload):
    """W5: /readyz under load, while W0 runs on the side. Only the admin port's thread is measured."""

    SIDE_CONNECTIONS = 64
    check = staticmethod(only("portcullis", "has no readiness endpoint on a port of its own"))

    def request(self, server) -> wrk.Request:
        return wrk.Request(f"http://127.0.0.1:{server.admin_port}/readyz", "127.0.0.1", 200)

    def load(self, server, connections: int, options) -> Load:
        with self.side(server, self.length(options) + 1):
            return super().load(server, connections, options)

    @contextlib.contextmanager
    def side(self, server, seconds: int):
        arguments = (super().request(server), self.SIDE_CONNECTIONS, seconds)
        side = threading.Thread(target=wrk.run, args=arguments)
        side.start()
        try:
            yield
        finally:
            side.join()

    def cpu_seconds(self, server) -> tuple[float, float]:
        return measure.thread_seconds(server.process.pid, "BG admin")


WORKLOADS = [
    Workload("W0.off", f"{WORDS}; access log off", W0),
    Workload("W0.log", f"{WORDS}; access log on", dataclasses.replace(W0, log="on")),
    Workload("W0.excluded", f"{WORDS}; access log on, loopback clients excluded",
             dataclasses.replace(W0, log="excluded")),
    Latency("W0.latency", f"{WORDS}; measured after all handshakes", W0),
    OpenLoop("W0.open", f"{WORDS}; at --rate, latency from when a request was due, after all handshakes", W0),
    OpenLoopOha("W0.open-oha", f"{WORDS}; at --rate, latency corrected, with oha", W0),
    Readiness("W5", "/readyz on the admin port, W0 at 64 connections on the side", W0, connections=[64, 512]),
]
