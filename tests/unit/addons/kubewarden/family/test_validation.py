"""Which policies and changes of policies are refused, and where `lint` shows it."""

from pathlib import Path
from typing import Any

import msgspec
import pytest

from lictor.addons.kubewarden.family.validation import check_document
from lictor.cli.exit_codes import run
from lictor.core.families.registry import registry
from lictor.core.raw import JsonObject
from lictor.webhook.policy_admission import review_policy

RULE = {"apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"], "operations": ["CREATE"]}
MEMBER = {"module": "registry://a/b:v1"}
PLAIN = {"module": "a/b:v1", "mutating": False, "rules": [RULE]}
GROUP = {"rules": [RULE], "expression": "a()", "message": "no", "policies": {"a": MEMBER}}


def write(kind: str, spec: JsonObject, version: str = "v1") -> JsonObject:
    metadata = {"name": "p"} if kind.startswith("Cluster") else {"name": "p", "namespace": "shop"}
    api_version = f"policies.kubewarden.io/{version}"
    return {"apiVersion": api_version, "kind": kind, "metadata": metadata, "spec": spec}


def rule(**changes: Any) -> JsonObject:
    return {"rules": [{**RULE, **changes}]}


CLUSTER, NAMESPACED = "ClusterAdmissionPolicy", "AdmissionPolicy"
EVERYTHING = rule(apiGroups=["*"], resources=["*"])


@pytest.mark.parametrize(
    ("kind", "spec", "told"),
    [
        (CLUSTER, {}, ""),
        (NAMESPACED, {}, ""),
        (CLUSTER, EVERYTHING, ""),
        (NAMESPACED, EVERYTHING, "spec.rules[0]: a policy of one namespace cannot be about all"),
        (NAMESPACED, rule(apiGroups=["wgpolicyk8s.io"], resources=["policyreports"]), "reports"),
        (NAMESPACED, rule(apiGroups=["*"], resources=["policyreports/status"]), "reports"),
        (NAMESPACED, rule(apiGroups=["apps"], resources=["*"]), ""),
        (NAMESPACED, rule(apiGroups=["policies.kubewarden.io"], resources=["*"]), "about policies"),
        (NAMESPACED, rule(apiGroups=["*"], resources=["admissionpolicies/status"]), "policies"),
        (
            NAMESPACED,
            rule(apiGroups=["", "policies.kubewarden.io"], resources=["admissionpolicygroups"]),
            "about policies",
        ),
        (CLUSTER, rule(apiGroups=["policies.kubewarden.io"], resources=["*"]), ""),
        (CLUSTER, {"rules": []}, "spec.rules: there must be a rule"),
        (CLUSTER, rule(operations=[]), "spec.rules[0].operations: must have values"),
        (CLUSTER, rule(apiVersions=[""]), "spec.rules[0].apiVersions: must have values"),
        (CLUSTER, rule(resources=[]), "spec.rules[0].resources: must have values"),
        (CLUSTER, rule(apiGroups=[]), "spec.rules[0].apiGroups: must have values"),
        (CLUSTER, {"timeoutSeconds": 1}, "spec.timeoutSeconds: must be from 2 to 30, not 1"),
        (CLUSTER, {"timeoutSeconds": 31}, "spec.timeoutSeconds: must be from 2 to 30, not 31"),
        (CLUSTER, {"timeoutEvalSeconds": 1}, "spec.timeoutEvalSeconds: must be from 2 to 30"),
        (CLUSTER, {"timeoutEvalSeconds": 11}, "must not be more than timeoutSeconds (10)"),
        (CLUSTER, {"timeoutEvalSeconds": 30, "timeoutSeconds": 30}, ""),
        (CLUSTER, {"module": ""}, "spec.module: must be the address of a module"),
        (CLUSTER, {"module": "ftp://a/b"}, "spec.module: must be the address of a module"),
        (CLUSTER, {"module": "registry://"}, "spec.module: must be the address of a module"),
        (
            CLUSTER,
            {"matchConditions": [{"name": "a", "expression": "object =="}]},
            "spec.matchConditions[0].expression",
        ),
        (
            CLUSTER,
            {"matchConditions": [{"name": "a", "expression": "1"}]},
            "must evaluate to bool",
        ),
        (
            CLUSTER,
            {"matchConditions": [{"name": "a", "expression": "true"}] * 2},
            "spec.matchConditions[1].name: 'a' stands twice",
        ),
        (
            CLUSTER,
            {"matchConditions": [{"name": "a b", "expression": "true"}]},
            "is no name for a condition",
        ),
        (
            CLUSTER,
            {"matchConditions": [{"name": f"a{n}", "expression": "true"} for n in range(65)]},
            "there may be 64 at most",
        ),
    ],
)
def test_policies(kind: str, spec: JsonObject, told: str) -> None:
    check(write(kind, {**PLAIN, **spec}), told)


@pytest.mark.parametrize(
    ("spec", "told"),
    [
        ({}, ""),
        ({"expression": "a() &&"}, "spec.expression: expression: the expression ends too early"),
        ({"expression": "b()"}, "'b' is no member of the group; the members are: a"),
        ({"message": ""}, "spec.message: must not be empty"),
        ({"policies": {}}, "spec.policies: a group has at least one member"),
        ({"policies": {"a": MEMBER, "b-c": MEMBER}}, "'b-c' cannot be called in an expression"),
        ({"policies": {"a": MEMBER, "while": MEMBER}}, "'while' cannot be called"),
        (
            {"policies": {"a": {**MEMBER, "timeoutEvalSeconds": 31}}},
            "spec.policies.a.timeoutEvalSeconds: must be from 2 to 30",
        ),
        (
            {
                "policies": {
                    "a": {**MEMBER, "timeoutEvalSeconds": 6},
                    "b": {**MEMBER, "timeoutEvalSeconds": 6},
                }
            },
            "all timeoutEvalSeconds together are 12, more than timeoutSeconds (10)",
        ),
    ],
)
@pytest.mark.parametrize("kind", ["ClusterAdmissionPolicyGroup", "AdmissionPolicyGroup"])
def test_groups(kind: str, spec: JsonObject, told: str) -> None:
    check(write(kind, {**GROUP, **spec}), told)


def check(document: JsonObject, told: str) -> None:
    kind = registry().get("policies.kubewarden.io", document["kind"])
    found = [fault.field_and_text for fault in check_document(kind, document)]
    if told:
        assert any(told in each for each in found), found
    else:
        assert found == []
    review = review_policy(document)
    assert bool(review.errors) is bool(told)


@pytest.mark.parametrize(
    ("kind", "plain"), [(CLUSTER, PLAIN), (NAMESPACED, PLAIN), ("AdmissionPolicyGroup", GROUP)]
)
@pytest.mark.parametrize(
    ("before", "after", "refused"),
    [
        ("protect", "monitor", True),
        (None, "monitor", True),
        ("monitor", "protect", False),
        ("monitor", "monitor", False),
        ("monitor", None, False),
    ],
)
def test_a_policy_that_protects_cannot_be_switched_off_unseen(
    kind: str,
    plain: JsonObject,
    before: str | None,
    after: str | None,
    refused: bool,  # noqa: FBT001
) -> None:
    old, new = ({**plain, "mode": mode} if mode else plain for mode in (before, after))
    # Some other field changes too.
    new = {**new, "timeoutSeconds": 20}
    review = review_policy(write(kind, new), write(kind, old))
    assert any("spec.mode" in each for each in review.errors) is refused


@pytest.mark.parametrize(
    ("kind", "version", "code"),
    [(CLUSTER, "v1alpha2", 0), (NAMESPACED, "v1alpha2", 0), (CLUSTER, "v1beta1", 1)],
)
def test_versions(tmp_path: Path, kind: str, version: str, code: int) -> None:
    file = tmp_path / "policy.yaml"
    file.write_bytes(msgspec.json.encode(write(kind, PLAIN, version)))
    assert run(["lint", str(file)]) == code


def test_lint_shows_the_place_in_an_expression(tmp_path: Path, capsys: Any) -> None:
    file = tmp_path / "policy.yaml"
    file.write_text("""\
apiVersion: policies.kubewarden.io/v1
kind: ClusterAdmissionPolicyGroup
metadata: {name: group}
spec:
  rules: [{apiGroups: [""], apiVersions: [v1], resources: [pods], operations: [CREATE]}]
  policies: {a: {module: registry.example/a:v1}}
  expression: a() && c()
  message: refused
""")
    assert run(["lint", str(file)]) == 1
    out = capsys.readouterr().out
    assert "policy.yaml:7:" in out
    assert "'c' is no member of the group" in out
    assert "[LIC401 bad-expression]" in out
