"""Files into policies and problems: nothing is lost without a word."""

import pytest

from lictor.core.families.kind_facts import Role
from lictor.core.load.policies import has_errors, load_documents
from lictor.core.model.finding import Severity

HEAD = "apiVersion: kyverno.io/v1\nkind: ClusterPolicy\nmetadata:\n  name: p\nspec:\n"
RULES = "  rules:\n  - name: r\n    match: {any: [{resources: {kinds: [Pod]}}]}\n"
POLICY = HEAD + RULES
EXCEPTION = (
    "apiVersion: kyverno.io/v2\nkind: PolicyException\nmetadata: {name: e, namespace: ns}\n"
    "spec:\n  exceptions: [{policyName: p, ruleNames: [r]}]\n"
    "  match: {any: [{resources: {kinds: [Pod]}}]}\n"
)
CLEANUP = (
    "apiVersion: kyverno.io/v2\nkind: ClusterCleanupPolicy\nmetadata: {name: c}\n"
    "spec: {schedule: '* * * * *', match: {any: [{resources: {kinds: [Pod]}}]}}\n"
)
RAW = (
    "apiVersion: json.kyverno.io/v1alpha1\nkind: ValidatingPolicy\nmetadata: {name: v}\nspec: {}\n"
)
POD = "apiVersion: v1\nkind: Pod\nmetadata: {name: x}\n"


def count(loaded):
    roles = (Role.POLICY, Role.EXCEPTION, Role.DELETION)
    groups = (*(loaded.with_role(role) for role in roles), loaded.raw, loaded.resources)
    return tuple(len(group) for group in groups)


@pytest.mark.parametrize(
    ("text", "counts"),
    [
        (POLICY, (1, 0, 0, 0, 0)),
        (POLICY.replace("v1", "v2beta1", 1), (1, 0, 0, 0, 0)),
        (EXCEPTION, (0, 1, 0, 0, 0)),
        (CLEANUP, (0, 0, 1, 0, 0)),
        (RAW, (0, 0, 0, 1, 0)),
        (POD, (0, 0, 0, 0, 1)),
        ("\n---\n".join((POLICY, EXCEPTION, CLEANUP, RAW, POD)), (1, 1, 1, 1, 1)),
        ("apiVersion: nvidia.com/v1\nkind: ClusterPolicy\n", (0, 0, 0, 0, 1)),
        ("apiVersion: cli.kyverno.io/v1alpha1\nkind: Test\n", (0, 0, 0, 0, 1)),
        ("apiVersion: v1\nkind: List\nitems:\n- {apiVersion: v1, kind: Pod}\n", (0, 0, 0, 0, 1)),
        ("", (0, 0, 0, 0, 0)),
    ],
)
def test_sorting(text, counts):
    loaded = load_documents(text, "f.yaml")
    assert count(loaded) == counts
    assert loaded.problems == ()


@pytest.mark.parametrize(
    ("text", "where", "path", "message", "suggestion", "severity"),
    [
        (
            HEAD + "  backgroundd: true\n" + RULES,
            "f.yaml:6:3",
            "spec.backgroundd",
            'unknown field "backgroundd"',
            "background",
            Severity.WARNING,
        ),
        (
            POLICY + "    validate: {mesage: x}\n",
            "f.yaml:9:16",
            "spec.rules[0].validate.mesage",
            'unknown field "mesage"',
            "message",
            Severity.WARNING,
        ),
        (
            POLICY.replace("name: r", "name: 12"),
            "f.yaml:7:5",
            "spec.rules[0].name",
            "expected a string, found the integer 12",
            "",
            Severity.ERROR,
        ),
        (
            HEAD + "  background: true\n  background: false\n" + RULES,
            "f.yaml:7:3",
            "",
            'key "background" stands twice in one object',
            "",
            Severity.ERROR,
        ),
        (
            POLICY.replace("  name: p", "  labels: {}"),
            "f.yaml:3:1",
            "metadata",
            'required field "name" is missing',
            "",
            Severity.ERROR,
        ),
        (
            POLICY.replace("kyverno.io/v1", "kyverno.io/v3"),
            "f.yaml:1:1",
            "apiVersion",
            'ClusterPolicy has no version "v3"; known are v1 and v2beta1',
            "",
            Severity.ERROR,
        ),
        (
            POLICY.replace("ClusterPolicy", "ClusterPolcy"),
            "f.yaml:2:1",
            "kind",
            'unknown kind of policy "ClusterPolcy"',
            "ClusterPolicy",
            Severity.ERROR,
        ),
        (
            POLICY.replace("kyverno.io", "kyvrno.io"),
            "f.yaml:1:1",
            "apiVersion",
            'unknown group of policies "kyvrno.io"',
            "kyverno.io",
            Severity.ERROR,
        ),
        (
            "kind: ClusterPolicy\n",
            "f.yaml:1:1",
            "",
            'not a Kubernetes object: "apiVersion" is missing',
            "",
            Severity.ERROR,
        ),
        (
            "- a\n",
            "f.yaml:1:1",
            "",
            "expected a Kubernetes object, found a list",
            "",
            Severity.ERROR,
        ),
        (
            POLICY.replace("v1", "v2beta1", 1).replace("any: [{", "").replace("}]}", "}"),
            "f.yaml:8:13",
            "spec.rules[0].match.resources",
            'unknown field "resources"',
            "",
            Severity.WARNING,
        ),
        (
            EXCEPTION.replace("ruleNames", "ruleName"),
            "f.yaml:5:32",
            "spec.exceptions[0].ruleName",
            'unknown field "ruleName"',
            "ruleNames",
            Severity.WARNING,
        ),
        (
            "apiVersion: v1\nkind: List\nitems:\n- apiVersion: kyverno.io/v1\n"
            "  kind: Policy\n  metadata: {name: p}\n  spec: {rulez: []}\n",
            "f.yaml:7:10",
            "items[0].spec.rulez",
            'unknown field "rulez"',
            "rules",
            Severity.WARNING,
        ),
    ],
)
def test_problem(text, where, path, message, suggestion, severity):
    problem = load_documents(text, "f.yaml").problems[0]
    assert (str(problem.location), problem.field) == (where, path)
    assert (problem.message, problem.suggestion) == (message, suggestion)
    assert problem.severity is severity


def test_unknown_field_leaves_the_policy_usable():
    loaded = load_documents(HEAD + "  backgroundd: true\n" + RULES, "f.yaml")
    assert count(loaded) == (1, 0, 0, 0, 0)
    assert not has_errors(loaded.problems)
    assert str(loaded.problems[0]) == (
        'f.yaml:6:3: spec.backgroundd: unknown field "backgroundd" (did you mean "background"?)'
    )


@pytest.mark.parametrize(
    "broken",
    [
        "a: [",
        "- a",
        POLICY.replace("name: r", "name: []"),
        POLICY.replace("name: p", "name: p\n  name: p"),
        "apiVersion: kyverno.io/v1\nkind: Nonsense\n",
    ],
)
def test_broken_document_does_not_stop_the_others(broken):
    text = "\n---\n".join((broken, POLICY.replace("name: p", "name: good")))
    loaded = load_documents(text, "f.yaml")
    assert [policy.record.metadata.name for policy in loaded.policies] == ["good"]
    assert has_errors(loaded.problems)


def test_problem_knows_the_policy():
    (problem,) = load_documents(POLICY.replace("name: r", "name: []"), "f.yaml").problems
    assert (problem.kind, problem.name) == ("ClusterPolicy", "p")


def test_record_and_position():
    (found,) = load_documents(POLICY, "f.yaml").policies
    assert found.record.spec.rules[0].match.any[0].resources.kinds == ("Pod",)
    assert found.source == "f.yaml"
    assert found.position(("spec", "rules", 0, "name")) == (7, 5)


def test_files_add_up():
    both = load_documents(POLICY, "a.yaml") + load_documents(POD, "b.yaml")
    assert count(both) == (1, 0, 0, 0, 1)


@pytest.mark.parametrize("metadata", ["1", "[]", "{name: []}", "null"])
def test_odd_metadata(metadata):
    loaded = load_documents(RAW.replace("{name: v}", metadata), "f.yaml")
    assert loaded.raw[0].record.name == ""
