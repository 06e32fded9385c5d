"""`lictor convert`: converted and checked, or refused with a reason."""

from pathlib import Path

import pytest

from lictor.cli.exit_codes import run
from lictor.core.assembly import compile_documents
from lictor.core.engine import Engine
from lictor.core.load.policies import load_documents

EXAMPLES = Path(__file__).parents[4] / "examples"
ROLES = """
apiVersion: kyverno.io/v1
kind: ClusterPolicy
metadata: {name: by-role}
spec:
  background: false
  rules:
  - name: only-admins
    match: {any: [{resources: {kinds: [ConfigMap]}, clusterRoles: [admin]}]}
    validate: {message: "no", pattern: {metadata: {name: x}}}
"""


def convert(capsys, *words):
    code = run(["convert", *map(str, words)])
    told = capsys.readouterr()
    return code, told.out, told.err


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("no-privileged-pods", "ValidatingPolicy"),
        # With preconditions, and so never relaxed by what the old object broke.
        ("team-label", "ValidatingPolicy"),
        ("safe-defaults", "MutatingPolicy"),
        ("namespace-network-policy", "GeneratingPolicy"),
    ],
)
def test_examples_are_converted_without_a_difference(capsys, name, kind):
    resources = EXAMPLES / "resources" / "pods.yaml"
    code, out, err = convert(capsys, EXAMPLES / "policies" / f"{name}.yaml", "-r", resources)
    assert code == 0, err
    loaded = load_documents(out, "converted")
    assert not [problem for problem in loaded.problems if problem.severity == "error"]
    assert {policy.record.kind for policy in loaded.policies} == {kind}


def test_both_forms_refuse_the_same_pods(capsys):
    path = EXAMPLES / "policies" / "no-privileged-pods.yaml"
    _, out, _ = convert(capsys, path)
    classic = load_documents(path.read_bytes(), "classic")
    modern = load_documents(out, "converted")
    engines = [
        Engine(compile_documents([p.record for p in classic.policies])),
        Engine(compile_documents(modern.records)),
    ]
    pods = load_documents((EXAMPLES / "resources" / "pods.yaml").read_bytes(), "pods").resources
    answers = [[engine.evaluate(pod.record).allowed for pod in pods] for engine in engines]
    assert answers == [[True, False], [True, False]]


def test_what_has_no_equivalent_is_refused_with_the_reason(capsys, tmp_path):
    path = tmp_path / "policy.yaml"
    path.write_text(ROLES)
    code, out, err = convert(capsys, path)
    assert code == 1
    assert out.strip() == ""
    assert "refused" in err
    assert "clusterRoles" in err


def test_a_wrong_call(capsys):
    assert convert(capsys)[0] == 2
