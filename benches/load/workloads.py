"""The workloads: what is asked, what must come back, and what every server has loaded meanwhile.

A workload says it in terms no server owns (prefixes, hosts, a body); servers.py turns that into configurations.
A new workload is a new subclass and a line in BY_NAME.
"""

import http.client
import random
import ssl
import sys

import client
import handshakes

BODY_BYTES = 11_776
# Part of every list, so that the run can prove from a loopback address that the list is in force.
DENIED_PREFIX, DENIED_CLIENT = "127.66.0.0/16", "127.66.0.1"


class Workload:
    """Base: HTTPS to a path with some headers, expecting one status."""

    name = title = ""
    path = "/"
    status = 200
    headers: dict[str, str] = {}

    def url(self, server) -> str:
        return f"https://127.0.0.1:{server.port}{self.path}"

    def connection_counts(self, asked: list[int]) -> list[int]:
        return asked

    def load(self, server, connections: int, seconds: int) -> dict:
        """One measured run."""
        return client.run(server, self, connections, seconds)

    def wrong_in_a_burst(self, server, connections: int) -> int:
        """How many answers of a short run are not what they should be."""
        return client.count_other_statuses(server, self, connections)

    def wrong_answers(self, load: dict) -> int:
        """What wrk's own count of answers from 400 on says; exact unless the expected status is one of them."""
        return load["requests"] - load["status_errors"] if self.status >= 400 else load["status_errors"]

    def compare(self, servers: list) -> int:
        """Ends the run unless all servers give the same status and body; returns the size of the largest answer."""
        raise NotImplementedError


class UnknownHost(Workload):
    """W0: a host no route takes, with big tables loaded."""

    name = "W0"
    title = "HTTPS 404 of 11,776 bytes, 10,000 CIDR prefixes and 1,000 routes loaded"
    status = 404
    headers = {"Host": "unknown.test"}

    def __init__(self):
        self.body = body(BODY_BYTES)
        self.denied = prefixes(10_000)
        self.hosts = [f"host-{number}.example.test" for number in range(1_000)]

    def compare(self, servers: list) -> int:
        largest = 0
        for server in servers:
            answer = ask(server, "unknown.test", self.path)
            require(server, "status", answer.status, 404)
            require(server, "TLS version", answer.tls, "TLSv1.3")
            require(server, "body length", len(answer.body), BODY_BYTES)
            require(server, "body", answer.body == self.body, True)
            require(server, "status of a known host", ask(server, self.hosts[-1], self.path).status, 200)
            require(server, "status for a denied client", ask(server, "unknown.test", self.path, DENIED_CLIENT).status, 403)
            largest = max(largest, len(answer.body) + answer.head_bytes)
        return largest


class Handshakes(Workload):
    """W3 and W3r: connections with one small request each, so that the handshake is most of what they cost."""

    path = "/"
    status = 404
    headers = {"Host": "unknown.test"}

    def __init__(self, name: str, resume: bool):
        kind = "resumed" if resume else "full"
        self.name, self.resume = name, resume
        self.title = f"{kind} TLS 1.3 handshakes with ECDSA P-256 and X25519, one 404 of 256 bytes each"
        self.body = body(256)
        self.denied = [DENIED_PREFIX]
        self.hosts = ["host-0.example.test"]

    def connection_counts(self, asked: list[int]) -> list[int]:
        return [handshakes.PROCESSES]

    def load(self, server, connections: int, seconds: int) -> dict:
        return handshakes.run(server, self, seconds)

    def wrong_in_a_burst(self, server, connections: int) -> int:
        return handshakes.run(server, self, handshakes.BURST_SECONDS)["wrong"]

    def wrong_answers(self, load: dict) -> int:
        return load["wrong"]

    def compare(self, servers: list) -> int:
        largest = 0
        for server in servers:
            answer = ask(server, "unknown.test", self.path)
            require(server, "status", answer.status, 404)
            require(server, "TLS version", answer.tls, "TLSv1.3")
            require(server, "body", answer.body == self.body, True)
            largest = max(largest, len(answer.body) + answer.head_bytes)
        return largest


def body(length: int) -> bytes:
    """A page of exactly that many bytes."""
    head, tail = b"<!doctype html><title>Not found</title><pre>\n", b"</pre>\n"
    line = b"There is nothing at this address. Check the link, or go back to the start page.\n"
    filler = (line * (length // len(line) + 1))[:length - len(head) - len(tail)]
    return head + filler + tail


def prefixes(count: int) -> list[str]:
    """Distinct IPv4 prefixes from /16 to /28, the same in every run, none of which holds 127.0.0.1."""
    source = random.Random(7999)
    found = {DENIED_PREFIX: None}
    while len(found) < count:
        length = source.randint(16, 28)
        address = source.randrange(20 << 24, 100 << 24) >> (32 - length) << (32 - length)
        found[".".join(str(address >> shift & 255) for shift in (24, 16, 8, 0)) + f"/{length}"] = None
    return list(found)


class Answer:
    """Status, body and TLS version of one response; an estimate of its head's size."""

    def __init__(self, response: http.client.HTTPResponse, tls: str):
        self.status = response.status
        self.body = response.read()
        self.tls = tls
        self.head_bytes = 19 + sum(len(name) + len(value) + 4 for name, value in response.getheaders())


def ask(server, host: str, path: str, client: str = "127.0.0.1") -> Answer:
    """One request from a chosen loopback address, certificate unchecked: it is our own."""
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    connection = http.client.HTTPSConnection(
        "127.0.0.1", server.port, timeout=10, context=context, source_address=(client, 0))
    try:
        connection.request("GET", path, headers={"Host": host})
        return Answer(connection.getresponse(), connection.sock.version() or "")
    finally:
        connection.close()


def require(server, what: str, found, wanted) -> None:
    if found != wanted:
        sys.exit(f"{server.name}: {what} is {found}, not {wanted}: the servers would not do the same work")


BY_NAME = {workload.name: workload for workload in
           [UnknownHost(), Handshakes("W3", resume=False), Handshakes("W3r", resume=True)]}
