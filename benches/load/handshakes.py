"""The client for handshakes: one connection after the other, each with one request and its end.

Runs as several processes, because one would be the bottleneck; each prints its figures as one line of JSON. A session
is offered again and again or never; whether the server took it up is looked at for every connection.
"""

import json
import pathlib
import socket
import ssl
import statistics
import subprocess
import sys
import time

PROCESSES = 4
BURST_SECONDS = 1


def run(server, workload, seconds: int) -> dict:
    """One measured run, in the units of the report; `wrong` are other statuses and sessions (not) resumed."""
    command = [sys.executable, str(pathlib.Path(__file__).resolve()), str(server.port), workload.path,
               workload.headers["Host"], str(workload.status), str(seconds), "resume" if workload.resume else "full"]
    clients = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(PROCESSES)]
    found = []
    for client in clients:
        output, _ = client.communicate(timeout=2 * seconds + 60)
        if client.returncode:
            raise RuntimeError(f"the client against {server.name} failed")
        found.append(json.loads(output))
    times = sorted(time for figures in found for time in figures["times_ms"])
    total = {key: sum(figures[key] for figures in found) for key in ("bytes", "wrong", "socket_errors")}
    return {**total, "requests": len(times), "seconds": seconds, "p50_ms": statistics.median(times),
            "p99_ms": times[int(len(times) * 0.99)], "status_errors": total["wrong"]}


def visit(port: int, context: ssl.SSLContext, request: bytes, session) -> tuple[bytes, tuple]:
    """The answer, the session after it, and whether the one offered was taken up."""
    with socket.create_connection(("127.0.0.1", port), timeout=10) as raw:
        raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # as browsers do
        with context.wrap_socket(raw, session=session) as stream:
            stream.sendall(request)
            answer = b""
            while data := stream.recv(65536):
                answer += data
            return answer, (stream.session, stream.session_reused)


def main(port: str, path: str, host: str, status: str, seconds: str, mode: str) -> None:
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    request = f"GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n".encode()
    wanted = f"HTTP/1.1 {status} ".encode()
    session = None
    if mode == "resume":
        _, (session, _) = visit(int(port), context, request, None)
    times, size, wrong, socket_errors = [], 0, 0, 0
    end = time.monotonic() + float(seconds)
    while (begin := time.monotonic()) < end:
        try:
            answer, (next_session, reused) = visit(int(port), context, request, session)
        except OSError:
            socket_errors += 1
            continue
        times.append((time.monotonic() - begin) * 1e3)
        size += len(answer)
        wrong += not answer.startswith(wanted) or reused != (mode == "resume")
        if mode == "resume":
            session = next_session
    print(json.dumps({"times_ms": times, "bytes": size, "wrong": wrong, "socket_errors": socket_errors}))


if __name__ == "__main__":
    main(*sys.argv[1:])
