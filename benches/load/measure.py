"""What a server costs: CPU seconds, memory and descriptors of its processes, read from /proc.

Memory is the proportional set size (Pss), so that pages nginx shares between master and workers count once. It does
not know which server the processes belong to.
"""

import os
import threading
import time

TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")
SAMPLE_SECONDS = 0.2


def family(pid: int) -> list[int]:
    """The process and all its descendants."""
    found = [pid]
    for parent in found:
        try:
            for task in os.listdir(f"/proc/{parent}/task"):
                with open(f"/proc/{parent}/task/{task}/children", encoding="ascii") as children:
                    found += [int(child) for child in children.read().split()]
        except OSError:
            continue
    return found


def times(stat: str) -> tuple[int, int]:
    """User and system ticks of a /proc stat line, with those of children that have ended."""
    # The name in parentheses may hold blanks; fields are counted after it.
    fields = stat.rpartition(")")[2].split()
    return int(fields[11]) + int(fields[13]), int(fields[12]) + int(fields[14])


def cpu_seconds(pids: list[int]) -> tuple[float, float]:
    """User and system time spent so far, also by processes that were replaced on the way."""
    user = system = 0
    for pid in pids:
        try:
            with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as stat:
                more = times(stat.read())
        except OSError:
            continue  # it has ended: its time is its parent's now
        user, system = user + more[0], system + more[1]
    return user / TICKS_PER_SECOND, system / TICKS_PER_SECOND


def thread_seconds(pid: int, name: str) -> tuple[float, float]:
    """User and system time of the threads of a process whose name begins with `name`."""
    user = system = 0
    for task in os.listdir(f"/proc/{pid}/task"):
        with open(f"/proc/{pid}/task/{task}/stat", encoding="utf-8", errors="replace") as stat:
            line = stat.read()
        if line.partition("(")[2].startswith(name):
            fields = line.rpartition(")")[2].split()
            user, system = user + int(fields[11]), system + int(fields[12])
    return user / TICKS_PER_SECOND, system / TICKS_PER_SECOND


def memory_mib(pids: list[int]) -> float:
    """Sum of the proportional set sizes now."""
    kib = 0
    for pid in pids:
        try:
            with open(f"/proc/{pid}/smaps_rollup", encoding="ascii") as rollup:
                kib += next(int(line.split()[1]) for line in rollup if line.startswith("Pss:"))
        except (OSError, StopIteration):
            continue  # it has just ended
    return kib / 1024


def descriptors(pids: list[int]) -> int:
    """Open descriptors now."""
    count = 0
    for pid in pids:
        try:
            count += len(os.listdir(f"/proc/{pid}/fd"))
        except OSError:
            continue
    return count


class Beside:
    """Does something on a thread of its own while the `with` block runs; subclasses say what, until `stop` is set."""

    def __init__(self):
        self.stop = threading.Event()
        self.thread = threading.Thread(target=self.run, daemon=True)

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.stop.set()
        self.thread.join()

    def run(self) -> None:
        raise NotImplementedError


class Sampler(Beside):
    """Reads memory and descriptors of a server five times a second while the `with` block runs."""

    def __init__(self, pids, every: float = SAMPLE_SECONDS):
        super().__init__()
        self.pids, self.every = pids, every
        self.samples: list[tuple[float, float, int]] = []  # time, MiB, descriptors

    def run(self) -> None:
        while not self.stop.wait(self.every):
            pids = self.pids()
            self.samples.append((time.monotonic(), memory_mib(pids), descriptors(pids)))

    def mean(self) -> float:
        return sum(mib for _, mib, _ in self.samples) / len(self.samples) if self.samples else 0.0

    def peak(self) -> float:
        return max((mib for _, mib, _ in self.samples), default=0.0)

    def most_descriptors(self) -> int:
        return max((count for _, _, count in self.samples), default=0)


def slope_per_hour(samples: list[tuple[float, float]]) -> float:
    """Least squares through (seconds, value), in value per hour; 0 for fewer than two."""
    if len(samples) < 2:
        return 0.0
    mean_x = sum(x for x, _ in samples) / len(samples)
    mean_y = sum(y for _, y in samples) / len(samples)
    spread = sum((x - mean_x) ** 2 for x, _ in samples)
    return 3600 * sum((x - mean_x) * (y - mean_y) for x, y in samples) / spread if spread else 0.0
