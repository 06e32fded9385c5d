"""What does a command cost? CPU of all its processes, time, and memory."""

import os
import re
import subprocess
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

_LOOK_SECONDS = 0.1
_TAIL = 4000
_TICKS = os.sysconf("SC_CLK_TCK")
_COUNTS = re.compile(r"pass: \d+, fail: \d+, warn: \d+, error: \d+, skip: \d+")


@dataclass
class Memory:
    """The most that was seen at one moment, in megabytes."""

    # Of the largest process.
    process: float = 0.0
    # Of all of them, where pages that forked processes share count in each.
    resident: float = 0.0
    # The same, where they count once.
    proportional: float = 0.0

    def look(self, parent: int) -> None:
        resident = proportional = 0.0
        for process in (parent, *_list_children(parent)):
            found = _read_rollup(process)
            self.process = max(self.process, found.get("Rss:", 0.0))
            resident += found.get("Rss:", 0.0)
            proportional += found.get("Pss:", 0.0)
        self.resident = max(self.resident, resident)
        self.proportional = max(self.proportional, proportional)

    @property
    def whole(self) -> float:
        """All processes together; never less than the largest of them was at any moment."""
        return max(self.process, self.proportional)


def _list_children(parent: int) -> list[int]:
    try:
        text = Path(f"/proc/{parent}/task/{parent}/children").read_text()
    except OSError:
        return []
    return [int(each) for each in text.split()]


def _read_rollup(process: int) -> dict[str, float]:
    try:
        lines = Path(f"/proc/{process}/smaps_rollup").read_text().splitlines()
    except OSError:
        return {}
    fields = (line.split() for line in lines)
    return {each[0]: int(each[1]) / 1024 for each in fields if each[0] in ("Rss:", "Pss:")}


@dataclass(frozen=True)
class Measured:
    """What one run cost, and the end of what it printed."""

    cpu: float
    wall: float
    memory: Memory
    output: str
    code: int

    @property
    def summary(self) -> str:
        """The counts of `apply` where there are any, else the last line."""
        found = _COUNTS.findall(self.output)
        lines = self.output.strip().splitlines()
        return found[-1] if found else lines[-1].strip() if lines else ""

    def find_fault(self, expected: str = "pass: ") -> str:
        """What is wrong where the output does not have what it should: nothing was judged, then."""
        if expected in self.output:
            return ""
        return f"exit code {self.code}: {self.summary[:100]}, not {expected}"

    @property
    def figures(self) -> Mapping[str, float]:
        return {"CPU-s": self.cpu, "s": self.wall, "MB": self.memory.whole}


def measure(command: Sequence[str], *, repeat: int = 1, given: Path | None = None) -> Measured:
    """Run a command a few times, with a file as its standard input if there is one.

    The cheapest run counts, as noise only adds.
    """
    runs = (_measure_once(command, given) for _ in range(repeat))
    return min(runs, key=lambda measured: measured.cpu)


def _measure_once(command: Sequence[str], given: Path | None) -> Measured:
    memory, over = Memory(), threading.Event()
    started = time.perf_counter()
    with tempfile.TemporaryFile() as out, open(given or os.devnull, "rb") as stdin:
        process = subprocess.Popen(command, stdin=stdin, stdout=out, stderr=subprocess.DEVNULL)

        def watch() -> None:
            while not over.wait(_LOOK_SECONDS):
                memory.look(process.pid)

        watcher = threading.Thread(target=watch)
        watcher.start()
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        wall = time.perf_counter() - started
        over.set()
        watcher.join()
        out.seek(max(out.seek(0, os.SEEK_END) - _TAIL, 0))
        text = out.read().decode(errors="replace")
    # The kernel saw every moment, we only some. On Linux this is in kilobytes, and never less than what
    # this process had when it started the other.
    memory.process = max(memory.process, usage.ru_maxrss / 1024)
    return Measured(usage.ru_utime + usage.ru_stime, wall, memory, text, process.returncode)


def list_processes(parent: int) -> list[int]:
    """A process and those that it has started."""
    below = (each for child in _list_children(parent) for each in list_processes(child))
    return [parent, *below]


def read_cpu(parent: int) -> float:
    """CPU seconds of a process and of those that it has started, so far."""
    total = 0
    for process in list_processes(parent):
        try:
            fields = Path(f"/proc/{process}/stat").read_text().rpartition(") ")[2].split()
        except OSError:
            continue  # it has just ended, and counts with its parent
        # Of itself, and of those that it has waited for.
        total += sum(map(int, fields[11:15]))
    return total / _TICKS
