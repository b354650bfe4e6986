"""Instructions a request: what servers execute in user space for one exchange, counted by callgrind.

Two runs of one binary give the same figure within one per cent, whatever else the machine does, so a change shows its price.
What the kernel does is not counted. One worker, one connection, one request after the other; what is counted begins behind
requests that warm up.
"""

import argparse
import json
import os
import re
import subprocess
import tempfile
from pathlib import Path

import client
from cases import BY_NAME, CASES
from origin import Origin
from servers import Nginx, Portcullis

WARM_UP = 200


def under_callgrind(kind):
    """The server, in one process under callgrind."""

    class Counted(kind):
        def configure(self) -> list[str]:
            command = super().configure()
            # One process: callgrind would count master and worker apart.
            if kind is Nginx:
                command += ["-g", "master_process off;"]
            return ["valgrind", "--tool=callgrind", f"--callgrind-out-file={self.folder}/callgrind.out", *command]

        def settled(self) -> bool:
            return True if kind is Nginx else super().settled()

        def control(self, word: str) -> None:
            subprocess.run(["callgrind_control", word, str(self.process.pid)], check=True, capture_output=True,
                           timeout=120)

        def executed(self) -> int:
            """Since the counter was set to zero."""
            before = set(self.folder.glob("callgrind.out.*"))
            self.control("--dump")
            (dump,) = set(self.folder.glob("callgrind.out.*")) - before
            return int(re.search(r"^(?:totals|summary): (\d+)", dump.read_text(), re.M)[1])

    return Counted


def measure(case, name: str, kind, options) -> float:
    origin = Origin(case)
    try:
        with tempfile.TemporaryDirectory(prefix="portcullis-instructions.") as folder:
            server = under_callgrind(kind)(name, Path(folder), options)
            with server.serving(case.scenario, origin.port, 16):
                client.ask(case, server.port, WARM_UP)
                server.control("--zero")
                client.ask(case, server.port, options.requests)
                return server.executed() / options.requests
    finally:
        origin.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("cases", nargs="*", metavar="CASE", help=", ".join(f"{case.name} ({case.what})" for case in CASES))
    parser.add_argument("--binary", type=os.path.abspath, required=True, help="the gateway, as released")
    parser.add_argument("--requests", type=int, default=1000, help="how many are counted")
    parser.add_argument("--no-nginx", action="store_true", help="the gateway alone")
    parser.add_argument("--json", type=Path, help="writes the figures to this file, too")
    options = parser.parse_args()
    options.workers = 1
    found = {}
    print(f"{'case':<14}{'portcullis':>12}{'nginx':>12}{'ratio':>8}  what")
    for case in [BY_NAME[name] for name in options.cases] or CASES:
        ours = measure(case, "portcullis", Portcullis, options)
        theirs = None if options.no_nginx else measure(case, "nginx", Nginx, options)
        found[case.name] = {"portcullis": ours, "nginx": theirs}
        beside = f"{theirs:>12,.0f}{ours / theirs:>8.2f}" if theirs else " " * 20
        print(f"{case.name:<14}{ours:>12,.0f}{beside}  {case.what}", flush=True)
    if options.json:
        options.json.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
