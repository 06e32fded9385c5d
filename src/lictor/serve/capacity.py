"""How many processes, and how much memory for each, does this container have room for?"""

import math
import os
from collections.abc import Iterator
from pathlib import Path

from lictor.errors import UsageError
from lictor.lang.quantity import parse_quantity

_GROUP = Path("/sys/fs/cgroup")
_OWN_GROUP = Path("/proc/self/cgroup")
_MEGABYTE = 1024 * 1024
# Less does not suffice for a worker, whatever the limit.
_LEAST_MEMORY = 96 * _MEGABYTE
# Also where nobody sets a limit: what a runaway policy may take before it is refused.
_MOST_MEMORY = 2048 * _MEGABYTE
_PARENT_MEMORY = 32 * _MEGABYTE
# The rest is for what nobody counts: sockets' buffers, files in memory.
_USABLE = 0.95
_SUCCESSOR_SHARE = 0.5
# Version 1 of control groups says "none" by a very large number.
_NO_LIMIT = 1 << 60


def count_cores(group: Path = _GROUP) -> int:
    """The cores that this process may use, rounded up: those of its CPU quota where it has one."""
    cores = len(os.sched_getaffinity(0))
    quota = _read_quota(group)
    return cores if quota is None else max(1, min(cores, math.ceil(quota)))


def _read_quota(group: Path) -> float | None:
    """Version 2 of control groups, or version 1; None where there is no limit."""
    whole = _read(group / "cpu.max")
    if whole is not None:
        quota, _, period = whole.partition(" ")
    else:
        quota = _read(group / "cpu" / "cpu.cfs_quota_us") or ""
        period = _read(group / "cpu" / "cpu.cfs_period_us") or ""
    try:
        return float(quota) / float(period) if float(quota) > 0 else None
    except (ValueError, ZeroDivisionError):
        return None


def find_memory(said: str = "", group: Path = _GROUP, own: Path = _OWN_GROUP) -> int | None:
    """Bytes for all processes together: what was said, or the container's limit; None: no limit."""
    if said:
        return _parse_memory(said)
    limits = [limit for limit in _list_limits(group, own) if limit < _NO_LIMIT]
    return min(limits, default=None)


def _parse_memory(said: str) -> int:
    try:
        return int(parse_quantity(said).value)
    except ValueError as error:
        raise UsageError(f"--memoryLimit: {said} is no quantity of memory such as 512Mi") from error


def _list_limits(group: Path, own: Path) -> Iterator[int]:
    """Of the control groups around this process, from its own to the outermost that it sees."""
    for line in (_read(own) or "0::/").splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers == "":
            root, name = group, "memory.max"
        elif "memory" in controllers.split(","):
            root, name = group / "memory", "memory.limit_in_bytes"
        else:
            continue
        inner = root / path.strip("/")
        for folder in (inner, *inner.parents):
            if folder == root or root in folder.parents:
                text = _read(folder / name) or ""
                if text.isdigit():
                    yield int(text)


def divide_memory(total: int | None, workers: int, *, has_control: bool) -> int:
    """Bytes that one worker may take, so that all processes together stay within the total.

    There must be room for the parent, for controllers beside the workers, and for a new worker
    while it takes the place of another.
    """
    if total is None:
        return _MOST_MEMORY
    parts = workers + (1 if has_control else 0) + _SUCCESSOR_SHARE
    share = int((total * _USABLE - _PARENT_MEMORY) / parts)
    return min(max(share, _LEAST_MEMORY), _MOST_MEMORY)


def _read(path: Path) -> str | None:
    try:
        return path.read_text(encoding="ascii").strip()
    except OSError:
        return None
