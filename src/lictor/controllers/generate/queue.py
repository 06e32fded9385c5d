"""The queue of rules and triggers; units whose objects others rewrite are delayed."""

import logging
import time
from collections.abc import Awaitable, Callable
from typing import TypeAlias

from lictor.controllers.generate.labels import GenerationUnit
from lictor.core.errors import LictorError
from lictor.kubernetes.work_queue import WorkQueue

log = logging.getLogger(__name__)

_Key: TypeAlias = tuple[str, str, str, str]

_FIRST_PAUSE = 1.0
_LONGEST_PAUSE = 120.0
# If another writer changes generated objects: how often they are corrected at once.
_OFTEN = 5
_REWRITE_SECONDS = 60.0
_LONGEST_REST = 300.0
_MAX_KNOWN = 10_000


class Rewrites:
    """Counts how often generated objects were changed by others and corrected again."""

    def __init__(self) -> None:
        # How often, and when last.
        self._known: dict[_Key, tuple[int, float]] = {}

    def note(self, unit: GenerationUnit) -> None:
        """Another writer changed what was generated for a unit, and it was corrected."""
        now = time.monotonic()
        times, last = self._known.get(unit.key, (0, now))
        times = times + 1 if now - last < _REWRITE_SECONDS + _rest_after(times) else 1
        if len(self._known) >= _MAX_KNOWN and unit.key not in self._known:
            self._known.clear()
        self._known[unit.key] = (times, now)
        if times > _OFTEN:
            log.warning(
                "generated objects are changed by others repeatedly",
                extra={"policy": unit.policy, "rule": unit.rule, "times": times},
            )

    def find_rest(self, unit: GenerationUnit) -> float:
        """For how many seconds from now a unit is paused."""
        times, last = self._known.get(unit.key, (0, 0.0))
        return max(last + _rest_after(times) - time.monotonic(), 0.0)

    def clear(self) -> None:
        self._known.clear()


def _rest_after(times: int) -> float:
    return min(2.0 ** min(times - _OFTEN, 10), _LONGEST_REST) if times > _OFTEN else 0.0


class GenerationQueue:
    """The units that wait to be reconciled; those whose objects others rewrite wait longer."""

    def __init__(
        self,
        reconcile: Callable[[GenerationUnit], Awaitable[None]],
        rewrites: Rewrites,
        *,
        workers: int,
        first_pause: float = _FIRST_PAUSE,
    ) -> None:
        self._reconcile = reconcile
        self._rewrites = rewrites
        self._queue: WorkQueue[GenerationUnit] = WorkQueue(
            "generation",
            self._try,
            workers=workers,
            pauses=(first_pause, _LONGEST_PAUSE),
            owner=lambda unit: unit.trigger.namespace,
        )

    def __len__(self) -> int:
        return len(self._queue)

    def enqueue(self, unit: GenerationUnit) -> None:
        """Reconcile a unit soon, or when its pause is over."""
        self._queue.add(unit, self._rewrites.find_rest(unit))

    async def run(self) -> None:
        """Reconcile what is enqueued until cancelled."""
        try:
            await self._queue.run()
        finally:
            self._rewrites.clear()

    async def _try(self, unit: GenerationUnit) -> bool:
        facts = {"policy": unit.policy, "rule": unit.rule}
        try:
            await self._reconcile(unit)
        except (LictorError, TimeoutError) as error:
            log.warning("generation failed", extra={**facts, "why": str(error)[:300]})
            return False
        except Exception:
            log.exception("generation failed", extra=facts)
            return False
        return True
