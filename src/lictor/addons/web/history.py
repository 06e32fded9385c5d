"""How many results were there, and when? Totals by namespace over time, bounded, kept in a file.

Only what has changed since the time before is kept, so that thousands of quiet namespaces cost
nothing. What is old is thinned out to one time an hour, then forgotten.
"""

import logging
import os
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TypeAlias

import msgspec

from lictor.addons.web.records import STATUSES, TotalsPoint, Viewer

log = logging.getLogger(__name__)

ClusterNamespace: TypeAlias = tuple[str, str]
Totals: TypeAlias = Mapping[ClusterNamespace, tuple[int, ...]]

_STEP = 300
_HOUR = 3600
_FINE_SECONDS = 24 * _HOUR
_MOST_SECONDS = 30 * 24 * _HOUR
_MOST_CHANGES = 50_000
_NONE = (0,) * len(STATUSES)
_FILE = "totals.json"
_FORMAT = 1


class _Moment(msgspec.Struct):
    """A time, and the totals that were others then than before."""

    timestamp: int
    changed: dict[ClusterNamespace, tuple[int, ...]]


class _Kept(msgspec.Struct):
    """The file."""

    format: int
    statuses: tuple[str, ...]
    # Each with what changed: cluster, namespace, totals.
    moments: list[tuple[int, list[tuple[str, str, tuple[int, ...]]]]]


class TotalsHistory:
    """Remembers totals; over restarts, too, where a folder is given."""

    def __init__(
        self,
        folder: Path | None = None,
        *,
        most_changes: int = _MOST_CHANGES,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._file = folder / _FILE if folder is not None else None
        self._most_changes = most_changes
        self._clock = clock
        self._moments: list[_Moment] = self._load()
        self._last: dict[ClusterNamespace, tuple[int, ...]] = {}
        for moment in self._moments:
            self._last |= moment.changed

    def note(self, totals: Totals) -> None:
        """Remember these totals for now; of one step the last ones count."""
        now = int(self._clock())
        gone = {key: _NONE for key in self._last if key not in totals}
        known = {key: counts for key, counts in self._last.items() if counts != _NONE}
        changed = {
            key: tuple(counts)
            for key, counts in {**gone, **totals}.items()
            if known.get(key, _NONE) != tuple(counts)
        }
        if not changed and self._moments:
            return
        self._last |= changed
        if self._moments and now < self._moments[-1].timestamp + _STEP:
            self._moments[-1].changed |= changed
        else:
            self._moments.append(_Moment(now, changed))
        self._thin_out(now)
        self._save()

    def list_points(self, viewer: Viewer) -> list[TotalsPoint]:
        """The totals of what a viewer sees, oldest first."""
        sums, known = [0] * len(STATUSES), dict[ClusterNamespace, tuple[int, ...]]()
        visible: dict[ClusterNamespace, bool] = {}
        points: list[TotalsPoint] = []
        for moment in self._moments:
            has_changed = False
            for key, counts in moment.changed.items():
                if key not in visible:
                    visible[key] = viewer.may_see(*key)
                if visible[key]:
                    before = known.get(key, _NONE)
                    sums = [a + b - c for a, b, c in zip(sums, counts, before, strict=True)]
                    known[key] = counts
                    has_changed = True
            # When something happens elsewhere is nothing for them; the very first time is ours.
            if not has_changed and points:
                continue
            points.append(TotalsPoint(moment.timestamp, dict(zip(STATUSES, sums, strict=True))))
        return points

    # --- bounds

    def _thin_out(self, now: int) -> None:
        merged: list[_Moment] = []
        for moment in self._moments:
            if merged and self._belongs_together(merged[-1], moment, now):
                changed = merged[-1].changed | moment.changed
                merged[-1] = _Moment(moment.timestamp, changed)
            else:
                merged.append(moment)
        size = sum(len(each.changed) for each in merged)
        while len(merged) > 1 and size > self._most_changes:
            first, second = merged[:2]
            joined = _Moment(second.timestamp, first.changed | second.changed)
            size += len(joined.changed) - len(first.changed) - len(second.changed)
            merged[:2] = [joined]
        self._moments = merged

    def _belongs_together(self, first: _Moment, second: _Moment, now: int) -> bool:
        """Is one time enough for both? What is too old is one with what comes after it."""
        if second.timestamp < now - _MOST_SECONDS:
            return True
        is_old = second.timestamp < now - _FINE_SECONDS
        return is_old and first.timestamp // _HOUR == second.timestamp // _HOUR

    # --- the file

    def _load(self) -> list[_Moment]:
        if self._file is None or not self._file.exists():
            return []
        try:
            kept = msgspec.json.decode(self._file.read_bytes(), type=_Kept)
            if kept.format != _FORMAT or kept.statuses != STATUSES:
                raise ValueError(f"format {kept.format} is not known")
            return [
                _Moment(when, {(cluster, space): counts for cluster, space, counts in changed})
                for when, changed in kept.moments
                if all(len(counts) == len(STATUSES) for *_, counts in changed)
            ]
        except (OSError, ValueError) as error:
            # A file that cannot be read is kept for inspection, and a new history begins.
            log.warning("history of totals not read", extra={"why": str(error)[:200]})
            self._file.replace(self._file.with_suffix(".unreadable"))
            return []

    def _save(self) -> None:
        if self._file is None:
            return
        moments = [
            (each.timestamp, [(*key, counts) for key, counts in each.changed.items()])
            for each in self._moments
        ]
        data = msgspec.json.encode(_Kept(_FORMAT, STATUSES, moments))
        fresh = self._file.with_suffix(f".{os.getpid()}.new")
        try:
            fresh.write_bytes(data)
            fresh.replace(self._file)
        except OSError as error:
            # A full disk must not end the page.
            log.warning("history of totals not written", extra={"why": str(error)[:200]})
