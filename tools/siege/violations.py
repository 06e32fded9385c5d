"""What must not happen and did: told at once, and kept with all that is needed to see it again."""

import json
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from attacks import Attack

ANSWERS = ("wrong answer", "slow answer")
_MOST_KEPT = 100
# An attack's work may go on after its policies are gone.
_MEMORY = 8.0


@dataclass
class ViolationLog:
    """Counts, and the attacks that were under way."""

    folder: Path
    tell: Callable[[str], None]
    counts: Counter[str] = field(default_factory=Counter)
    _under_way: dict[str, tuple[Attack, float]] = field(default_factory=dict)
    _told: set[str] = field(default_factory=set)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def begin(self, attack: Attack) -> None:
        with self._lock:
            self._under_way[attack.name] = (attack, float("inf"))

    def end(self, attack: Attack) -> None:
        """It counts as under way for a while."""
        with self._lock:
            self._under_way[attack.name] = (attack, time.monotonic() + _MEMORY)
            for name, (_, until) in list(self._under_way.items()):
                if until < time.monotonic():
                    del self._under_way[name]

    def name_attacks(self) -> str:
        """Those under way."""
        with self._lock:
            return ", ".join(self._under_way)

    def report(self, kind: str, subject: str, **facts: Any) -> None:
        """A violation; what stays wrong is told once, answers once for the same attacks."""
        with self._lock:
            attacks = [attack for attack, until in self._under_way.values()]
            key = f"{kind} {subject}"
            if kind in ANSWERS:
                key = f"{key} {sorted(attack.name for attack in attacks)}"
            if key in self._told:
                return
            self._told.add(key)
            self.counts[kind] += 1
            number = sum(self.counts.values())
        names = [attack.name for attack in attacks]
        self.tell(f"VIOLATION {number}: {kind}: {subject} {names} {json.dumps(facts)[:600]}")
        if number <= _MOST_KEPT:
            self._keep(number, kind, {"subject": subject, **facts}, attacks)

    def keep_log(self, name: str, text: str) -> None:
        """Last words of a process, and the attacks under way."""
        self._keep_attacks(self.folder / name, [each for each, _ in self._under_way.values()])
        (self.folder / name / "log.txt").write_text(text, encoding="utf-8")

    def _keep(self, number: int, kind: str, facts: dict[str, Any], attacks: list[Attack]) -> None:
        folder = self.folder / f"{number:03}-{kind.replace(' ', '-')}"
        self._keep_attacks(folder, attacks)
        (folder / "facts.json").write_text(json.dumps(facts, indent=1), encoding="utf-8")

    def _keep_attacks(self, folder: Path, attacks: list[Attack]) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        for attack in attacks:
            (folder / f"attack-{attack.name}.json").write_text(attack.dump(), encoding="utf-8")
