"""`explain` for policies in CEL: which part said no, and what variables and expressions became."""

import json

import pytest

from lictor.cli.exit_codes import run

POLICY = """
apiVersion: policies.kyverno.io/v1
kind: ValidatingPolicy
metadata: {name: limits}
spec:
  matchConstraints:
    resourceRules:
    - {apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [pods]}
  matchConditions:
  - {name: not-system, expression: "request.namespace != 'system'"}
  variables:
  - {name: unlimited, expression: "object.spec.containers.filter(c, !has(c.limits)).map(c, c.name)"}
  validations:
  - {expression: "variables.unlimited == []", messageExpression: "'no limits: ' + variables.unlimited.join(', ')"}
  - {expression: "object.spec.nowhere == 1"}
"""
BOUND = """
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: bound}
spec:
  matchConstraints:
    resourceRules:
    - {apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [pods]}
  validations: [{expression: "object.metadata.name != 'bad'"}]
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: everywhere}
spec: {policyName: bound, validationActions: [Deny]}
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: somewhere}
spec:
  policyName: bound
  validationActions: [Warn]
  matchResources: {objectSelector: {matchLabels: {a: b}}}
"""
CLASSIC = """
apiVersion: kyverno.io/v1
kind: ClusterPolicy
metadata: {name: classic}
spec:
  rules:
  - name: named
    match: {any: [{resources: {kinds: [Pod], operations: [CREATE]}}]}
    celPreconditions: [{name: a, expression: "has(object.spec)"}]
    validate:
      cel:
        variables: [{name: size, expression: "object.spec.containers.size()"}]
        expressions: [{expression: "variables.size > 5", message: too few}]
"""
PODS = """
apiVersion: v1
kind: Pod
metadata: {name: bad, namespace: shop}
spec: {containers: [{name: a}, {name: b, limits: 1}]}
---
apiVersion: v1
kind: Pod
metadata: {name: free, namespace: system}
spec: {containers: []}
---
apiVersion: v1
kind: Pod
metadata: {name: undecided, namespace: shop}
spec: {containers: []}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, namespace: shop}
spec: {template: {spec: {containers: [{name: x}]}}}
---
apiVersion: v1
kind: Service
metadata: {name: other, namespace: shop}
"""


@pytest.fixture
def explain(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "pods.yaml").write_text(PODS)

    def call(policy, *flags):
        (tmp_path / "policy.yaml").write_text(policy)
        assert run(["explain", "policy.yaml", "-r", "pods.yaml", *flags]) == 0
        return capsys.readouterr().out

    return call


def test_a_policy_tells_its_parts(explain):
    bad, free, undecided, web, other = explain(POLICY).strip().split("\n\n")
    assert bad.splitlines() == [
        "limits -> shop/Pod/bad",
        "└── policy: fail",
        '    ├── ✓ matchConstraints.resourceRules[0].operations ["CREATE"]',
        '    ├── ✓ matchConstraints.resourceRules[0].resources ["pods"]',
        "    ├── matchConditions[0]: request.namespace != 'system' = true",
        "    ├── variables.unlimited: object.spec.containers.filter(c, !has(c.limits))"
        '.map(c, c.name) = ["a"]',
        "    ├── validations[0]: variables.unlimited == [] = false",
        "    ├── validations[0].messageExpression: 'no limits: ' + "
        "variables.unlimited.join(', ') = \"no limits: a\"",
        "    └── fail: no limits: a",
    ]
    assert "matchConditions[0]: request.namespace != 'system' = false" in free
    assert "└── skip: skip" in free
    assert "! validations[1]: object.spec.nowhere == 1: no such key: nowhere" in undecided
    assert "└── for other controllers of Pods: fail" in web
    assert "object.spec.template.spec.containers.filter" in web
    assert other.splitlines()[1:] == [
        "└── policy: does not concern this resource",
        '    ├── ✓ matchConstraints.resourceRules[0].operations ["CREATE"]',
        '    └── ✗ matchConstraints.resourceRules[0].resources ["pods"]',
    ]


def test_each_binding_is_told(explain):
    bad, *_ = explain(BOUND).strip().split("\n\n")
    assert "── binding everywhere: fail" in bad
    assert "binding somewhere" not in bad


def test_classic_rules_tell_their_cel(explain):
    bad, *_ = explain(CLASSIC, "--rule", "named").strip().split("\n\n")
    assert [line[8:] for line in bad.splitlines()[4:]] == [
        "celPreconditions[0]: has(object.spec) = true",
        "variables.size: object.spec.containers.size() = 2",
        "validate.cel.expressions[0]: variables.size > 5 = false",
        "fail: too few",
    ]


def test_programs_get_the_same(explain):
    told = json.loads(explain(POLICY, "--format", "json"))[0]["rules"][0]
    assert told["expressions"][1] == {
        "path": "variables.unlimited",
        "text": "object.spec.containers.filter(c, !has(c.limits)).map(c, c.name)",
        "value": ["a"],
        "error": "",
    }
    assert told["results"] == [{"status": "fail", "message": "no limits: a"}]


def test_deletions_are_told(explain):
    policy = """
apiVersion: policies.kyverno.io/v1
kind: DeletingPolicy
metadata: {name: sweep}
spec:
  schedule: "* * * * *"
  matchConstraints:
    resourceRules:
    - {apiGroups: [""], apiVersions: [v1], operations: ["*"], resources: [pods]}
  conditions: [{name: empty, expression: "object.spec.containers == []"}]
"""
    bad, free, *_ = explain(policy).strip().split("\n\n")
    assert "conditions[0]: object.spec.containers == [] = false" in bad
    assert "└── policy: pass" in free
