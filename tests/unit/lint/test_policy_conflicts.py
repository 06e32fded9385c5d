"""Policies that contradict or repeat each other in their literal values."""

import time

import pytest
import yaml

import lictor
from lictor.cli.inputs.records import FILE_RECORDS
from lictor.lint.run import lint_texts


def find(*policies, check=None):
    """By check, the findings for policies that stand in files of their own."""
    texts = [(f"{n}.yaml", yaml.safe_dump(each).encode()) for n, each in enumerate(policies, 1)]
    found = lint_texts(texts, FILE_RECORDS).findings
    checks = ("policy-conflict", "policy-subsumed")
    return [each for each in found if each.check in checks and check in (None, each.check)]


def classic(name, validate, kinds=("Deployment",), action="Audit", spec=None, **fields):
    resources = fields.pop("resources", {})
    match = {"any": [{"resources": {"kinds": list(kinds), **resources}}]}
    rule = {"name": name, "match": match, "validate": {"message": "no", **validate}, **fields}
    spec = {"validationFailureAction": action, "rules": [rule], **(spec or {})}
    return make("kyverno.io/v1", "ClusterPolicy", name, spec)


def in_namespace(namespace, policy):
    metadata = {**policy["metadata"], "namespace": namespace}
    return {**policy, "kind": "Policy", "metadata": metadata}


def make(api_version, kind, name, spec):
    return {"apiVersion": api_version, "kind": kind, "metadata": {"name": name}, "spec": spec}


def pattern(**spec):
    return {"pattern": {"spec": spec}}


def cel(name, *expressions, resources=("apps", "deployments"), operations=("CREATE",), **spec):
    group, plural = resources
    rule = {"apiGroups": [group], "apiVersions": ["v1"], "resources": [plural]}
    spec = {
        "matchConstraints": {"resourceRules": [{**rule, "operations": list(operations)}]},
        "validations": [{"expression": each, "message": "no"} for each in expressions],
        **spec,
    }
    return make("policies.kyverno.io/v1", "ValidatingPolicy", name, spec)


def native(name, *expressions, **fields):
    policy = cel(name, *expressions, **fields)
    return {
        **policy,
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": f"{policy['kind'][:10]}AdmissionPolicy",
    }


MANY = classic("many", pattern(replicas=">=3"))
SAME = classic("same", pattern(replicas=">=3"))
DENIED = {
    "deny": {
        "conditions": {
            "any": [
                {"key": "{{ request.object.spec.replicas }}", "operator": "LessThan", "value": 2}
            ]
        }
    }
}
POD = ("Pod",)


CONTRADICTIONS = [
    (MANY, classic("few", pattern(replicas="<=2"))),
    (MANY, classic("few", pattern(replicas=1), kinds=("apps/v1/Deployment", "StatefulSet"))),
    (MANY, classic("few", pattern(replicas="0-2 | 2"))),
    (MANY, classic("none", {"pattern": {"spec": {"X(replicas)": None}}})),
    (
        classic("on", pattern(hostNetwork=True), POD),
        classic("off", pattern(**{"=(hostNetwork)": False}), POD),
    ),
    (
        classic("a", pattern(type="A | B"), ("Service",)),
        classic("b", pattern(type="!A & !B"), ("Service",)),
    ),
    (
        classic("a", pattern(containers=[{"image": "here/*"}]), POD),
        classic("b", pattern(containers=[{"image": "there/*"}]), POD),
    ),
    (
        classic("a", pattern(replicas=">=3"), resources={"namespaces": ["prod-*"]}),
        classic("b", pattern(replicas="<3"), resources={"namespaces": ["*-shop", "prod-?"]}),
    ),
    (
        classic("a", pattern(replicas=">=3"), resources={"selector": {"matchLabels": {"tier": "web"}}}),
        classic("b", pattern(replicas="<3")),
    ),
]  # fmt: skip


@pytest.mark.parametrize(("one", "other"), CONTRADICTIONS)
def test_contradictions_are_found(one, other):
    [finding] = find(one, other, check="policy-conflict")
    assert finding.location.file == "2.yaml"
    assert "(1.yaml:" in finding.message


@pytest.mark.parametrize(("one", "other"), CONTRADICTIONS[:4])
@pytest.mark.parametrize("spec", [{}, *({"replicas": number} for number in range(5))])
def test_the_engine_passes_no_resource_by_both(one, other, spec):
    resource = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "a"}}
    engine = lictor.Engine(lictor.parse_policies(one) + lictor.parse_policies(other))
    results = engine.evaluate({**resource, "spec": {"paused": False, **spec}}).results
    assert "fail" in [each.status for each in results]


def test_the_message_quotes_both_patterns():
    [finding] = find(MANY, classic("few", pattern(**{"=(replicas)": "<=2"})))
    wanted = 'spec.replicas must be "<=2" or absent here, and ">=3" there'
    assert finding.message.endswith(wanted)


ONLY_ON_UPDATE = {"resources": {"operations": ["UPDATE"]}}
LABELLED = {
    "all": [
        {"key": "{{ request.object.metadata.labels.x || '' }}", "operator": "Equals", "value": "y"}
    ]
}


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (MANY, classic("few", pattern(replicas="<=3"))),
        (MANY, classic("few", pattern(replicas="<=2"), kinds=("StatefulSet",))),
        (MANY, classic("many", pattern(replicas="<=2"))),  # of the same name: it takes its place
        (MANY, classic("few", pattern(replicas="<=2"), preconditions=LABELLED)),
        (MANY, classic("few", {"pattern": {"spec": {"(paused)": True, "replicas": "<=2"}}})),
        (classic("a", pattern(replicas=1), **ONLY_ON_UPDATE), classic("b", pattern(replicas=2), resources={"operations": ["CREATE", "DELETE"]})),
        (
            classic("a", pattern(replicas=1), resources={"operations": ["CREATE", "DELETE"]}),
            classic("b", pattern(replicas=2), resources={"operations": ["UPDATE", "DELETE"]}),
        ),
        (
            classic("a", pattern(replicas=1), resources={"name": "a"}),
            classic("b", pattern(replicas=2), resources={"name": "b"}),
        ),
        (
            in_namespace("shop", classic("a", pattern(replicas=1))),
            in_namespace("data", classic("b", pattern(replicas=2))),
        ),
        (
            classic("a", pattern(replicas=1), resources={"namespaces": ["a"]}),
            classic("b", pattern(replicas=2), resources={"namespaces": ["b*"]}),
        ),
        (
            classic("a", pattern(replicas=1)),
            classic("b", pattern(replicas=2), exclude={"any": [{"resources": {"kinds": ["Deployment"]}}]}),
        ),
        (
            # What has another label is asked about by nobody.
            classic("a", {"pattern": {"metadata": {"labels": {"x": "1"}}}}, resources={"selector": {"matchLabels": {"x": "?"}}}),
            classic("b", {"pattern": {"metadata": {"labels": {"x": "2"}}}}, resources={"selector": {"matchLabels": {"x": "?"}}}),
        ),
        (
            classic("a", pattern(**{"=(initContainers)": [{"image": "here/*"}]}), POD),
            classic("b", pattern(**{"=(initContainers)": [{"image": "there/*"}]}), POD),
        ),
    ],
)  # fmt: skip
def test_no_contradiction_is_told(one, other):
    assert find(one, other, check="policy-conflict") == []


def test_rules_of_one_policy_contradict_each_other():
    policy = classic("both", pattern(replicas=">=3"))
    second = classic("few", pattern(replicas="<=2"))["spec"]["rules"][0]
    policy["spec"]["rules"].append(second)
    [finding] = find(policy)
    assert "rule 'both' of ClusterPolicy both (line " in finding.message


REPEATED = [
    (MANY, classic("same", pattern(replicas=">=3"))),
    (MANY, classic("same", pattern(replicas=">=3"), resources={"namespaces": ["shop"]})),
    (
        classic("a", pattern(**{"=(hostNetwork)": False, "=(hostPID)": False}), POD),
        classic("b", pattern(**{"=(hostNetwork)": False}), POD),
    ),
    (
        classic("a", pattern(containers=[{"image": "here/*", "tty": False}]), POD),
        classic("b", pattern(containers=[{"image": "here/*"}]), POD),
    ),
    (classic("a", DENIED), classic("b", DENIED)),
    (cel("a", "object.spec.replicas > 1"), cel("b", "object.spec.replicas > 1")),
    (
        cel("a", "object.spec.replicas > 1"),
        cel("b", "object.spec.replicas > 1", validationActions=["Audit"]),
    ),
]  # fmt: skip


@pytest.mark.parametrize(("strong", "weak"), REPEATED)
def test_what_asks_for_nothing_new_is_found(strong, weak):
    [finding] = find(strong, weak)
    assert (finding.check, finding.location.file) == ("policy-subsumed", "2.yaml")
    assert "(1.yaml:" in finding.message


def test_the_weaker_one_is_reported_wherever_it_stands():
    [finding] = find(SAME, classic("more", pattern(replicas=">=3", paused=False)))
    assert finding.location.file == "1.yaml"
    assert "(2.yaml:" in finding.message


@pytest.mark.parametrize(
    ("strong", "weak"),
    [
        (classic("a", pattern(replicas=">=3")), classic("b", pattern(replicas=">=3", paused=False))),
        # A variable may be another one there.
        (
            classic("a", pattern(replicas="{{ few }}", paused=False), context=[{"name": "few", "variable": {"value": 1}}]),
            classic("b", pattern(replicas="{{ few }}"), context=[{"name": "few", "variable": {"value": 2}}]),
        ),
        # One refuses where the other only reports.
        (MANY, classic("same", pattern(replicas=">=3"), action="Enforce")),
        (cel("a", "true", validationActions=["Audit"]), cel("b", "true")),
        # The other is not asked about all of it.
        (MANY, classic("same", pattern(replicas=">=3"), kinds=("Deployment", "StatefulSet"))),
        (classic("a", pattern(replicas=3), preconditions=LABELLED), classic("b", pattern(replicas=3))),
        (classic("a", pattern(replicas=3), spec={"background": False}), classic("b", pattern(replicas=3))),
        (
            classic("a", pattern(replicas=3), exclude={"any": [{"resources": {"namespaces": ["x"]}}]}),
            classic("b", pattern(replicas=3)),
        ),
        (in_namespace("shop", MANY), SAME),
        (
            classic("a", pattern(replicas=3), resources={"namespaces": ["shop-?"]}),
            classic("b", pattern(replicas=3), resources={"namespaces": ["shop-*"]}),
        ),
        (cel("a", "true"), cel("b", "true", operations=["CREATE", "UPDATE"])),
        # Those who make Pods are asked about by one of them only.
        (
            classic("a", pattern(hostNetwork=False), ("Pod", "Service")),
            classic("b", pattern(hostNetwork=False), POD),
        ),
        # A policy of Kubernetes itself refuses nothing without a binding.
        (native("a", "object.spec.replicas == 3"), native("b", "object.spec.replicas == 3")),
    ],
)  # fmt: skip
def test_what_asks_for_something_new_is_left_alone(strong, weak):
    found = find(strong, weak, check="policy-subsumed")
    assert [each for each in found if each.location.file == "2.yaml"] == []


def test_an_exception_makes_a_policy_refuse_less():
    exception = make(
        "kyverno.io/v2",
        "PolicyException",
        "x",
        {"exceptions": [{"policyName": "many", "ruleNames": ["many"]}], "match": {"any": [{"resources": {"kinds": ["Deployment"]}}]}},
    )  # fmt: skip
    weak = classic("same", pattern(replicas=">=3"), resources={"namespaces": ["shop"]})
    assert find(MANY, weak)
    assert find(MANY, weak, exception) == []


def test_a_bound_policy_of_kubernetes_counts():
    strong, weak = (native(name, "object.spec.replicas == 3") for name in ("three", "same"))
    binding = make(
        "admissionregistration.k8s.io/v1",
        "ValidatingAdmissionPolicyBinding",
        "x",
        {"policyName": "three", "validationActions": ["Deny"]},
    )
    assert [each.check for each in find(strong, weak, binding)] == ["policy-subsumed"]


def test_a_comment_lets_it_pass():
    text = yaml.safe_dump_all([MANY, classic("few", pattern(replicas="<=2"))])
    line = next(line for line in text.splitlines() if "<=2" in line)
    quiet = text.replace(line, f"{line}  # lictor: ignore[LIC609]")
    findings = lint_texts([("a.yaml", quiet.encode())], FILE_RECORDS).findings
    assert {each.check for each in findings} == {"deprecated"}


def test_what_only_tests_read_is_not_compared():
    copy = yaml.safe_dump(classic("copy", pattern(replicas=">=3"))).encode()
    texts = [("a.yaml", yaml.safe_dump(MANY).encode()), ("x/.kyverno-test/b.yaml", copy)]
    found = lint_texts(texts, FILE_RECORDS).findings
    assert not [each for each in found if each.check.startswith("policy-")]


def test_many_policies_take_no_time_for_each_pair():
    policies = []
    for number in range(500):
        policy = classic(f"p{number}", pattern(replicas=f">={number % 7}"), action="Audit")
        policies.append((f"{number}.yaml", yaml.safe_dump(policy).encode()))
    before = time.process_time()
    found = lint_texts(policies, FILE_RECORDS).findings
    assert time.process_time() - before < 8
    assert {each.check for each in found if each.check.startswith("policy-")} == {"policy-subsumed"}
