"""What admission asks the background for."""

import orjson
import pytest

from lictor.core.families.registry import registry
from lictor.core.load.policies import load_documents
from lictor.core.model.request import Caller, GroupVersionKind, Operation, Request
from lictor.core.model.result import PolicyRef, Result, RuleType, Status, Verdict
from lictor.kubernetes.resource import find_resource
from lictor.kubernetes.stored_policy import StoredPolicy
from lictor.kubernetes.update_requests import UpdateType
from lictor.webhook.post_admission import AdmissionOutcome
from lictor.webhook.result_sinks import AdmissionUpdates, list_updates

CLUSTER_POLICY = find_resource(registry().get("kyverno.io", "ClusterPolicy"))

BACKGROUND = "system:serviceaccount:kyverno:kyverno-background-controller"
OBJECT = {
    "apiVersion": "v1",
    "kind": "ConfigMap",
    "metadata": {"name": "s", "namespace": "shop", "uid": "uid-1"},
    "data": {"text": "x"},
}
CLASSIC = PolicyRef("classic", kind="ClusterPolicy", api_version="kyverno.io/v1")
CEL = PolicyRef("cel", kind="GeneratingPolicy", api_version="policies.kyverno.io/v1beta1")


def make_request(operation=Operation.CREATE, username="jo"):
    deleted = operation is Operation.DELETE
    admission = {
        "uid": "r",
        "operation": str(operation),
        "object": None if deleted else OBJECT,
        "oldObject": OBJECT if deleted else None,
    }
    return Request(
        GroupVersionKind("", "v1", "ConfigMap"),
        admission["object"],
        admission["oldObject"],
        operation,
        caller=Caller(username, cluster_roles=("view",)),
        admission=admission,
    )


def make_result(policy=CLASSIC, rule="rule", status=Status.PASS, kind=RuleType.GENERATION):
    return Result(policy=policy, rule=rule, type=kind, status=status)


MUTATION = RuleType.MUTATION


@pytest.mark.parametrize(
    ("results", "expected"),
    [
        pytest.param([], [], id="nothing"),
        pytest.param([make_result(status=Status.SKIP)], [], id="skipped"),
        pytest.param(
            [make_result(rule="a"), make_result(rule="b")],
            [(UpdateType.GENERATE, "classic", ("a", "b"))],
            id="what-is-generated-belongs-together",
        ),
        pytest.param(
            [make_result(rule="a", kind=MUTATION), make_result(rule="b", kind=MUTATION)],
            [(UpdateType.MUTATE, "classic", ("a",)), (UpdateType.MUTATE, "classic", ("b",))],
            id="each-mutation-alone",
        ),
        pytest.param(
            [make_result(CEL, "cel"), make_result(CEL, "", kind=MUTATION)],
            [(UpdateType.CEL_GENERATE, "cel", ("cel",)), (UpdateType.CEL_MUTATE, "cel", ("",))],
            id="cel",
        ),
        pytest.param(
            [make_result(status=Status.ERROR)],
            [(UpdateType.GENERATE, "classic", ("rule",))],
            id="an-error-may-be-none-later",
        ),
    ],
)
def test_what_is_asked_for(results, expected):
    updates = list_updates(make_request(), results)
    assert [(update.type, update.policy, update.rules) for update in updates] == expected


def test_what_the_background_reads_itself_is_not_written_down():
    (update,) = list_updates(make_request(), [make_result()])
    assert update.admission["object"] is None
    assert (update.trigger.name, update.trigger.uid) == ("s", "uid-1")
    assert update.caller == {"roles": [], "clusterRoles": ["view"]}


def test_what_is_gone_is_written_down():
    (update,) = list_updates(make_request(Operation.DELETE), [make_result()])
    assert update.admission["oldObject"] == OBJECT


class Requests:
    def __init__(self):
        self.updates = []

    def offer(self, update):
        self.updates.append(update)
        return True


def make_policy(*, skip):
    rule = {
        "name": "rule",
        "match": {"any": [{"resources": {"kinds": ["ConfigMap"]}}]},
        "skipBackgroundRequests": skip,
        "generate": {"apiVersion": "v1", "kind": "ConfigMap", "name": "made", "namespace": "shop"},
    }
    document = {
        "apiVersion": "kyverno.io/v1",
        "kind": "ClusterPolicy",
        "metadata": {"name": "classic"},
        "spec": {"rules": [rule]},
    }
    (loaded,) = load_documents(orjson.dumps(document), "test").policies
    return StoredPolicy(CLUSTER_POLICY, document, loaded.record)


@pytest.mark.parametrize(
    ("username", "skip", "policy", "asked"),
    [
        pytest.param("jo", True, CLASSIC, True, id="someone-else"),
        pytest.param(BACKGROUND, True, CLASSIC, False, id="our-own-work"),
        pytest.param(BACKGROUND, False, CLASSIC, True, id="our-own-work-is-wanted"),
        pytest.param(BACKGROUND, True, CEL, False, id="our-own-work-and-cel"),
    ],
)
def test_own_requests(username, skip, policy, asked):
    requests = Requests()
    policies = (make_policy(skip=skip),)
    sink = AdmissionUpdates(requests, BACKGROUND, lambda: policies)
    request = make_request(username=username)
    verdict = Verdict(request, (make_result(policy),))
    sink.take(
        AdmissionOutcome(
            request, allowed=True, mutating=False, verdict=Verdict(request, ()), triggered=verdict
        )
    )
    assert bool(requests.updates) is asked


def test_what_was_refused_sets_off_nothing():
    requests = Requests()
    request = make_request()
    verdict = Verdict(request, (make_result(),))
    sink = AdmissionUpdates(requests, BACKGROUND, lambda: ())
    sink.take(
        AdmissionOutcome(
            request, allowed=False, mutating=False, verdict=Verdict(request, ()), triggered=verdict
        )
    )
    assert requests.updates == []
