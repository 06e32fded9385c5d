"""Which collections a policy looks through, and which of them the controller may use."""

import asyncio

import pytest

from lictor.controllers.cleanup.policies import check_permissions, find_targets, read_cleanup
from lictor.core.errors import LoadError
from lictor.kubernetes.discovery import Collection
from lictor.kubernetes.resource import Resource

ALL = frozenset(("get", "list", "watch", "delete"))


def serve(group, version, plural, kind, *, namespaced=True, verbs=ALL, preferred=True):
    return Collection(Resource(group, version, plural, kind, namespaced), verbs, preferred)


SERVED = (
    serve("", "v1", "pods", "Pod"),
    serve("", "v1", "services", "Service"),
    serve("", "v1", "nodes", "Node", namespaced=False),
    serve("", "v1", "bindings", "Binding", verbs=frozenset(["create"])),
    serve("apps", "v1", "deployments", "Deployment"),
    serve("autoscaling", "v2", "horizontalpodautoscalers", "HorizontalPodAutoscaler"),
    serve(
        "autoscaling", "v1", "horizontalpodautoscalers", "HorizontalPodAutoscaler", preferred=False
    ),
    serve("serving.knative.dev", "v1", "services", "Service"),
)


def classic(*kinds, kind="ClusterCleanupPolicy", **resources):
    metadata = {"name": "sweep"}
    if kind == "CleanupPolicy":
        metadata["namespace"] = "here"
    match = {"any": [{"resources": {"kinds": [each], **resources}} for each in kinds]}
    return read_cleanup(
        {
            "apiVersion": "kyverno.io/v2",
            "kind": kind,
            "metadata": metadata,
            "spec": {"schedule": "@daily", "match": match},
        }
    )


def deleting(groups, versions, resources, kind="DeletingPolicy", **constraints):
    metadata = {"name": "sweep"}
    if kind.startswith("Namespaced"):
        metadata["namespace"] = "here"
    rule = {"apiGroups": groups, "apiVersions": versions, "resources": resources}
    return read_cleanup(
        {
            "apiVersion": "policies.kyverno.io/v1",
            "kind": kind,
            "metadata": metadata,
            "spec": {
                "schedule": "@daily",
                "matchConstraints": {"resourceRules": [rule], **constraints},
            },
        }
    )


def paths(record):
    targets = find_targets(record, SERVED)
    return [each.resource.path(each.namespace) for each in targets.found]


CHOICES = [
    (classic("Pod"), ["/api/v1/pods"]),
    (classic("Pod", "v1/Pod", "Pod"), ["/api/v1/pods"]),
    (classic("apps/v1/Deployment"), ["/apis/apps/v1/deployments"]),
    # Of a kind that several groups have, the first is meant; all others by their group.
    (classic("Service"), ["/api/v1/services"]),
    (classic("serving.knative.dev/*/Service"), ["/apis/serving.knative.dev/v1/services"]),
    (classic("*/Service"), ["/api/v1/services"]),
    (
        classic("HorizontalPodAutoscaler"),
        ["/apis/autoscaling/v2/horizontalpodautoscalers"],
    ),
    (
        classic("autoscaling/v1/HorizontalPodAutoscaler"),
        ["/apis/autoscaling/v1/horizontalpodautoscalers"],
    ),
    (classic("Depl*"), ["/apis/apps/v1/deployments"]),
    (classic("Pod", kind="CleanupPolicy"), ["/api/v1/namespaces/here/pods"]),
    (deleting([""], ["v1"], ["pods", "pods/log"]), ["/api/v1/pods"]),
    (deleting(["*"], ["*"], ["services"]), ["/api/v1/services", "/apis/serving.knative.dev/v1/services"]),
    (
        deleting(["autoscaling"], ["*"], ["*"]),
        ["/apis/autoscaling/v2/horizontalpodautoscalers"],
    ),
    (
        deleting([""], ["v1"], ["pods"], kind="NamespacedDeletingPolicy"),
        ["/api/v1/namespaces/here/pods"],
    ),
]  # fmt: skip


@pytest.mark.parametrize(("record", "expected"), CHOICES, ids=range(len(CHOICES)))
def test_collections_of_a_policy(record, expected):
    assert paths(record) == expected


USELESS = [
    (classic("NoSuchKind"), "kind NoSuchKind cannot be deleted here"),
    (classic("Binding"), "kind Binding cannot be deleted here"),
    (classic("Node", kind="CleanupPolicy"), "kind Node is cluster-scoped"),
    (deleting([""], ["v1"], ["nodes"], kind="NamespacedDeletingPolicy"), "is cluster-scoped"),
    (deleting(["apps"], ["v1beta1"], ["deployments"]), "resource deployments cannot be deleted"),
]


@pytest.mark.parametrize(("record", "said"), USELESS, ids=[said for _, said in USELESS])
def test_what_cannot_be_looked_through_is_told(record, said):
    targets = find_targets(record, SERVED)
    assert targets.found == ()
    assert said in targets.problems[0]


def test_the_object_selector_is_left_to_the_server():
    selector = {
        "matchLabels": {"app": "web"},
        "matchExpressions": [
            {"key": "tier", "operator": "In", "values": ["a", "b"]},
            {"key": "env", "operator": "NotIn", "values": ["prod"]},
            {"key": "old", "operator": "Exists"},
            {"key": "keep", "operator": "DoesNotExist"},
        ],
    }
    record = deleting([""], ["v1"], ["pods"], objectSelector=selector)
    (target,) = find_targets(record, SERVED).found
    assert target.labels == "app=web,tier in (a,b),env notin (prod),old,!keep"


def test_a_document_that_is_no_policy_says_why():
    with pytest.raises(LoadError, match="schedule"):
        read_cleanup(
            {
                "apiVersion": "kyverno.io/v2",
                "kind": "ClusterCleanupPolicy",
                "metadata": {"name": "x"},
                "spec": {"match": {}},
            }
        )
    with pytest.raises(LoadError, match="not a policy that deletes"):
        read_cleanup({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "x"}})


def ask(record, *allowed):
    asked = []

    async def allows(access):
        asked.append(access)
        return (access.verb, access.resource) in allowed or access.name == "mine"

    missing = asyncio.run(check_permissions(record, SERVED, allows, "someone"))
    return missing, asked


def test_permissions_that_are_missing_are_named():
    record = classic("Pod", "Service", kind="CleanupPolicy")
    missing, asked = ask(record, ("list", "pods"), ("delete", "pods"), ("list", "services"))
    assert missing == (
        "cleanup controller has no permission to delete kind Service in namespace here",
    )
    assert {access.user for access in asked} == {"someone"}
    assert {access.namespace for access in asked} == {"here"}


def test_a_role_for_single_objects_is_enough_to_delete_them():
    missing, asked = ask(classic("Pod", names=["mine"]), ("list", "pods"))
    assert missing == ()
    assert [(access.verb, access.name) for access in asked] == [("list", ""), ("delete", "mine")]
    missing, _ = ask(classic("Pod", names=["mine", "m*"]), ("list", "pods"))
    assert missing == ("cleanup controller has no permission to delete kind Pod",)
