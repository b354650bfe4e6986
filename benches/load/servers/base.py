"""A server as the harness sees it: configured for a scenario, started, found in /proc, reloaded and stopped.

Every server runs in the foreground as our child with a folder of its own, so nothing outlives the run and nothing
outside the folder is written. It knows nothing of measuring.
"""

import contextlib
import os
import pathlib
import socket
import subprocess
import time

import measure
from scenario import Scenario

START_SECONDS = 120
STOP_SECONDS = 10
# Nobody is to close a connection because it has carried many requests.
REQUESTS_PER_CONNECTION = 1_000_000_000


class Unsupported(Exception):
    """The server cannot do this workload, or is not to be had; says why."""


class Server:
    """One server process family, ready between entering and leaving `serving`."""

    # Whether it has access lists and routes; the floor has none.
    has_tables = True

    def __init__(self, name: str, folder: pathlib.Path, options):
        self.name, self.folder, self.options = name, folder, options
        self.port = free_port()
        self.scenario: Scenario | None = None
        self.origin_port = 0
        self.room = 1024  # connections at a time
        self.generation = 1
        self.process: subprocess.Popen | None = None

    @contextlib.contextmanager
    def serving(self, scenario: Scenario, origin_port: int, room: int):
        self.scenario, self.origin_port, self.room = scenario, origin_port, room
        if scenario.tls:
            certificate(self.folder, scenario.key)
        command = self.configure()
        with open(self.folder / "output.log", "wb") as output:
            self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output, stderr=output,
                                            cwd=self.folder, env=self.environment())
        try:
            self.wait_until_ready()
            yield self
        finally:
            self.stop()

    def configure(self) -> list[str]:
        """Writes the configuration and returns the command that serves it in the foreground.

        Raises Unsupported if this server cannot do the scenario."""
        raise NotImplementedError

    def environment(self) -> dict[str, str]:
        return dict(os.environ)

    def version(self) -> str:
        """One line for the report."""
        raise NotImplementedError

    def reload(self) -> None:
        """Makes it serve the next generation; returns at once."""
        raise Unsupported("the harness does not know how to reload it")

    def pids(self) -> list[int]:
        return measure.family(self.process.pid)

    def codes(self) -> dict[str, float]:
        """Answers per status so far, if the server counts them."""
        return {}

    def settled(self) -> bool:
        """Whether everything that will run is running; asked after the port accepts."""
        return True

    def wait_until_ready(self) -> None:
        deadline = time.monotonic() + START_SECONDS
        while time.monotonic() < deadline and self.process.poll() is None:
            try:
                socket.create_connection(("127.0.0.1", self.port), timeout=1).close()
                if self.settled():
                    return
            except OSError:
                pass
            time.sleep(0.05)
        output = (self.folder / "output.log").read_text(errors="replace")[-2000:]
        raise RuntimeError(f"{self.name} does not serve within {START_SECONDS} s: {output}")

    def stop(self) -> None:
        """Asks, waits, then kills whatever of the family is left."""
        left = self.pids()
        self.process.terminate()
        try:
            self.process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            for pid in reversed(left):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, 9)
            self.process.wait()

    def write(self, name: str, content: str | bytes) -> pathlib.Path:
        file = self.folder / name
        file.write_bytes(content.encode() if isinstance(content, str) else content)
        return file


def certificate(folder: pathlib.Path, key: str) -> None:
    """A self-signed certificate; one per folder, so that no server reads another's."""
    kind = {"ecdsa": ["ec", "-pkeyopt", "ec_paramgen_curve:P-256"], "rsa": ["rsa:2048"]}[key]
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", *kind, "-nodes", "-days", "2",
         "-subj", "/CN=load.test", "-addext", "subjectAltName=DNS:load.test,DNS:*.example.test",
         "-keyout", str(folder / "key.pem"), "-out", str(folder / "cert.pem")],
        check=True, capture_output=True)
    # HAProxy wants both in one file.
    (folder / "both.pem").write_bytes((folder / "cert.pem").read_bytes() + (folder / "key.pem").read_bytes())


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def first_line(command: list[str]) -> str:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=10, check=False)
    except OSError:
        return ""
    return (done.stdout + done.stderr).strip().partition("\n")[0]
