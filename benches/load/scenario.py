"""What every server of a workload has loaded, and what it must answer: in terms that no server owns.

`servers` turns a scenario into configurations, `workloads` says which scenario it loads. Nothing here knows either.
"""

import dataclasses
import functools
import random

# Part of every list, so that the run can prove from a loopback address that the list is in force.
DENIED_PREFIX, DENIED_CLIENT = "127.66.0.0/16", "127.66.0.1"
UNKNOWN_HOST = "unknown.test"
PROXIED_HOST = "proxied.test"
# Answers with the number of the generation that serves.
GENERATION_HOST = "generation.example.test"


@dataclasses.dataclass(frozen=True)
class Page:
    """An answer the gateway makes itself, for hosts it does not know: 404."""
    body: bytes


@dataclasses.dataclass(frozen=True)
class File:
    """A file, answered with 200 at any path (or at /page.html, where a path must name it)."""
    body: bytes


@dataclasses.dataclass(frozen=True)
class Forward:
    """Everything goes to the origin, over connections that are kept."""
    # More requests at a time than this are answered with 503; 0 = no limit.
    most_at_once: int = 0


@dataclasses.dataclass(frozen=True)
class Scenario:
    """Equal for every server."""
    answer: Page | File | Forward
    tls: bool = True
    http2: bool = False
    key: str = "ecdsa"  # or rsa
    log: str = "off"  # on; excluded: on, but not for loopback clients
    prefixes: int = 0  # denied ones
    hosts: int = 0  # each answered with 200 and "ok"
    reloads: bool = False  # serves GENERATION_HOST, and can be told to serve the next generation
    mixed: bool = False  # plain HTTP on the same port too, where PROXIED_HOST goes to the origin

    @property
    def needs_origin(self) -> bool:
        return self.mixed or isinstance(self.answer, Forward)

    def small(self) -> "Scenario":
        """The same with tables that are read at once."""
        return dataclasses.replace(self, prefixes=min(self.prefixes, 100), hosts=min(self.hosts, 20))

    def denied(self, generation: int = 1) -> list[str]:
        """Two lists take turns, so that a reload has something to do."""
        return prefixes(self.prefixes, 7999 + generation % 2) if self.prefixes else []

    def host_names(self) -> list[str]:
        return [f"host-{number}.example.test" for number in range(self.hosts)]


@functools.cache
def prefixes(count: int, seed: int) -> list[str]:
    """Distinct IPv4 prefixes from /16 to /28, the same in every run, none of which holds 127.0.0.1."""
    source = random.Random(seed)
    found = {DENIED_PREFIX: None}
    while len(found) < count:
        length = source.randint(16, 28)
        address = source.randrange(20 << 24, 100 << 24) >> (32 - length) << (32 - length)
        found[f"{address >> 24}.{address >> 16 & 255}.{address >> 8 & 255}.{address & 255}/{length}"] = None
    return list(found)


def page(length: int) -> bytes:
    """A page of exactly that many bytes."""
    head, tail = b"<!doctype html><title>Not found</title><pre>\n", b"</pre>\n"
    line = b"There is nothing at this address. Check the link, or go back to the start page.\n"
    filler = (line * (length // len(line) + 1))[:length - len(head) - len(tail)]
    return head + filler + tail
