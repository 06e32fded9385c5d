"""Policies as the store reads them: again only where they say something else."""

import pytest

from lictor.cluster.flags import Flags
from lictor.cluster.resource import find_resource
from lictor.cluster.store import PolicyStore
from lictor.families.registry import registry

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
    documents = [DOCUMENT]
    store._policies[CLUSTER_POLICY].list = lambda: documents  # type: ignore[assignment, misc]
    [first] = store.policies
    assert first.derive("answer", lambda: "before") == "before"
    documents[:] = [now]
    store._stale = True
    [second] = store.policies
    assert second.document is now
    assert (second.record is first.record) is is_same
    # What follows from a policy is worked out again only where the policy changed.
    assert second.derive("answer", lambda: "after") == ("before" if is_same else "after")
