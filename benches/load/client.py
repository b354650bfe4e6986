"""The client: wrk, its command line and its figures.

Measured runs use a Lua script that only reports at the end, because one that looks at each response would cost the
client more than the TLS it measures. Statuses are looked at one by one in a burst before.
"""

import json
import pathlib
import subprocess

HERE = pathlib.Path(__file__).parent
BURST_SECONDS = 1


def run(server, workload, connections: int, seconds: int) -> dict:
    """One measured run; raises if wrk does not deliver its figures."""
    output = wrk(server, workload, connections, seconds, "report.lua", "")
    return parse(output)


def count_other_statuses(server, workload, connections: int) -> int:
    """Answers with another status than the workload's in a short burst."""
    output = wrk(server, workload, connections, BURST_SECONDS, "statuses.lua", str(workload.status))
    return int(output.rpartition("other statuses: ")[2].split()[0])


def wrk(server, workload, connections: int, seconds: int, script: str, argument: str) -> str:
    command = ["wrk", "-t1", f"-c{connections}", f"-d{seconds}s", "--timeout", "5s", "-s", str(HERE / script)]
    for name, value in workload.headers.items():
        command += ["-H", f"{name}: {value}"]
    command += [workload.url(server), "--", argument]
    # Twice the length plus a margin: a client that hangs must not hang the run.
    done = subprocess.run(command, capture_output=True, text=True, timeout=2 * seconds + 60, check=False)
    if done.returncode:
        raise RuntimeError(f"wrk against {server.name} failed: {done.stderr or done.stdout}")
    return done.stdout


def parse(output: str) -> dict:
    """The JSON line report.lua prints, in the units of the report."""
    line = next((line for line in output.splitlines() if line.startswith("{")), None)
    if line is None:
        raise RuntimeError(f"wrk printed no figures: {output}")
    raw = json.loads(line)
    return {
        "requests": raw["requests"], "bytes": raw["bytes"], "seconds": raw["duration_us"] / 1e6,
        "p50_ms": raw["p50_us"] / 1e3, "p99_ms": raw["p99_us"] / 1e3,
        "socket_errors": raw["connect"] + raw["read"] + raw["write"] + raw["timeout"],
        "status_errors": raw["status"],  # wrk's word for 400 and above
    }
