"""How much of the time that an answer took was it kept from the processors, and by whom?

On a machine that others use too, an answer waits for a processor with or without us. The kernel
counts for each thread how long it ran, and how long it was ready to and did not; and for the machine,
how busy it is and how much time its host took away. Where others (the API server and the attacker
included, who live elsewhere in a real cluster) keep half of the processors busy, waiting is not
lictor's fault; the less they do, the more of it is. All threads of a process count, as the one that
holds the interpreter while it waits for a processor holds up the others. Time in which the process
ran is never excused.
"""

import json
import os
import time
from pathlib import Path

_TICKS = os.sysconf("SC_CLK_TCK")
_CORES = len(os.sched_getaffinity(0))
_THREADS = "/proc/{}/task"


Times = tuple[float, float]


def read_times(path: str) -> Times:
    """Seconds that a thread ran, and that it was ready to and did not."""
    try:
        with open(path, encoding="ascii") as file:
            ran, waited, _ = file.read().split()
    except (OSError, ValueError):
        return 0.0, 0.0
    return int(ran) / 1e9, int(waited) / 1e9


def read_process(pid: int | str) -> Times:
    """The same for all threads of a process together."""
    folder = _THREADS.format(pid)
    try:
        threads = os.listdir(folder)
    except OSError:
        return 0.0, 0.0
    found = [read_times(f"{folder}/{thread}/schedstat") for thread in threads]
    return sum(ran for ran, _ in found), sum(waited for _, waited in found)


def read_machine() -> Times:
    """Seconds that the processors were busy, and that the host took away."""
    with open("/proc/stat", encoding="ascii") as file:
        # user nice system idle iowait irq softirq steal
        fields = [int(each) / _TICKS for each in file.readline().split()[1:9]]
    return sum(fields) - fields[3] - fields[4], fields[7]


class Pids:
    """The processes of lictor, as a file tells that is written whenever they change."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self.workers: list[int] = []
        self.all: list[int] = []

    def read(self) -> None:
        try:
            found = json.loads(self._file.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return
        self.workers, self.all = found["workers"], found["all"]


class Waiting:
    """Counters around requests of this thread."""

    def __init__(self, file: Path) -> None:
        self._pids = Pids(file)
        self._began = 0.0
        self._machine: Times = (0.0, 0.0)
        self._own: Times = (0.0, 0.0)
        self._before: dict[int, Times] = {}

    def begin(self) -> None:
        """A request begins."""
        self._pids.read()
        self._began = time.monotonic()
        self._machine = read_machine()
        self._before = {pid: read_process(pid) for pid in self._pids.all}
        self._own = read_process("self")

    def end(self) -> tuple[float, dict[str, float]]:
        """Seconds since then for which lictor is not to blame; and what that follows from."""
        seconds = time.monotonic() - self._began
        own = _grow(self._own, read_process("self"))[1]
        grown = {pid: _grow(before, read_process(pid)) for pid, before in self._before.items()}
        workers = [grown[pid] for pid in self._pids.workers if pid in grown]
        # Nobody tells which of them was asked.
        ran, waited = max(workers, key=lambda times: times[1], default=(0.0, 0.0))
        waited = min(own + waited, max(seconds - ran, 0.0))
        busy, stolen = (now - then for now, then in zip(read_machine(), self._machine, strict=True))
        others = max(busy - sum(ran for ran, _ in grown.values()), 0.0) / seconds
        excused = waited * min(others / (_CORES / 2), 1.0) + stolen
        return excused, {"waited": waited, "ran": ran, "stolen": stolen, "others": others}


def _grow(before: Times, after: Times) -> Times:
    """A thread that has ended takes its times along."""
    return max(after[0] - before[0], 0.0), max(after[1] - before[1], 0.0)
