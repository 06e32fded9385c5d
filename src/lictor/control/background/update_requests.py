"""UpdateRequests, worked off: equal ones at once, several side by side, failed ones again later."""

import asyncio
import logging
import time
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from typing import Protocol, TypeAlias

import msgspec

from lictor.cluster.cache import Cache
from lictor.cluster.client import Client
from lictor.cluster.resource import UPDATE_REQUEST
from lictor.cluster.update_requests import (
    StoredUpdate,
    Update,
    UpdateType,
    read_update_request,
)
from lictor.errors import ApiError, LictorError, NotFoundError, NotYetError

log = logging.getLogger(__name__)

_Key: TypeAlias = tuple[str, ...]

_SHORT_PAUSE = 0.25
_FIRST_PAUSE = 1.0
_LONGEST_PAUSE = 300.0
# An update that nobody could do for so long is told once more, and taken away: a queue that
# is full of such stops all others.
_LIFETIME = 3600.0


class UpdateHandler(Protocol):
    """Does what an update asks for; raises where that did not work.

    NotYetError: it is too early. What is too early for too long is asked for as late.
    """

    async def __call__(self, update: Update, *, is_late: bool) -> None: ...


class _Pause(msgspec.Struct, frozen=True):
    """How often something failed, when it is due again, and what was known of it then."""

    times: int
    until: float
    latest: int


class UpdateRequestQueue:
    """One reconcile pass works off whatever lies there and is due."""

    def __init__(
        self,
        client: Client,
        cache: Cache,
        handlers: Mapping[UpdateType, UpdateHandler],
        *,
        workers: int,
    ) -> None:
        self._client = client
        self._cache = cache
        self._handlers = handlers
        self._gate = asyncio.Semaphore(max(workers, 1))
        self._due: dict[_Key, _Pause] = {}
        # What came too early: since when.
        self._early: dict[_Key, float] = {}
        self._read: dict[str, StoredUpdate | None] = {}
        self._busy: set[_Key] = set()
        self._done: set[str] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self.on_progress: Callable[[], None] = lambda: None

    @property
    def waiting(self) -> int:
        """How many lie there."""
        return len(self._cache)

    async def reconcile(self) -> None:
        """Begin what is due; does not wait for its end."""
        groups = self._collect()
        now = time.monotonic()
        for key, stored in groups.items():
            if key not in self._busy and self._is_due(key, stored, now):
                self._busy.add(key)
                task = asyncio.create_task(self._work(key, stored))
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)
        self._due = {key: value for key, value in self._due.items() if key in groups}
        self._early = {key: value for key, value in self._early.items() if key in groups}

    def _is_due(self, key: _Key, stored: list[StoredUpdate], now: float) -> bool:
        pause = self._due.get(key)
        # What is asked for once more does not wait for what failed before.
        return pause is None or pause.until <= now or _latest(stored) > pause.latest

    async def stop(self) -> None:
        """Leave what is under way to whoever leads next."""
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._busy.clear()

    def _collect(self) -> dict[_Key, list[StoredUpdate]]:
        bodies = {str(body["metadata"].get("uid")): body for body in self._cache.list()}
        # What an update asks for never changes: each is read once.
        self._read = {
            uid: self._read[uid] if uid in self._read else read_update_request(body)
            for uid, body in bodies.items()
        }
        self._done &= bodies.keys()
        groups: dict[_Key, list[StoredUpdate]] = {}
        for stored in self._read.values():
            if stored is not None and stored.uid not in self._done:
                groups.setdefault(key_of(stored), []).append(stored)
        return groups

    async def _work(self, key: _Key, stored: list[StoredUpdate]) -> None:
        # The latest of equal ones: it knows what the others know.
        update = max(stored, key=lambda each: each.version).update
        try:
            async with self._gate:
                await self._handle(key, update)
        except NotYetError:
            self._pause(key, stored, _SHORT_PAUSE)
        except (LictorError, TimeoutError) as error:
            await self._fail(key, stored, str(error))
        except Exception as error:
            log.exception("update failed", extra={"policy": update.policy})
            await self._fail(key, stored, f"{type(error).__name__}: {error}")
        else:
            self._due.pop(key, None)
            await self._remove(stored)
        finally:
            self._busy.discard(key)
            self.on_progress()

    async def _handle(self, key: _Key, update: Update) -> None:
        handler = self._handlers.get(update.type)
        if handler is None:
            return
        since = self._early.get(key)
        try:
            await handler(update, is_late=False)
        except NotYetError as error:
            now = time.monotonic()
            if now - self._early.setdefault(key, now) < error.patience:
                raise
            await handler(update, is_late=True)
        if since is not None:
            self._early.pop(key, None)

    def _pause(
        self, key: _Key, stored: list[StoredUpdate], seconds: float, *, times: int = 0
    ) -> None:
        self._due[key] = _Pause(times, time.monotonic() + seconds, _latest(stored))
        asyncio.get_running_loop().call_later(seconds, self.on_progress)

    async def _remove(self, stored: Iterable[StoredUpdate]) -> None:
        for each in stored:
            self._done.add(each.uid)
            try:
                await self._client.delete(
                    UPDATE_REQUEST,
                    each.name,
                    self._cache.namespace,
                    preconditions={"uid": each.uid},
                )
            except ApiError as error:
                self._done.discard(each.uid)
                log.warning("update not removed", extra={"why": str(error)[:200]})

    async def _fail(self, key: _Key, stored: list[StoredUpdate], why: str) -> None:
        if _is_old(stored):
            log.error(
                "update given up", extra={"policy": stored[0].update.policy, "why": why[:300]}
            )
            await self._remove(stored)
            return
        known = self._due.get(key)
        times = known.times if known is not None else 0
        pause = min(_FIRST_PAUSE * 2 ** min(times, 10), _LONGEST_PAUSE)
        self._pause(key, stored, pause, times=times + 1)
        log.warning(
            "update failed",
            extra={"policy": stored[-1].update.policy, "why": why[:300], "times": times + 1},
        )
        status = {"status": {"state": "Failed", "message": why[:1000]}}
        for each in stored:
            try:
                await self._client.patch(
                    UPDATE_REQUEST,
                    each.name,
                    status,
                    namespace=self._cache.namespace,
                    subresource="status",
                )
            except NotFoundError:
                continue
            except ApiError as error:
                log.warning("status not written", extra={"why": str(error)[:200]})


def _latest(stored: Iterable[StoredUpdate]) -> int:
    return max(each.version for each in stored)


def _is_old(stored: Iterable[StoredUpdate]) -> bool:
    now = datetime.now(UTC)
    try:
        ages = [now - datetime.fromisoformat(each.created) for each in stored]
    except ValueError:
        return False
    return all(age.total_seconds() > _LIFETIME for age in ages)


def key_of(stored: StoredUpdate) -> tuple[str, ...]:
    """What updates have in common of which the last one stands for all."""
    update = stored.update
    admission = update.admission or {}
    operation = str(admission.get("operation") or "")
    trigger = update.trigger
    place = (trigger.uid or f"{trigger.namespace}/{trigger.name}", trigger.kind)
    # What the request said, and nothing else, tells what happened: each one counts.
    alone = stored.uid if operation == "DELETE" or admission.get("subResource") else ""
    kind = "delete" if update.delete_downstream else operation
    return (update.type, update.policy, ",".join(update.rules), *place, kind, alone)
