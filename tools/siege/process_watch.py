"""Watches lictor's processes as a kubelet would: those that end are counted and started again."""

import json
import re
import threading
import time
from collections import Counter, defaultdict
from pathlib import Path

from control_plane.install import ADMISSION, Replica
from siege_site import Site
from violations import ViolationLog

_LINE = re.compile(r"process (started|ended|hangs|replaced) role=(\S+) child=(\d+)(?: code=(\S+))?")
_EVERY = 0.5
# So many deaths of one role in so many seconds are a crash loop.
_LOOP = (4, 60.0)


class ProcessWatch:
    """Knows the processes that run now, by their roles."""

    def __init__(self, site: Site, violations: ViolationLog, pids: Path) -> None:
        self._site = site
        self._violations = violations
        self._file = pids
        self._read: dict[Path, int] = {}
        # Roles by number: while one takes the place of another, both answer.
        self._children: dict[int, str] = {}
        self._ended: dict[str, list[float]] = defaultdict(list)
        self.deaths: Counter[str] = Counter()
        self.look()

    def run(self, enough: threading.Event) -> None:
        """Until it is enough."""
        while not enough.wait(_EVERY):
            self.look()

    def look(self) -> None:
        """What happened since the last look."""
        for replica in self._site.replicas:
            self._read_log(replica)
            if not replica.process.is_running():
                self._note(replica.component, f"exit {replica.process.popen.returncode}", replica)
                self._start_again(replica)
        self._write()

    def _read_log(self, replica: Replica) -> None:
        path = replica.process.log
        with path.open("rb") as file:
            file.seek(self._read.get(path, 0))
            text = file.read().decode(errors="replace")
        whole = text.rpartition("\n")[0]
        self._read[path] = self._read.get(path, 0) + len(whole.encode(errors="replace"))
        for event, role, child, code in _LINE.findall(whole):
            if event == "started":
                self._children[int(child)] = role
            elif event in ("ended", "replaced"):
                self._children.pop(int(child), None)
            if event == "ended":
                self._note(f"serve {role}", f"code {code}", replica)

    def _note(self, role: str, how: str, replica: Replica) -> None:
        now = time.monotonic()
        self._violations.tell(f"{role} ended: {how}; under way: {self._violations.name_attacks()}")
        self.deaths[f"{role} ({how})"] += 1
        self._violations.keep_log(
            f"death-{self.deaths.total():03}", replica.process.read_log(20_000)
        )
        count, seconds = _LOOP
        recent = [at for at in self._ended[role] if at > now - seconds]
        self._ended[role] = [*recent, now]
        if len(self._ended[role]) >= count:
            self._ended[role].clear()
            self._violations.report("crash loop", role, last=how)

    def _start_again(self, replica: Replica) -> None:
        lictor = self._site.lictor
        if replica.component != ADMISSION:
            lictor.controllers.remove(replica)
            lictor.start_controller(replica.component)
            return
        self._violations.report("server ended", replica.component, log=replica.process.read_log())
        lictor._withdraw(replica)
        lictor.replicas.remove(replica)
        self._children.clear()
        lictor.start_replica()

    def _write(self) -> None:
        parents = [each.process.pid for each in self._site.replicas]
        workers = [pid for pid, role in self._children.items() if role.startswith("worker")]
        content = {"workers": workers, "all": [*parents, *self._children]}
        unfinished = self._file.with_suffix(".new")
        unfinished.write_text(json.dumps(content), encoding="utf-8")
        unfinished.replace(self._file)
