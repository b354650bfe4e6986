"""The workloads by name; the name of a family stands for all of it."""

from workloads import changing, pages, plain, secure

ALL = sorted(pages.WORKLOADS + plain.WORKLOADS + secure.WORKLOADS + changing.WORKLOADS, key=lambda w: w.name[:2])


def named(name: str) -> list:
    """`W2.30s` is one, `W2` all of W2, `W1` both W1a and W1b; empty when there is none."""
    return [workload for workload in ALL if name in (workload.name, family(workload), family(workload).rstrip("ab"))]


def family(workload) -> str:
    return workload.name.partition(".")[0]
