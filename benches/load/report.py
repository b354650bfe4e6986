"""What the figures say: medians over rounds, spread, ratio to the reference server; as a table, as JSON, as plots.

It measures nothing.
"""

import datetime
import json
import pathlib
import platform
import shlex
import statistics
import sys

import plots
from servers.base import first_line

HERE = pathlib.Path(__file__).parent
# The first of these that runs is what the others are compared with.
REFERENCES = ["nginx", "nginx-current", "nginx-map", "haproxy"]
MEDIANS = ["requests_per_second", "p50_ms", "p99_ms", "cpu_user_us", "cpu_system_us", "cpu_us", "memory_before_mib",
           "memory_mean_mib", "memory_peak_mib", "memory_after_mib", "descriptors"]
RATIOS = ["requests_per_second", "p99_ms", "cpu_us", "memory_mean_mib"]
COLUMNS = [  # heading, how a cell is written
    ("load", lambda row: row["workload"]),
    ("conns", lambda row: str(row["connections"])),
    ("server", lambda row: row["server"]),
    ("req/s", lambda row: f"{row['requests_per_second']:.0f}"),
    ("p50 ms", lambda row: f"{row['p50_ms']:.2f}"),
    ("p99 ms", lambda row: f"{row['p99_ms']:.2f}"),
    ("CPU us", lambda row: f"{row['cpu_us']:.1f}"),
    ("user", lambda row: f"{row['cpu_user_us']:.1f}"),
    ("system", lambda row: f"{row['cpu_system_us']:.1f}"),
    ("spread", lambda row: f"{100 * row['cpu_spread']:.0f}%"),
    ("MiB idle", lambda row: f"{row['memory_before_mib']:.0f}"),
    ("mean", lambda row: f"{row['memory_mean_mib']:.0f}"),
    ("peak", lambda row: f"{row['memory_peak_mib']:.0f}"),
    ("after", lambda row: f"{row['memory_after_mib']:.0f}"),
    ("fds", lambda row: f"{row['descriptors']:.0f}"),
    ("errors", lambda row: "0" if row["valid"] else f"{row['errors']} INVALID"),
    ("x req/s", lambda row: ratio(row, "requests_per_second")),
    ("x CPU", lambda row: ratio(row, "cpu_us")),
    ("x p99", lambda row: ratio(row, "p99_ms")),
    ("x mem", lambda row: ratio(row, "memory_mean_mib")),
]
LEGEND = """\
Medians over rounds. CPU: server microseconds per request, user + system; spread: (max - min) / median of it.
Memory: proportional set size of all processes. fds: most descriptors. x: ratio to {reference}."""


def summarize(results: list[dict]) -> list[dict]:
    """One row per workload, connection count and server. `cpu_spread` is (max - min) / median over the rounds."""
    cells: dict[tuple, list[dict]] = {}
    for result in results:
        cells.setdefault((result["workload"], result["connections"], result["server"]), []).append(result)
    rows = [row_of(*cell, rounds) for cell, rounds in cells.items()]
    reference = reference_of(rows)
    for row in rows:
        base = next((other for other in rows if other["server"] == reference and same_cell(other, row)), None)
        row["ratios"] = {key: row[key] / base[key] for key in RATIOS if base and base[key]}
    order = list(dict.fromkeys(row["workload"] for row in rows))
    return sorted(rows, key=lambda row: (order.index(row["workload"]), row["connections"]))


def row_of(workload: str, connections: int, server: str, rounds: list[dict]) -> dict:
    row = {"workload": workload, "title": rounds[0].get("title", ""), "connections": connections, "server": server,
           "rounds": len(rounds)}
    for key in MEDIANS:
        row[key] = statistics.median(result[key] for result in rounds)
    cpu = [result["cpu_us"] for result in rounds]
    row["cpu_spread"] = (max(cpu) - min(cpu)) / row["cpu_us"] if row["cpu_us"] else 0.0
    row["errors"] = sum(result["errors"] for result in rounds)
    row["valid"] = row["errors"] == 0 and all(result["requests"] for result in rounds)
    names = dict.fromkeys(name for result in rounds for name in result["extra"])
    row["extra"] = {name: statistics.median(result["extra"].get(name, 0) for result in rounds) for name in names}
    return row


def reference_of(rows: list[dict]) -> str:
    running = {row["server"] for row in rows}
    return next((name for name in REFERENCES if name in running), "")


def same_cell(one: dict, other: dict) -> bool:
    return (one["workload"], one["connections"]) == (other["workload"], other["connections"])


def ratio(row: dict, key: str) -> str:
    return f"{row['ratios'][key]:.2f}" if key in row["ratios"] else "-"


def text(summary: list[dict], left_out: list[dict]) -> str:
    """The table, what a workload counts beside it, and who is not in it."""
    lines = [[heading for heading, _ in COLUMNS]]
    lines += [[write(row) for _, write in COLUMNS] for row in summary]
    widths = [max(len(line[column]) for line in lines) for column in range(len(COLUMNS))]
    parts = ["\n".join("  ".join(cell.rjust(width) for cell, width in zip(line, widths)) for line in lines)]
    titles = dict.fromkeys((row["workload"], row["title"]) for row in summary)
    parts.append("\n".join(f"{workload}: {title}" for workload, title in titles))
    parts.append(LEGEND.format(reference=reference_of(summary) or "nobody"))
    extras = [f"{row['workload']} {row['connections']} {row['server']}: " + ", ".join(
        f"{name} {value:.4g}" for name, value in row["extra"].items()) for row in summary if row["extra"]]
    if extras:
        parts.append("\n".join(extras))
    if left_out:
        parts.append("\n".join(f"{one['workload']} without {one['server']}: {one['reason']}" for one in left_out))
    return "\n\n".join(parts)


def write(summary: list[dict], run, options) -> pathlib.Path:
    """Writes medians, every round and the circumstances, and a plot per workload; returns the path of the JSON."""
    options.output.mkdir(parents=True, exist_ok=True)
    now = datetime.datetime.now(datetime.timezone.utc)
    others = len(options.workloads) - 1
    name = f"{now:%Y%m%dT%H%M%SZ}-{options.workloads[0].name}" + (f"-and-{others}-more" if others else "")
    file = options.output / f"{name}.json"
    file.write_text(json.dumps({
        "time": now.isoformat(timespec="seconds"),
        "command": shlex.join(["benches/load/run.sh", *sys.argv[1:]]),
        "machine": machine(run.versions),
        "summary": summary,
        "left_out": run.left_out,
        "rounds": run.results,
    }, indent=1) + "\n", encoding="utf-8")
    for workload in dict.fromkeys(row["workload"] for row in summary):
        rows = [row for row in summary if row["workload"] == workload]
        (options.output / f"{name}-{workload}.svg").write_text(plots.bars(rows), encoding="utf-8")
    return file


def machine(versions: dict[str, str]) -> dict:
    cpus = pathlib.Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    models = [line.partition(":")[2].strip() for line in cpus if line.startswith("model name")]
    clients = {"wrk": ["wrk", "-v"], "h2load": ["h2load", "--version"], "oha": ["oha", "--version"]}
    return {
        "cpu": models[0] if models else platform.machine(),
        "cpus": len(models),
        "kernel": platform.release(),
        "servers": versions,
        "clients": {name: first_line(command) for name, command in clients.items()},
        "revision": first_line(["git", "-C", str(HERE), "rev-parse", "--short", "HEAD"]),
    }
