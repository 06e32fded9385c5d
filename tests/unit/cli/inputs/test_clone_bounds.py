"""Files of a cloned repository name files of that repository, and nothing else of this machine."""

from pathlib import Path

import pytest
import yaml
from git_http import make_repository

from lictor.cli.exit_codes import run

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
ROW = {"policy": "need-team", "rule": "team", "kind": "Pod", "result": "pass"}


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    """A file of this machine that is no part of any repository."""
    folder = tmp_path / "home"
    folder.mkdir()
    (folder / "pod.yaml").write_text(POD)
    (folder / "policy.yaml").write_text(POLICY)
    (folder / "values.yaml").write_text(
        "apiVersion: cli.kyverno.io/v1alpha1\nkind: Values\nmetadata: {name: v}\n"
    )
    return folder


def make_test(**fields: object) -> str:
    test = {
        "apiVersion": "cli.kyverno.io/v1alpha1",
        "kind": "Test",
        "metadata": {"name": "t"},
        "policies": ["policy.yaml"],
        "resources": ["pod.yaml"],
        "results": [{**ROW, "resources": ["mine"]}],
        **fields,
    }
    return yaml.safe_dump(test)


def clone_and_test(root: Path, *flags: str, links: dict[str, str] | None = None, **fields) -> int:
    files = {"policy.yaml": POLICY, "pod.yaml": POD, "kyverno-test.yaml": make_test(**fields)}
    make_repository(root, files, links)
    return run(["test", f"file://{root}", *flags])


def test_files_of_the_repository_are_read(tmp_path: Path, capsys) -> None:
    links = {"linked.yaml": "deep/../pod.yaml", "deep/up": ".."}
    fields = {"resources": ["linked.yaml"], "policies": ["deep/up/policy.yaml"]}
    assert clone_and_test(tmp_path / "repo", links=links, **fields) == 0, capsys.readouterr()


@pytest.mark.parametrize(
    ("fields", "links"),
    [
        ({"resources": ["OUT/pod.yaml"]}, {}),
        ({"resources": ["OUT/*.yaml"]}, {}),
        ({"resources": ["../../../../../../../OUT/pod.yaml"]}, {}),
        ({"policies": ["OUT/policy.yaml"]}, {}),
        ({"policies": ["OUT"]}, {}),
        ({"variables": "OUT/values.yaml"}, {}),
        ({"resources": ["http://127.0.0.1:9/pod.yaml"]}, {}),
        ({"resources": ["away.yaml"]}, {"away.yaml": "OUT/pod.yaml"}),
        ({"resources": ["away/pod.yaml"]}, {"away": "OUT"}),
        ({"resources": ["aw*/pod.yaml"]}, {"away": "OUT"}),
        ({"policies": ["away"]}, {"away": "OUT"}),
        ({"policies": ["sub"]}, {"sub/policy.yaml": "OUT/policy.yaml"}),
        ({"resources": ["here/../../OUT/pod.yaml"]}, {"here": "."}),
    ],
    ids=str,
)
def test_nothing_outside_is_read(
    tmp_path: Path, outside: Path, fields: dict, links: dict, capsys
) -> None:
    told = yaml.safe_load(yaml.safe_dump(fields).replace("OUT", str(outside)))
    made = {name: target.replace("OUT", str(outside)) for name, target in links.items()}
    assert clone_and_test(tmp_path / "repo", links=made, **told) == 1
    out = "".join(capsys.readouterr())
    assert "outside of the cloned repository" in out or "lead out of the repository" in out


def test_rows_name_nothing_outside(tmp_path: Path, outside: Path, capsys) -> None:
    row = {**ROW, "cloneSourceResource": str(outside / "pod.yaml"), "resources": ["mine"]}
    clone_and_test(tmp_path / "repo", results=[row])
    assert "outside of the cloned repository" in capsys.readouterr().out


def test_whoever_means_it_may(tmp_path: Path, outside: Path) -> None:
    root = tmp_path / "repo"
    links = {"away.yaml": str(outside / "pod.yaml")}
    fields = {"policies": [str(outside / "policy.yaml")], "resources": ["away.yaml"]}
    assert clone_and_test(root, "--allow-outside", links=links, **fields) == 0


def test_folders_of_this_machine_are_not_confined(tmp_path: Path, outside: Path) -> None:
    root = tmp_path / "local"
    root.mkdir()
    paths = [str(outside / "pod.yaml")]
    text = make_test(policies=["../home/policy.yaml"], resources=paths)
    (root / "kyverno-test.yaml").write_text(text)
    assert run(["test", str(root)]) == 0


def test_policies_behind_links_are_not_read(tmp_path: Path, outside: Path, capsys) -> None:
    links = {"away.yaml": str(outside / "policy.yaml"), "folder": str(outside)}
    make_repository(tmp_path / "repo", {"readme": "x"}, links)
    resource = str(outside / "pod.yaml")
    run(["apply", f"file://{tmp_path}/repo", "-r", resource])
    out, err = capsys.readouterr()
    assert "need-team" not in out
    assert "left out 2 symbolic links" in err


def test_lint_reads_nothing_outside(tmp_path: Path, outside: Path, capsys) -> None:
    secret = outside / "secret.yaml"
    secret.write_text("apiVersion: v1\nkind: Pod\nmetadata: {name: someone-else}\n")
    files = {"policy.yaml": POLICY, "kyverno-test.yaml": make_test(resources=[str(secret)])}
    make_repository(tmp_path / "repo", files)
    run(["lint", f"file://{tmp_path}/repo"])
    # Had it been read, lint would miss the resource that the row names.
    assert capsys.readouterr().out == "no problems in 2 files\n"


def test_the_address_of_the_repository_is_not_among_its_files(tmp_path: Path, capsys) -> None:
    assert clone_and_test(tmp_path / "repo", resources=[".git/config"]) == 1
    assert "No such file" in "".join(capsys.readouterr())
