"""What does the status of a definition say, and when do names collide?"""

import pytest

from lictor.addons.apiserver.controllers.definitions import compute_status, find_conflict


def definition(plural, kind, *, short=(), status=None):
    names = {"plural": plural, "kind": kind, "singular": kind.lower(), "listKind": f"{kind}List"}
    if short:
        names["shortNames"] = list(short)
    return {
        "metadata": {"name": f"{plural}.example.com"},
        "spec": {
            "group": "example.com",
            "names": names,
            "versions": [{"name": "v1", "served": True, "storage": True}],
        },
        "status": status or {},
    }


def established(document, now="2024-01-01T00:00:00Z"):
    return {**document, "status": compute_status(document, [], now)}


def test_a_first_definition_is_established():
    status = compute_status(definition("things", "Thing"), [], "2024-01-01T00:00:00Z")

    assert [(c["type"], c["status"], c["reason"]) for c in status["conditions"]] == [
        ("NamesAccepted", "True", "NoConflicts"),
        ("Established", "True", "InitialNamesAccepted"),
    ]
    assert status["acceptedNames"]["plural"] == "things"
    assert status["storedVersions"] == ["v1"]


def test_judging_again_changes_nothing():
    document = established(definition("things", "Thing"))

    assert compute_status(document, [document], "2025-01-01T00:00:00Z") == document["status"]


def test_stored_versions_are_remembered():
    document = established(definition("things", "Thing"))
    document["spec"]["versions"] = [
        {"name": "v1", "served": True, "storage": False},
        {"name": "v2", "served": True, "storage": True},
    ]

    status = compute_status(document, [document], "2025-01-01T00:00:00Z")

    assert status["storedVersions"] == ["v1", "v2"]


@pytest.mark.parametrize(
    ("other", "reason"),
    [
        (definition("others", "Other"), None),
        (definition("others", "Thing"), "SingularConflict"),
        (definition("others", "Other", short=("th",)), "ShortNamesConflict"),
    ],
)
def test_names_collide(other, reason):
    first = established(definition("things", "Thing", short=("th",)))

    found = find_conflict(other, [first, other])

    assert (found and found[0]) == reason


def test_a_definition_whose_names_are_taken_is_not_established():
    first = established(definition("things", "Thing"))
    second = definition("others", "Thing")

    status = compute_status(second, [first, second], "2024-01-01T00:00:00Z")

    assert [(c["type"], c["status"]) for c in status["conditions"]] == [
        ("NamesAccepted", "False"),
        ("Established", "False"),
    ]
    assert status["acceptedNames"] == {}
