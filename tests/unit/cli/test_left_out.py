"""Folders of policies hold more than policies: what is none is left out, what is one never."""

from pathlib import Path

import pytest

import lictor
from lictor.addons.apiserver.up.policy_files import read_objects
from lictor.cli.exit_codes import run
from lictor.webhook.file_policies import FilePolicies

POLICY = """
apiVersion: kyverno.io/v1
kind: ClusterPolicy
metadata: {name: need-team}
spec:
  rules:
  - name: team
    match: {any: [{resources: {kinds: [Pod]}}]}
    validate: {message: a team is needed, pattern: {metadata: {labels: {team: "?*"}}}}
"""
POD = "apiVersion: v1\nkind: Pod\nmetadata: {name: mine, labels: {team: a}}\n"
BESIDE = {
    "artifacthub-pkg.yml": "name: need-team\nversion: 1.0.0\nkeywords: [kyverno]\n",
    "kustomization.yaml": "resources: [policy.yaml]\n",
    "sub/kustomization.yaml": (
        "apiVersion: kustomize.config.k8s.io/v1beta1\nkind: Kustomization\nresources: []\n"
    ),
}
FOREIGN = {
    "gatekeeper template": "templates.gatekeeper.sh/v1/ConstraintTemplate",
    "gatekeeper constraint": "constraints.gatekeeper.sh/v1beta1/K8sRequiredLabels",
    "gatekeeper mutation": "mutations.gatekeeper.sh/v1/Assign",
    "sigstore": "policy.sigstore.dev/v1beta1/ClusterImagePolicy",
    "kyverno-json": "json.kyverno.io/v1alpha1/ValidatingPolicy",
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "policies"
    for name, text in {"policy.yaml": POLICY, **BESIDE}.items():
        (made / name).parent.mkdir(parents=True, exist_ok=True)
        (made / name).write_text(text)
    (tmp_path / "pod.yaml").write_text(POD)
    return made


@pytest.mark.parametrize("command", ["apply", "convert", "lint", "explain"])
def test_what_is_no_policy_is_left_out_without_a_word(folder: Path, command: str, capsys) -> None:
    resource = [] if command == "lint" else ["-r", str(folder.parent / "pod.yaml")]
    assert run([command, str(folder), *resource]) == 0
    out, err = capsys.readouterr()
    assert not any(name in out + err for name in ("artifacthub", "kustomization", "error: 1"))


def test_the_others_leave_it_out_too(folder: Path) -> None:
    assert len(lictor.load_policies(folder)) == 1
    assert len(FilePolicies(folder).policies) == 1
    told: list[str] = []
    objects = read_objects([folder], told.append)
    assert [each.body["kind"] for each in objects] == ["ClusterPolicy"]
    assert len(told) == len(BESIDE)


def test_it_is_told_to_those_who_ask(folder: Path, capsys) -> None:
    resource = str(folder.parent / "pod.yaml")
    assert run(["apply", str(folder), "-v", "-r", resource]) == 0
    err = capsys.readouterr().err
    assert "artifacthub-pkg.yml:1: is no Kubernetes object and was left out" in err
    assert "sub/kustomization.yaml:1: Kustomization is not a policy and was left out" in err


@pytest.mark.parametrize("kind", FOREIGN.values(), ids=FOREIGN)
def test_policies_that_nothing_here_runs_are_errors(folder: Path, kind: str, capsys) -> None:
    version, _, name = kind.rpartition("/")
    text = f"apiVersion: {version}\nkind: {name}\nmetadata: {{name: other}}\nspec: {{}}\n"
    (folder / "other.yaml").write_text(text)
    message = f"other.yaml:1: policies of kind {name} are not supported yet"
    resource = ["-r", str(folder.parent / "pod.yaml")]
    for command in (["apply", *resource], ["convert"], ["explain", *resource]):
        assert run([command[0], str(folder), *command[1:]]) == 1
        assert message in "".join(capsys.readouterr())
    for load in (lictor.load_policies, FilePolicies):
        with pytest.raises(lictor.LoadError, match=message):
            load(folder)
    assert run(["lint", str(folder)]) == 1
    assert f"other.yaml:2:1: error: kind: policies of kind {name}" in capsys.readouterr().out


LIKE_POLICIES = {
    "a module": ("acme.example.com/v1/ClusterAdmissionPolicy", "{module: registry://a/b:v1}"),
    "expressions": ("acme.example.com/v1/ImagePolicy", "{validations: []}"),
    "a constraint": ("acme.example.com/v1/TeamConstraint", "{enforcementAction: deny}"),
}


@pytest.mark.parametrize(("kind", "spec"), LIKE_POLICIES.values(), ids=LIKE_POLICIES)
def test_what_looks_like_a_policy_of_nobody_is_an_error(
    folder: Path, kind: str, spec: str, capsys
) -> None:
    version, _, name = kind.rpartition("/")
    text = f"apiVersion: {version}\nkind: {name}\nmetadata: {{name: other}}\nspec: {spec}\n"
    (folder / "other.yaml").write_text(text)
    for words in (
        ["apply", str(folder), "-r", str(folder.parent / "pod.yaml")],
        ["lint", str(folder)],
    ):
        assert run(words) == 1
        assert f"policies of kind {name} are not supported" in "".join(capsys.readouterr())


@pytest.mark.parametrize(
    ("kind", "spec"),
    [
        ("networking.k8s.io/v1/NetworkPolicy", "{podSelector: {}}"),
        ("security.istio.io/v1/AuthorizationPolicy", "{action: DENY, rules: []}"),
        ("acme.example.com/v1/Widget", "{module: x}"),
    ],
)
def test_policies_about_other_things_are_resources(folder: Path, kind: str, spec: str) -> None:
    version, _, name = kind.rpartition("/")
    text = f"apiVersion: {version}\nkind: {name}\nmetadata: {{name: other}}\nspec: {spec}\n"
    (folder / "other.yaml").write_text(text)
    assert run(["apply", str(folder), "-r", str(folder.parent / "pod.yaml")]) == 0
    assert run(["lint", str(folder)]) == 0


@pytest.mark.parametrize("text", ["", "# nothing\n", "---\n"])
def test_an_empty_file_is_no_pass_of_lint(tmp_path: Path, text: str, capsys) -> None:
    assert run(["lint", str(tmp_path)]) == 1
    assert "no YAML files were found" in capsys.readouterr().err
    (tmp_path / "empty.yaml").write_text(text)
    assert run(["lint", str(tmp_path / "empty.yaml")]) == 1
    assert "empty.yaml:1:1: error: the file contains no documents" in capsys.readouterr().out


@pytest.mark.parametrize(
    "text",
    [
        POLICY.replace("apiVersion: kyverno.io/v1\n", ""),
        POLICY.replace("kind: ClusterPolicy\n", ""),
        POLICY.replace("apiVersion: kyverno.io/v1\nkind: ClusterPolicy\n", ""),
        "- a list\n",
        "Error: the template could not be rendered\n- because",
    ],
)
def test_a_policy_that_lost_its_head_is_an_error(folder: Path, text: str) -> None:
    (folder / "broken.yaml").write_text(text)
    assert run(["apply", str(folder), "-r", str(folder.parent / "pod.yaml")]) == 1
    with pytest.raises(lictor.LoadError):
        lictor.load_policies(folder)


@pytest.mark.parametrize(
    "text", ["", "---\n---\n", "# nothing\n", POD, BESIDE["kustomization.yaml"], None]
)
@pytest.mark.parametrize("command", ["apply", "convert", "explain"])
def test_nothing_but_what_is_left_out_is_an_error(tmp_path: Path, command, text, capsys) -> None:
    policies = tmp_path / "policies"
    policies.mkdir()
    given = policies
    if text is not None:
        given = policies / "policy.yaml"
        given.write_text(text)
    resource = tmp_path / "pod.yaml"
    resource.write_text(POD)
    assert run([command, str(given), "-r", str(resource)]) != 0
    out, err = capsys.readouterr()
    assert "policies were found" in out + err
    assert "pass: 0" not in out
