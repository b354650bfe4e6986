"""The origin behind the measured server: the same bytes for every request, over connections that are kept."""

import socket
import threading
from contextlib import suppress


class Origin:
    """Serves until it is closed; it is not measured."""

    def __init__(self, case):
        fields = [("Content-Length", str(case.response_bytes)), *case.response_fields]
        head = "HTTP/1.1 200 OK\r\n" + "".join(f"{name}: {value}\r\n" for name, value in fields) + "\r\n"
        self.answer = head.encode() + b"x" * case.response_bytes
        self.listener = socket.create_server(("127.0.0.1", 0), backlog=64)
        self.port = self.listener.getsockname()[1]
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self) -> None:
        with suppress(OSError):
            while True:
                connection, _ = self.listener.accept()
                threading.Thread(target=self.serve, args=(connection,), daemon=True).start()

    def serve(self, connection: socket.socket) -> None:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        pending = b""
        with connection, suppress(OSError):
            while piece := connection.recv(65536):
                pending += piece
                while b"\r\n\r\n" in pending:
                    pending = pending.partition(b"\r\n\r\n")[2]
                    connection.sendall(self.answer)

    def close(self) -> None:
        self.listener.close()
