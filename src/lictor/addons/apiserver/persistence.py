"""Changes on their way to the file: what was acknowledged is there after any crash.

Changes are made in memory first. Where they cannot be written they are undone, and no other is
taken until a write works again.
"""

import asyncio
import contextlib
import logging
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import orjson

from lictor.addons.apiserver.status_errors import internal_error
from lictor.addons.apiserver.store import DELETED, GroupResource, ObjectKey, Store, StoreChange
from lictor.core.errors import DataFileError, RefusedRequestError
from lictor.core.raw import Json, JsonObject

_TABLES = """
CREATE TABLE IF NOT EXISTS objects (
    "group" TEXT, plural TEXT, namespace TEXT, name TEXT, body BLOB NOT NULL,
    PRIMARY KEY ("group", plural, namespace, name)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS settings (name TEXT PRIMARY KEY, value BLOB NOT NULL) WITHOUT ROWID;
"""
_PUT = 'INSERT OR REPLACE INTO objects ("group", plural, namespace, name, body) VALUES (?,?,?,?,?)'
_DELETE = 'DELETE FROM objects WHERE "group"=? AND plural=? AND namespace=? AND name=?'
_SETTING = "INSERT OR REPLACE INTO settings (name, value) VALUES (?,?)"
_REVISION = "revision"
# Clients may have seen uncommitted changes: their revisions must not be used again.
_GAP = 10_000
_PRIVATE = 0o600


class Database:
    """The file. Used by one thread at a time."""

    def __init__(self, path: Path) -> None:
        self.path = path
        is_new = _make_private(path)
        try:
            self._connection = sqlite3.connect(path, check_same_thread=False, isolation_level=None)
        except sqlite3.Error as error:
            raise _describe_damage(path, error) from error
        try:
            self._open(is_new=is_new)
        except BaseException:
            self._connection.close()
            raise

    def _open(self, *, is_new: bool) -> None:
        try:
            [(found,)] = self._connection.execute("PRAGMA quick_check(1)").fetchall()
            if found != "ok":
                raise self._damaged(found)
            if not is_new:
                self._check_tables()
            self._connection.execute("PRAGMA journal_mode=WAL")
            self._connection.execute("PRAGMA synchronous=FULL")
            self._connection.executescript(_TABLES)
        except sqlite3.Error as error:
            raise self._damaged(error) from error

    def _check_tables(self) -> None:
        """An older file without its tables is no new one: objects were in there."""
        names = {name for (name,) in self._connection.execute("SELECT name FROM sqlite_master")}
        missing = {"objects", "settings"} - names
        if missing:
            raise self._damaged(f"it has no table {' and no table '.join(sorted(missing))}")
        has_objects = self._connection.execute("SELECT 1 FROM objects LIMIT 1").fetchone()
        if has_objects and self.read_setting(_REVISION) is None:
            raise self._damaged("the last resourceVersion is missing")

    def objects(self) -> Iterator[tuple[GroupResource, ObjectKey, JsonObject]]:
        """All objects that are there; raises DataFileError at one that cannot be read."""
        try:
            rows = self._connection.execute(
                'SELECT "group", plural, namespace, name, body FROM objects ORDER BY 1, 2, 3, 4'
            )
            for group, plural, namespace, name, body in rows:
                key = (namespace, name)
                shown = f"{plural} {namespace}/{name}" if namespace else f"{plural} {name}"
                yield (group, plural), key, self._read_object(body, key, shown)
        except sqlite3.Error as error:
            raise self._damaged(error) from error

    def _read_object(self, body: bytes, key: ObjectKey, shown: str) -> JsonObject:
        try:
            document: Json = orjson.loads(body)
        except orjson.JSONDecodeError as error:
            raise self._damaged(f"the object {shown} is not JSON: {error}") from error
        if not _is_object(document, key):
            raise self._damaged(f"what stands for the object {shown} is not that object")
        found: JsonObject = document
        return found

    def revision(self) -> int:
        """One that no client has seen yet; 0 in a new file."""
        value = self.read_setting(_REVISION)
        if value is None:
            return 0
        if not value.isdigit():
            raise self._damaged("the last resourceVersion is not a number")
        return int(value) + _GAP

    def read_setting(self, name: str) -> bytes | None:
        """Something that is no object, such as a key."""
        query = "SELECT value FROM settings WHERE name=?"
        row = self._connection.execute(query, (name,)).fetchone()
        if row is None:
            return None
        return row[0] if isinstance(row[0], bytes) else str(row[0]).encode()

    def write_setting(self, name: str, value: bytes) -> None:
        """Keep something that is no object; committed when this returns."""
        try:
            self._connection.execute(_SETTING, (name, value))
        except sqlite3.Error as error:
            raise DataFileError(f"{self.path}: cannot be written: {error}") from error

    def commit(self, changes: Sequence[StoreChange], revision: int) -> None:
        """Write changes, all or none, and the revision up to which all is written."""
        execute = self._connection.execute
        execute("BEGIN IMMEDIATE")
        try:
            for change in changes:
                where = (*change.resource, *change.key)
                if change.type == DELETED:
                    execute(_DELETE, where)
                else:
                    execute(_PUT, (*where, orjson.dumps(change.document)))
            execute(_SETTING, (_REVISION, str(revision).encode()))
            execute("COMMIT")
        except BaseException:
            with contextlib.suppress(sqlite3.Error):
                execute("ROLLBACK")
            raise

    def close(self) -> None:
        self._connection.close()

    def _damaged(self, why: object) -> DataFileError:
        self.close()
        return _describe_damage(self.path, why)


def _describe_damage(path: Path, why: object) -> DataFileError:
    return DataFileError(
        f"{path}: the file of objects cannot be read: {why}. Nothing in it was changed: "
        "restore the folder from a copy, or move it away to begin with an empty cluster"
    )


def _make_private(path: Path) -> bool:
    """See to it that the file is there, and its owner's alone; whether it is new."""
    try:
        path.touch(mode=_PRIVATE, exist_ok=False)
    except FileExistsError:
        found = path.stat()
        if path.is_file() and found.st_size == 0:
            raise DataFileError(
                f"{path}: the file of objects is empty: restore it from a copy, or remove it to "
                "begin with an empty cluster"
            ) from None
        if path.is_file() and found.st_mode & 0o077:
            path.chmod(_PRIVATE)
        return False
    return True


def _is_object(document: Json, key: ObjectKey) -> bool:
    """Is it an object with this name, complete enough to be served?"""
    metadata = document.get("metadata") if isinstance(document, dict) else None
    if not isinstance(metadata, dict):
        return False
    texts = (document.get("apiVersion"), document.get("kind"), metadata.get("resourceVersion"))
    found = (metadata.get("namespace") or "", metadata.get("name"))
    return found == key and all(isinstance(text, str) and text for text in texts)


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
            # Waiting requests receive the failure; without any, it must still be retrieved.
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
