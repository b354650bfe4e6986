"""h2load: HTTP/2 with many streams a connection. It looks at every status; percentiles come from its log of single
requests. What it measures begins after a time to warm up.
"""

import pathlib
import re
import subprocess
import tempfile

from clients import Load

WARM_UP_SECONDS = 2


def run(request, connections: int, seconds: int, streams: int) -> Load:
    with tempfile.TemporaryDirectory(prefix="portcullis-h2load.") as folder:
        log = pathlib.Path(folder) / "requests.tsv"
        command = ["h2load", "-t1", f"-c{connections}", f"-m{streams}", f"-D{seconds}",
                   f"--warm-up-time={WARM_UP_SECONDS}", f"--log-file={log}", "-H", f":authority: {request.host}",
                   request.url]
        done = subprocess.run(command, capture_output=True, text=True, timeout=2 * seconds + 60, check=False)
        if done.returncode:
            raise RuntimeError(f"h2load against {request.url} failed: {done.stderr or done.stdout}")
        load = parse(done.stdout, request.status)
        load.p50_ms, load.p99_ms = percentiles(log)
        load.seconds = float(seconds)
        return load


def parse(output: str, status: int) -> Load:
    requests = numbers(r"requests: .*?(\d+) done, \d+ succeeded, \d+ failed, (\d+) errored, (\d+) timeout", output)
    codes = numbers(r"status codes: (\d+) 2xx, (\d+) 3xx, (\d+) 4xx, (\d+) 5xx", output)
    traffic = numbers(r"traffic: .*?\((\d+)\) total", output)
    done, errored, timeouts = requests
    return Load(requests=done, seconds=0.0, bytes=traffic[0], socket_errors=errored + timeouts,
                wrong=sum(codes) - codes[status // 100 - 2])


def numbers(pattern: str, output: str) -> list[int]:
    found = re.search(pattern, output)
    if not found:
        raise RuntimeError(f"h2load printed no figures: {output}")
    return [int(number) for number in found.groups()]


def percentiles(log: pathlib.Path) -> tuple[float, float]:
    """P50 and P99 in ms of the log's third column, microseconds."""
    times = sorted(int(line.split("\t")[2]) for line in log.read_text(encoding="ascii").splitlines())
    if not times:
        return 0.0, 0.0
    return times[len(times) // 2] / 1e3, times[int(len(times) * 0.99)] / 1e3
