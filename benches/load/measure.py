"""What a server costs: CPU seconds and memory of its processes, read from /proc.

Memory is the proportional set size (Pss), so that pages nginx shares between master and workers count once. It does
not know which server the processes belong to.
"""

import os
import threading

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


def cpu_seconds(pids: list[int]) -> tuple[float, float]:
    """User and system time spent so far."""
    user = system = 0
    for pid in pids:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as stat:
            # The name in parentheses may hold blanks; fields are counted after it.
            fields = stat.read().rpartition(")")[2].split()
        user += int(fields[11])
        system += int(fields[12])
    return user / TICKS_PER_SECOND, system / TICKS_PER_SECOND


def memory_mib(pids: list[int]) -> float:
    """Sum of the proportional set sizes now."""
    kib = 0
    for pid in pids:
        with open(f"/proc/{pid}/smaps_rollup", encoding="ascii") as rollup:
            kib += next(int(line.split()[1]) for line in rollup if line.startswith("Pss:"))
    return kib / 1024


class MemorySampler:
    """Reads the memory of some processes five times a second while the `with` block runs."""

    def __init__(self, pids: list[int]):
        self.pids = pids
        self.samples: list[float] = []
        self.stop = threading.Event()
        self.thread = threading.Thread(target=self.sample, daemon=True)

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.stop.set()
        self.thread.join()

    def sample(self) -> None:
        while not self.stop.wait(SAMPLE_SECONDS):
            try:
                self.samples.append(memory_mib(self.pids))
            except (OSError, StopIteration):
                return

    def mean(self) -> float:
        return sum(self.samples) / len(self.samples) if self.samples else 0.0

    def peak(self) -> float:
        return max(self.samples, default=0.0)
