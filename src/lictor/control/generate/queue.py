"""Units that wait for their turn: each once, in order, and those that make trouble later."""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from typing import TypeAlias

from lictor.control.generate.labels import GenerationUnit
from lictor.errors import LictorError

log = logging.getLogger(__name__)

_Key: TypeAlias = tuple[str, str, str, str]

_FIRST_PAUSE = 1.0
_LONGEST_PAUSE = 120.0
# Someone else writes what we put right: so often it is put right at once, within this time.
_OFTEN = 5
_FIGHT_SECONDS = 60.0
_LONGEST_TRUCE = 300.0
_MAX_FIGHTS = 10_000


class UnitQueue:
    """Any number of requests for a unit become one; `work` is called with so many at a time."""

    def __init__(
        self,
        work: Callable[[GenerationUnit], Awaitable[None]],
        *,
        workers: int,
        first_pause: float = _FIRST_PAUSE,
    ) -> None:
        self._work = work
        self._first_pause = first_pause
        self._gate = asyncio.Semaphore(max(workers, 1))
        self._pending: dict[_Key, GenerationUnit] = {}
        self._delayed: dict[_Key, asyncio.TimerHandle] = {}
        self._failures: dict[_Key, int] = {}
        # How often a unit had to be put right lately, and when last.
        self._fights: dict[_Key, tuple[int, float]] = {}
        self._rests: dict[_Key, float] = {}
        self._arrived = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()

    def __len__(self) -> int:
        return len(self._pending) + len(self._delayed)

    def enqueue(self, unit: GenerationUnit) -> None:
        """Look at a unit soon; at one that is fought over, when it has rested."""
        rest = self._rests.get(unit.key, 0.0) - time.monotonic()
        if rest > 0:
            self._delay(unit, rest)
            return
        self._rests.pop(unit.key, None)
        self._push(unit)

    def note_fight(self, unit: GenerationUnit) -> None:
        """What the unit has made was changed by someone else, and put right."""
        now = time.monotonic()
        times, last = self._fights.get(unit.key, (0, now))
        times = times + 1 if now - last < _FIGHT_SECONDS + _pause(times) else 1
        if len(self._fights) >= _MAX_FIGHTS and unit.key not in self._fights:
            self._fights.clear()
        self._fights[unit.key] = (times, now)
        if times > _OFTEN:
            self._rests[unit.key] = now + _pause(times)
            log.warning(
                "generated objects are changed by others again and again",
                extra={"policy": unit.policy, "rule": unit.rule, "times": times},
            )

    async def run(self) -> None:
        """Work off what is waiting until cancelled."""
        try:
            while True:
                while not self._pending:
                    self._arrived.clear()
                    await self._arrived.wait()
                await self._gate.acquire()
                # While we waited for our turn, nothing is taken away but by us.
                unit = self._pending.pop(next(iter(self._pending)))
                task = asyncio.create_task(self._try(unit))
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)
        finally:
            await self._stop()

    async def _stop(self) -> None:
        for timer in self._delayed.values():
            timer.cancel()
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for kept in (self._delayed, self._pending, self._failures, self._rests, self._fights):
            kept.clear()

    def _push(self, unit: GenerationUnit) -> None:
        timer = self._delayed.pop(unit.key, None)
        if timer is not None:
            timer.cancel()
        self._pending.setdefault(unit.key, unit)
        self._arrived.set()

    def _delay(self, unit: GenerationUnit, seconds: float) -> None:
        if unit.key not in self._delayed:
            loop = asyncio.get_running_loop()
            self._delayed[unit.key] = loop.call_later(seconds, self._push, unit)

    async def _try(self, unit: GenerationUnit) -> None:
        try:
            await self._work(unit)
            self._failures.pop(unit.key, None)
        except (LictorError, TimeoutError) as error:
            self._retry(unit, str(error))
        except Exception as error:
            log.exception("generation failed", extra={"policy": unit.policy})
            self._retry(unit, f"{type(error).__name__}: {error}")
        finally:
            self._gate.release()

    def _retry(self, unit: GenerationUnit, why: str) -> None:
        times = self._failures.get(unit.key, 0)
        self._failures[unit.key] = times + 1
        log.warning(
            "generation failed", extra={"policy": unit.policy, "rule": unit.rule, "why": why[:300]}
        )
        self._delay(unit, min(self._first_pause * 2 ** min(times, 10), _LONGEST_PAUSE))


def _pause(times: int) -> float:
    return min(2.0 ** min(times - _OFTEN, 10), _LONGEST_TRUCE) if times > _OFTEN else 0.0
