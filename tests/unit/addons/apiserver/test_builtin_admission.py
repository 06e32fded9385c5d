"""What Kubernetes' own admission does: namespaces, accounts, tolerations, priorities."""

import asyncio

import pytest
from access_world import World, config_map, make

from lictor.addons.apiserver.admission.chain import AdmissionChain
from lictor.core.errors import RefusedRequestError
from lictor.core.raw import Json, JsonObject

WAITING = [
    {
        "key": f"node.kubernetes.io/{taint}",
        "operator": "Exists",
        "effect": "NoExecute",
        "tolerationSeconds": 300,
    }
    for taint in ("not-ready", "unreachable")
]


def _mutate(
    world: World, document: JsonObject, verb: str = "create", subresource: str = ""
) -> JsonObject | None:
    admission = AdmissionChain(world.store, world.catalogue, world.authorization)
    attributes = world.ask(document, verb, subresource=subresource)
    new = None if verb == "delete" else document
    old = None if verb == "create" else document
    return asyncio.run(admission.mutate(attributes, new, old)).document


TERMINATING = make("v1", "Namespace", "ending", status={"phase": "Terminating"})
REFUSED: dict[str, tuple[JsonObject, str, int, str]] = {
    "missing": (config_map(namespace="gone"), "create", 404, 'namespaces "gone" not found'),
    "missing-update": (config_map(namespace="gone"), "update", 404, 'namespaces "gone" not found'),
    "ending": (
        config_map(namespace="ending"),
        "create",
        403,
        'configmaps "thing" is forbidden: unable to create new content in namespace ending because '
        "it is being terminated",
    ),
    "default": (
        make("v1", "Namespace", "default"),
        "delete",
        403,
        'namespaces "default" is forbidden: this namespace may not be deleted',
    ),
    "account": (
        make("v1", "Pod", "p", "default", spec={"serviceAccountName": "x"}),
        "create",
        403,
        'pods "p" is forbidden: error looking up service account default/x: serviceaccount "x" not '
        "found",
    ),
    "priority": (
        make("v1", "Pod", "p", "default", spec={"priorityClassName": "x"}),
        "create",
        403,
        'pods "p" is forbidden: no PriorityClass with name x was found',
    ),
}


@pytest.mark.parametrize(("document", "verb", "code", "message"), REFUSED.values(), ids=REFUSED)
def test_refused(document: JsonObject, verb: str, code: int, message: str) -> None:
    with pytest.raises(RefusedRequestError) as error:
        _mutate(World(TERMINATING), document, verb)
    assert (error.value.code, error.value.message) == (code, message)


def test_cause_of_an_ending_namespace() -> None:
    with pytest.raises(RefusedRequestError) as error:
        _mutate(World(TERMINATING), config_map(namespace="ending"))
    assert error.value.details == {
        "name": "thing",
        "kind": "configmaps",
        "causes": [
            {
                "reason": "NamespaceTerminating",
                "message": "namespace ending is being terminated",
                "field": "metadata.namespace",
            }
        ],
    }


@pytest.mark.parametrize(
    ("document", "verb"),
    [
        (config_map(namespace="gone"), "delete"),
        (config_map(namespace="ending"), "update"),
        (make("v1", "Namespace", "new"), "create"),
        (make("v1", "Namespace", "kube-node-lease"), "delete"),
        (make("rbac.authorization.k8s.io/v1", "ClusterRole", "r"), "create"),
    ],
    ids=["delete", "update-while-ending", "namespace", "other-namespace", "cluster-wide"],
)
def test_allowed(document: JsonObject, verb: str) -> None:
    _mutate(World(TERMINATING), document, verb)


DEFAULT: JsonObject = {
    "serviceAccountName": "default",
    "serviceAccount": "default",
    "priority": 0,
    "preemptionPolicy": "PreemptLowerPriority",
    "tolerations": WAITING,
}
PODS: dict[str, tuple[JsonObject, JsonObject]] = {
    "plain": ({}, DEFAULT),
    "account": (
        {"serviceAccountName": "robot"},
        {**DEFAULT, "serviceAccountName": "robot", "serviceAccount": "robot"},
    ),
    "older-field": (
        {"serviceAccount": "robot"},
        {**DEFAULT, "serviceAccountName": "robot", "serviceAccount": "robot"},
    ),
    "tolerates-one": (
        {"tolerations": [{"key": "node.kubernetes.io/not-ready", "operator": "Exists"}]},
        {
            **DEFAULT,
            "tolerations": [
                {"key": "node.kubernetes.io/not-ready", "operator": "Exists"}, WAITING[1],
            ],
        },
    ),
    "tolerates-all": (
        {"tolerations": [{"operator": "Exists"}]},
        {**DEFAULT, "tolerations": [{"operator": "Exists"}]},
    ),
    "priority": (
        {"priorityClassName": "high"},
        {
            **DEFAULT,
            "priorityClassName": "high",
            "priority": 1000,
            "preemptionPolicy": "Never",
        },
    ),
    "system": (
        {"priorityClassName": "system-node-critical"},
        {**DEFAULT, "priorityClassName": "system-node-critical", "priority": 2000001000},
    ),
}  # fmt: skip


@pytest.mark.parametrize(("spec", "expected"), PODS.values(), ids=PODS)
def test_pods(spec: Json, expected: Json) -> None:
    world = World(
        make("v1", "ServiceAccount", "robot", "default"),
        make("scheduling.k8s.io/v1", "PriorityClass", "high", value=1000, preemptionPolicy="Never"),
    )
    document = make("v1", "Pod", "p", "default", spec=spec)
    before = {**spec}
    admitted = _mutate(world, document)
    assert admitted is not None
    assert admitted["spec"] == expected
    assert document["spec"] == before


def test_what_is_there_is_left_alone() -> None:
    document = make("v1", "Pod", "p", "default", spec={})
    assert _mutate(World(), document, "update") is document
    assert _mutate(World(), document, "update", "status") is document
