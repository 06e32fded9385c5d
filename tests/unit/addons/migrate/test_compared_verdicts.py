"""Do two answers to a review mean the same?"""

import json
from base64 import b64encode

import pytest

from lictor.addons.migrate.verdicts import Comparison

POD = {"metadata": {"name": "a", "annotations": {"b": "c"}}, "spec": {}}
REQUEST = {
    "uid": "1",
    "kind": {"kind": "Pod"},
    "name": "a",
    "operation": "CREATE",
    "object": POD,
    "userInfo": {"username": "ann"},
}
ALLOWED = {"allowed": True}
NOTE = "/metadata/annotations/policies.kyverno.io~1last-applied-patches"


def refuse(message="no"):
    return {"allowed": False, "status": {"message": message}}


def patch(*operations):
    text = json.dumps([{"op": op, "path": path, "value": value} for op, path, value in operations])
    return {"allowed": True, "patchType": "JSONPatch", "patch": b64encode(text.encode()).decode()}


ROWS = [
    ("both allow", ALLOWED, ALLOWED, True),
    ("both refuse in their own words", refuse("no"), refuse("never"), True),
    ("one refuses", refuse(), ALLOWED, False),
    ("one changes", patch(("add", "/spec/x", 1)), ALLOWED, False),
    (
        "both change, each in its way",
        patch(("add", "/spec", {"x": 1})),
        patch(("add", "/spec/x", 1)),
        True,
    ),
    ("both change, not alike", patch(("add", "/spec/x", 1)), patch(("add", "/spec/x", 2)), False),
    (
        "a note about itself",
        patch(("add", "/spec/x", 1), ("add", NOTE, "y")),
        patch(("add", "/spec/x", 1)),
        True,
    ),
    ("a patch that cannot be applied", patch(("replace", "/no/where", 1)), ALLOWED, False),
    ("a patch that is none", {"allowed": True, "patch": "%"}, ALLOWED, False),
    ("warnings only", {"allowed": True, "warnings": ["x"]}, ALLOWED, True),
]


@pytest.mark.parametrize(
    ("theirs", "ours", "same"), [r[1:] for r in ROWS], ids=[r[0] for r in ROWS]
)
def test_answers_are_compared(theirs, ours, same):
    for left, right in ((theirs, ours), (ours, theirs)):
        comparison = Comparison()
        found = comparison.note("/validate/fail", REQUEST, left, right)
        assert (found is None) is same
        assert comparison.is_alike is same


def test_a_difference_says_what_both_answered():
    comparison = Comparison()
    comparison.note("/validate/fail", REQUEST, refuse("label it\nplease"), ALLOWED)
    [found] = comparison.differences
    assert (found.kind, found.name, found.user) == ("Pod", "a", "ann")
    assert (found.kyverno, found.lictor) == ("refused: label it please", "allowed")


def test_nothing_compared_and_no_answer_are_not_alike():
    assert not Comparison().is_alike
    comparison = Comparison()
    comparison.note("/validate/fail", REQUEST, ALLOWED, ALLOWED)
    comparison.unanswered["Kyverno: gone"] += 1
    assert not comparison.is_alike
