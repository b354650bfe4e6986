"""The run: which servers, which workloads, how many rounds, in which order.

Reads the command line, starts every server of a workload, compares their answers, then loads them in turn and hands
the figures to report.py. It does not know how a server is configured (servers.py), what a workload asks for
(workloads.py), or how a process is measured (measure.py).
"""

import argparse
import contextlib
import pathlib
import signal
import sys
import tempfile
import time

import measure
import report
import servers
import workloads


def main() -> int:
    options = parse()
    # A TERM unwinds like Ctrl-C, so that every `with` below stops what it started.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    results = []
    with tempfile.TemporaryDirectory(prefix="portcullis-load.") as folder:
        for name in options.workloads:
            workload = workloads.BY_NAME[name]
            workload_folder = pathlib.Path(folder) / name
            workload_folder.mkdir()
            results += run_workload(workload, workload_folder, options)
    reference = next((name for name in options.servers if name != "portcullis"), options.servers[0])
    summary = report.summarize(results, reference)
    print(report.table(summary, reference))
    print(f"\nwritten to {report.write(summary, results, options)}")
    return 1 if any(row["errors"] for row in summary) else 0


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="benches/load/run.sh", description=__doc__.splitlines()[0])
    parser.add_argument("workloads", nargs="*", default=["W0"], metavar="workload",
                        help="; ".join(f"{name}: {w.title}" for name, w in workloads.BY_NAME.items()))
    parser.add_argument("--connections", default="64,256,512", help="comma-separated (default: %(default)s)")
    parser.add_argument("--seconds", type=int, default=10, help="length of one measurement (default: %(default)s)")
    parser.add_argument("--rounds", type=int, default=5, help="measurements of each cell (default: %(default)s)")
    parser.add_argument("--workers", type=int, default=2, help="worker threads or processes (default: %(default)s)")
    parser.add_argument("--peers", default="nginx", help="comma-separated (default: %(default)s)")
    parser.add_argument("--log", choices=["on", "off"], default="off", help="access log (default: %(default)s)")
    parser.add_argument("--cooldown", type=float, default=2.0, help="seconds before memory is read again")
    parser.add_argument("--binary", default="portcullis", help="the portcullis binary")
    parser.add_argument("--servers", help=argparse.SUPPRESS)  # the whole list, e.g. nginx,nginx-again to see the noise
    options = parser.parse_args()
    unknown = [name for name in options.workloads if name not in workloads.BY_NAME]
    if unknown:
        parser.error(f"no workload {', '.join(unknown)}; there are {', '.join(workloads.BY_NAME)}")
    try:
        options.connections = [int(count) for count in options.connections.split(",")]
    except ValueError:
        parser.error("--connections wants numbers, like 64,256")
    if options.rounds < 1 or options.seconds < 1 or options.workers < 1 or min(options.connections) < 1:
        parser.error("--rounds, --seconds, --workers and --connections start at 1")
    options.servers = (options.servers or f"portcullis,{options.peers}").split(",")
    unknown = [name for name in options.servers if name not in servers.BY_NAME]
    if unknown:
        parser.error(f"no server {', '.join(unknown)}; there are {', '.join(servers.BY_NAME)}")
    return options


def run_workload(workload, folder: pathlib.Path, options) -> list[dict]:
    with contextlib.ExitStack() as running:
        started = []
        for name in options.servers:
            server_folder = folder / name
            server_folder.mkdir()
            server = servers.BY_NAME[name](name, server_folder, options)
            started.append(running.enter_context(server.serving(workload)))
        size = workload.compare(started)
        progress(f"{workload.name}: {len(started)} servers give the same answer, {size} bytes on the wire")
        for server in started:
            wrong = workload.wrong_in_a_burst(server, options.connections[0])
            if wrong:
                sys.exit(f"{server.name}: {wrong} wrong answers before the measurement")
        return measure_rounds(workload, started, options)


def measure_rounds(workload, started, options) -> list[dict]:
    """Every round visits every connection count; the server that goes first rotates."""
    results = []
    for number in range(options.rounds):
        turn = number % len(started)
        for connections in workload.connection_counts(options.connections):
            for server in started[turn:] + started[:turn]:
                result = measure_once(server, workload, connections, options)
                results.append({"workload": workload.name, "round": number + 1, **result})
                progress(f"{workload.name} round {number + 1}/{options.rounds}, {connections} connections, "
                         f"{server.name}: {result['requests_per_second']:.0f} req/s, "
                         f"{result['cpu_us']:.1f} us CPU, p99 {result['p99_ms']:.2f} ms, "
                         f"{result['errors']} errors")
    return results


def measure_once(server, workload, connections: int, options) -> dict:
    pids = server.pids()
    memory_before = measure.memory_mib(pids)
    codes_before = server.codes()
    with measure.MemorySampler(pids) as memory:
        cpu_before = measure.cpu_seconds(pids)
        load = workload.load(server, connections, options.seconds)
        cpu_after = measure.cpu_seconds(pids)
    errors = load["socket_errors"] + workload.wrong_answers(load) + other_codes(server, codes_before, workload.status)
    if server.pids() != pids:
        errors += 1  # a worker died and was replaced
    time.sleep(options.cooldown)
    requests = max(load["requests"], 1)
    user, system = (1e6 * (after - before) / requests for before, after in zip(cpu_before, cpu_after))
    return {
        "server": server.name, "connections": connections, "requests": load["requests"],
        "requests_per_second": load["requests"] / load["seconds"], "p50_ms": load["p50_ms"], "p99_ms": load["p99_ms"],
        "cpu_user_us": user, "cpu_system_us": system, "cpu_us": user + system,
        "memory_before_mib": memory_before, "memory_mean_mib": memory.mean(), "memory_peak_mib": memory.peak(),
        "memory_after_mib": measure.memory_mib(server.pids()), "errors": errors, "bytes": load["bytes"],
    }


def other_codes(server, before: dict[str, float], expected: int) -> int:
    """Answers with another status by the server's own count; 0 for servers that keep none."""
    return int(sum(count - before.get(code, 0) for code, count in server.codes().items() if code != str(expected)))


def progress(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
