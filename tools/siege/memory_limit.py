"""Run programs as containers with a memory limit would: held by it, and able to read it."""

import contextlib
import os
from pathlib import Path

_ROOT = Path("/sys/fs/cgroup")
# Who runs: the first word is the file that takes our number, or the limit.
_JOIN = 'echo $$ > "$0" && exec "$@"'
_SHOW = 'mount -t tmpfs siege /sys/fs/cgroup && echo "$0" > /sys/fs/cgroup/memory.max; exec "$@"'


class MemoryGroup:
    """A control group with a limit; where none can be made, a limit for each process alone."""

    def __init__(self, name: str, limit: int) -> None:
        self.limit = limit
        self._folder = _make_group(f"lictor-siege-{os.getpid()}-{name}", limit)

    @property
    def is_shared(self) -> bool:
        """Is the limit one for all the processes of a program, as in a container?"""
        return self._folder is not None

    def wrap(self, network: tuple[str, ...]) -> tuple[str, ...]:
        """What stands before a command: it runs in this group, and in this network."""
        # Only in a network namespace has a command mounts of its own, where it can be shown a file.
        if self._folder is None or not network:
            return (*network, "prlimit", f"--data={self.limit}")
        joined = ("sh", "-c", _JOIN, str(self._folder / "cgroup.procs"))
        return (*joined, *network, "sh", "-c", _SHOW, str(self.limit))

    def remove(self) -> None:
        if self._folder is not None:
            with contextlib.suppress(OSError):
                self._folder.rmdir()


def _make_group(name: str, limit: int) -> Path | None:
    """Version 1 of control groups, or version 2."""
    for parent, file in ((_ROOT / "memory", "memory.limit_in_bytes"), (_ROOT, "memory.max")):
        folder = parent / name
        try:
            folder.mkdir()
        except OSError:
            continue
        try:
            (folder / file).write_text(str(limit), encoding="ascii")
        except OSError:
            folder.rmdir()
            continue
        return folder
    return None
