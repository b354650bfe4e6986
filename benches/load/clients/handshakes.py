"""The client for handshakes: one connection after the other, each with one request and its end. A session is offered
again and again or never; whether the server took it up is looked at for every connection.
"""

import json
import pathlib
import socket
import ssl
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).parent.parent))
from clients import Load, processes  # noqa: E402: this file is a script too


def run(port: int, host: str, status: int, seconds: int, resume: bool) -> Load:
    """`wrong` are other statuses and sessions (not) resumed."""
    return processes.run("handshakes.py", [port, host, status, seconds, "resume" if resume else "full"], seconds)


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


def main(port: str, host: str, status: str, seconds: str, mode: str) -> None:
    context = processes.unchecked_context()
    request = f"GET / HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n".encode()
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
