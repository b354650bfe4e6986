"""W7 and W8: reloads under load, and a long run. Both change the configuration while they are measured."""

import contextlib
import threading
import time

import measure
from clients import Load, wrk
from scenario import GENERATION_HOST, PROXIED_HOST, Scenario
from workloads.base import Workload, ask, only
from workloads.pages import PAGE

RELOAD_SECONDS = 5
PUBLISH_SECONDS = 120
POLL_SECONDS = 0.02
TABLES = Scenario(PAGE, prefixes=1_000_000, hosts=10_000, reloads=True)


class Reloading(Workload):
    """W7: W0 with large tables that are swapped every five seconds, or never: the same servers serve both."""

    def __init__(self, name: str, title: str, reloads: bool):
        super().__init__(name, title, TABLES, connections=[64], seconds=30)
        self.reloads = reloads

    def load(self, server, connections: int, options) -> Load:
        every = min(RELOAD_SECONDS, self.length(options) / 2)
        with Reloads(server, every) if self.reloads else contextlib.nullcontext() as reloads:
            load = super().load(server, connections, options)
        if reloads:
            load.extra |= reloads.figures()
            load.wrong += reloads.failed
        return load

    def expected_codes(self) -> set[str]:
        return {"404", "200"}

    def excuses(self, name: str) -> bool:
        """nginx closes connections that are kept, some with a request on its way, when it reloads."""
        return self.reloads and name != "portcullis"

    def may_replace_processes(self) -> bool:
        return self.reloads


class Reloads(measure.Beside):
    """Reloads a server every few seconds while the `with` block runs, and times until a new connection gets the new
    generation."""

    def __init__(self, server, every: float):
        super().__init__()
        self.server, self.every = server, every
        self.times: list[float] = []
        self.failed = 0

    def run(self) -> None:
        # The first one comes half an interval in, so that the last one is over before the load is.
        wait = self.every / 2
        while not self.stop.wait(wait):
            begin = time.monotonic()
            self.server.reload()
            if self.published(begin + PUBLISH_SECONDS):
                self.times.append(time.monotonic() - begin)
            else:
                self.failed += 1
            wait = max(0.0, self.every - (time.monotonic() - begin))

    def published(self, deadline: float) -> bool:
        wanted = str(self.server.generation).encode()
        while time.monotonic() < deadline:
            try:
                if ask(self.server, GENERATION_HOST, "/").body == wanted:
                    return True
            except OSError:
                pass  # a server that replaces its processes may refuse for a moment
            time.sleep(POLL_SECONDS)
        return False

    def figures(self) -> dict[str, float]:
        times = sorted(self.times)
        if not times:
            return {"reloads": 0}
        return {"reloads": len(times), "publish median s": times[len(times) // 2], "publish longest s": times[-1]}


class Soak(Workload):
    """W8: W0 and W1b at once on one port, with a reload every second: what grows?"""

    CONNECTIONS = 32  # of each kind
    check = staticmethod(only("portcullis", "is not soaked: reloads are compared in W7"))

    def __init__(self):
        super().__init__("W8", "W0 and W1b mixed for --minutes, SIGHUP every second",
                         Scenario(PAGE, prefixes=10_000, hosts=1_000, reloads=True, mixed=True),
                         connections=[2 * self.CONNECTIONS])

    def length(self, options) -> int:
        return round(60 * options.minutes)

    def load(self, server, connections: int, options) -> Load:
        seconds = self.length(options)
        proxied = wrk.Request(f"http://127.0.0.1:{server.port}/small", PROXIED_HOST, 200)
        requests, loads = [self.request(server), proxied], []
        clients = [threading.Thread(target=lambda request=request: loads.append(
            wrk.run(request, self.CONNECTIONS, seconds))) for request in requests]
        with measure.Sampler(server.pids, every=1.0) as sampler, Reloads(server, 1.0) as reloads:
            for client in clients:
                client.start()
            for client in clients:
                client.join()
        if len(loads) != len(requests):
            raise RuntimeError("a client of the soak failed")
        return self.together(loads, sampler, reloads)

    def together(self, loads: list[Load], sampler, reloads: Reloads) -> Load:
        # What is filled once (pools, buffers, sessions) is no growth.
        settled = sampler.samples[len(sampler.samples) // 5:] or [(0.0, 0.0, 0)]
        slope = measure.slope_per_hour([(when, mib) for when, mib, _ in settled])
        extra = {"MiB per hour": slope, "descriptors first": settled[0][2], "descriptors last": settled[-1][2],
                 "descriptors most": sampler.most_descriptors(), "reloads": len(reloads.times)}
        return Load(requests=sum(load.requests for load in loads), seconds=max(load.seconds for load in loads),
                    bytes=sum(load.bytes for load in loads), p50_ms=max(load.p50_ms for load in loads),
                    p99_ms=max(load.p99_ms for load in loads),
                    socket_errors=sum(load.socket_errors for load in loads),
                    wrong=sum(load.wrong for load in loads) + reloads.failed, extra=extra)

    def expected_codes(self) -> set[str]:
        return {"404", "200"}


WORKLOADS = [
    Reloading("W7.still", "W0 with 1,000,000 prefixes and 10,000 routes (nginx: hosts in one map)", reloads=False),
    Reloading("W7.reload", "the same, all of it swapped every 5 s", reloads=True),
    Soak(),
]
