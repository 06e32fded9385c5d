"""What tests reach of policies, and which changes of policies they notice."""

from pathlib import Path

import pytest

from lictor.cli.exit_codes import run
from lictor.cli.mutants import change_body, change_expression, change_pattern_text, list_changes
from lictor.core.raw import Json

ROOT = Path(__file__).parents[3]
EXCLUSION = {"any": [{"resources": {"namespaces": ["a"]}}]}


@pytest.mark.parametrize(
    ("expression", "changed"),
    [
        ("a == 'x'", ["a != 'x'", "a == 'x~'"]),
        ("a < 3", ["a <= 3", "a >= 3", "a < 4"]),
        ("!a && true", ["a && true", "!a || true", "!a && false"]),
        ("has(a.b)", ["!has(a.b)"]),
        ("!has(a.b)", ["has(a.b)"]),
        ("l.all(x, x)", ["l.exists(x, x)"]),
        ("a.matches(r'^==$')", ["a.matches(r'^==$~')"]),
        ("v1 // == 3", []),
        ('"""a == b""" != c', ['"""a == b~""" != c', '"""a == b""" == c']),
    ],
)
def test_each_token_of_an_expression_is_changed_once(expression, changed):
    assert [after for _, after in change_expression(expression)] == changed


@pytest.mark.parametrize(
    ("value", "changed"),
    [
        ("*", []),
        ("?*", ["*"]),
        ("false", ["true"]),
        (">=3", [">3"]),
        ("<1Gi", ["<=1Gi"]),
        ("!latest", ["latest"]),
        ("a | b", ["b", "a"]),
        ("{{ a || b }}", ["!{{ a || b }}"]),
        ("web-*", ["!web-*"]),
    ],
)
def test_each_value_of_a_pattern_is_turned_around(value, changed):
    assert list(change_pattern_text(value)) == changed


def show(spec: Json) -> list[str]:
    return [f"{change.path[-1]}: {change.words}" for change in list_changes({"spec": spec})]


@pytest.mark.parametrize(
    ("spec", "changes"),
    [
        ({"match": {"resources": {"kinds": ["Pod"]}}}, ['0: "Pod" became "Lease"']),
        (
            {"match": {"resources": {"kinds": ["A", "B"], "names": ["n"]}}},
            [
                '0: "A" removed',
                '1: "B" removed',
                '0: "n" became "no-such-name"',
                "names: names removed",
            ],
        ),
        (
            {"exclude": EXCLUSION},
            ["exclude: exclude removed", '0: "a" became "no-such-name"'],
        ),
        (
            {"conditions": [{"key": "k", "operator": "GreaterThan", "value": 3}]},
            [
                'operator: "GreaterThan" became "LessThanOrEquals"',
                'operator: "GreaterThan" became "GreaterThanOrEquals"',
                "value: 3 became 4",
            ],
        ),
        (
            {"pattern": {"=(spec)": {"(a)": 1}}},
            ["pattern: =(spec) became spec", "(a): (a) removed", "(a): 1 became 2"],
        ),
        ({"anyPattern": [{}, {}]}, ["0: removed", "1: removed"]),
        ({"failureAction": "enforce"}, ['failureAction: "enforce" became "Audit"']),
        ({"validationActions": ["Deny"]}, ['0: "Deny" became "Audit"']),
        ({"podSecurity": {"level": "restricted"}}, ['level: "restricted" became "baseline"']),
        (
            {"patchesJson6902": "- {op: add, path: /a, value: true}"},
            [
                "patchesJson6902: operation 1 (add /a) removed",
                "patchesJson6902: operation 1 (add /a): true became false",
            ],
        ),
        (
            {"generate": {"kind": "Quota", "name": "q", "data": {"a": "b"}}},
            ['name: "q" became "q-changed"', 'a: "b" became "b-changed"'],
        ),
        ({"foreach": [{"list": "a"}]}, ["list: the list became empty"]),
        ({"settings": {"text": "x"}}, ['text: "x" became "x-changed"']),
        ({"message": "a == b", "background": True}, []),
    ],
)
def test_a_policy_is_changed_where_a_test_can_notice_it(spec, changes):
    assert show(spec) == changes


def test_changes_leave_the_policy_as_it_is():
    body = {"spec": {"pattern": {"a": ["b"]}, "match": {"resources": {"kinds": ["A", "B"]}}}}
    before = repr(body)
    changed = [change_body(body, each.path, each.value) for each in list_changes(body)]
    assert repr(body) == before
    assert all(each != body for each in changed)


POLICY = """
apiVersion: policies.kyverno.io/v1
kind: ValidatingPolicy
metadata: {name: few-replicas}
spec:
  validationActions: [Audit]
  matchConstraints:
    resourceRules:
    - {apiGroups: [apps], apiVersions: [v1], operations: [CREATE, UPDATE], resources: [deployments]}
  validations:
  - expression: object.spec.replicas <= 3
    message: three replicas are enough
"""
TEST = """
apiVersion: cli.kyverno.io/v1alpha1
kind: Test
metadata: {name: replicas}
policies: [policy.yaml]
resources: [resources.yaml]
results:
- {policy: few-replicas, kind: Deployment, resources: [one], result: pass}
- {policy: few-replicas, kind: Deployment, resources: [nine], result: fail}
"""
RESOURCE = """---
apiVersion: apps/v1
kind: Deployment
metadata: {name: %s}
spec: {replicas: %d}
"""


def write_case(folder: Path) -> None:
    (folder / "policy.yaml").write_text(POLICY)
    (folder / "resources.yaml").write_text(RESOURCE % ("one", 1) + RESOURCE % ("nine", 9))
    (folder / "kyverno-test.yaml").write_text(TEST)


def read_gaps(output: str, folder: Path) -> list[str]:
    start = f"  {folder}/"
    return [line.removeprefix(start) for line in output.splitlines() if line.startswith(start)]


def test_what_no_test_notices_is_listed_with_its_line(tmp_path, capsys):
    write_case(tmp_path)
    assert run(["test", str(tmp_path), "--coverage", "--fail-under", "50"]) == 0
    field = "policy.yaml:11: few-replicas: spec.validations[0].expression"
    output = capsys.readouterr().out
    assert read_gaps(output, tmp_path) == [
        'policy.yaml:6: few-replicas: spec.validationActions[0]: "Audit" became "Deny": '
        "no test notices",
        f'{field}: "<=" became "<": no test notices',
        f'{field}: "3" became "4": no test notices',
    ]
    assert "rules reached     1 of 1 (100 %)" in output


def test_tests_at_the_edges_and_checks_of_the_action_close_the_gaps(tmp_path, capsys):
    write_case(tmp_path)
    edges = RESOURCE % ("one", 3) + RESOURCE % ("nine", 4)
    (tmp_path / "resources.yaml").write_text(edges)
    check = "checks:\n- {match: {resource: {metadata: {name: nine}}}, assert: {action: Audit}}\n"
    (tmp_path / "kyverno-test.yaml").write_text(TEST + check)
    assert run(["test", str(tmp_path), "--coverage", "--fail-under", "100"]) == 0
    assert not read_gaps(capsys.readouterr().out, tmp_path)


@pytest.mark.parametrize(
    ("edit", "error"),
    [
        (("result: fail", "result: pass"), "1 tests failed"),
        (("", ""), "tests notice 50 % of changes, fewer than 100 %"),
    ],
)
def test_too_little_coverage_fails(tmp_path, capsys, edit, error):
    write_case(tmp_path)
    (tmp_path / "kyverno-test.yaml").write_text(TEST.replace(*edit))
    assert run(["test", str(tmp_path), "--fail-under", "100"]) == 1
    assert error in capsys.readouterr().err


def test_a_condition_that_is_never_false_is_listed(capsys, monkeypatch):
    monkeypatch.chdir(ROOT)
    run(["test", "examples/kyverno-test.yaml", "--coverage", "-t", "policy=team-label"])
    output = capsys.readouterr().out
    assert "team-label: spec.rules[0].preconditions.all[0]: no test has it false" in output
    assert "team-label: spec.rules[0]: no test sees it fail" in output
    assert "known-registries" not in output


def test_tests_of_our_examples_notice_every_change(capsys, monkeypatch):
    monkeypatch.chdir(ROOT)
    assert run(["test", "examples", "--coverage", "--fail-under", "100"]) == 0
    summary = capsys.readouterr().out.partition("Coverage:\n")[2]
    assert summary.count("(100 %)") == 3, summary
