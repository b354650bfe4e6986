"""W3, W4 and W6: handshakes, HTTP/2, and bodies and websockets through TLS."""

import dataclasses

from clients import Load, h2load, handshakes, processes, websocket
from scenario import UNKNOWN_HOST, Forward, Page, Scenario, page
from workloads.base import BURST_SECONDS, Workload
from workloads.pages import W0

PROXIED = Scenario(Forward())
STREAMS = 32
MESSAGE_BYTES = 128


class Handshakes(Workload):
    """W3: connections with one small request each, so that the handshake is most of what they cost."""

    def __init__(self, kind: str, key: str):
        words = {"ecdsa": "ECDSA P-256", "rsa": "RSA 2048"}[key]
        super().__init__(f"W3.{kind}-{key}", f"{kind} TLS 1.3 handshakes, X25519, {words}, one 404 of 256 bytes each",
                         Scenario(Page(page(256)), prefixes=1, hosts=1, key=key), connections=[processes.COUNT])
        self.resume = kind == "resumed"

    def load(self, server, connections: int, options) -> Load:
        return handshakes.run(server.port, UNKNOWN_HOST, self.status, self.length(options), self.resume)

    def burst(self, server, connections: int) -> Load:
        return handshakes.run(server.port, UNKNOWN_HOST, self.status, BURST_SECONDS, self.resume)


class Multiplexed(Workload):
    """W4: HTTP/2, 32 streams on each of 16 connections; h2load looks at every status."""

    def load(self, server, connections: int, options) -> Load:
        return h2load.run(self.request(server), connections, self.length(options), STREAMS)

    def burst(self, server, connections: int) -> Load:
        return h2load.run(self.request(server), connections, BURST_SECONDS, STREAMS)


class Websocket(Workload):
    """W6: messages that come back."""

    def compare_one(self, server) -> int:
        load = websocket.run(server.port, UNKNOWN_HOST, processes.COUNT, MESSAGE_BYTES, BURST_SECONDS)
        if load.errors:
            raise RuntimeError(f"{server.name}: {load.errors} messages did not come back as they were")
        return len(websocket.frame(bytes(MESSAGE_BYTES), False))

    def load(self, server, connections: int, options) -> Load:
        return websocket.run(server.port, UNKNOWN_HOST, connections, MESSAGE_BYTES, self.length(options))

    def burst(self, server, connections: int) -> Load:
        return websocket.run(server.port, UNKNOWN_HOST, connections, MESSAGE_BYTES, BURST_SECONDS)

    def expected_codes(self) -> set[str]:
        return {"101"}


def download(label: str, size: int, connections: int) -> Workload:
    return Workload(f"W6.down-{label}", f"HTTPS, proxied, {label} down", PROXIED, path=f"/bytes/{size}", size=size,
                    connections=[connections])


def upload(label: str, size: int, connections: int) -> Workload:
    return Workload(f"W6.up-{label}", f"HTTPS, proxied, {label} up", PROXIED, path="/small", size=13, upload=size,
                    connections=[connections])


BODIES = [("1k", 1 << 10, 64), ("64k", 64 << 10, 64), ("10m", 10 << 20, 16)]
WORKLOADS = [
    *[Handshakes(kind, key) for kind in ("full", "resumed") for key in ("ecdsa", "rsa")],
    Multiplexed("W4.page", f"HTTP/2, {STREAMS} streams a connection, W0's page and tables",
                dataclasses.replace(W0, http2=True), connections=[16]),
    Multiplexed("W4.proxied", f"HTTP/2, {STREAMS} streams a connection, proxied, 1 KiB",
                dataclasses.replace(PROXIED, http2=True), path="/bytes/1024", size=1024, connections=[16]),
    *[way(*body) for way in (download, upload) for body in BODIES],
    Websocket("W6.websocket", f"wss, proxied, echo of {MESSAGE_BYTES} bytes", PROXIED, size=MESSAGE_BYTES, connections=[64]),
]
