"""A workload: which scenario the servers load, what is asked of them and how, and what must come back.

The base asks with wrk. A new workload is an instance or a subclass, and stands in the list of its file.
"""

import contextlib
import http.client
import ssl

import measure
from clients import Load, processes, wrk
from scenario import DENIED_CLIENT, UNKNOWN_HOST, Forward, Page, Scenario
from servers.base import Unsupported

DEFAULT_SECONDS = 10
BURST_SECONDS = 1


class Workload:
    """Base: one request, over and over, on connections that are kept."""

    def __init__(self, name: str, title: str, scenario: Scenario, *, path: str = "/", size: int | None = None,
                 connections: list[int] | None = None, seconds: int = DEFAULT_SECONDS, upload: int = 0,
                 timeout: int = 5):
        self.name, self.title, self.scenario = name, title, scenario
        self.path, self.upload, self.timeout, self.seconds = path, upload, timeout, seconds
        self.fixed_connections = connections
        self.status = 404 if isinstance(scenario.answer, Page) else 200
        # Of the answer's body.
        self.size = len(scenario.answer.body) if size is None else size

    def connection_counts(self, asked: list[int]) -> list[int]:
        """--connections holds where a workload does not say itself how many there are."""
        return self.fixed_connections or asked

    def most_connections(self, asked: list[int]) -> int:
        """Room every server must have."""
        return max(self.connection_counts(asked))

    def length(self, options) -> int:
        """Seconds of one measurement."""
        return options.seconds or self.seconds

    def check(self, name: str) -> None:
        """Raises Unsupported if this workload means nothing for that server."""

    def request(self, server) -> wrk.Request:
        scheme = "https" if self.scenario.tls else "http"
        return wrk.Request(f"{scheme}://127.0.0.1:{server.port}{self.path}", UNKNOWN_HOST, self.status, self.upload)

    def load(self, server, connections: int, options) -> Load:
        """One measured run."""
        return wrk.run(self.request(server), connections, self.length(options), timeout=self.timeout)

    def burst(self, server, connections: int) -> Load:
        """A short run in which every status is looked at."""
        return wrk.run(self.request(server), connections, BURST_SECONDS, timeout=self.timeout, statuses=True)

    def cpu_seconds(self, server) -> tuple[float, float]:
        """User and system time of what is measured."""
        return measure.cpu_seconds(server.pids())

    def expected_codes(self) -> set[str]:
        """Statuses a server that counts them may have counted."""
        return {str(self.status)}

    def excuses(self, name: str) -> bool:
        """Whether errors of that server, which are shown all the same, do not fail the run."""
        return False

    def may_replace_processes(self) -> bool:
        """Whether other processes at the end than at the beginning are no error."""
        return False

    def compare(self, servers: list) -> int:
        """Ends the run unless all servers give the same answer; returns the size of the largest."""
        sizes = []
        for server in servers:
            try:
                sizes.append(self.compare_one(server))
            except OSError as error:
                raise Differs(f"{server.name}: no answer: {error}") from error
        return max(sizes)

    def compare_one(self, server) -> int:
        answer = ask(server, UNKNOWN_HOST, self.path, upload=self.upload)
        require(server, "status", answer.status, self.status)
        require(server, "body length", len(answer.body), self.size)
        if not isinstance(self.scenario.answer, Forward):
            require(server, "body", answer.body == self.scenario.answer.body, True)
        if self.scenario.tls:
            require(server, "TLS version", answer.tls, "TLSv1.3")
        if server.has_tables and self.scenario.hosts:
            require(server, "status of a known host", ask(server, self.scenario.host_names()[-1], "/").status, 200)
        if server.has_tables and self.scenario.prefixes:
            denied = ask(server, UNKNOWN_HOST, self.path, client=DENIED_CLIENT)
            require(server, "status for a denied client", denied.status, 403)
        return len(answer.body) + answer.head_bytes


class Answer:
    """Status, body and TLS version of one answer; an estimate of its head's size."""

    def __init__(self, response: http.client.HTTPResponse, tls: str):
        self.status = response.status
        self.body = response.read()
        self.tls = tls
        self.head_bytes = 19 + sum(len(name) + len(value) + 4 for name, value in response.getheaders())


def ask(server, host: str, path: str, client: str = "127.0.0.1", upload: int = 0, timeout: float = 10) -> Answer:
    """One request from a chosen loopback address, certificate unchecked: it is our own."""
    where = {"timeout": timeout, "source_address": (client, 0)}
    if server.scenario.tls:
        where["context"] = processes.unchecked_context()
        connection = http.client.HTTPSConnection("127.0.0.1", server.port, **where)
    else:
        connection = http.client.HTTPConnection("127.0.0.1", server.port, **where)
    with contextlib.closing(connection):
        connection.request("POST" if upload else "GET", path, headers={"Host": host}, body=b"x" * upload or None)
        sock = connection.sock
        return Answer(connection.getresponse(), sock.version() or "" if isinstance(sock, ssl.SSLSocket) else "")


def require(server, what: str, found, wanted) -> None:
    if found != wanted:
        raise Differs(f"{server.name}: {what} is {found}, not {wanted}: the servers would not do the same work")


class Differs(Exception):
    """The servers do not give the same answer."""


def only(server_name: str, reason: str):
    """A `check` that leaves everybody else out."""
    def check(name: str) -> None:
        if name != server_name:
            raise Unsupported(reason)
    return check
