"""Who owns the ClusterRole, and when an installation goes away for good."""

import asyncio

import pytest
from small_api import SmallApi

from lictor.controllers.run import POD, is_going_down
from lictor.controllers.webhook_configuration.writer import own_role
from lictor.core.errors import UnreachableError
from lictor.kubernetes.names import Names
from lictor.kubernetes.resource import CLUSTER_ROLE, DEPLOYMENT, NAMESPACE

NAMES = Names()
HOME = {"apiVersion": "v1", "kind": "Namespace", "name": "lictor", "uid": "home"}
OTHER = {"apiVersion": "v1", "kind": "ConfigMap", "name": "chart", "uid": "other"}


@pytest.mark.parametrize(
    ("owners", "after", "writes"),
    [
        ([], [HOME], 1),
        ([HOME], [HOME], 0),
        ([OTHER], [OTHER, HOME], 1),
        ([{**HOME, "uid": "a namespace of before"}], [HOME], 1),
        ([OTHER, HOME], [OTHER, HOME], 0),
    ],
    ids=["none", "right", "another", "outdated", "both"],
)
def test_the_role_is_owned_by_the_namespace(owners, after, writes):
    api = SmallApi()
    role = api.seed(
        CLUSTER_ROLE, {"metadata": {"name": NAMES.owner_role, "ownerReferences": owners}}
    )
    namespace = {"metadata": {"name": "lictor", "uid": "home"}}
    asyncio.run(own_role(api, role, namespace))
    assert api.read(CLUSTER_ROLE, NAMES.owner_role)["metadata"]["ownerReferences"] == after
    assert len(api.writes) == writes


def test_without_role_or_namespace_nothing_happens():
    api = SmallApi()
    asyncio.run(own_role(api, None, {"metadata": {"name": "x", "uid": "y"}}))
    asyncio.run(own_role(api, {"metadata": {"name": "x"}}, None))
    assert api.writes == []


LEAVING = {"deletionTimestamp": "2030-01-01T00:00:00Z"}


@pytest.mark.parametrize(
    ("pod", "deployment", "namespace", "expected"),
    [
        ({}, {"replicas": 3}, {}, False),
        ({}, {}, {}, False),
        ({}, {"replicas": 0}, {}, True),
        ({}, None, {}, True),
        ({}, LEAVING, {}, True),
        ({}, {"replicas": 3}, LEAVING, True),
        (None, None, {}, False),
        (LEAVING, {"replicas": 3}, {}, False),
    ],
    ids=["runs", "default", "to-zero", "gone", "going", "namespace-going", "no-pod", "restart"],
)
def test_is_it_going_down(pod, deployment, namespace, expected):
    api = SmallApi()
    metadata = {"name": "lictor-admission-controller", "namespace": "lictor"}
    if deployment is not None:
        gone = LEAVING if "deletionTimestamp" in deployment else {}
        spec = {name: value for name, value in deployment.items() if name == "replicas"}
        api.seed(DEPLOYMENT, {"metadata": {**metadata, **gone}, "spec": spec})
    api.seed(NAMESPACE, {"metadata": {"name": "lictor", **namespace}})
    if pod is not None:
        api.seed(POD, {"metadata": {"name": "me", "namespace": "lictor", **pod}})
    assert asyncio.run(is_going_down(api, NAMES, "me", "admission")) is expected


def test_what_is_not_known_is_no_reason_to_leave():
    class Away(SmallApi):
        async def find(self, *_):
            raise UnreachableError("away")

    assert asyncio.run(is_going_down(Away(), NAMES, "me", "admission")) is False
    assert asyncio.run(is_going_down(SmallApi(), NAMES, "", "admission")) is False
