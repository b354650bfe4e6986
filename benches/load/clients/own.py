"""`floor client`: HTTP/1 on connections that are kept, measured from when all of them are connected and warm, with
every status looked at. A closed loop, or with a rate an open one, whose latency counts from when a request was due.
"""

import json
import subprocess

from clients import Load

WARM_UP_SECONDS = 2


def run(request, options, connections: int, seconds: int, cpu_seconds, *, port: int, rate: int = 0) -> Load:
    """One run; `cpu_seconds` is read when the measurement begins and when it ends, so that CPU is of the same time."""
    scheme, _, rest = request.url.partition("://")
    command = [options.floor, "client", "--connect", f"127.0.0.1:{port}", "--host", request.host,
               "--path", "/" + rest.partition("/")[2], "--status", str(request.status), "--connections", str(connections),
               "--seconds", str(seconds), "--warm-up", str(WARM_UP_SECONDS)]
    command += ["--tls"] if scheme == "https" else []
    command += ["--rate", str(rate)] if rate else []
    client = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        if client.stdout.readline() != "measuring\n":
            raise RuntimeError(f"floor client against {request.url} failed: {client.stderr.read()}")
        before = cpu_seconds()
        line = client.stdout.readline()
        after = cpu_seconds()
        client.wait(10)
    finally:
        client.kill()
        client.wait()
        client.stdout.close()
        client.stderr.close()
    load = parse(line)
    load.cpu = (after[0] - before[0], after[1] - before[1])
    return load


def parse(line: str) -> Load:
    raw = json.loads(line)
    return Load(requests=raw["requests"], seconds=raw["seconds"], bytes=raw["bytes"], p50_ms=raw["p50_us"] / 1e3,
                p99_ms=raw["p99_us"] / 1e3, socket_errors=raw["socket_errors"], wrong=raw["wrong"],
                extra={"p99.9 ms": raw["p999_us"] / 1e3, "longest ms": raw["max_us"] / 1e3})
