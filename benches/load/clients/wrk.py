"""wrk: a closed loop over connections that are kept; its command line and its figures.

Measured runs use a Lua script that only reports at the end, because one that looks at each answer would cost the
client more than the TLS it measures. Statuses are looked at one by one in a burst before.
"""

import dataclasses
import json
import pathlib
import subprocess

from clients import Load

HERE = pathlib.Path(__file__).parent


@dataclasses.dataclass(frozen=True)
class Request:
    """What is asked again and again."""
    url: str
    host: str
    status: int
    upload: int = 0  # bytes of a body to send


def run(request: Request, connections: int, seconds: int, *, timeout: int = 5, descriptors: int = 0,
        statuses: bool = False) -> Load:
    """One run. `statuses`: count the answers by status, exactly; `descriptors`: a limit for wrk itself."""
    script = HERE / ("statuses.lua" if statuses else "report.lua")
    command = ["wrk", "-t1", f"-c{connections}", f"-d{seconds}s", "--timeout", f"{timeout}s", "-s", str(script),
               "-H", f"Host: {request.host}", request.url, "--"] + ([str(request.upload)] if request.upload else [])
    if descriptors:
        command = ["prlimit", f"--nofile={descriptors}"] + command
    # Twice the length plus a margin: a client that hangs must not hang the run.
    done = subprocess.run(command, capture_output=True, text=True, timeout=2 * seconds + 60, check=False)
    if done.returncode:
        raise RuntimeError(f"wrk against {request.url} failed: {done.stderr or done.stdout}")
    return load(parse(done.stdout), request.status)


def parse(output: str) -> dict:
    """The JSON line of the script."""
    line = next((line for line in output.splitlines() if line.startswith("{")), None)
    if line is None:
        raise RuntimeError(f"wrk printed no figures: {output}")
    return json.loads(line)


def load(raw: dict, status: int) -> Load:
    """wrk's own count of statuses is of those from 400 on: exact unless another such status comes back."""
    extra = {}
    wrong = raw["requests"] - raw["status"] if status >= 400 else raw["status"]
    if "statuses" in raw:
        extra = {f"status {code}": count for code, count in by_status(raw["statuses"]).items()}
        wrong = sum(count for code, count in by_status(raw["statuses"]).items() if code != status)
    errors = raw["connect"] + raw["read"] + raw["write"] + raw["timeout"]
    for kind in ("connect", "read", "write", "timeout"):
        if raw[kind]:
            extra[f"{kind} errors"] = raw[kind]
    return Load(requests=raw["requests"], seconds=raw["duration_us"] / 1e6, bytes=raw["bytes"],
                p50_ms=raw["p50_us"] / 1e3, p99_ms=raw["p99_us"] / 1e3, socket_errors=errors, wrong=wrong, extra=extra)


def by_status(text: str) -> dict[int, int]:
    found: dict[int, int] = {}
    for part in filter(None, text.split(",")):
        code, _, count = part.partition(":")
        found[int(code)] = found.get(int(code), 0) + int(count)
    return found
