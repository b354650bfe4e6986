"""A client that asks one request after the other over one connection, and looks at every answer."""

import socket
import ssl
import subprocess


def ask(case, port: int, count: int) -> None:
    """Raises RuntimeError unless every request is answered as the case says."""
    if case.scenario.http2:
        return ask_http2(case, port, count)
    connection = socket.create_connection(("127.0.0.1", port), timeout=60)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    if case.scenario.tls:
        context = ssl.create_default_context()
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
        connection = context.wrap_socket(connection, server_hostname="load.test")
    fields = [("Host", case.host), *case.request_fields]
    request = ("GET / HTTP/1.1\r\n" + "".join(f"{name}: {value}\r\n" for name, value in fields) + "\r\n").encode()
    with connection:
        for _ in range(count):
            connection.sendall(request)
            answer(connection, case.status)


def answer(connection, status: int) -> None:
    """One answer with a Content-Length."""
    received = b""
    while b"\r\n\r\n" not in received:
        received += more(connection)
    head, _, body = received.partition(b"\r\n\r\n")
    lines = head.decode().lower().split("\r\n")
    if not lines[0].startswith(f"http/1.1 {status} "):
        raise RuntimeError(f"answered with {lines[0]!r} in place of {status}")
    left = next(int(line[15:]) for line in lines if line.startswith("content-length:")) - len(body)
    while left > 0:
        left -= len(more(connection))


def more(connection) -> bytes:
    piece = connection.recv(65536)
    if not piece:
        raise RuntimeError("the connection was closed under a request")
    return piece


def ask_http2(case, port: int, count: int) -> None:
    fields = [word for name, value in case.request_fields for word in ("-H", f"{name.lower()}: {value}")]
    command = ["h2load", "-t1", "-c1", "-m1", f"-n{count}", "-H", f":authority: {case.host}", *fields,
               f"https://127.0.0.1:{port}/"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    if f" {count} succeeded, 0 failed, 0 errored" not in done.stdout:
        raise RuntimeError(f"h2load failed: {done.stderr or done.stdout}")
