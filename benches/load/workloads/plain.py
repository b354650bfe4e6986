"""W1 and W2: plain HTTP, as two other projects have published it: a small file, a small origin, many connections."""

import dataclasses

from clients import Load, wrk
from scenario import File, Forward, Scenario, page
from workloads.base import Workload
from workloads.pages import W0

FILE_BYTES, SMALL_BYTES = 268, 13
PROXIED = Scenario(Forward(), tls=False)
# Three quarters of a 20,000-descriptor limit go to the clients of the overload, the rest to the origin.
OVERLOAD = Scenario(Forward(most_at_once=2_000), tls=False)
CLIENT_LIMIT = 1_024


class ClientLimit(Workload):
    """The run that was published with connect errors: they are its client's, which may open 1,024 descriptors."""

    def load(self, server, connections: int, options) -> Load:
        load = wrk.run(self.request(server), connections, self.length(options), timeout=self.timeout,
                       descriptors=CLIENT_LIMIT)
        # Expected here, and shown by their own name; everything else stays an error.
        return dataclasses.replace(load, socket_errors=load.socket_errors - int(load.extra.get("connect errors", 0)))


class Overload(Workload):
    """An origin that takes 50 ms, and more connections than it is to have requests: 200 or 503, never a closed socket."""

    def load(self, server, connections: int, options) -> Load:
        return self.judge(wrk.run(self.request(server), connections, self.length(options), timeout=self.timeout,
                                  statuses=True))

    def burst(self, server, connections: int) -> Load:
        return self.judge(super().burst(server, connections))

    def judge(self, load: Load) -> Load:
        return dataclasses.replace(load, wrong=load.wrong - int(load.extra.get("status 503", 0)))

    def expected_codes(self) -> set[str]:
        return {"200", "503"}


WORKLOADS = [
    Workload("W1a", f"HTTP, a file of {FILE_BYTES} bytes (Portcullis, HAProxy, floor: from memory; others: from disk)",
             Scenario(File(page(FILE_BYTES)), tls=False), path="/page.html", connections=[60]),
    Workload("W1b", f"HTTP, proxied to an origin of {SMALL_BYTES} bytes", PROXIED, path="/small", size=SMALL_BYTES,
             connections=[60]),
    Workload("W2.30s", "HTTP, 5,000 connections, proxied, 30 s", PROXIED, path="/small", size=SMALL_BYTES,
             connections=[5_000], seconds=30, timeout=30),
    Workload("W2.60s", "HTTP, 5,000 connections, proxied, 60 s", PROXIED, path="/small", size=SMALL_BYTES,
             connections=[5_000], seconds=60, timeout=30),
    ClientLimit("W2.client-limit", "the same with a client that may open 1,024 descriptors: connect errors are its own",
                PROXIED, path="/small", size=SMALL_BYTES, connections=[5_000], timeout=30),
    Workload("W2.page", "HTTPS, 5,000 connections, W0's page and tables", W0, connections=[5_000], seconds=30, timeout=30),
    Overload("W2.overload", "HTTP, 10,000 connections, origin takes 50 ms, at most 2,000 requests at once: 200 or 503",
             OVERLOAD, path="/slow", size=SMALL_BYTES, connections=[10_000], seconds=20, timeout=30),
]
