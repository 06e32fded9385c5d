"""Which policies a scan asks."""

import pytest
from webhook_samples import make, resource_rule

from lictor.assembly import compile_documents
from lictor.control.scan.plan import ScanPlanner

LABEL = "Object{metadata: Object.metadata{labels: Object.metadata.labels{a: 'b'}}}"


class Store:
    def __init__(self, *policies):
        self.policies = policies

    def programs(self, policy):
        return compile_documents([], cel_policies=[policy.record])

    def mark(self, policy):
        return str(policy.generation)


@pytest.mark.parametrize(("existing", "is_scanned"), [(False, True), (True, False)])
def test_what_changes_others_is_reported_by_whoever_changed_them(existing, is_scanned):
    change = {"patchType": "ApplyConfiguration", "applyConfiguration": {"expression": LABEL}}
    spec = {
        "matchConstraints": {"resourceRules": [resource_rule()]},
        "mutations": [change],
        "evaluation": {"mutateExisting": {"enabled": existing}},
    }
    plan = ScanPlanner(Store(make("MutatingPolicy", "m", spec))).build()
    assert bool(plan.mutating) is is_scanned
    entry = {"source": "KyvernoMutatingPolicy", "policy": "m", "rule": ""}
    assert plan.is_scanned(entry) is is_scanned
    # What was reported when it happened stays as long as the policy is there.
    assert plan.is_alive(entry)
