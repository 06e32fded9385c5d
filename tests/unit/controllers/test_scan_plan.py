"""Which policies a scan asks."""

from types import SimpleNamespace

import pytest
from webhook_samples import make, resource_rule

from lictor.controllers.scan.plan import ScanCandidate, ScanPlanner, verify_images_once
from lictor.core.assembly import compile_documents, parse_policies
from lictor.core.model.program import Phase
from lictor.kubernetes.resource import Resource

LABEL = "Object{metadata: Object.metadata{labels: Object.metadata.labels{a: 'b'}}}"


class Store:
    def __init__(self, *policies):
        self.policies = policies
        self.fault = self.reason = ""

    def find_fault(self, _policy):
        return self.fault

    def find_reason(self, _policy):
        return self.reason

    def programs(self, policy):
        return compile_documents([policy.record])

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


def test_a_policy_that_can_be_asked_again_is():
    """Its own form is the same: what it lacked has come."""
    constraints = {"resourceRules": [resource_rule()]}
    spec = {"matchConstraints": constraints, "validations": [{"expression": "true"}]}
    store = Store(make("ValidatingPolicy", "v", spec))
    planner, marks = ScanPlanner(store), []
    for store.fault in ("no module", "no module", "", ""):
        [candidate] = planner.build().judging
        marks.append(candidate.mark)
    assert marks[0] == marks[1]
    assert marks[1] != marks[2]
    assert marks[2] == marks[3]
    # A new version waits for its module: what is evaluated are the programs of before.
    store.reason = "the module is being fetched"
    [waiting] = planner.build().judging
    store.fault = "no module"
    [failed] = planner.build().judging
    assert waiting.mark not in marks
    # Further attempts evaluate nothing again.
    assert failed.mark == marks[0]


class CountedRule:
    """A rule about Pods that counts how often it is asked."""

    def __init__(self):
        self.asked = 0

    def select(self, kind, *_):
        self.asked += 1
        return (lambda _: True) if kind.kind == "Pod" else None


def test_a_policy_is_asked_once_which_kinds_it_is_about():
    pods, secrets = Resource("", "v1", "pods", "Pod"), Resource("", "v1", "secrets", "Secret")
    rule = CountedRule()
    candidate = ScanCandidate(SimpleNamespace(rules=(rule,)), "1")
    assert [candidate.choose((pods, secrets)) for _ in range(3)] == [(pods,)] * 3
    assert rule.asked == 2
    # A kind that comes later is asked about, too.
    assert candidate.choose((secrets,)) == ()
    assert rule.asked == 3


def test_a_scan_reports_an_image_once():
    pods = {"any": [{"resources": {"kinds": ["Pod"]}}]}
    verify = {"name": "signed", "match": pods, "verifyImages": [{"imageReferences": ["*"]}]}
    label = {"name": "label", "match": pods, "validate": {"message": "no", "pattern": {"a": "b"}}}
    spec = {"rules": [verify, label]}
    policy = {
        "apiVersion": "kyverno.io/v1",
        "kind": "ClusterPolicy",
        "metadata": {"name": "images"},
        "spec": spec,
    }
    [program] = parse_policies(policy)
    kept = [(r.name, r.phase) for r in verify_images_once(program).rules]
    assert ("signed", Phase.VALIDATE) in [(r.name, r.phase) for r in program.rules]
    assert ("signed", Phase.VALIDATE) not in kept
    assert {("signed", Phase.VERIFY_IMAGES), ("label", Phase.VALIDATE)} <= set(kept)
