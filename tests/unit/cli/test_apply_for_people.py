"""`apply` as people and pipelines use it: only what failed, where it stands, in many formats."""

import json
from pathlib import Path

import pytest

from lictor.cli.exit_codes import run

POLICY = """
apiVersion: kyverno.io/v1
kind: ClusterPolicy
metadata: {name: images}
spec:
  rules:
  - name: tagged
    match: {any: [{resources: {kinds: [Pod]}}]}
    validate:
      message: name a tag
      pattern: {spec: {containers: [{image: "*:*"}]}}
  - name: owned
    match: {any: [{resources: {kinds: [Pod]}}]}
    validate:
      message: name an owner
      pattern: {metadata: {labels: {acme.io/owner: "?*"}}}
"""
PODS = """\
# Two of them.
---
apiVersion: v1
kind: Pod
metadata:
  name: good
  labels: {acme.io/owner: me}
spec:
  containers:
  - {name: a, image: a:1}
---
apiVersion: v1
kind: Pod
metadata:
  name: bad
  labels:
    acme.io/owner: ""
spec:
  containers:
  - name: a
    image: a:1
  - name: b
    image: b
"""
TAGGED = ("pods.yaml", 23, 5)
OWNED = ("pods.yaml", 17, 5)


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "policy.yaml").write_text(POLICY)
    (tmp_path / "pods.yaml").write_text(PODS)
    return tmp_path


def apply(capsys, *flags: str, resource: str = "pods.yaml") -> tuple[int, str, str]:
    code = run(["apply", "policy.yaml", "-r", resource, *flags])
    return code, *capsys.readouterr()


def test_failures_only_with_the_place_of_each(capsys) -> None:
    code, out, _ = apply(capsys, "--failed-only")
    assert code == 1
    assert "    --> pods.yaml:23:5\n" in out
    assert "    --> pods.yaml:17:5\n" in out
    assert out.endswith("\npass: 2, fail: 2, warn: 0, error: 0, skip: 0 \n")


@pytest.mark.parametrize(
    ("flags", "kept"),
    [
        (["-t"], ["images"] * 2),
        (["--output-format", "markdown"], ["images"] * 2),
        (["-p"], ["result: fail"] * 2),
    ],
    ids=str,
)
def test_failures_only_in_every_format(capsys, flags: list[str], kept: list[str]) -> None:
    _, everything, _ = apply(capsys, *flags)
    _, out, _ = apply(capsys, "--failed-only", *flags)
    assert everything.count("good") > 0
    assert out.count("good") == 0
    assert out.count(kept[0]) == len(kept)


def test_quiet_prints_what_failed_and_nothing_else(capsys, folder: Path) -> None:
    code, out, err = apply(capsys, "-q")
    assert (code, err) == (1, "")
    assert out.startswith("policy images -> resource default/Pod/bad failed:\n1 - tagged")
    assert out.endswith("--> pods.yaml:17:5\n")
    (folder / "pods.yaml").write_text(PODS[: PODS.rindex("---")])
    assert apply(capsys, "--quiet") == (0, "", "")


def test_text_stays_as_it_was_without_flags(capsys) -> None:
    assert "-->" not in apply(capsys)[1]
    assert apply(capsys, "--file-names")[1].count("    --> pods.yaml:") == 2


def list_regions(text: str) -> list[tuple[str, int, int]]:
    places = [
        result["locations"][0]["physicalLocation"]
        for result in json.loads(text)["runs"][0]["results"]
    ]
    return [
        (p["artifactLocation"]["uri"], p["region"]["startLine"], p["region"]["startColumn"])
        for p in places
    ]


def test_sarif_points_at_field_and_list_item(capsys) -> None:
    assert list_regions(apply(capsys, "--output-format", "sarif")[1]) == [TAGGED, OWNED]


def test_sarif_points_into_lists(capsys, folder: Path) -> None:
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a", "labels": {}}}
    pod["spec"] = {"containers": [{"name": "a", "image": "a"}]}
    items = [{"apiVersion": "v1", "kind": "List", "items": [pod, pod]}]
    text = json.dumps({"apiVersion": "v1", "kind": "List", "items": items}, indent=1)
    (folder / "pods.yaml").write_text(text)
    lines = [number for number, line in enumerate(text.split("\n"), 1) if '"image"' in line]
    found = list_regions(apply(capsys, "--output-format", "sarif")[1])
    assert [line for _, line, _ in found][::2] == lines


def test_annotations_for_a_pull_request(capsys) -> None:
    code, out, _ = apply(capsys, "--output-format", "github")
    first, second = out.splitlines()
    assert code == 1
    assert first.startswith(
        "::error file=pods.yaml,line=23,col=5,title=images/tagged::default/Pod/bad: validation"
    )
    assert second.startswith("::error file=pods.yaml,line=17,col=5,title=images/owned::")
    _, out, _ = apply(capsys, "--output-format", "github", "--audit-warn")
    assert out.startswith("::warning file=pods.yaml")


def test_several_formats_in_one_run(capsys, folder: Path) -> None:
    files = "sarif=out/r.sarif,junit=out/r.xml,json=out/r.json,yaml=out/r.yaml,github=out/r.txt"
    code, out, _ = apply(capsys, "--output-file", files, "--parallel", "2")
    assert (code, out) == apply(capsys)[:2]
    assert list_regions((folder / "out/r.sarif").read_text()) == [TAGGED, OWNED]
    for form, name in (("junit", "r.xml"), ("github", "r.txt")):
        alone = apply(capsys, "--output-format", form)[1]
        assert (folder / "out" / name).read_text() == alone
    assert json.loads((folder / "out/r.json").read_text())["summary"]["fail"] == 2
    assert "kind: ClusterReport" in (folder / "out/r.yaml").read_text()


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("r.sarif", "--output-file r.sarif: give FORMAT=FILE, FORMAT one of yaml, json, markdown"),
        ("pdf=r.pdf", "--output-file pdf=r.pdf: give FORMAT=FILE"),
        ("sarif=", "--output-file sarif=: give FORMAT=FILE"),
        ("sarif=r,junit=r", "--output-file junit=r: r is named twice"),
    ],
)
def test_files_of_no_known_format(capsys, given: str, message: str) -> None:
    code, _, err = apply(capsys, "--output-file", given)
    assert code == 1
    assert message in err


def test_folders_are_read_with_those_below(capsys, folder: Path) -> None:
    below = folder / "all" / "team" / "shop"
    below.mkdir(parents=True)
    (below / "pods.yaml").write_text(PODS)
    code, out, _ = apply(capsys, "--file-names", resource="all")
    assert code == 1
    assert "--> all/team/shop/pods.yaml:23:5" in out


@pytest.mark.parametrize("where", ["first", "later"])
def test_a_folder_that_gives_nothing_fails(capsys, folder: Path, where: str) -> None:
    (folder / "empty").mkdir()
    flags = ["empty"] if where == "first" else ["pods.yaml", "-r", "empty"]
    code, _, err = apply(capsys, *flags[1:], resource=flags[0])
    assert (code, err) == (1, "Error: empty: there are no YAML files in this folder\n")


@pytest.mark.parametrize("text", ["", "# nothing\n---\n"])
def test_files_without_resources_fail(capsys, folder: Path, text: str) -> None:
    (folder / "pods.yaml").write_text(text)
    code, _, err = apply(capsys)
    assert (code, err) == (1, "Error: no resources were found in pods.yaml\n")


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("values.yaml", "image: {tag: 1}\n"),
        ("prod-values.yml", "image: {tag: 1}\n"),
        ("kustomization.yaml", "resources: [pods.yaml]\n"),
        ("any.yaml", "apiVersion: kustomize.config.k8s.io/v1beta1\nkind: Kustomization\n"),
        ("test.yaml", "apiVersion: cli.kyverno.io/v1alpha1\nkind: Test\nmetadata: {name: t}\n"),
        ("Chart.yaml", "apiVersion: v2\nname: shop\n"),
    ],
)
def test_files_of_tools_are_skipped_with_a_warning(capsys, folder: Path, name, text) -> None:
    (folder / "all").mkdir()
    (folder / "all" / "pods.yaml").write_text(PODS)
    (folder / "all" / name).write_text(text)
    code, out, err = apply(capsys, resource="all")
    assert code == 1
    assert err == f"warning: all/{name}:1: is no resource but a tool's file, skipped\n"
    assert "to 2 resource(s)" in out
    code, _, err = apply(capsys, resource=f"all/{name}")
    assert code == 1
    assert "Error: no resources were found" in err


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("values.yaml", PODS),
        ("any.yaml", "image: {tag: 1}\n"),
        (
            "flux.yaml",
            "apiVersion: kustomize.toolkit.fluxcd.io/v1\nkind: Kustomization\nmetadata: {name: a}\n",
        ),
    ],
)
def test_nothing_else_is_skipped(capsys, folder: Path, name, text) -> None:
    (folder / name).write_text(text)
    _, _, err = apply(capsys, resource=name)
    assert "skipped" not in err
    assert "no resources were found" not in err
