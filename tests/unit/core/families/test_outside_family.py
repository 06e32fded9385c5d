"""A family of another package works in all commands, and nothing of lictor names it."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

import lictor

sys.path.insert(0, str(Path(__file__).parents[3] / "families"))
from installing import install_family

POLICY = """\
apiVersion: labels.example.com/v1
kind: RequiredLabels
metadata: {name: need-team}
spec:
  labels: [team, owner]
  matchConstraints:
    resourceRules:
    - {apiGroups: [""], apiVersions: [v1], operations: [CREATE, UPDATE], resources: [pods]}
"""
PODS = """\
apiVersion: v1
kind: Pod
metadata: {name: good, labels: {team: a, owner: b}}
---
apiVersion: v1
kind: Pod
metadata: {name: bad, labels: {team: a}}
"""
TEST = """\
apiVersion: cli.kyverno.io/v1alpha1
kind: Test
metadata: {name: labels}
policies: [policy.yaml]
resources: [pods.yaml]
results:
- {policy: need-team, kind: Pod, resources: [good], result: pass}
- {policy: need-team, kind: Pod, resources: [bad], result: fail}
"""
MISSING = "these labels are missing: owner"


@pytest.fixture
def run(tmp_path):
    (tmp_path / "package").mkdir()
    environment = install_family(tmp_path / "package")
    for name, text in (("policy", POLICY), ("pods", PODS), ("kyverno-test", TEST)):
        (tmp_path / f"{name}.yaml").write_text(text)

    def run(*words):
        return subprocess.run(
            [sys.executable, "-m", "lictor", *words],
            env=environment,
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=False,
        )

    return run


@pytest.mark.parametrize(
    ("words", "code", "texts"),
    [
        (("apply", "policy.yaml", "-r", "pods.yaml"), 1, (MISSING, "pass: 1, fail: 1")),
        (("test", "."), 0, ("need-team", "2 tests passed and 0 tests failed")),
        (("lint", "policy.yaml"), 0, ("",)),
        (("explain", "policy.yaml", "-r", "pods.yaml"), 0, ("labels", MISSING)),
        (("count-labels", "policy.yaml", "pods.yaml"), 0, ("1 of 2 objects are denied",)),
        (("crds",), 0, ("requiredlabels.labels.example.com", "matchConstraints")),
    ],
    ids=lambda value: value[0] if isinstance(value, tuple) else None,
)
def test_commands(run, words, code, texts):
    done = run(*words)
    assert done.returncode == code, done.stdout + done.stderr
    for text in texts:
        assert text in done.stdout


def test_its_own_lint_rule(run, tmp_path):
    (tmp_path / "policy.yaml").write_text(POLICY.replace("[team, owner]", "[team, team]"))
    done = run("lint", "policy.yaml")
    assert done.returncode == 1
    assert (
        'policy.yaml:5:18: error: spec.labels[1]: the label "team" is wanted twice' in done.stdout
    )


def test_fields_are_checked_by_its_record(run, tmp_path):
    (tmp_path / "policy.yaml").write_text(POLICY.replace("labels:", "lables:"))
    done = run("lint", "policy.yaml")
    assert done.returncode == 1
    assert 'did you mean "labels"?' in done.stdout


def test_without_the_package_the_policy_is_not_taken_for_one(tmp_path):
    (tmp_path / "policy.yaml").write_text(POLICY)
    (tmp_path / "pods.yaml").write_text(PODS)
    done = subprocess.run(
        [sys.executable, "-m", "lictor", "apply", "policy.yaml", "-r", "pods.yaml"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert "no policies were found in policy.yaml" in done.stderr


def test_it_uses_the_public_api_only():
    text = (Path(__file__).parents[3] / "families" / "required_labels.py").read_text()
    assert re.findall(r"^(?:from|import) lictor.*", text, re.MULTILINE) == [
        "import lictor",
        "from lictor import Json, PolicyKind",
    ]
    used = set(re.findall(r"\blictor\.(\w+)", text)) - {"families", "commands"}
    assert used - {"__all__"} <= set(lictor.__all__)


@pytest.mark.parametrize(
    "entry_points",
    ["x = no_such_module:x", "x = required_labels:Json"],
)
def test_a_command_that_cannot_be_loaded_is_an_error(tmp_path, entry_points):
    environment = install_family(tmp_path, f"[lictor.commands]\n{entry_points}\n")
    done = subprocess.run(
        [sys.executable, "-m", "lictor", "x"],
        env=environment,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode != 0
    assert "command x of required-labels" in done.stderr
    assert "repair the package or uninstall it" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("entry_points", "message"),
    [
        ("[lictor.families]\nx = no_such_module:FAMILY\n", "policy family x of required-labels"),
        ("[lictor.families]\nx = required_labels:Json\n", "policy family x of required-labels"),
    ],
)
def test_a_family_that_cannot_be_loaded_is_an_error(tmp_path, entry_points, message):
    environment = install_family(tmp_path, entry_points)
    (tmp_path / "policy.yaml").write_text(POLICY)
    done = subprocess.run(
        [sys.executable, "-m", "lictor", "apply", "policy.yaml", "-r", "policy.yaml"],
        env=environment,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode != 0
    assert (done.stdout + done.stderr).count(message) == 1
    assert "repair the package or uninstall it" in done.stdout + done.stderr
