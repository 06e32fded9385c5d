"""Changes in a SQLite file: what was acknowledged is there after any crash."""

import asyncio
import contextlib
import sqlite3
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import orjson

from lictor.embedded.store import DELETED, Change, Key, Place, Store
from lictor.raw import JsonObject

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
# Clients may have seen changes that were never committed: no revision of theirs is used again.
_GAP = 10_000


class Database:
    """The file. Used by one thread at a time."""

    def __init__(self, path: Path) -> None:
        path.touch(mode=0o600, exist_ok=True)
        self._connection = sqlite3.connect(path, check_same_thread=False, isolation_level=None)
        self._connection.execute("PRAGMA journal_mode=WAL")
        self._connection.execute("PRAGMA synchronous=FULL")
        self._connection.executescript(_TABLES)

    def objects(self) -> Iterator[tuple[Place, Key, JsonObject]]:
        """All objects that are there."""
        rows = self._connection.execute(
            'SELECT "group", plural, namespace, name, body FROM objects ORDER BY 1, 2, 3, 4'
        )
        for group, plural, namespace, name, body in rows:
            yield (group, plural), (namespace, name), orjson.loads(body)

    def revision(self) -> int:
        """One that no client has seen yet; 0 in a new file."""
        value = self.read_setting(_REVISION)
        return int(value) + _GAP if value is not None else 0

    def read_setting(self, name: str) -> bytes | None:
        """Something that is no object, such as a key."""
        query = "SELECT value FROM settings WHERE name=?"
        row = self._connection.execute(query, (name,)).fetchone()
        return None if row is None else bytes(row[0])

    def write_setting(self, name: str, value: bytes) -> None:
        """Keep something that is no object; committed when this returns."""
        self._connection.execute(_SETTING, (name, value))

    def commit(self, changes: list[Change]) -> None:
        """Write changes, all or none."""
        execute = self._connection.execute
        execute("BEGIN IMMEDIATE")
        try:
            for change in changes:
                where = (*change.place, *change.key)
                if change.type == DELETED:
                    execute(_DELETE, where)
                else:
                    execute(_PUT, (*where, orjson.dumps(change.document)))
            execute(_SETTING, (_REVISION, str(changes[-1].revision).encode()))
            execute("COMMIT")
        except BaseException:
            with contextlib.suppress(sqlite3.Error):
                execute("ROLLBACK")
            raise

    def close(self) -> None:
        self._connection.close()


class SqliteJournal:
    """Commits changes in batches: while one is written, the next gathers."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="journal")
        self._gathering: list[Change] = []
        # When those that gather will be committed, and those that are being written.
        self._next: asyncio.Future[None] | None = None
        self._current: asyncio.Future[None] | None = None
        self._task: asyncio.Task[None] | None = None

    def write(self, change: Change) -> None:
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
        loop = asyncio.get_running_loop()
        while self._gathering:
            # One turn of the loop: requests that are ready now share a commit.
            await asyncio.sleep(0)
            batch, self._gathering = self._gathering, []
            done = self._next or loop.create_future()
            self._current, self._next = done, None
            try:
                await loop.run_in_executor(self._thread, self._database.commit, batch)
            except sqlite3.Error as error:
                # Not lost: the next commit takes them along.
                self._gathering[:0] = batch
                done.set_exception(error)
                return
            done.set_result(None)

    async def close(self) -> None:
        """Commit what is left, and let go of the file."""
        with contextlib.suppress(sqlite3.Error):
            await self.settle()
        self._thread.shutdown()
        self._database.close()


def _take_note(future: "asyncio.Future[None]") -> None:
    if not future.cancelled():
        future.exception()


def open_store(database: Database) -> tuple[Store, SqliteJournal]:
    """The store as it was when the file was last written."""
    journal = SqliteJournal(database)
    store = Store(database.revision(), journal)
    for (group, plural), key, document in database.objects():
        store.shelf(group, plural).load(key, document)
    return store, journal
