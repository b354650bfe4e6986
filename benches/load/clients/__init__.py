"""The clients: each runs one program against a server and gives its figures as a `Load`."""

import dataclasses


@dataclasses.dataclass
class Load:
    """What a client saw in one run. An error is a socket error, a timeout, or an answer that was not asked for."""
    requests: int
    seconds: float
    bytes: int = 0
    p50_ms: float = 0.0
    p99_ms: float = 0.0
    socket_errors: int = 0
    wrong: int = 0
    # User and system seconds of the server, where the client knows better than from start to end of its process.
    cpu: tuple[float, float] | None = None
    # Of the workload itself, by name.
    extra: dict[str, float] = dataclasses.field(default_factory=dict)

    @property
    def errors(self) -> int:
        return self.socket_errors + self.wrong
