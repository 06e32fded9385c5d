"""The status of policies that delete."""

from datetime import UTC, datetime

import pytest

from lictor.controllers.cleanup.run import (
    EXECUTING,
    READY,
    StatusCondition,
    build_status_patch,
    read_status,
)

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
LATER = datetime(2026, 3, 1, 13, tzinfo=UTC)
SHAPES = ["kyverno.io/v2", "policies.kyverno.io/v1beta1"]


def policy(api_version, status=None):
    metadata = {"name": "p", "resourceVersion": "7", "generation": 3}
    return {"apiVersion": api_version, "metadata": metadata, "status": status or {}}


@pytest.mark.parametrize("api_version", SHAPES)
def test_what_is_written_is_read_again(api_version):
    ready = StatusCondition(READY, holds=True, reason="Succeeded", message="Ready")
    begun = StatusCondition(EXECUTING, holds=True, reason="Started", message="now")
    patch = build_status_patch(policy(api_version), [ready, begun], NOON, executed=NOON)
    assert patch["metadata"] == {"resourceVersion": "7"}
    status = read_status(policy(api_version, patch["status"]))
    assert status.is_executing
    assert status.last_execution == NOON
    assert status.contains(ready, 3)
    assert not status.contains(ready, 4)
    assert not status.contains(ready_not(), 3)


def ready_not():
    return StatusCondition(READY, holds=False, reason="Failed", message="no")


@pytest.mark.parametrize("api_version", SHAPES)
def test_the_time_of_a_condition_is_that_of_its_last_change(api_version):
    good = StatusCondition(READY, holds=True, reason="Succeeded", message="Ready")
    first = build_status_patch(policy(api_version), [good], NOON)["status"]
    same = build_status_patch(policy(api_version, first), [good], LATER)["status"]
    assert read_status(policy(api_version, same)).find(READY)["lastTransitionTime"] == (
        "2026-03-01T12:00:00Z"
    )
    bad = build_status_patch(policy(api_version, same), [ready_not()], LATER)["status"]
    condition = read_status(policy(api_version, bad)).find(READY)
    assert (condition["status"], condition["lastTransitionTime"]) == (
        "False",
        "2026-03-01T13:00:00Z",
    )


def test_conditions_of_others_stay():
    other = {"type": "Other", "status": "True"}
    before = policy("kyverno.io/v2", {"conditions": [other]})
    patch = build_status_patch(before, [ready_not()], NOON)
    assert patch["status"]["conditions"][0] == other


def test_cel_policies_sum_up_their_readiness():
    patch = build_status_patch(policy(SHAPES[1]), [ready_not()], NOON)
    summary = patch["status"]["conditionStatus"]
    assert (summary["ready"], summary["message"]) == (False, "no")


ODD = [None, "x", {"conditions": "x"}, {"lastExecutionTime": "soon"}, {"conditions": ["x"]}]


@pytest.mark.parametrize("status", ODD, ids=repr)
def test_odd_status_counts_as_none(status):
    document = {**policy("kyverno.io/v2"), "status": status}
    assert read_status(document).last_execution is None
    assert not read_status(document).is_executing


def test_a_long_message_is_cut():
    long = StatusCondition(READY, holds=False, reason="Failed", message="x" * 50_000)
    patch = build_status_patch(policy("kyverno.io/v2"), [long], NOON)
    assert len(patch["status"]["conditions"][0]["message"]) == 4000
    assert read_status({**policy("kyverno.io/v2"), **patch, "metadata": {}}).contains(long, 3)
