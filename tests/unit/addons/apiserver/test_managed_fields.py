"""Owners of fields where clients send strange things, and where nobody owns anything."""

import pytest

from lictor.addons.apiserver.kinds.catalogue import build_catalogue
from lictor.addons.apiserver.ownership.managed_fields import track

NOW, LATER = "2026-01-02T03:04:05Z", "2026-01-02T03:04:06Z"
MAP = build_catalogue().find_kind("v1", "ConfigMap")


def make(data, **metadata):
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "a", **metadata},
        "data": data,
    }


def entry(**changes):
    whole = {
        "manager": "sent",
        "operation": "Update",
        "apiVersion": "v1",
        "time": NOW,
        "fieldsType": "FieldsV1",
        "fieldsV1": {"f:data": {"f:b": {}}},
    }
    return {key: value for key, value in {**whole, **changes}.items() if value is not None}


def owners(document):
    return {
        each["manager"]: each["fieldsV1"] for each in document["metadata"].get("managedFields", [])
    }


def nest(depth):
    value: object = "x"
    for _ in range(depth):
        value = {"a": value}
    return value


def test_a_create_is_tracked_and_nothing_is_changed_in_place():
    new = make({"a": "1"})
    created = track(MAP, None, new, "maker", NOW, "")
    assert new == make({"a": "1"})
    assert created["metadata"]["managedFields"] == [
        entry(manager="maker", fieldsV1={"f:data": {".": {}, "f:a": {}}})
    ]


def test_an_update_takes_what_it_changes():
    created = track(MAP, None, make({"a": "1", "b": "1"}), "maker", NOW, "")
    updated = track(MAP, created, make({"a": "1", "b": "2"}), "other", LATER, "")
    assert owners(updated) == {
        "maker": {"f:data": {".": {}, "f:a": {}}},
        "other": {"f:data": {"f:b": {}}},
    }


def test_who_is_not_named_is_unknown():
    assert owners(track(MAP, None, make({"a": "1"}), "", NOW, "")).keys() == {"unknown"}


def test_what_nobody_owns_stays_so():
    updated = track(MAP, make({"a": "1"}), make({"a": "2"}), "other", NOW, "")
    assert "managedFields" not in updated["metadata"]


def test_a_client_may_write_the_owners_itself():
    created = track(MAP, None, make({"a": "1"}), "maker", NOW, "")
    sent = make({"a": "1"}, managedFields=[entry(fieldsV1={"f:data": {"f:a": {}}})])
    assert owners(track(MAP, created, sent, "other", LATER, "")) == {
        "sent": {"f:data": {"f:a": {}}}
    }


@pytest.mark.parametrize("sent", [[], [{}]], ids=str)
def test_an_empty_entry_forgets_all_owners(sent):
    created = track(MAP, None, make({"a": "1"}), "maker", NOW, "")
    updated = track(MAP, created, make({"a": "1"}, managedFields=sent), "other", LATER, "")
    assert "managedFields" not in updated["metadata"]


@pytest.mark.parametrize("sent", [[], [{}], [entry()]], ids=["none", "empty", "one"])
def test_nobody_writes_owners_through_a_subresource(sent):
    created = track(MAP, None, make({"a": "1"}), "maker", NOW, "")
    updated = track(MAP, created, make({"a": "1"}, managedFields=sent), "other", LATER, "status")
    assert owners(updated) == owners(created)


@pytest.mark.parametrize(
    "sent",
    [
        entry(operation="Replace"),
        entry(operation=["Update"]),
        entry(apiVersion=""),
        entry(apiVersion=None),
        entry(apiVersion=1),
        entry(fieldsType="FieldsV2"),
        entry(fieldsType=None),
        entry(fieldsV1={"b": {}}),
        entry(fieldsV1=[]),
        entry(fieldsV1={"f:a": None}),
        entry(manager=7),
        entry(time={}),
        entry(subresource=[]),
    ],
    ids=str,
)
def test_owners_that_cannot_be_read_do_not_count(sent):
    created = track(MAP, None, make({"a": "1"}), "maker", NOW, "")
    new = make({"a": "1"}, managedFields=[sent])
    updated = track(MAP, created, new, "other", LATER, "")
    assert owners(updated) == owners(created)


def test_who_owns_nothing_is_no_owner():
    created = track(MAP, None, make({"a": "1"}), "maker", NOW, "")
    new = make({"a": "2"}, managedFields=[entry(fieldsV1={})])
    assert owners(track(MAP, created, new, "other", LATER, "")).keys() == {"other"}


def test_what_cannot_be_tracked_is_written_without_owners():
    twice = make({}, finalizers=[{"no": "scalar"}])
    assert "managedFields" not in track(MAP, None, twice, "maker", NOW, "")["metadata"]


def test_deep_objects_do_no_harm():
    written = track(MAP, None, {**make({}), "free": nest(3000)}, "maker", NOW, "")
    assert "managedFields" not in written["metadata"]
