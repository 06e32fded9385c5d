"""`explain` on many resources: what is chosen, what is cut, and what images a policy is about."""

from pathlib import Path

import pytest

from lictor.cli.exit_codes import run
from lictor.core.families.explanation import MatchClause, RuleExplanation
from lictor.core.report.explanation import Explanation, render_explanation

POLICIES = """
apiVersion: kyverno.io/v1
kind: ClusterPolicy
metadata: {name: labels}
spec:
  rules:
  - name: team
    match: {any: [{resources: {kinds: [Pod], names: [NAMES]}}]}
    validate: {message: name a team, pattern: {metadata: {labels: {team: "?*"}}}}
  - name: owner
    match: {any: [{resources: {kinds: [Pod]}}]}
    validate: {message: name an owner, pattern: {metadata: {labels: {owner: "?*"}}}}
---
apiVersion: policies.kyverno.io/v1
kind: ImageValidatingPolicy
metadata: {name: images}
spec:
  matchConstraints:
    resourceRules:
    - {apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [pods]}
  matchImageReferences: [{glob: "ghcr.io/*"}, {expression: "ref.startsWith('quay.io/')"}]
  validationConfigurations: {mutateDigest: false, verifyDigest: false, required: false}
  attestors: [{name: me, cosign: {keyless: {identities: [{issuer: a, subject: b}]}}}]
  validations: [{expression: "images.containers.size() < 3"}]
"""
NAMES = [f"a-name-that-is-long-{number}" for number in range(9)]
PODS = """
apiVersion: v1
kind: Pod
metadata: {name: a-name-that-is-long-1, labels: {owner: me}}
spec: {containers: [{name: a, image: "ghcr.io/a"}, {name: b, image: "docker.io/b"}]}
---
apiVersion: v1
kind: Pod
metadata: {name: good, labels: {owner: me, team: us}}
spec: {containers: [{name: a, image: "quay.io/a"}]}
"""


def test_what_is_told_of_a_resource_does_not_depend_on_others(explain, tmp_path: Path):
    _, together, _ = explain()
    parts = []
    for pod in PODS.split("---"):
        (tmp_path / "pods.yaml").write_text(pod)
        parts.append(explain()[1])
    assert "".join(parts).replace("\n\n", "\n") == together.replace("\n\n", "\n")


@pytest.fixture
def explain(capsys, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "policy.yaml").write_text(POLICIES.replace("NAMES", ", ".join(NAMES)))
    (tmp_path / "pods.yaml").write_text(PODS)

    def call(*flags: str) -> tuple[int, str, str]:
        code = run(["explain", "policy.yaml", "-r", "pods.yaml", *flags])
        return code, *capsys.readouterr()

    return call


def list_titles(text: str) -> list[str]:
    return [line for line in text.splitlines() if " -> " in line or "── rule" in line]


def test_only_what_failed(explain) -> None:
    _, out, _ = explain("--failed")
    assert list_titles(out) == [
        "labels -> default/Pod/a-name-that-is-long-1",
        "└── rule team: fail",
    ]
    assert explain("--failed", "--policy", "images") == (0, "nothing failed\n", "")
    assert explain("--failed", "--policy", "images", "--format", "json") == (0, "[]\n", "")


def test_by_policy_and_by_rule(explain) -> None:
    assert {line.partition(" ")[0] for line in list_titles(explain("--policy", "images")[1])} == {
        "images"
    }
    assert list_titles(explain("--rule", "owner")[1])[1::2] == ["└── rule owner: pass"] * 2


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--policy", "label"], "no policy is called label; there are labels, images"),
        (["--rule", "teams"], "no rule is called teams; there are team, "),
        (["--policy", "images", "--rule", "team"], "no rule is called team; there are none"),
    ],
)
def test_unknown_names_are_errors(explain, flags: list[str], message: str) -> None:
    code, out, err = explain(*flags)
    assert (code, out) == (2, "")
    assert message in err


def test_clauses_are_whole_in_a_pipe_and_cut_on_a_terminal(explain) -> None:
    assert NAMES[-1] in explain("--rule", "team")[1]
    clause = MatchClause("match.any[0].resources.names", fits=True, wanted=NAMES)
    told = Explanation("p", "r", (RuleExplanation("team", matched=True, clauses=(clause,)),))
    assert "…" in "".join(render_explanation(told))
    assert NAMES[-1] in "".join(render_explanation(told, width=0))


def test_images_are_those_that_the_policy_means(explain) -> None:
    _, out, _ = explain("--policy", "images")
    first, second = out.strip().split("\n\n")
    assert "matchImageReferences[0]: ghcr.io/a like ghcr.io/* = true" in first
    assert "matchImageReferences[0]: docker.io/b like ghcr.io/* = false" in first
    assert "matchImageReferences[1]: docker.io/b: ref.startsWith('quay.io/') = false" in first
    assert 'images.containers = ["ghcr.io/a"]' in first
    assert "matchImageReferences[1]: quay.io/a: ref.startsWith('quay.io/') = true" in second
    assert 'images.containers = ["quay.io/a"]' in second


def test_nothing_to_explain_is_an_error(explain) -> None:
    Path("pods.yaml").write_text("# nothing\n")
    assert explain() == (1, "", "Error: no resources were found\n")
