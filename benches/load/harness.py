"""The run: which servers, which workloads, how many rounds, in which order.

Reads the command line, starts every server of a workload, compares their answers, then loads them in turn and hands
the figures to report.py. It does not know how a server is configured (servers), what a workload asks for (workloads),
or how a process is measured (measure.py).
"""

import argparse
import contextlib
import dataclasses
import pathlib
import resource
import signal
import sys
import tempfile
import time

import measure
import report
import servers
import workloads
from servers.base import Unsupported
from servers.portcullis import Origin
from workloads.base import Differs

# What one measurement takes beside its own seconds.
OVERHEAD_SECONDS = 1


def main() -> int:
    options = parse()
    # A TERM unwinds like Ctrl-C, so that every `with` below stops what it started.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    raise_descriptor_limit()
    run = Run(options)
    with tempfile.TemporaryDirectory(prefix="portcullis-load.") as folder:
        for workload in options.workloads:
            workload_folder = pathlib.Path(folder) / workload.name
            workload_folder.mkdir()
            run.workload(workload, workload_folder)
    if not run.results:
        print("nothing was measured", file=sys.stderr)
        return 1
    summary = report.summarize(run.results)
    print(report.text(summary, run.left_out))
    print(f"\nwritten to {report.write(summary, run, options)}")
    return 1 if any(fails(row, options) for row in summary) else 0


def fails(row: dict, options: argparse.Namespace) -> bool:
    excused = any(workload.excuses(row["server"]) for workload in options.workloads if workload.name == row["workload"])
    return not row["valid"] and not excused


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="benches/load/run.sh", description=__doc__.splitlines()[0],
                                     formatter_class=argparse.RawDescriptionHelpFormatter, epilog=catalogue())
    parser.add_argument("workloads", nargs="*", default=["W0.off"], metavar="workload",
                        help="names below, or the first part of one for all of its kind (default: W0.off)")
    parser.add_argument("--connections", default="64,256,512", help="of W0, comma-separated (default: %(default)s)")
    parser.add_argument("--seconds", type=int, help="length of one measurement (default: the workload's own, mostly 10)")
    parser.add_argument("--rounds", type=int, default=5, help="measurements of each cell (default: %(default)s)")
    parser.add_argument("--workers", type=int, default=2, help="worker threads or processes (default: %(default)s)")
    parser.add_argument("--peers", default="nginx,nginx-current",
                        help=f"comma-separated, of {', '.join(servers.BY_NAME)} (default: %(default)s; portcullis and "
                             "floor always run)")
    parser.add_argument("--cooldown", type=float, default=2.0, help="seconds before memory is read again")
    parser.add_argument("--minutes", type=float, default=10, help="length of W8 (default: %(default)s)")
    parser.add_argument("--rate", type=int, default=10_000, help="requests per second of W0.open (default: %(default)s)")
    parser.add_argument("--binary", default="portcullis", help="the portcullis binary")
    parser.add_argument("--floor", default="floor", help="the floor binary")
    parser.add_argument("--output", type=pathlib.Path, default=report.HERE / "results", help="folder for JSON and SVG")
    parser.add_argument("--smoke", action="store_true", help="small tables: to see that the harness works, not to measure")
    parser.add_argument("--servers", help=argparse.SUPPRESS)  # the whole list, e.g. nginx,nginx-again to see the noise
    options = parser.parse_args()
    validate(parser, options)
    return options


def validate(parser: argparse.ArgumentParser, options: argparse.Namespace) -> None:
    asked, options.workloads = options.workloads, []
    for name in asked:
        found = workloads.named(name)
        if not found:
            parser.error(f"no workload {name}; there are {', '.join(w.name for w in workloads.ALL)}")
        options.workloads += [workload for workload in found if workload not in options.workloads]
    if options.smoke:
        for workload in options.workloads:
            workload.scenario = workload.scenario.small()
    try:
        options.connections = [int(count) for count in options.connections.split(",")]
    except ValueError:
        parser.error("--connections wants numbers, like 64,256")
    seconds = 1 if options.seconds is None else options.seconds
    if min(options.rounds, seconds, options.workers, *options.connections) < 1:
        parser.error("--rounds, --seconds, --workers and --connections start at 1")
    options.servers = (options.servers or f"portcullis,floor,{options.peers}").split(",")
    options.servers = list(dict.fromkeys(filter(None, options.servers)))
    unknown = [name for name in options.servers if name not in servers.BY_NAME]
    if unknown:
        parser.error(f"no server {', '.join(unknown)}; there are {', '.join(servers.BY_NAME)}")


def catalogue() -> str:
    return "workloads:\n" + "\n".join(f"  {w.name:18} {w.title}" for w in workloads.ALL)


def raise_descriptor_limit() -> None:
    """For the servers and clients, which inherit it: as far as the machine allows."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


class Run:
    """What was measured so far, and who was left out of what."""

    def __init__(self, options: argparse.Namespace):
        self.options = options
        self.results: list[dict] = []
        self.left_out: list[dict] = []
        self.versions: dict[str, str] = {}

    def workload(self, workload, folder: pathlib.Path) -> None:
        with contextlib.ExitStack() as running:
            origin_port = self.start_origin(workload, folder, running)
            started = []
            for name in self.options.servers:
                try:
                    started.append(self.start(name, workload, folder / name, origin_port, running))
                except Unsupported as reason:
                    self.leave_out(workload, name, str(reason))
            if not started:
                return
            size = workload.compare(started)
            progress(f"{workload.name}: {len(started)} servers give the same answer, {size} bytes on the wire")
            for server in started:
                burst = workload.burst(server, min(64, workload.connection_counts(self.options.connections)[0]))
                if burst.errors:
                    raise Differs(f"{server.name}: {burst.errors} of {burst.requests} answers in a burst before the "
                                  f"measurement are errors: {burst.extra}")
            self.measure_rounds(workload, started)

    def start_origin(self, workload, folder: pathlib.Path, running: contextlib.ExitStack) -> int:
        if not workload.scenario.needs_origin:
            return 0
        (folder / "origin").mkdir()
        origin = Origin("origin", folder / "origin", self.options)
        plain = dataclasses.replace(workload.scenario, tls=False)
        return running.enter_context(origin.serving(plain, 0, 0)).port

    def start(self, name: str, workload, folder: pathlib.Path, origin_port: int, running: contextlib.ExitStack):
        workload.check(name)
        folder.mkdir()
        server = servers.BY_NAME[name](name, folder, self.options)
        room = max(1024, workload.most_connections(self.options.connections))
        running.enter_context(server.serving(workload.scenario, origin_port, room))
        self.versions.setdefault(name, server.version())
        return server

    def leave_out(self, workload, name: str, reason: str) -> None:
        progress(f"{workload.name}: {name} is left out: {reason}")
        self.left_out.append({"workload": workload.name, "server": name, "reason": reason})

    def measure_rounds(self, workload, started: list) -> None:
        """Every round visits every connection count; the server that goes first rotates."""
        counts = workload.connection_counts(self.options.connections)
        left = self.options.rounds * len(counts) * len(started)
        each = workload.length(self.options) + self.options.cooldown + OVERHEAD_SECONDS
        for number in range(self.options.rounds):
            turn = number % len(started)
            for connections in counts:
                for server in started[turn:] + started[:turn]:
                    result = measure_once(server, workload, connections, self.options)
                    cell = {"workload": workload.name, "title": workload.title, "round": number + 1}
                    self.results.append(cell | result)
                    left -= 1
                    progress(f"{workload.name} round {number + 1}/{self.options.rounds}, {connections} connections, "
                             f"{server.name}: {result['requests_per_second']:.0f} req/s, "
                             f"{result['cpu_us']:.1f} us CPU, p99 {result['p99_ms']:.2f} ms, "
                             f"{result['errors']} errors; about {left * each / 60:.0f} min left of {workload.name}")


def measure_once(server, workload, connections: int, options) -> dict:
    pids = server.pids()
    memory_before = measure.memory_mib(pids)
    codes_before = server.codes()
    with measure.Sampler(server.pids) as sampler:
        cpu_before = workload.cpu_seconds(server)
        load = workload.load(server, connections, options)
        cpu_after = workload.cpu_seconds(server)
    errors = load.errors + other_codes(server, codes_before, workload.expected_codes())
    if server.pids() != pids and not workload.may_replace_processes():
        errors += 1  # a worker died and was replaced
    time.sleep(options.cooldown)
    cpu = load.cpu or tuple(after - before for before, after in zip(cpu_before, cpu_after))
    user, system = (1e6 * seconds / max(load.requests, 1) for seconds in cpu)
    return {
        "server": server.name, "connections": connections, "requests": load.requests,
        "requests_per_second": load.requests / max(load.seconds, 1e-9), "p50_ms": load.p50_ms, "p99_ms": load.p99_ms,
        "cpu_user_us": user, "cpu_system_us": system, "cpu_us": user + system,
        "memory_before_mib": memory_before, "memory_mean_mib": sampler.mean(), "memory_peak_mib": sampler.peak(),
        "memory_after_mib": measure.memory_mib(server.pids()), "descriptors": sampler.most_descriptors(),
        "errors": errors, "bytes": load.bytes, "extra": load.extra,
    }


def other_codes(server, before: dict[str, float], expected: set[str]) -> int:
    """Answers with another status by the server's own count; 0 for servers that keep none."""
    # 499: the client has left. Clients leave when their time is over, in the middle of a request.
    expected = expected | {"499"}
    return int(sum(count - before.get(code, 0) for code, count in server.codes().items() if code not in expected))


def progress(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
    except (Differs, RuntimeError) as error:
        sys.exit(f"stopped: {error}")
