"""How many processes, and how much memory for each, does this container have room for?"""

import math
import os
from pathlib import Path

_GROUP = Path("/sys/fs/cgroup")
_LEAST_MEMORY = 512 * 1024 * 1024
# Where nobody sets a limit: what a runaway policy may take before it is refused.
_DEFAULT_MEMORY = 2 * 1024 * 1024 * 1024


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


def find_memory_limit(processes: int, group: Path = _GROUP) -> int:
    """Bytes that one of so many processes may take."""
    text = _read(group / "memory.max") or _read(group / "memory" / "memory.limit_in_bytes") or ""
    try:
        limit = int(text)
    except ValueError:
        return _DEFAULT_MEMORY
    return min(max(limit // max(processes, 1), _LEAST_MEMORY), _DEFAULT_MEMORY)


def _read(path: Path) -> str | None:
    try:
        return path.read_text(encoding="ascii").strip()
    except OSError:
        return None
