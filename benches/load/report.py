"""What the figures say: medians over rounds, spread, ratio to the reference server; as a table and as JSON.

It measures nothing.
"""

import datetime
import json
import pathlib
import platform
import shlex
import statistics
import subprocess
import sys

HERE = pathlib.Path(__file__).parent
MEDIANS = ["requests_per_second", "p50_ms", "p99_ms", "cpu_user_us", "cpu_system_us", "cpu_us", "memory_before_mib",
           "memory_mean_mib", "memory_peak_mib", "memory_after_mib"]
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
    ("errors", lambda row: str(row["errors"])),
    ("x req/s", lambda row: ratio(row, "requests_per_second")),
    ("x CPU", lambda row: ratio(row, "cpu_us")),
    ("x p99", lambda row: ratio(row, "p99_ms")),
    ("x mem", lambda row: ratio(row, "memory_mean_mib")),
]


def summarize(results: list[dict], reference: str) -> list[dict]:
    """One row per workload, connection count and server. `cpu_spread` is (max - min) / median over the rounds."""
    cells: dict[tuple, list[dict]] = {}
    for result in results:
        cells.setdefault((result["workload"], result["connections"], result["server"]), []).append(result)
    rows = []
    for (workload, connections, server), rounds in cells.items():
        row = {"workload": workload, "connections": connections, "server": server, "rounds": len(rounds)}
        for key in MEDIANS:
            row[key] = statistics.median(result[key] for result in rounds)
        cpu = [result["cpu_us"] for result in rounds]
        row["cpu_spread"] = (max(cpu) - min(cpu)) / row["cpu_us"] if row["cpu_us"] else 0.0
        row["errors"] = sum(result["errors"] for result in rounds)
        rows.append(row)
    for row in rows:
        base = next((other for other in rows if other["server"] == reference and same_cell(other, row)), None)
        row["ratios"] = {key: row[key] / base[key] for key in RATIOS if base and base[key]}
    return sorted(rows, key=lambda row: (row["workload"], row["connections"]))


def same_cell(one: dict, other: dict) -> bool:
    return (one["workload"], one["connections"]) == (other["workload"], other["connections"])


def ratio(row: dict, key: str) -> str:
    return f"{row['ratios'][key]:.2f}" if key in row["ratios"] else "-"


def table(summary: list[dict], reference: str) -> str:
    lines = [[heading for heading, _ in COLUMNS]]
    lines += [[write(row) for _, write in COLUMNS] for row in summary]
    widths = [max(len(line[column]) for line in lines) for column in range(len(COLUMNS))]
    text = "\n".join("  ".join(cell.rjust(width) for cell, width in zip(line, widths)) for line in lines)
    return (f"{text}\n\nMedians over rounds. CPU: server microseconds per request, user + system; spread: (max - min) / "
            f"median.\nMemory: proportional set size of all processes. x: ratio to {reference}.")


def write(summary: list[dict], results: list[dict], options) -> pathlib.Path:
    """Writes medians, every round and the circumstances; returns the file's path."""
    folder = HERE / "results"
    folder.mkdir(exist_ok=True)
    now = datetime.datetime.now(datetime.timezone.utc)
    file = folder / f"{now:%Y%m%dT%H%M%SZ}-{'-'.join(options.workloads)}.json"
    file.write_text(json.dumps({
        "time": now.isoformat(timespec="seconds"),
        "command": shlex.join(["benches/load/run.sh", *sys.argv[1:]]),
        "machine": machine(options),
        "summary": summary,
        "rounds": results,
    }, indent=1) + "\n", encoding="utf-8")
    return file


def machine(options) -> dict:
    cpus = pathlib.Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    models = [line.partition(":")[2].strip() for line in cpus if line.startswith("model name")]
    return {
        "cpu": models[0] if models else platform.machine(),
        "cpus": len(models),
        "kernel": platform.release(),
        "nginx": first_line(["nginx", "-v"]),
        "wrk": first_line(["wrk", "-v"]),
        "portcullis": first_line([options.binary, "version"]),
        "revision": first_line(["git", "-C", str(HERE), "rev-parse", "--short", "HEAD"]),
    }


def first_line(command: list[str]) -> str:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=10, check=False)
    except OSError:
        return ""
    return (done.stdout + done.stderr).strip().partition("\n")[0]
