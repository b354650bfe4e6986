"""The client for websockets: every connection sends a message, waits until it is back, and sends the next."""

import json
import os
import pathlib
import socket
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).parent.parent))
from clients import Load, processes  # noqa: E402: this file is a script too

# A mask of zeros is a mask (RFC 6455 section 5.3); it saves the client work that no server sees.
MASK = bytes(4)


def run(port: int, host: str, connections: int, size: int, seconds: int) -> Load:
    """Each process takes its part of the connections; `wrong` are echoes that differ."""
    part = max(1, connections // processes.COUNT)
    return processes.run("websocket.py", [port, host, part, size, seconds], seconds)


def frame(payload: bytes, masked: bool) -> bytes:
    """One binary message in one frame, as a client sends it or as it comes back."""
    bit = 0x80 if masked else 0
    if len(payload) < 126:
        head = bytes([0x82, bit | len(payload)])
    else:
        head = bytes([0x82, bit | 126]) + len(payload).to_bytes(2, "big")
    return head + (MASK if masked else b"") + payload


def connect(port: int, host: str):
    raw = socket.create_connection(("127.0.0.1", port), timeout=10)
    raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    stream = processes.unchecked_context().wrap_socket(raw)
    stream.sendall(f"GET /echo HTTP/1.1\r\nHost: {host}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
                   "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n".encode())
    head = b""
    while b"\r\n\r\n" not in head:
        data = stream.recv(4096)
        if not data:
            raise OSError("closed before the upgrade")
        head += data
    if not head.startswith(b"HTTP/1.1 101 "):
        raise OSError(f"no upgrade: {head[:40]!r}")
    return stream


def main(port: str, host: str, connections: str, size: str, seconds: str) -> None:
    payload = os.urandom(int(size))
    message, wanted = frame(payload, True), frame(payload, False)
    streams = [connect(int(port), host) for _ in range(int(connections))]
    times, wrong, socket_errors = [], 0, 0
    end = time.monotonic() + float(seconds)
    while streams and time.monotonic() < end:
        begins = []
        for stream in streams:
            begins.append(time.monotonic())
            stream.sendall(message)
        for stream, begin in zip(list(streams), begins):
            back = b""
            try:
                while len(back) < len(wanted):
                    data = stream.recv(len(wanted) - len(back))
                    if not data:
                        raise OSError("closed")
                    back += data
            except OSError:
                socket_errors += 1
                streams.remove(stream)
                continue
            times.append((time.monotonic() - begin) * 1e3)
            wrong += back != wanted
    print(json.dumps({"times_ms": times, "bytes": len(times) * len(wanted), "wrong": wrong,
                      "socket_errors": socket_errors}))


if __name__ == "__main__":
    main(*sys.argv[1:])
