"""The SQLite file: what was committed is read back; what failed is not lost."""

import asyncio
import sqlite3
from pathlib import Path
from typing import ClassVar

import pytest
from embedded_site import CONFIG_MAPS, Site, config_map, run_on_site
from test_object_store import KIND, thing

from lictor.embedded.persistence import Database, SqliteJournal, open_store
from lictor.embedded.store import Change


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
    assert store.shelf("", "things").horizon == store.revision
    asyncio.run(journal.close())


def test_all_that_is_written_at_once_is_committed_together(tmp_path: Path) -> None:
    class Counting(Database):
        batches: ClassVar[list[int]] = []

        def commit(self, changes: list[Change]) -> None:
            self.batches.append(len(changes))
            super().commit(changes)

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


def test_a_failed_commit_is_told_and_made_good(tmp_path: Path) -> None:
    class Failing(Database):
        fails = True

        def commit(self, changes: list[Change]) -> None:
            if self.fails:
                raise sqlite3.OperationalError("database or disk is full")
            super().commit(changes)

    async def run() -> None:
        database = Failing(tmp_path / "state.db")
        store, journal = open_store(database)
        store.put(KIND, thing("x"), expected="")
        with pytest.raises(sqlite3.OperationalError):
            await store.settle()
        # Who asks again hears the same, as long as it is so.
        with pytest.raises(sqlite3.OperationalError):
            await store.settle()
        database.fails = False
        store.put(KIND, thing("y"), expected="")
        await store.settle()
        await journal.close()

    asyncio.run(run())
    store, journal = open_store(Database(tmp_path / "state.db"))
    assert len(store.list(KIND)) == 2
    asyncio.run(journal.close())


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
