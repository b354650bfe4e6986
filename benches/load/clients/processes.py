"""Clients of our own that run as several processes, because one would be the bottleneck: what they share.

Each prints its figures as one line of JSON: `times_ms`, `bytes`, `wrong`, `socket_errors`.
"""

import json
import pathlib
import ssl
import statistics
import subprocess
import sys

from clients import Load

COUNT = 4


def run(script: str, arguments: list, seconds: int) -> Load:
    """Runs the script in COUNT processes with these arguments, and sums up."""
    folder = pathlib.Path(__file__).parent
    command = [sys.executable, str(folder / script), *map(str, arguments)]
    clients = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(COUNT)]
    found = []
    try:
        for client in clients:
            output, _ = client.communicate(timeout=2 * seconds + 60)
            if client.returncode:
                raise RuntimeError(f"{script} failed")
            found.append(json.loads(output))
    finally:
        for client in clients:
            client.kill()
    times = sorted(time for figures in found for time in figures["times_ms"])
    if not times:
        raise RuntimeError(f"{script}: nothing was answered, {sum(f['socket_errors'] for f in found)} socket errors")
    total = {key: sum(figures[key] for figures in found) for key in ("bytes", "wrong", "socket_errors")}
    return Load(requests=len(times), seconds=seconds, p50_ms=statistics.median(times),
                p99_ms=times[int(len(times) * 0.99)], **total)


def unchecked_context() -> ssl.SSLContext:
    """The certificate is our own."""
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context
