"""What `lictor status` reads from a cluster's objects."""

import asyncio
import json

import pytest

from lictor.controllers.installation_status import read_installation, read_policy_state
from lictor.core.errors import NotFoundError
from lictor.core.families.registry import registry
from lictor.kubernetes import resource as kinds
from lictor.kubernetes.names import Names
from lictor.kubernetes.resource import find_resource

CLUSTER_POLICY = find_resource(registry().get("kyverno.io", "ClusterPolicy"))


OWN = {"webhook.kyverno.io/managed-by": "kyverno"}
KUBEWARDEN = {"app.kubernetes.io/part-of": "kubewarden"}


class Api:
    """Objects by kind; a kind without objects is not served."""

    def __init__(self, objects):
        self.objects = objects

    async def list(self, resource, namespace="", *, labels=""):
        if resource not in self.objects and resource is not kinds.LEASE:
            raise NotFoundError("not served", status=404)
        wanted = dict([labels.split("=")]) if labels else {}
        found = self.objects.get(resource, [])
        return [
            each for each in found if wanted.items() <= each["metadata"].get("labels", {}).items()
        ]

    async def list_pages(self, resource, *_, **__):
        yield {"metadata": {}, "items": await self.list(resource)}


def make_lease(name, holder, labels=None, annotations=None):
    metadata = {"name": name, "labels": labels or {}, "annotations": annotations or {}}
    spec = {"holderIdentity": holder, "renewTime": "2026-01-01T00:00:00.000000Z"}
    return {"metadata": metadata, "spec": spec}


def make_report(namespace, *results):
    entries = [{"policy": policy, "result": result} for policy, result in results]
    return {"metadata": {"name": "r", "namespace": namespace}, "results": entries}


@pytest.mark.parametrize(
    ("status", "ready", "why"),
    [
        ({}, False, "not checked yet"),
        ({"conditions": [{"type": "Ready", "status": "True"}]}, True, ""),
        (
            {"conditions": [{"type": "Ready", "status": "False", "message": "no webhook"}]},
            False,
            "no webhook",
        ),
        ({"conditionStatus": {"ready": True, "conditions": []}}, True, ""),
        (
            {
                "conditionStatus": {
                    "ready": False,
                    "conditions": [{"status": "False", "reason": "RBACFailed"}],
                }
            },
            False,
            "RBACFailed",
        ),
        (
            {"conditions": [{"status": "False", "message": "same"}] * 2},
            False,
            "same",
        ),
    ],
)
def test_readiness_of_policies(status, ready, why):
    document = {"metadata": {"name": "p"}, "status": status}
    state = read_policy_state(CLUSTER_POLICY, document)
    assert (state.ready, state.why) == (ready, why)


def make_cluster():
    note = {"lictor.io/scan": json.dumps({"kinds": 3, "judged": 7, "finishedAt": "now"})}
    stamp = {"kyverno.io/last-request-time": "2026-01-01T00:00:01Z"}
    gone = make_lease("m0", "pod-gone", {"lictor.io/member-of": "reports"}, note)
    gone["spec"]["leaseDurationSeconds"] = 12
    ready = {"conditions": [{"type": "Ready", "status": "True"}]}
    return {
        kinds.LEASE: [
            make_lease("lictor", "pod-a"),
            make_lease("lictor-health", "", annotations=stamp),
            make_lease("m1", "pod-b", {"lictor.io/member-of": "reports"}, note),
            gone,
            make_lease("m2", "pod-c", {"lictor.io/member-of": "reports"}, {"lictor.io/scan": "?"}),
        ],
        CLUSTER_POLICY: [{"metadata": {"name": "p"}, "status": ready}],
        kinds.VALIDATING_WEBHOOK: [
            {"metadata": {"name": "w", "labels": OWN}, "webhooks": [{}, {}]},
            {"metadata": {"name": "clusterwide-k", "labels": KUBEWARDEN}, "webhooks": [{}]},
            {"metadata": {"name": "other"}, "webhooks": [{}]},
        ],
        kinds.MUTATING_WEBHOOK: [],
        kinds.UPDATE_REQUEST: [
            {"metadata": {"name": "u1"}, "status": {"state": "Failed"}},
            {"metadata": {"name": "u2"}},
        ],
        kinds.EPHEMERAL_REPORT: [{"metadata": {"name": "e"}}],
        kinds.POLICY_REPORT: [
            make_report("shop", ("p", "fail"), ("q", "fail"), ("q", "pass")),
            make_report("bank", ("q", "error")),
        ],
    }


def test_everything_is_read():
    found = asyncio.run(read_installation(Api(make_cluster()), Names(), top=1))
    assert [(w.name, w.webhooks) for w in found.webhooks] == [("w", 2), ("clusterwide-k", 1)]
    assert [(each.controller, each.holder) for each in found.leaders] == [("admission", "pod-a")]
    assert found.heartbeat == "2026-01-01T00:00:01Z"
    assert found.queues == {"ephemeralReports": 1, "updateRequests": 2, "failedUpdateRequests": 1}
    assert [(s.member, s.kinds, s.judged) for s in found.scans] == [
        ("pod-b", 3, 7),
        ("pod-c", 0, 0),
    ]
    assert found.reports.reports == 2
    assert found.reports.results["fail"] == 2
    assert [(o.name, o.failures) for o in found.reports.worst_namespaces] == [("shop", 2)]
    assert [(o.name, o.failures) for o in found.reports.worst_policies] == [("q", 2)]
    assert found.is_well


def test_reports_may_be_left_unread():
    assert asyncio.run(read_installation(Api(make_cluster()), Names(), top=0)).reports is None


def test_a_cluster_without_an_installation_is_not_well():
    empty = {kinds.VALIDATING_WEBHOOK: [], kinds.MUTATING_WEBHOOK: []}
    found = asyncio.run(read_installation(Api(empty), Names()))
    assert not found.is_well
    assert found.policies == ()
