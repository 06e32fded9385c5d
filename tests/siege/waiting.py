"""How much of the time that an answer took was it kept from the processors, and by whom?

On a machine that others use too, an answer waits for a processor with or without us. The kernel counts
for each thread how long it was ready to run and did not; and for the machine, how much time its host took
away. What others caused is not ours; what our own processes caused is.
"""

import json
import os
import time
from pathlib import Path

_TICKS = os.sysconf("SC_CLK_TCK")
_LOOK_EVERY = 0.5


def read_wait(path: str) -> float:
    """Seconds that a thread was ready to run and did not."""
    try:
        with open(path, encoding="ascii") as file:
            return int(file.read().split()[1]) / 1e9
    except (OSError, IndexError, ValueError):
        return 0.0


def read_cpu(pid: int) -> float:
    """Seconds of CPU of a process and of its children that are gone."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return 0.0
    return sum(map(int, text.rpartition(") ")[2].split()[11:15])) / _TICKS


class Moment:
    """Counters at one moment."""

    def __init__(self, pids: "Pids") -> None:
        with open("/proc/stat", encoding="ascii") as file:
            fields = list(map(int, file.readline().split()[1:9]))
        # user nice system idle iowait irq softirq steal
        self.busy = (sum(fields) - fields[3] - fields[4]) / _TICKS
        self.stolen = fields[7] / _TICKS
        self.ours = sum(map(read_cpu, pids.all))


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
        self._pids.read()
        self._own = "/proc/thread-self/schedstat"
        self._looked = 0.0
        self._before = Moment(self._pids)
        self._waits: dict[int, float] = {}
        self._own_wait = 0.0

    def begin(self) -> None:
        """A request begins."""
        now = time.monotonic()
        if now - self._looked > _LOOK_EVERY:
            self._pids.read()
            self._before, self._looked = Moment(self._pids), now
        self._waits = {pid: read_wait(f"/proc/{pid}/schedstat") for pid in self._pids.workers}
        self._own_wait = read_wait(self._own)

    def end(self) -> tuple[float, dict[str, float]]:
        """Seconds since then for which neither the engine nor its processes are to blame; and why."""
        own = read_wait(self._own) - self._own_wait
        waits = [
            read_wait(f"/proc/{pid}/schedstat") - before for pid, before in self._waits.items()
        ]
        waited = own + max(waits, default=0.0)
        after = Moment(self._pids)
        busy = max(after.busy - self._before.busy, 1 / _TICKS)
        ours = min(max(after.ours - self._before.ours, 0.0) / busy, 1.0)
        stolen = after.stolen - self._before.stolen
        facts = {"waited": waited, "own_wait": own, "stolen": stolen, "our_share": ours}
        return max(waited, 0.0) * (1 - ours) + stolen, facts
