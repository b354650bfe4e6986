"""Prints the JSON files of runs as the Markdown tables of docs/benchmarks.md: `tables.py results/FILE.json …`."""

import json
import pathlib
import sys

COLUMNS = [  # heading, how a cell is written
    ("", lambda row: row["server"]),
    ("req/s", lambda row: f"{row['requests_per_second']:,.0f}"),
    ("P50 ms", lambda row: f"{row['p50_ms']:.2f}"),
    ("P99 ms", lambda row: f"{row['p99_ms']:.2f}"),
    ("CPU µs (user + system)", lambda row: f"{row['cpu_us']:.1f} ({row['cpu_user_us']:.1f} + {row['cpu_system_us']:.1f})"),
    ("spread", lambda row: f"{100 * row['cpu_spread']:.0f} %"),
    ("MiB before / mean / peak / after", lambda row: " / ".join(
        f"{row[f'memory_{when}_mib']:.0f}" for when in ("before", "mean", "peak", "after"))),
    ("errors", lambda row: "0" if row["valid"] else f"**{row['errors']}: invalid**"),
    ("× req/s", lambda row: ratio(row, "requests_per_second")),
    ("× CPU", lambda row: f"**{ratio(row, 'cpu_us')}**"),
    ("× P99", lambda row: ratio(row, "p99_ms")),
    ("× memory", lambda row: ratio(row, "memory_mean_mib")),
]


def ratio(row: dict, key: str) -> str:
    return f"{row['ratios'][key]:.2f}" if key in row["ratios"] else "–"


def tables(run: dict) -> str:
    """One table for each workload and number of connections, under the run's command."""
    parts = [f"`{run['command']}`"]
    cells = dict.fromkeys((row["workload"], row["title"], row["connections"]) for row in run["summary"])
    for workload, title, connections in cells:
        rows = [row for row in run["summary"] if (row["workload"], row["connections"]) == (workload, connections)]
        lines = [f"**{workload}**, {connections:,} connections: {title}; {rows[0]['rounds']} rounds", "",
                 line([heading for heading, _ in COLUMNS]), "|---" * len(COLUMNS) + "|"]
        lines += [line([write(row) for _, write in COLUMNS]) for row in rows]
        extras = [f"{row['server']}: " + ", ".join(f"{name} {value:,.4g}" for name, value in row["extra"].items())
                  for row in rows if row["extra"]]
        parts.append("\n".join(lines + ([""] + ["; ".join(extras)] if extras else [])))
    parts += [f"{one['workload']} without {one['server']}: {one['reason']}." for one in run["left_out"]]
    return "\n\n".join(parts)


def line(cells: list[str]) -> str:
    return "| " + " | ".join(cells) + " |"


if __name__ == "__main__":
    for name in sys.argv[1:]:
        print(tables(json.loads(pathlib.Path(name).read_text(encoding="utf-8"))) + "\n")
