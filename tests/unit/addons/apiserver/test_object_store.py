"""The store: versions, order, and what it remembers."""

import pytest

from lictor.addons.apiserver import store as store_module
from lictor.addons.apiserver.kind import ServedKind
from lictor.addons.apiserver.store import ADDED, DELETED, MODIFIED, Store, StoreChange
from lictor.core.errors import RefusedRequestError
from lictor.core.raw import Json, JsonObject


class _NoShape:
    form: Json = None


KIND = ServedKind("", "v1", "Thing", "things", "thing", namespaced=True, schema=_NoShape())


def thing(name: str, namespace: str = "a", **more: Json) -> JsonObject:
    metadata = {"name": name, "namespace": namespace}
    return {"apiVersion": "v1", "kind": "Thing", "metadata": metadata, **more}


def test_each_write_has_a_version_of_its_own() -> None:
    store = Store(10)
    first = store.put(KIND, thing("x"), expected="")
    second = store.put(KIND, thing("y"), expected=None)
    assert (first["metadata"]["resourceVersion"], second["metadata"]["resourceVersion"]) == (
        "11",
        "12",
    )
    assert store.revision == 12
    assert store.get(KIND, "a", "x") is first
    assert store.get(KIND, "b", "x") is None


@pytest.mark.parametrize(
    ("exists", "expected", "reason"),
    [
        (True, "", "AlreadyExists"),
        (True, "99", "Conflict"),
        (False, "99", "NotFound"),
        (True, "1", None),
        (True, None, None),
        (False, None, None),
        (False, "", None),
    ],
)
def test_versions_are_compared(*, exists: bool, expected: str | None, reason: str | None) -> None:
    store = Store()
    if exists:
        store.put(KIND, thing("x"), expected="")
    if reason is None:
        assert store.put(KIND, thing("x"), expected=expected)
        return
    with pytest.raises(RefusedRequestError) as refusal:
        store.put(KIND, thing("x"), expected=expected)
    assert refusal.value.reason == reason
    # What was refused took no version away.
    assert store.revision == int(exists)


def test_lists_are_in_order_and_by_namespace() -> None:
    store = Store()
    for namespace, name in (("b", "x"), ("a", "z"), ("a", "c"), ("a-b", "y"), ("c", "a")):
        store.put(KIND, thing(name, namespace), expected="")
    store.remove(KIND, "c", "a")

    def names(namespace: str = "") -> list[tuple[str, str]]:
        listed = [each["metadata"] for each in store.list(KIND, namespace)]
        return [(each["namespace"], each["name"]) for each in listed]

    assert names() == [("a", "c"), ("a", "z"), ("a-b", "y"), ("b", "x")]
    assert names("a") == [("a", "c"), ("a", "z")]
    assert names("nowhere") == []


def test_changes_are_told_with_what_was_before() -> None:
    store = Store()
    heard: list[StoreChange] = []
    stop = store.subscribe("", "things", heard.append)
    everything: list[StoreChange] = []
    store.subscribe_all(everything.append)
    store.put(KIND, thing("x", n=1), expected="")
    store.put(KIND, thing("x", n=2), expected="1")
    store.remove(KIND, "a", "x", expected="2")
    stop()
    store.put(KIND, thing("x", n=3), expected="")
    assert [(each.type, each.document["n"], each.revision) for each in heard] == [
        (ADDED, 1, 1),
        (MODIFIED, 2, 2),
        (DELETED, 2, 3),
    ]
    assert heard[1].old is heard[0].document
    assert heard[2].document["metadata"]["resourceVersion"] == "3"
    assert len(everything) == 4


def test_the_past_is_found_as_long_as_it_is_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store_module, "_MEMORY", 4)
    store = Store()
    storage = store.storage("", "things")
    store.put(KIND, thing("x", n=1), expected="")
    store.put(KIND, thing("y", n=1), expected="")
    store.put(KIND, thing("x", n=2), expected="1")
    store.remove(KIND, "a", "y")
    assert {key[1]: each["n"] for key, each in storage.at(2).items()} == {"x": 1, "y": 1}
    assert {key[1]: each["n"] for key, each in storage.at(4).items()} == {"x": 2}
    position = storage.position_after(3)
    assert [change.revision for change in storage.changes_from(position) or ()] == [4]
    for number in range(20):
        store.put(KIND, thing("x", n=number), expected=None)
    with pytest.raises(RefusedRequestError, match="too old resource version: 2"):
        storage.at(2)
    # Whoever stood there has lost the thread.
    assert storage.changes_from(position) is None
    assert len(storage.changes_from(storage.end - 1) or ()) == 1


def test_two_views_of_the_same_objects() -> None:
    assert Store().storage("events.k8s.io", "events").resource == ("", "events")
