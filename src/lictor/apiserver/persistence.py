"""Changes on their way to the file: what was acknowledged is there after any crash.

Changes are made in memory first. Where they cannot be written they are undone, and no other is
taken until a write works again.
"""

import asyncio
import logging
import sqlite3
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

from lictor.apiserver.database import Database
from lictor.apiserver.status_errors import internal_error
from lictor.apiserver.store import DELETED, GroupResource, ObjectKey, Store, StoreChange
from lictor.errors import RefusedRequestError

log = logging.getLogger(__name__)

# How long until a failed write is tried again.
_PAUSE = 0.5
# What a commit can fail with: the file, or an object that cannot be encoded.
_FAILURES = (sqlite3.Error, TypeError, ValueError)

Undo = Callable[[Sequence[StoreChange]], Sequence[StoreChange]]


class SqliteJournal:
    """Commits changes in batches: while one is written, the next gathers."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="journal")
        self._gathering: list[StoreChange] = []
        # When those that gather will be committed, and those that are being written.
        self._next: asyncio.Future[None] | None = None
        self._current: asyncio.Future[None] | None = None
        self._task: asyncio.Task[None] | None = None
        self._undo: Undo = lambda _: ()
        # Objects that were put back: the file has them under an older version.
        self._owed: dict[tuple[GroupResource, ObjectKey], StoreChange] = {}
        self._revision = 0
        self._problem = ""
        self._probe: asyncio.Task[None] | None = None

    def undo_by(self, undo: Undo) -> None:
        """Who takes changes back that could not be written."""
        self._undo = undo

    @property
    def problem(self) -> str:
        """Why nothing can be written now; empty where all is well."""
        return self._problem

    def check(self) -> None:
        if self._problem:
            raise internal_error(self._problem)

    def write(self, change: StoreChange) -> None:
        self._gathering.append(change)
        if self._next is None:
            self._next = asyncio.get_running_loop().create_future()
            # Whoever waits for it hears of a failure; perhaps nobody waits.
            self._next.add_done_callback(_take_note)
        if self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(self._drain())

    async def settle(self) -> None:
        awaited = self._next or self._current
        if awaited is not None:
            await asyncio.shield(awaited)

    async def _drain(self) -> None:
        while self._gathering:
            # One turn of the loop: requests that are ready now share a commit.
            await asyncio.sleep(0)
            batch, self._gathering = self._gathering, []
            done = self._next or asyncio.get_running_loop().create_future()
            self._current, self._next = done, None
            try:
                await self._commit(batch)
            except _FAILURES as error:
                self._give_up(batch, error)
                return
            done.set_result(None)

    async def _commit(self, batch: Sequence[StoreChange]) -> None:
        changes = [*self._owed.values(), *batch]
        self._revision = max([self._revision, *(change.revision for change in changes)])
        loop = asyncio.get_running_loop()
        await loop.run_in_executor(self._thread, self._database.commit, changes, self._revision)
        self._owed.clear()

    def _give_up(self, batch: Sequence[StoreChange], error: Exception) -> None:
        """Take back what cannot be written, with all that was built on it meanwhile."""
        self._problem = f"{self._database.path} cannot be written: {error}"
        log.error("objects cannot be kept", extra={"file": str(self._database.path), "why": error})
        later, self._gathering = self._gathering, []
        for undone in self._undo([*batch, *later]):
            self._revision = undone.revision
            if undone.type != DELETED:
                self._owed[undone.resource, undone.key] = undone
        for waiting in (self._current, self._next):
            if waiting is not None and not waiting.done():
                waiting.set_exception(internal_error(self._problem))
        self._next = None
        self._probe = asyncio.get_running_loop().create_task(self._recover())

    async def _recover(self) -> None:
        while self._problem:
            await asyncio.sleep(_PAUSE)
            try:
                await self._commit(())
            except _FAILURES as error:
                log.debug("objects can still not be kept", extra={"why": error})
            else:
                self._problem, self._current = "", None
                log.warning("objects are kept again", extra={"file": str(self._database.path)})

    async def close(self) -> None:
        """Commit what is left, and let go of the file."""
        if self._probe is not None:
            self._probe.cancel()
            await asyncio.wait((self._probe,))
        try:
            await self.settle()
        except RefusedRequestError as error:
            log.error("the last changes were not kept", extra={"why": error})
        self._thread.shutdown()
        self._database.close()


def _take_note(future: "asyncio.Future[None]") -> None:
    if not future.cancelled():
        future.exception()


def open_store(database: Database) -> tuple[Store, SqliteJournal]:
    """The store as it was when the file was last written."""
    journal = SqliteJournal(database)
    store = Store(database.revision(), journal)
    journal.undo_by(store.undo)
    for (group, plural), key, document in database.objects():
        store.storage(group, plural).load(key, document)
    return store, journal
