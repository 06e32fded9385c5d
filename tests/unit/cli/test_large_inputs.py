"""Every form in which many resources come gives the same results, exit code and lines."""

import gzip
import io
import json
import re
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path
from typing import Literal

import pytest

from lictor.cli.exit_codes import run

POLICY = """
apiVersion: kyverno.io/v1
kind: ClusterPolicy
metadata: {name: need-team}
spec:
  rules:
  - name: team
    match: {any: [{resources: {kinds: [Pod], namespaceSelector: {matchLabels: {zone: a}}}}]}
    validate: {message: a team is needed, pattern: {metadata: {labels: {team: "?*"}}}}
"""
NAMESPACE = {
    "apiVersion": "v1",
    "kind": "Namespace",
    "metadata": {"name": "shop", "labels": {"zone": "a"}},
}
# Large enough to be taken apart.
FILLING = "x" * 4000


def make_pod(number: int) -> dict:
    metadata = {"name": f"pod-{number}", "namespace": "shop", "labels": {"team": "a"}}
    if number % 50 == 7:
        metadata["labels"] = {"other": "b"}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {"note": FILLING}}


# The Namespace comes last: what it says holds for all before it.
OBJECTS = [*map(make_pod, range(150)), NAMESPACE]
LIST = {"apiVersion": "v1", "items": OBJECTS, "kind": "List"}


def write_yaml(objects: list[dict]) -> bytes:
    return "".join(f"---\n{json.dumps(each, indent=2)}\n" for each in objects).encode()


def write_yaml_list() -> bytes:
    texts = []
    for each in OBJECTS:
        kind, rest = (
            each["kind"],
            {key: each[key] for key in each if key not in ("kind", "apiVersion")},
        )
        lines = "".join(f"  {key}: {json.dumps(value)}\n" for key, value in rest.items())
        texts.append(f"- apiVersion: v1\n  kind: {kind}\n{lines}")
    return f"apiVersion: v1\nitems:\n{''.join(texts)}kind: List\n".encode()


def write_lines() -> bytes:
    return "".join(f"{json.dumps(each)}\n" for each in OBJECTS).encode()


def write_tar(mode: Literal["w", "w:gz"]) -> bytes:
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode=mode) as archive:
        for name, content in (
            ("a.yaml", write_yaml(OBJECTS[:70])),
            ("b.yml", write_yaml(OBJECTS[70:])),
        ):
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return made.getvalue()


def write_zip() -> bytes:
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("dump/all.json", json.dumps(LIST))
    return made.getvalue()


FORMS = {
    "yaml": write_yaml(OBJECTS),
    "yaml list": write_yaml_list(),
    "kubectl get -o json": json.dumps(LIST, indent=4).encode(),
    "json on one line": json.dumps(LIST).encode(),
    "json lines": write_lines(),
    "tar": write_tar("w"),
    "tar.gz": write_tar("w:gz"),
    "zip": write_zip(),
    "json.gz": gzip.compress(json.dumps(LIST).encode()),
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("large")
    (folder / "policy.yaml").write_text(POLICY)
    return folder


def apply(capsys: pytest.CaptureFixture[str], folder: Path, *flags: str) -> tuple[int, str, str]:
    code = run(["apply", str(folder / "policy.yaml"), "--remove-color", *flags])
    return (code, *capsys.readouterr())


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("processes", ["1", "3"])
def test_every_form_gives_the_same(capsys, folder: Path, form: str, processes: str) -> None:
    (folder / "input").write_bytes(FORMS[form])
    code, out, err = apply(capsys, folder, "-r", str(folder / "input"), "--parallel", processes)
    assert (code, err) == (1, "")
    assert "to 151 resource(s)" in out
    assert "pass: 147, fail: 3, warn: 0, error: 0, skip: 0" in out
    order = [out.index(f"resource shop/Pod/pod-{number} failed") for number in (7, 57, 107)]
    assert order == sorted(order)


@pytest.mark.parametrize("form", ["kubectl get -o json", "tar.gz"])
def test_standard_input_is_read_as_well(folder: Path, form: str) -> None:
    command = [sys.executable, "-m", "lictor", "apply", str(folder / "policy.yaml"), "-r", "-"]
    done = subprocess.run(command, input=FORMS[form], capture_output=True, check=False)
    assert done.returncode == 1
    assert b"pass: 147, fail: 3, warn: 0, error: 0" in done.stdout
    assert done.stderr == b""


@pytest.mark.parametrize("form", ["yaml", "yaml list", "kubectl get -o json", "json lines"])
def test_results_point_at_their_lines(capsys, folder: Path, form: str) -> None:
    path = folder / "input"
    path.write_bytes(FORMS[form])
    lines = FORMS[form].decode().split("\n")
    _, out, _ = apply(capsys, folder, "-r", str(path), "--output-format", "sarif")
    regions = [
        result["locations"][0]["physicalLocation"]["region"]
        for result in json.loads(out)["runs"][0]["results"]
    ]
    assert len(regions) == 3
    for region in regions:
        first = lines[region["startLine"] - 1][region["startColumn"] - 1 :]
        assert first.startswith('"labels": {')
        assert '"other": "b"' in first + lines[region["startLine"]]


BROKEN = FORMS["yaml"].replace(b'"pod-88"', b'"pod-88" "')
LINE = BROKEN.count(b"\n", 0, BROKEN.index(b'"pod-88"')) + 1


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (FORMS["kubectl get -o json"][:-9000], "the JSON is cut off"),
        (FORMS["json on one line"][:-9000], "the JSON is cut off"),
        (FORMS["json lines"][:-9000], "input:149:"),
        (FORMS["tar"][:-20_000], "cut off"),
        (FORMS["tar.gz"][:-100], "cut off"),
        (FORMS["zip"][:-100], "no sound zip archive"),
        (BROKEN, f"input:{LINE}:"),
        (FORMS["json on one line"].replace(b'"pod-88"', b'"pod-88" "'), "input:1:3[0-9]+: "),
    ],
)
@pytest.mark.parametrize("flag", [(), ("--continue-on-fail",)])
def test_what_is_broken_is_told_and_fails(capsys, folder: Path, content, message, flag) -> None:
    (folder / "input").write_bytes(content.replace(b"other", b"team"))
    code, _, err = apply(capsys, folder, "-r", str(folder / "input"), *flag)
    assert code == 1
    assert re.search(message, err)


def test_a_later_archive_that_is_broken_is_an_error(capsys, folder: Path) -> None:
    (folder / "input").write_bytes(FORMS["yaml"].replace(b"other", b"team"))
    (folder / "dump.tar.gz").write_bytes(FORMS["tar.gz"][:-100])
    paths = ("-r", str(folder / "input"), "-r", str(folder / "dump.tar.gz"))
    code, _, err = apply(capsys, folder, *paths)
    assert (code, "cut off" in err) == (1, True)


def test_output_files_hold_what_standard_output_has(capsys, folder: Path) -> None:
    path = folder / "many.yaml"
    pods = [{**make_pod(number), "spec": {}} for number in range(2500)]
    path.write_bytes("".join(f"---\n{json.dumps(pod)}\n" for pod in [*pods, NAMESPACE]).encode())
    files = f"json={folder / 'r.json'},github={folder / 'r.txt'}"
    _, out, _ = apply(
        capsys, folder, "-r", str(path), "-p", "--output-format", "json", "--output-file", files
    )
    report = json.loads((folder / "r.json").read_text())
    assert report == json.loads(out)
    assert len(report["results"]) == 2500
    assert (folder / "r.txt").read_text().count("::error") == 50


LISTING = """
apiVersion: kyverno.io/v1
kind: ClusterPolicy
metadata: {name: asks}
spec:
  rules:
  - name: asks
    match: {any: [{resources: {kinds: [Pod]}}]}
    context:
    - name: others
      apiCall: {urlPath: "URL", jmesPath: "length(items)"}
    validate:
      message: there are {{others}}
      deny: {conditions: {all: [{key: "{{others}}", operator: NotEquals, value: 150}]}}
"""


def test_given_objects_answer_what_policies_ask(capsys, folder: Path) -> None:
    (folder / "listing.yaml").write_text(LISTING.replace("URL", "/api/v1/pods"))
    (folder / "input").write_bytes(FORMS["kubectl get -o json"])
    code = run(["apply", str(folder / "listing.yaml"), "-r", str(folder / "input")])
    assert "pass: 150, fail: 0, warn: 0, error: 0" in capsys.readouterr().out
    assert code == 0
