"""Policies as the store reads them: again only where they say something else, and kept small."""

import copy

import orjson
import pytest
import yaml

from lictor.core.families.registry import registry
from lictor.core.load.policies import load_documents
from lictor.kubernetes.flags import Flags
from lictor.kubernetes.resource import find_resource
from lictor.kubernetes.stored_policy import condense_status, keep_policy, read_policy
from lictor.policies.store import PolicyStore

CLUSTER_POLICY = find_resource(registry().get("kyverno.io", "ClusterPolicy"))

DOCUMENT = {
    "apiVersion": "kyverno.io/v1",
    "kind": "ClusterPolicy",
    "metadata": {"name": "p", "uid": "1", "generation": 1, "resourceVersion": "5"},
    "spec": {
        "rules": [
            {
                "name": "rule",
                "match": {"any": [{"resources": {"kinds": ["Pod"]}}]},
                "validate": {"message": "no", "deny": {}},
            }
        ]
    },
}


def change(**metadata):
    return {**DOCUMENT, "metadata": {**DOCUMENT["metadata"], **metadata}}


@pytest.mark.parametrize(
    ("now", "is_same"),
    [
        ({**DOCUMENT, "status": {"ready": True}}, True),
        (change(resourceVersion="6", managedFields=[{"manager": "lictor"}]), True),
        (change(generation=2), False),
        (change(annotations={"pod-policies.kyverno.io/autogen-controllers": "none"}), False),
        (change(labels={"a": "b"}), False),
        ({**DOCUMENT, "spec": {"rules": []}}, False),
    ],
)
def test_a_policy_is_read_again_where_it_says_something_else(now, is_same):
    store = PolicyStore(None, Flags())
    [first] = store.load_documents([(CLUSTER_POLICY, DOCUMENT)])
    store._publish((first,), has_compiled=True)
    assert first.derive("answer", lambda: "before") == "before"
    [second] = store.load_documents([(CLUSTER_POLICY, now)])
    assert second.document is now
    assert (second.record is first.record) is is_same
    # What follows from a policy is worked out again only where the policy changed.
    assert second.derive("answer", lambda: "after") == ("before" if is_same else "after")


def test_a_policy_with_another_status_shares_its_spec():
    store = PolicyStore(None, Flags())
    [first] = store.load_documents([(CLUSTER_POLICY, copy.deepcopy(DOCUMENT))])
    store._publish((first,), has_compiled=True)
    now = copy.deepcopy({**DOCUMENT, "status": {"ready": True}})
    [second] = store.load_documents([(CLUSTER_POLICY, now)])
    assert second.document == now
    assert second.document["spec"] is first.document["spec"]


def read(document):
    return read_policy(CLUSTER_POLICY, document, {}, always_ignore=False)


def keep_as_came(document):
    return keep_policy(orjson.loads(orjson.dumps(document)))


def test_a_record_shares_what_its_document_holds():
    kept = keep_as_came(DOCUMENT)
    condition = {"all": [{"key": "a long text of its own", "operator": "Equals", "value": "b"}]}
    kept["spec"]["rules"][0]["validate"]["deny"] = {"conditions": condition}
    record = read(kept).record
    assert record.spec.rules[0].validate.deny.conditions is condition
    assert record.spec.rules[0].validate.message is kept["spec"]["rules"][0]["validate"]["message"]


def test_policies_that_say_the_same_share_their_texts():
    annotated = change(annotations={"title": "a title of some length"}, managedFields=[{}])
    one, other = keep_as_came(annotated), keep_as_came(annotated)
    assert one == change(annotations={"title": "a title of some length"})
    assert one["metadata"]["annotations"]["title"] is other["metadata"]["annotations"]["title"]
    rules = [each["spec"]["rules"][0] for each in (one, other)]
    assert rules[0]["match"]["any"][0]["resources"]["kinds"][0] is "Pod"  # noqa: F632
    assert rules[0]["validate"]["message"] is rules[1]["validate"]["message"]


def test_the_rules_of_a_status_are_kept_as_a_digest():
    def keep_status(name):
        status = {"ready": True, "autogen": {"rules": [{"name": name}]}}
        return keep_as_came({**DOCUMENT, "status": status})["status"]

    assert keep_status("a") == keep_status("a") != keep_status("b")
    assert keep_status("a")["ready"] is True
    assert "rules" not in keep_status("a")["autogen"]
    assert condense_status({"autogen": {}}) == {"autogen": {}}


@pytest.mark.parametrize("spec", [None, "text", [], 7, {"rules": None}])
def test_a_policy_of_any_shape_is_kept_as_it_is(spec):
    odd = {**DOCUMENT, "metadata": {"name": "p", "labels": None}, "spec": spec}
    assert keep_policy(copy.deepcopy(odd)) == odd


def test_a_policy_may_be_as_deep_as_it_likes():
    deep = {"end": "x"}
    for _ in range(20_000):
        deep = {"a": deep}
    kept = keep_policy({**DOCUMENT, "spec": deep})
    assert kept["spec"] is deep


NUMBERS = {"a": 1.0, "b": [1e3, 1.5], "c": 12345678901234567890, "d": "1.0"}


def test_numbers_are_those_of_a_file():
    document = copy.deepcopy(DOCUMENT)
    document["spec"]["rules"][0]["validate"] = {"message": "m", "pattern": NUMBERS}
    from_text = load_documents(yaml.safe_dump(document), "p").records[0]
    record = read(document).record
    assert record == from_text
    pattern = record.spec.rules[0].validate.pattern
    assert [type(pattern["a"]), type(pattern["b"][0]), type(pattern["b"][1])] == [int, int, float]
    # The object of the API server stays as it is.
    assert type(document["spec"]["rules"][0]["validate"]["pattern"]["a"]) is float


def test_a_policy_too_deep_to_walk_is_a_problem():
    document = copy.deepcopy(DOCUMENT)
    deep = {"end": "x"}
    for _ in range(400):
        deep = {"a": deep}
    document["spec"]["rules"][0]["validate"] = {"message": "m", "pattern": deep}
    stored = read(document)
    assert stored.record is None
    assert [str(each) for each in stored.problems] == ["ClusterPolicy/p:1:1: nested too deeply"]
