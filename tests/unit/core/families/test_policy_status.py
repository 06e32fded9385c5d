"""The status of policies, from what is known of them."""

import pytest

from lictor.core.families.policy_status import (
    GeneratedPolicyState,
    PolicyFacts,
)
from lictor.core.families.registry import registry
from lictor.core.load.policies import load_documents

NOW = "2026-02-02T00:00:00Z"
EARLIER = "2026-01-01T00:00:00Z"
CLASSIC = """
apiVersion: kyverno.io/v1
kind: ClusterPolicy
metadata: {name: p}
spec:
  rules:
  - name: check
    match: {any: [{resources: {kinds: [Pod]}}]}
    validate: {message: m, pattern: {metadata: {name: "?*"}}}
  - name: make
    match: {any: [{resources: {kinds: [Pod]}}]}
    mutate: {patchStrategicMerge: {metadata: {labels: {a: b}}}}
"""
CEL = """
apiVersion: policies.kyverno.io/v1beta1
kind: ValidatingPolicy
metadata: {name: p}
spec:
  matchConstraints:
    resourceRules:
    - {apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [pods]}
  validations:
  - expression: object.spec.hostNetwork != true
"""


def read(text):
    loaded = load_documents(text, "policy.yaml")
    return loaded.listed[0].record


def build(text, facts, old=None):
    record = read(text)
    kind = registry().of(record)
    return kind.family.build_status(kind, record, old or {}, facts, NOW)


READY = [
    ("in force", PolicyFacts(webhook=True), "True", "Succeeded", "Ready"),
    ("no webhook needed", PolicyFacts(webhook=None), "True", "Succeeded", "Ready"),
    ("no webhook yet", PolicyFacts(webhook=False), "False", "Failed", "Not Ready"),
    (
        "no webhook ever",
        PolicyFacts(webhook=False, refusal="too many conditions"),
        "False",
        "Failed",
        "too many conditions",
    ),
    (
        "broken",
        PolicyFacts(webhook=True, problems=("a", "b", "c", "d", "e")),
        "False",
        "Failed",
        "a; b; c; and 2 more",
    ),
]


@pytest.mark.parametrize(
    ("facts", "status", "reason", "message"),
    [case[1:] for case in READY],
    ids=[case[0] for case in READY],
)
def test_ready(facts, status, reason, message):
    [condition] = build(CLASSIC, facts)["conditions"]
    assert condition == {
        "type": "Ready",
        "status": status,
        "reason": reason,
        "message": message,
        "lastTransitionTime": NOW,
    }


@pytest.mark.parametrize(("before", "time"), [("True", EARLIER), ("False", NOW)])
def test_time_changes_with_the_status_only(before, time):
    old = {"conditions": [{"type": "Ready", "status": before, "lastTransitionTime": EARLIER}]}
    [condition] = build(CLASSIC, PolicyFacts(webhook=True), old)["conditions"]
    assert condition["lastTransitionTime"] == time


def test_rules_of_a_classic_policy():
    status = build(CLASSIC, PolicyFacts(webhook=True))
    assert status["rulecount"] == {"validate": 1, "generate": 0, "mutate": 1, "verifyimages": 0}
    rules = {rule["name"]: rule for rule in status["autogen"]["rules"]}
    assert list(rules) == [
        "autogen-check",
        "autogen-cronjob-check",
        "autogen-make",
        "autogen-cronjob-make",
    ]
    assert rules["autogen-cronjob-check"] == {
        "name": "autogen-cronjob-check",
        "match": {"resources": {}, "any": [{"resources": {"kinds": ["batch/v1/CronJob"]}}]},
        "validate": {
            "message": "m",
            "allowExistingViolations": True,
            "pattern": {
                "spec": {"jobTemplate": {"spec": {"template": {"metadata": {"name": "?*"}}}}}
            },
        },
        "skipBackgroundRequests": True,
    }


def test_native_outcome_is_kept_until_somebody_looks():
    old = {"validatingadmissionpolicy": {"generated": True, "message": ""}}
    kept = build(CLASSIC, PolicyFacts(webhook=True), old)
    assert kept["validatingadmissionpolicy"] == {"generated": True, "message": ""}
    facts = PolicyFacts(webhook=True, native=GeneratedPolicyState(generated=False, message="why"))
    said = build(CLASSIC, facts, old)["validatingadmissionpolicy"]
    assert said == {"generated": False, "message": "why"}


def test_policy_that_cannot_be_read():
    facts = PolicyFacts(webhook=False, problems=("spec.rules: expected a list",))
    kind = registry().get("kyverno.io", "ClusterPolicy")
    status = kind.family.build_status(kind, None, {}, facts, NOW)
    assert status["conditions"][0]["message"] == "spec.rules: expected a list"
    assert status["rulecount"]["validate"] == 0


def test_policy_in_cel():
    facts = PolicyFacts(webhook=True, native=GeneratedPolicyState(generated=True))
    status = build(CEL, facts)
    said = status["conditionStatus"]
    assert (said["ready"], said["message"], status["generated"]) == (True, "", True)
    assert [(each["type"], each["message"]) for each in said["conditions"]] == [
        ("WebhookConfigured", "Webhook configured."),
        ("RBACPermissionsGranted", "Policy is ready for reporting."),
    ]
    configs = status["autogen"]["configs"]
    assert sorted(configs) == ["cronjobs", "defaults"]
    assert configs["cronjobs"]["targets"] == [
        {"group": "batch", "version": "v1", "resource": "cronjobs", "kind": "CronJob"}
    ]
    [validation] = configs["defaults"]["spec"]["validations"]
    assert validation["expression"] == "object.spec.template.spec.hostNetwork != true"


CEL_FACTS = [
    ("not served", PolicyFacts(webhook=None), ["RBACPermissionsGranted"], True),
    (
        "not configured",
        PolicyFacts(webhook=False),
        ["WebhookConfigured", "RBACPermissionsGranted"],
        False,
    ),
    (
        "not allowed",
        PolicyFacts(webhook=True, lacking=("get /v1, Resource=pods: ",)),
        ["WebhookConfigured", "RBACPermissionsGranted"],
        False,
    ),
    (
        "broken",
        PolicyFacts(webhook=False, problems=("spec: x",)),
        ["PolicyCached", "WebhookConfigured", "RBACPermissionsGranted"],
        False,
    ),
]


@pytest.mark.parametrize(
    ("facts", "types", "ready"),
    [case[1:] for case in CEL_FACTS],
    ids=[case[0] for case in CEL_FACTS],
)
def test_conditions_of_a_policy_in_cel(facts, types, ready):
    said = build(CEL, facts)["conditionStatus"]
    assert [each["type"] for each in said["conditions"]] == types
    assert said["ready"] is ready


def test_missing_permissions_are_named():
    facts = PolicyFacts(webhook=True, lacking=("get a/v1, Resource=b: ", "list a/v1, Resource=b: "))
    said = build(CEL, facts)["conditionStatus"]["conditions"][1]["message"]
    assert said == (
        "Policy is not ready for reporting, missing permissions: get a/v1, Resource=b: ; "
        "list a/v1, Resource=b: ."
    )
