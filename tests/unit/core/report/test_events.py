"""Which results become which events, and in which words."""

import pytest

from lictor.core.model.request import Request
from lictor.core.model.result import ExceptionRef, PolicyRef, Result, RuleType, Status, Verdict
from lictor.core.report.events import EventOptions, EventSource, build_events

POLICY = PolicyRef("p", annotations={})
POD = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "a", "namespace": "n", "uid": "u"},
}


def result(status, rule="r", *, policy=POLICY, kind=RuleType.VALIDATION, **more):
    return Result(policy, rule, kind, status, **{"message": "said", **more})


def tell(*results, resource=POD, **options):
    verdict = Verdict(Request.of(resource), results)
    return build_events(verdict, EventOptions(**options))


def show(events):
    return [(str(e.reason), str(e.action), e.message, e.about.kind) for e in events]


def test_violation_that_passed():
    events = tell(result(Status.FAIL), result(Status.PASS, "other"))
    assert show(events) == [
        (
            "PolicyViolation",
            "Resource Passed",
            "Pod n/a: [r] fail; said",
            "ClusterPolicy",
        ),
        ("PolicyViolation", "Resource Passed", "policy p/r fail: said", "Pod"),
    ]
    assert events[0].related == events[1].about
    assert events[1].about.uid == "u"
    assert all(event.is_warning for event in events)


def test_violation_that_was_blocked():
    events = tell(result(Status.FAIL), blocked=True)
    assert show(events) == [
        (
            "PolicyViolation",
            "Resource Blocked",
            "Pod n/a: [r] fail (blocked); said",
            "ClusterPolicy",
        )
    ]


def test_what_a_scan_tells_of_an_object_is_not_told_twice():
    events = tell(result(Status.FAIL), is_reported_elsewhere=lambda policy: policy.name == "p")
    assert [event.about.kind for event in events] == ["ClusterPolicy"]
    # A scan changes nothing, and says nothing about changes.
    changed = result(Status.ERROR, kind=RuleType.MUTATION)
    events = tell(changed, is_reported_elsewhere=lambda _: True)
    assert [event.about.kind for event in events] == ["ClusterPolicy", "Pod"]


def test_what_could_not_be_decided_is_told():
    [first, _] = tell(result(Status.ERROR))
    assert first.message == "Pod n/a: [r] error; said"


def test_success():
    [event] = tell(result(Status.PASS))
    assert show([event]) == [("PolicyApplied", "Resource Passed", "Pod n/a: pass", "ClusterPolicy")]
    assert not event.is_warning
    assert tell(result(Status.PASS), with_success=False) == []


def test_mutation():
    [event] = tell(result(Status.PASS, kind=RuleType.MUTATION))
    assert (event.action, event.message) == (
        "Resource Mutated",
        "Pod n/a is successfully mutated",
    )


def test_skip_without_an_exception_is_not_told():
    assert tell(result(Status.SKIP)) == []


EXCEPTIONS = [
    (POLICY, "kyverno.io/v2", "resource Pod/n/a was skipped from policy rule p/r"),
    (
        PolicyRef("p", "n", kind="Policy"),
        "kyverno.io/v2",
        "resource Pod/n/a was skipped from policy rule n/p/r",
    ),
    (
        PolicyRef("p", kind="ValidatingPolicy", api_version="policies.kyverno.io/v1beta1"),
        "policies.kyverno.io/v1beta1",
        "resource Pod/n/a was skipped from policy rule p/r",
    ),
]


@pytest.mark.parametrize(
    ("policy", "version", "message"), EXCEPTIONS, ids=["classic", "namespaced", "cel"]
)
def test_exceptions(policy, version, message):
    exceptions = (ExceptionRef("x", "ns"), ExceptionRef("y", "ns"))
    events = tell(result(Status.SKIP, policy=policy, exceptions=exceptions))
    assert [(e.about.kind, e.about.name, str(e.reason)) for e in events] == [
        ("PolicyException", "x", "PolicySkipped"),
        ("PolicyException", "y", "PolicySkipped"),
        (policy.kind, "p", "PolicySkipped"),
    ]
    assert events[0].about.api_version == version
    assert events[0].message == message
    assert events[2].message == (
        "resource Pod/n/a was skipped from rule r due to policy exceptions ns/x, ns/y"
    )


def test_policies_are_told_apart():
    other = PolicyRef("q")
    events = tell(result(Status.FAIL), result(Status.PASS, policy=other), find_uid=lambda p: p.name)
    assert [(e.about.name, e.about.uid) for e in events] == [("p", "p"), ("a", "u"), ("q", "q")]


def test_resources_without_a_name_have_no_events():
    nameless = {"apiVersion": "v1", "kind": "Pod", "metadata": {"generateName": "a-"}}
    assert tell(result(Status.FAIL), resource=nameless) == []


def test_cluster_wide_resources_and_other_sources():
    node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "a"}}
    events = tell(result(Status.FAIL, rule=""), resource=node, source=EventSource.SCAN)
    assert events[0].message == "Node a: fail; said"
    assert {event.source for event in events} == {EventSource.SCAN}
