"""An exception that was created just before the object that it is for counts."""

from pathlib import Path

import pytest
from serving import (
    Bench,
    FixedPolicies,
    Notes,
    make_policy,
    make_review,
    require_label,
    write_policies,
)

from lictor.core.model.result import Status
from lictor.core.raw import JsonObject

EXCEPTION: JsonObject = {
    "apiVersion": "kyverno.io/v2",
    "kind": "PolicyException",
    "metadata": {"name": "free", "namespace": "shop"},
    "spec": {
        "exceptions": [{"policyName": "teams", "ruleNames": ["*"]}],
        "match": {"any": [{"resources": {"kinds": ["Pod"], "names": ["web"]}}]},
    },
}


def make_policies(folder: Path, action: str, *, is_created: bool) -> FixedPolicies:
    """Policies that hear of an exception when they look for new ones."""
    policy = make_policy("teams", require_label("team", action))
    for name in ("before", "after"):
        (folder / name).mkdir()
    before = write_policies(folder / "before", policy)
    after = write_policies(folder / "after", policy, EXCEPTION)
    policies = FixedPolicies(before)
    policies.can_lag = True

    def find_new() -> bool:
        if is_created:
            policies.made["teams"] = after.programs(after.policies[0])
            policies.change()
        return is_created

    policies.find_new = find_new
    return policies


@pytest.mark.parametrize("is_created", [True, False])
def test_a_request_is_not_refused_for_a_moment(tmp_path: Path, is_created: bool) -> None:  # noqa: FBT001
    bench = Bench(make_policies(tmp_path, "Enforce", is_created=is_created))
    assert bench.ask("/validate/fail", make_review())["allowed"] is is_created


@pytest.mark.parametrize(
    ("is_created", "statuses"), [(True, [Status.SKIP]), (False, [Status.FAIL])]
)
def test_a_failure_is_not_reported_for_a_moment(
    tmp_path: Path,
    is_created: bool,  # noqa: FBT001
    statuses: list[Status],
) -> None:
    notes = Notes()
    bench = Bench(make_policies(tmp_path, "Audit", is_created=is_created), sinks=[notes])
    assert bench.follow("/validate/fail", make_review())["allowed"]
    [outcome] = notes.outcomes
    assert outcome.audit is not None
    assert [result.status for result in outcome.audit.results] == statuses
