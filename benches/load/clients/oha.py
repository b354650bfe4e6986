"""oha: an open loop, which asks at a fixed rate whatever the answers do. Its latency correction counts from the moment
a request was due, not from when a connection was free for it.
"""

import json
import shutil
import subprocess

from clients import Load

REMEDY = "oha is not installed (cargo install oha --version 1.16.0 --locked)"


def is_installed() -> bool:
    return shutil.which("oha") is not None


def run(request, connections: int, seconds: int, rate: int) -> Load:
    command = ["oha", "--no-tui", "--output-format", "json", "--insecure", "--latency-correction", "-c", str(connections),
               "-q", str(rate), "-z", f"{seconds}s", "--host", request.host, request.url]
    done = subprocess.run(command, capture_output=True, text=True, timeout=2 * seconds + 60, check=False)
    if done.returncode:
        raise RuntimeError(f"oha against {request.url} failed: {done.stderr or done.stdout}")
    return parse(json.loads(done.stdout), request.status)


def parse(found: dict, status: int) -> Load:
    codes = {int(code): count for code, count in found["statusCodeDistribution"].items()}
    # At the end of the time, what is on its way is given up: no error of the server.
    errors = {what: count for what, count in found["errorDistribution"].items() if "deadline" not in what}
    percentile = found["latencyPercentiles"]
    return Load(requests=sum(codes.values()), seconds=found["summary"]["total"], bytes=found["summary"]["totalData"],
                p50_ms=1e3 * percentile["p50"], p99_ms=1e3 * percentile["p99"], socket_errors=sum(errors.values()),
                wrong=sum(count for code, count in codes.items() if code != status))
