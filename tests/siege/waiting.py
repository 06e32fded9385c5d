"""How much of the time that an answer took was it kept from the processors, and by whom?

On a machine that others use too, an answer waits for a processor with or without us. The kernel
counts for each thread how long it ran, and how long it was ready to and did not; and for the machine,
how much time its host took away. Where no more of lictor's threads wanted to run than there are
processors, they would not have waited had they been alone: others caused it. What goes beyond that,
lictor did to itself.
"""

import json
import os
import time
from pathlib import Path

_TICKS = os.sysconf("SC_CLK_TCK")
_CORES = len(os.sched_getaffinity(0))
_FILE = "/proc/{}/schedstat"
_READ_EVERY = 0.5


Times = tuple[float, float]


def read_times(path: str) -> Times:
    """Seconds that a thread ran, and that it was ready to and did not."""
    try:
        with open(path, encoding="ascii") as file:
            ran, waited, _ = file.read().split()
    except (OSError, ValueError):
        return 0.0, 0.0
    return int(ran) / 1e9, int(waited) / 1e9


def read_stolen() -> float:
    """Seconds that the host took from this machine."""
    with open("/proc/stat", encoding="ascii") as file:
        return int(file.readline().split()[8]) / _TICKS


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
        self._read = 0.0
        self._began = 0.0
        self._stolen = 0.0
        self._own: Times = (0.0, 0.0)
        self._before: dict[int, Times] = {}

    def begin(self) -> None:
        """A request begins."""
        self._began = time.monotonic()
        if self._began - self._read > _READ_EVERY:
            self._pids.read()
            self._read = self._began
        self._stolen = read_stolen()
        self._before = {pid: read_times(_FILE.format(pid)) for pid in self._pids.all}
        self._own = read_times(_FILE.format("thread-self"))

    def end(self) -> tuple[float, dict[str, float]]:
        """Seconds since then for which lictor is not to blame; and what that follows from."""
        seconds = time.monotonic() - self._began
        own = read_times(_FILE.format("thread-self"))[1] - self._own[1]
        ready, waits = 0.0, {}
        for pid, (ran, waited) in self._before.items():
            after = read_times(_FILE.format(pid))
            waits[pid] = max(after[1] - waited, 0.0)
            ready += max(after[0] - ran, 0.0) + waits[pid]
        # So many of lictor's threads wanted to run, on average.
        wanted = ready / seconds
        waited = own + max((waits.get(pid, 0.0) for pid in self._pids.workers), default=0.0)
        excused = waited * min(_CORES / max(wanted, _CORES), 1.0)
        stolen = read_stolen() - self._stolen
        return excused + stolen, {"waited": waited, "stolen": stolen, "wanted": wanted}
