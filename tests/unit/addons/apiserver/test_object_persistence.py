"""The SQLite file: what was committed is read back; what cannot be written is undone."""

import asyncio
import os
import sqlite3
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import ClassVar

import pytest
from embedded_site import CONFIG_MAPS, Site, config_map, run_on_site
from test_object_store import KIND, thing

from lictor.addons.apiserver.persistence import Database, SqliteJournal, open_store
from lictor.addons.apiserver.store import StoreChange
from lictor.core.errors import DataFileError, RefusedRequestError


def test_objects_are_read_back(tmp_path: Path) -> None:
    path = tmp_path / "state.db"

    async def write() -> int:
        store, journal = open_store(Database(path))
        for number in range(50):
            store.put(KIND, thing(f"x{number}", n=number), expected="")
        store.remove(KIND, "a", "x0")
        store.put(KIND, thing("x1", n=100), expected=None)
        await store.settle()
        await journal.close()
        return store.revision

    revision = asyncio.run(write())
    assert path.stat().st_mode & 0o77 == 0
    store, journal = open_store(Database(path))
    assert len(store.list(KIND)) == 49
    changed = store.get(KIND, "a", "x1")
    assert changed is not None
    assert changed["n"] == 100
    assert changed["metadata"]["resourceVersion"] == str(revision)
    # Versions that someone may have seen are not used again, and nobody can go on from them.
    assert store.revision > revision + 1000
    assert store.storage("", "things").horizon == store.revision
    asyncio.run(journal.close())


def test_all_that_is_written_at_once_is_committed_together(tmp_path: Path) -> None:
    class Counting(Database):
        batches: ClassVar[list[int]] = []

        def commit(self, changes: Sequence[StoreChange], revision: int) -> None:
            self.batches.append(len(changes))
            super().commit(changes, revision)

    async def run() -> None:
        database = Counting(tmp_path / "state.db")
        store, journal = open_store(database)

        async def write(number: int) -> None:
            store.put(KIND, thing(f"x{number}"), expected="")
            await store.settle()

        await asyncio.gather(*(write(number) for number in range(100)))
        assert sum(database.batches) == 100
        assert len(database.batches) < 10
        await journal.close()

    asyncio.run(run())


class Small(Database):
    """A file that cannot grow: the limit is SQLite's own."""

    def limit(self, *, is_full: bool) -> None:
        [(pages,)] = self._connection.execute("PRAGMA page_count").fetchall()
        self._connection.execute(f"PRAGMA max_page_count={pages if is_full else 1_000_000}")


LARGE = "x" * 20_000


def test_what_cannot_be_written_is_undone(tmp_path: Path) -> None:
    seen: list[tuple[str, str]] = []

    async def run() -> None:
        database = Small(tmp_path / "state.db")
        store, journal = open_store(database)
        store.subscribe("", "things", lambda change: seen.append((change.type, change.key[1])))
        for name in ("kept", "changed", "removed"):
            store.put(KIND, thing(name, n=1), expected="")
        await store.settle()
        database.limit(is_full=True)
        store.put(KIND, thing("changed", n=2, data=LARGE), expected=None)
        store.put(KIND, thing("new", n=2, data=LARGE), expected="")
        store.put(KIND, thing("new", n=3, data=LARGE), expected=None)
        store.remove(KIND, "a", "removed")
        with pytest.raises(RefusedRequestError, match=r"state.db cannot be written: .* full"):
            await store.settle()
        assert [each["metadata"]["name"] for each in store.list(KIND)] == [
            "changed", "kept", "removed",
        ]  # fmt: skip
        assert all(each["n"] == 1 for each in store.list(KIND))
        assert journal.problem
        # Nothing else is taken as long as it is so, and no version is used up.
        revision = store.revision
        with pytest.raises(RefusedRequestError, match="cannot be written"):
            store.put(KIND, thing("other"), expected="")
        with pytest.raises(RefusedRequestError):
            await store.settle()
        assert store.revision == revision
        database.limit(is_full=False)
        await wait_for(lambda: not journal.problem)
        store.put(KIND, thing("later", n=1), expected="")
        await store.settle()
        await journal.close()

    asyncio.run(run())
    told = seen[3:]
    assert told[:4] == [
        ("MODIFIED", "changed"), ("ADDED", "new"), ("MODIFIED", "new"), ("DELETED", "removed"),
    ]  # fmt: skip
    assert sorted(told[4:]) == [
        ("ADDED", "later"), ("ADDED", "removed"), ("DELETED", "new"), ("MODIFIED", "changed"),
    ]  # fmt: skip
    store, journal = open_store(Database(tmp_path / "state.db"))
    assert [(each["metadata"]["name"], each["n"]) for each in store.list(KIND)] == [
        ("changed", 1), ("kept", 1), ("later", 1), ("removed", 1),
    ]  # fmt: skip
    asyncio.run(journal.close())


async def wait_for(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not holds():  # noqa: ASYNC110  (a test)
            await asyncio.sleep(0.02)


def test_an_object_that_cannot_be_encoded_harms_no_other(tmp_path: Path) -> None:
    async def run() -> None:
        store, journal = open_store(Database(tmp_path / "state.db"))
        store.put(KIND, thing("odd", n=1 << 70), expected="")
        with pytest.raises(RefusedRequestError):
            await store.settle()
        await wait_for(lambda: not journal.problem)
        store.put(KIND, thing("even"), expected="")
        await store.settle()
        assert [each["metadata"]["name"] for each in store.list(KIND)] == ["even"]
        await journal.close()

    asyncio.run(run())


def test_a_server_that_cannot_write_is_not_ready(tmp_path: Path) -> None:
    async def work(site: Site) -> None:
        database = site.server._database
        assert isinstance(database, Database)
        Small.limit(database, is_full=True)
        body = config_map("x", data={"a": LARGE})
        answer = await site.ask("POST", CONFIG_MAPS, body)
        assert (answer.status, answer.json["reason"]) == (500, "InternalError")
        assert "cannot be written" in answer.message
        assert (await site.get(f"{CONFIG_MAPS}/x")).status == 404
        assert [(await site.get(path)).status for path in HEALTH] == [500, 500, 200]
        Small.limit(database, is_full=False)
        await site.until("/readyz", lambda answer: answer.status == 200)
        await site.create(CONFIG_MAPS, body)

    run_on_site(work, tmp_path / "state.db")


HEALTH = ("/readyz", "/healthz", "/livez")


def damage(path: Path, statement: str) -> None:
    connection = sqlite3.connect(path)
    connection.execute(statement)
    connection.commit()
    connection.close()


DAMAGES: list[tuple[str, Callable[[Path], object], str]] = [
    ("nothing of SQLite", lambda path: path.write_bytes(b"x" * 9000), "not a database"),
    ("cut off", lambda path: os.truncate(path, 5000), "malformed"),
    ("empty", lambda path: path.write_bytes(b""), "is empty"),
    ("a folder", lambda path: (path.unlink(), path.mkdir()), "unable to open"),
    ("not JSON", lambda path: damage(path, "UPDATE objects SET body='{'"), "things a/x0 is not"),
    ("a list", lambda path: damage(path, "UPDATE objects SET body='[]'"), "things a/x0"),
    ("nameless", lambda path: damage(path, "UPDATE objects SET name='y'"), "things a/y"),
    ("no revision", lambda path: damage(path, "DELETE FROM settings"), "last resourceVersion"),
    (
        "odd revision",
        lambda path: damage(path, "UPDATE settings SET value='abc'"),
        "is not a number",
    ),
    ("no settings", lambda path: damage(path, "DROP TABLE settings"), "no table settings"),
    ("no objects", lambda path: damage(path, "DROP TABLE objects"), "no table objects"),
]


@pytest.mark.parametrize(
    ("harm", "told"), [each[1:] for each in DAMAGES], ids=[each[0] for each in DAMAGES]
)
def test_broken_files_are_told(tmp_path: Path, harm: Callable[[Path], object], told: str) -> None:
    path = tmp_path / "state.db"

    async def write() -> None:
        store, journal = open_store(Database(path))
        store.put(KIND, thing("x0", data=LARGE), expected="")
        await store.settle()
        await journal.close()

    asyncio.run(write())
    harm(path)
    before = path.read_bytes() if path.is_file() else b""
    with pytest.raises(DataFileError) as raised:
        open_store(Database(path))
    assert str(raised.value).startswith(f"{path}: ")
    assert told in str(raised.value)
    assert "begin with an empty cluster" in str(raised.value)
    assert (path.read_bytes() if path.is_file() else b"") == before


def test_files_become_private(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    Database(path).close()
    path.chmod(0o644)
    Database(path).close()
    assert path.stat().st_mode & 0o777 == 0o600


def test_settings_are_kept(tmp_path: Path) -> None:
    database = Database(tmp_path / "state.db")
    assert database.read_setting("key") is None
    database.write_setting("key", b"\x00\xff")
    database.close()
    database = Database(tmp_path / "state.db")
    assert database.read_setting("key") == b"\x00\xff"
    database.close()


def test_a_server_goes_on_where_it_ended(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    tokens = []

    async def before(site: Site) -> None:
        await site.create(CONFIG_MAPS, config_map("x", data={"a": "b"}))
        account = "/api/v1/namespaces/default/serviceaccounts/default"
        await site.until(account, lambda answer: answer.status == 200)
        issued = await site.create(f"{account}/token", {"spec": {}})
        tokens.append(issued["status"]["token"])
        crd = {
            "apiVersion": "apiextensions.k8s.io/v1",
            "kind": "CustomResourceDefinition",
            "metadata": {"name": "cars.example.com"},
            "spec": {
                "group": "example.com",
                "names": {"kind": "Car", "plural": "cars"},
                "scope": "Cluster",
                "versions": [
                    {
                        "name": "v1",
                        "served": True,
                        "storage": True,
                        "schema": {"openAPIV3Schema": {"type": "object"}},
                    }
                ],
            },
        }
        await site.create("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", crd)

    async def after(site: Site) -> None:
        found = await site.get(f"{CONFIG_MAPS}/x")
        assert found.json["data"] == {"a": "b"}
        assert (await site.get("/apis/example.com/v1/cars")).json["items"] == []
        review = {"spec": {"token": tokens[0]}}
        answer = await site.create("/apis/authentication.k8s.io/v1/tokenreviews", review)
        assert answer["status"]["authenticated"]
        old = found.json["metadata"]["resourceVersion"]
        [event] = await site.watch(f"{CONFIG_MAPS}?watch=1&resourceVersion={old}", 1)
        assert (event["type"], event["object"]["code"]) == ("ERROR", 410)

    run_on_site(before, path)
    run_on_site(after, path)


def test_journals_close_without_work(tmp_path: Path) -> None:
    journal = SqliteJournal(Database(tmp_path / "state.db"))
    asyncio.run(journal.close())
