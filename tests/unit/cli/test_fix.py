"""Old files come out in today's form; what cannot be read is never written."""

import pytest
import yaml

from lictor.cli import exit_codes
from lictor.cli.repairs import repair_kind, repair_policy, repair_test
from lictor.core.errors import LoadError


def policy(**rule):
    return {
        "apiVersion": "kyverno.io/v1",
        "kind": "ClusterPolicy",
        "metadata": {"name": "p"},
        "spec": {"rules": [{"name": "r", **rule}]},
    }


@pytest.mark.parametrize(
    ("old", "new", "messages"),
    [
        (
            {"match": {"any": [{"resources": {"kinds": ["Pod"]}}]}},
            {"match": {"any": [{"resources": {"kinds": ["Pod"]}}]}},
            [],
        ),
        (
            {"match": {"resources": {"kinds": ["Pod"]}, "clusterRoles": ["a"]}},
            {"match": {"any": [{"resources": {"kinds": ["Pod"]}, "clusterRoles": ["a"]}]}},
            ["match uses old syntax, moving to any"],
        ),
        (
            {"exclude": {"any": [{"roles": ["x"]}], "subjects": [{"kind": "User", "name": "u"}]}},
            {"exclude": {"any": [{"roles": ["x"]}, {"subjects": [{"kind": "User", "name": "u"}]}]}},
            ["exclude uses old syntax, moving to any"],
        ),
        (
            {
                "preconditions": [
                    {"key": "a", "operator": "Equal", "value": "a"},
                    {"key": "a", "operator": "NotIn", "value": []},
                ]
            },
            {
                "preconditions": {
                    "all": [
                        {"key": "a", "operator": "Equals", "value": "a"},
                        {"key": "a", "operator": "AnyNotIn", "value": []},
                    ]
                }
            },
            [
                "preconditions use old syntax, moving to all",
                "condition uses old operator `Equal`, updating",
                "condition uses old operator `NotIn`, updating",
            ],
        ),
        (
            {
                "preconditions": {
                    "any": [{"key": "a", "operator": "NotEqual"}, {"operator": "In"}],
                    "all": [{"operator": "Equals"}],
                }
            },
            {
                "preconditions": {
                    "any": [{"key": "a", "operator": "NotEquals"}, {"operator": "AllIn"}],
                    "all": [{"operator": "Equals"}],
                }
            },
            [
                "condition uses old operator `NotEqual`, updating",
                "condition uses old operator `In`, updating",
            ],
        ),
        ({"match": 5, "preconditions": "x"}, {"match": 5, "preconditions": "x"}, []),
        (
            {"preconditions": {"all": [3, {"operator": {}}]}},
            {"preconditions": {"all": [3, {"operator": {}}]}},
            [],
        ),
    ],
)
def test_policies(old, new, messages):
    given = policy(**old)
    repair = repair_policy(given)
    assert repair.document == policy(**new)
    assert list(repair.messages) == messages
    assert given == policy(**old), "the document itself is left alone"


@pytest.mark.parametrize(
    ("old", "new"), [("enforce", "Enforce"), ("audit", "Audit"), ("Enforce", "Enforce")]
)
def test_failure_action(old, new):
    document = {
        "kind": "Policy",
        "apiVersion": "kyverno.io/v1",
        "spec": {"validationFailureAction": old},
    }
    assert repair_policy(document).document["spec"]["validationFailureAction"] == new


@pytest.mark.parametrize(
    "document", [{}, {"spec": 1}, {"spec": {"rules": 5}}, {"spec": {"rules": [1, None]}}]
)
def test_odd_policies(document):
    assert repair_policy(document).document == document


RESULT = {"policy": "b", "rule": "r", "kind": "Pod", "result": "pass"}


@pytest.mark.parametrize(
    ("document", "compress", "changed", "messages"),
    [
        (
            {
                "name": "old",
                "policies": ["p", "p"],
                "resources": ["r"],
                "results": [
                    {**RESULT, "resources": ["x", "w", "x"]},
                    {**RESULT, "policy": "a", "resources": ["z"]},
                ],
            },
            False,
            {
                "apiVersion": "cli.kyverno.io/v1alpha1",
                "kind": "Test",
                "metadata": {"name": "old"},
                "policies": ["p"],
                "resources": ["r"],
                "results": [
                    {**RESULT, "policy": "a", "resources": ["z"]},
                    {**RESULT, "resources": ["x", "w"]},
                ],
            },
            [
                "api version is not set, setting `cli.kyverno.io/v1alpha1`",
                "kind is not set, setting `Test`",
                "name is deprecated, moving it into `metadata.name`",
                "test results contains duplicate resources",
            ],
        ),
        (
            {
                "apiVersion": "a",
                "kind": "Test",
                "metadata": {"name": "n"},
                "policies": ["p"],
                "resources": ["r"],
                "results": [
                    {**RESULT, "resources": ["z"]},
                    {**RESULT, "resources": ["q", "z"]},
                    {**RESULT, "rule": "a"},
                ],
            },
            True,
            {
                "apiVersion": "a",
                "kind": "Test",
                "metadata": {"name": "n"},
                "policies": ["p"],
                "resources": ["r"],
                "results": [{**RESULT, "rule": "a"}, {**RESULT, "resources": ["z", "q"]}],
            },
            ["test results contains duplicate resources"],
        ),
        (
            {},
            False,
            {
                "apiVersion": "cli.kyverno.io/v1alpha1",
                "kind": "Test",
                "metadata": {"name": "kyverno-test.yaml"},
            },
            [
                "name is not set",
                "api version is not set, setting `cli.kyverno.io/v1alpha1`",
                "kind is not set, setting `Test`",
                "test has no policies",
                "test has no resources",
            ],
        ),
    ],
)
def test_tests(document, compress, changed, messages):
    repair = repair_test(document, "kyverno-test.yaml", compress=compress)
    assert repair.document == changed
    assert list(repair.messages) == messages


@pytest.mark.parametrize(
    "document",
    [
        None,
        [],
        3,
        {"bogus": 1},
        {"policies": 3},
        {"results": [3]},
        {"results": [{"resources": [True]}]},
        {"metadata": []},
    ],
)
def test_what_is_no_test(document):
    with pytest.raises(LoadError):
        repair_test(document, "x")


def test_kinds():
    assert repair_kind({"a": 1}, "Values").document == {
        "a": 1,
        "apiVersion": "cli.kyverno.io/v1alpha1",
        "kind": "Values",
    }


def test_policy_files(tmp_path, capsys):
    old = policy(match={"resources": {"kinds": ["Pod"]}})
    other = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "kept"}}
    file = tmp_path / "p.yaml"
    file.write_text(yaml.safe_dump_all([old, other]))
    (tmp_path / "broken.yml").write_text("{{ template }}: [")
    (tmp_path / "note.txt").write_text("x: [")
    assert exit_codes.run(["fix", "policy", str(tmp_path)]) == 0
    assert list(yaml.safe_load_all(file.read_text())) == [old, other]
    out, _ = capsys.readouterr()
    assert out.startswith(f"Skipping file ({tmp_path}/broken.yml): ")
    assert (
        f"Processing file ({file})...\n  WARNING: match uses old syntax, moving to any\nDone.\n"
        in out
    )
    assert exit_codes.run(["fix", "policy", str(tmp_path), "--save"]) == 0
    assert list(yaml.safe_load_all(file.read_text())) == [repair_policy(old).document, other]
    assert f"  Saving file ({file})...\n    OK\nDone.\n" in capsys.readouterr().out
    assert exit_codes.run(["fix", "policy", str(file), "--save"]) == 0
    assert capsys.readouterr().out == f"Processing file ({file})...\nDone.\n"


def test_test_files(tmp_path, capsys):
    folder = tmp_path / "t"
    folder.mkdir()
    file = folder / "kyverno-test.yaml"
    file.write_text(
        "name: old\npolicies: [p]\nresources: [r]\nvariables: values.yaml\nuserinfo: ui.yaml\n"
    )
    (folder / "values.yaml").write_text("globalValues: {a: b}\n")
    (folder / "ui.yaml").write_text("[")
    assert exit_codes.run(["fix", "test", str(tmp_path), "--save"]) == 0
    out, _ = capsys.readouterr()
    assert (
        "  WARNING: name is deprecated, moving it into `metadata.name`\n  Processing user info file (ui.yaml)...\n    ERROR: failed to load user info: "
        in out
    )
    assert "  Processing values file (values.yaml)...\n" in out
    assert yaml.safe_load(file.read_text())["metadata"] == {"name": "old"}
    assert yaml.safe_load((folder / "values.yaml").read_text())["kind"] == "Values"
    assert (folder / "ui.yaml").read_text() == "["


@pytest.mark.parametrize("text", ["{", "bogus: 1", "- 1"])
def test_what_cannot_be_read_is_not_written(tmp_path, capsys, text):
    file = tmp_path / "kyverno-test.yaml"
    file.write_text(text)
    assert exit_codes.run(["fix", "test", str(tmp_path), "--save", "--force"]) == 0
    assert file.read_text() == text
    assert "  ERROR: loading test file" in capsys.readouterr().out


@pytest.mark.parametrize(
    "arguments",
    [
        ["test"],
        ["test", "/no/such"],
        ["test", __file__],
        ["test", ".", "-f", ""],
        ["policy"],
        ["policy", "/no/such"],
    ],
)
def test_wrong_calls(capsys, arguments):
    assert exit_codes.run(["fix", *arguments]) == 1
    assert capsys.readouterr().err.startswith("Error: ")


OLDER_TEST = """
name: older
policies: [policy.yaml]
resources: [pod.yaml]
results:
- {policy: need-team, rule: team, resource: bare, kind: Pod, status: fail}
- {policy: need-team, rule: team, resource: good, namespace: red, kind: Pod, status: pass}
- {policy: add-owner, rule: owner, resource: good, namespace: red, kind: Pod, result: pass,
   patchedResource: patched.yaml}
"""
OLDER_POLICIES = """
apiVersion: kyverno.io/v1
kind: ClusterPolicy
metadata: {name: need-team}
spec:
  rules:
  - name: team
    match: {any: [{resources: {kinds: [Pod]}}]}
    validate: {message: a team is needed, pattern: {metadata: {labels: {team: "?*"}}}}
---
apiVersion: kyverno.io/v1
kind: Policy
metadata: {name: add-owner, namespace: red}
spec:
  rules:
  - name: owner
    match: {any: [{resources: {kinds: [Pod]}}]}
    mutate: {patchStrategicMerge: {metadata: {labels: {owner: me}}}}
"""
OLDER_PODS = """
apiVersion: v1
kind: Pod
metadata: {name: bare}
---
apiVersion: v1
kind: Pod
metadata: {name: good, namespace: red, labels: {team: a}}
"""


def test_a_test_of_an_older_form_is_refused_with_a_hint_and_then_fixed(tmp_path, capsys):
    patched = OLDER_PODS.split("---")[1].replace("team: a", "team: a, owner: me")
    for name, text in {
        "kyverno-test.yaml": OLDER_TEST,
        "policy.yaml": OLDER_POLICIES,
        "pod.yaml": OLDER_PODS,
        "patched.yaml": patched,
    }.items():
        (tmp_path / name).write_text(text)
    assert exit_codes.run(["test", str(tmp_path)]) == 1
    assert f"`lictor fix test {tmp_path} --save` brings it up to date" in capsys.readouterr().out
    assert exit_codes.run(["fix", "test", str(tmp_path), "--save"]) == 0
    fixed = yaml.safe_load((tmp_path / "kyverno-test.yaml").read_text())
    assert [(row["policy"], row["resources"]) for row in fixed["results"]] == [
        ("need-team", ["bare"]),
        ("need-team", ["red/good"]),
        ("red/add-owner", ["good"]),
    ]
    capsys.readouterr()
    exit_codes.run(["test", str(tmp_path)])
    out = capsys.readouterr().out
    assert "3 tests passed and 0 tests failed" in out, out


def test_a_test_without_kind_is_refused_with_a_hint(tmp_path, capsys):
    (tmp_path / "t.yaml").write_text(
        "name: x\npolicies: [p.yaml]\nresources: [r.yaml]\nresults: []\n"
    )
    assert exit_codes.run(["test", str(tmp_path), "-f", "t.yaml"]) == 1
    err = capsys.readouterr().err
    assert f"`lictor fix test {tmp_path} --file-name t.yaml --save` brings it up to date" in err


@pytest.mark.parametrize(
    "row", [{"status": "pass", "result": "fail"}, {"resource": ["a"]}, {"namespace": 3}]
)
def test_older_fields_that_make_no_sense(row):
    with pytest.raises(LoadError):
        repair_test({"results": [{"policy": "p", **row}]}, "t")
