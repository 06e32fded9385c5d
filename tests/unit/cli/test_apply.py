"""`apply`: what it prints and how it ends."""

import json
from pathlib import Path
from xml.etree import ElementTree

import pytest
import yaml

from lictor.cli.exit_codes import run

POLICIES = """
apiVersion: kyverno.io/v1
kind: ClusterPolicy
metadata:
  name: need-team
spec:
  rules:
  - name: team
    match: {any: [{resources: {kinds: [Pod]}}]}
    validate:
      message: a team is needed
      pattern: {metadata: {labels: {team: "?*"}}}
---
apiVersion: kyverno.io/v1
kind: ClusterPolicy
metadata:
  name: add-owner
spec:
  rules:
  - name: owner
    match: {any: [{resources: {kinds: [Pod], names: [good]}}]}
    mutate:
      patchStrategicMerge: {metadata: {labels: {owner: me}}}
"""
PODS = """
apiVersion: v1
kind: Pod
metadata: {name: good, labels: {team: a}}
---
apiVersion: v1
kind: Pod
metadata: {name: bad}
"""
EXCEPTION = """
apiVersion: kyverno.io/v2
kind: PolicyException
metadata: {name: spare, namespace: default}
spec:
  exceptions: [{policyName: need-team, ruleNames: [team]}]
  match: {any: [{resources: {kinds: [Pod], names: [bad]}}]}
"""
LATER = """
apiVersion: json.kyverno.io/v1alpha1
kind: ValidatingPolicy
metadata: {name: later}
spec: {validations: [{expression: "true"}]}
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for name, text in {
        "policies.yaml": POLICIES,
        "pods.yaml": PODS,
        "exception.yaml": EXCEPTION,
        "later.yaml": LATER,
    }.items():
        (tmp_path / name).write_text(text)
    return tmp_path


def apply(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    code = run(["apply", *arguments])
    shown = capsys.readouterr()
    return code, shown.out, shown.err


def test_text(capsys) -> None:
    code, out, _ = apply(capsys, "policies.yaml", "-r", "pods.yaml")
    assert code == 1
    assert "\nApplying 4 policy rule(s) to 2 resource(s)...\n" in out
    assert "policy add-owner applied to default/Pod/good:\napiVersion: v1" in out
    assert "    owner: me\n" in out
    assert (
        "policy need-team -> resource default/Pod/bad failed:\n1 - team validation error: a" in out
    )
    assert out.endswith("\npass: 2, fail: 1, warn: 0, error: 0, skip: 0 \n")


@pytest.mark.parametrize(
    ("flags", "code"),
    [
        ((), 1),
        (("-p",), 1),
        (("-t",), 1),
        (("-p", "--output-format", "json"), 1),
        (("--output-format", "markdown"), 1),
        (("--output-format=junit",), 1),
        (("--output-format=sarif",), 1),
        (("--generate-exceptions",), 1),
        (("--audit-warn",), 0),
        (("--audit-warn", "--warn-exit-code", "3"), 3),
        (("--audit-warn=false", "--warn-exit-code", "3"), 1),
        (("-e", "exception.yaml"), 0),
        (("-v", "4", "--parallel", "2", "-e", "exception.yaml"), 0),
    ],
)
def test_the_exit_code_does_not_depend_on_the_format(capsys, flags, code) -> None:
    assert apply(capsys, "policies.yaml", "-r", "pods.yaml", *flags)[0] == code


def test_nothing_passes(capsys) -> None:
    Path("none.yaml").write_text("apiVersion: v1\nkind: Node\nmetadata: {name: x}\n")
    arguments = ("policies.yaml", "-r", "none.yaml", "--warn-no-pass", "--warn-exit-code", "4")
    assert apply(capsys, *arguments)[0] == 4


@pytest.mark.parametrize("form", ["yaml", "json"])
def test_reports(capsys, form: str) -> None:
    _, out, _ = apply(capsys, "policies.yaml", "-r", "pods.yaml", "-p", "--output-format", form)
    report = json.loads(out) if form == "json" else yaml.safe_load(out)
    assert [(r["rule"], r["resources"][0]["name"], r["result"]) for r in report["results"]] == [
        ("owner", "good", "pass"),
        ("team", "good", "pass"),
        ("team", "bad", "fail"),
    ]
    assert report["summary"] == {"pass": 2, "fail": 1, "warn": 0, "error": 0, "skip": 0}


def test_formats_for_programs(capsys) -> None:
    _, out, _ = apply(capsys, "policies.yaml", "-r", "pods.yaml", "--output-format", "sarif")
    (result,) = json.loads(out)["runs"][0]["results"]
    place = result["locations"][0]["physicalLocation"]
    assert (place["artifactLocation"]["uri"], place["region"]["startLine"]) == ("pods.yaml", 8)
    _, out, _ = apply(capsys, "policies.yaml", "-r", "pods.yaml", "--output-format", "junit")
    assert ElementTree.fromstring(out).get("failures") == "1"
    _, out, _ = apply(capsys, "policies.yaml", "-r", "pods.yaml", "--output-format", "markdown")
    assert "| 3 | need-team | team | default/Pod/bad | Fail |" in out


def test_table(capsys) -> None:
    _, out, _ = apply(capsys, "policies.yaml", "-r", "pods.yaml", "-t", "--detailed-results")
    assert "│ 3  │ need-team │ team  │ default/Pod/bad  │ Fail" in out
    assert "MESSAGE" in out


def test_generated_exceptions_are_exceptions(capsys) -> None:
    arguments = ("policies.yaml", "-r", "pods.yaml", "--generate-exceptions")
    _, out, _ = apply(capsys, *arguments, "--generated-exception-ttl", "1h")
    (made,) = yaml.safe_load_all(out)
    assert made["metadata"]["labels"] == {"cleanup.kyverno.io/ttl": "1h0m0s"}
    Path("made.yaml").write_text(out)
    assert apply(capsys, "policies.yaml", "-r", "pods.yaml", "-e", "made.yaml")[0] == 0


def test_exceptions_among_resources_and_policies(capsys, folder: Path) -> None:
    (folder / "both.yaml").write_text(PODS + "---" + EXCEPTION)
    found = apply(capsys, "policies.yaml", "-r", "both.yaml", "--exceptions-within-resources")
    assert found[0] == 0
    assert "with 1 exception(s)..." in found[1]
    within = ("policies.yaml", "exception.yaml", "-r", "pods.yaml", "--exceptions-within-policies")
    assert apply(capsys, *within)[0] == 0


@pytest.mark.parametrize("output", ["made.yaml", "folder"])
def test_objects_go_to_files(capsys, output: str) -> None:
    _, out, _ = apply(capsys, "policies.yaml", "-r", "pods.yaml", "-o", output)
    file = Path("made.yaml") if output == "made.yaml" else Path("folder/good-mutated.yaml")
    assert yaml.safe_load(file.read_text().split("---")[0])["metadata"]["labels"]["owner"] == "me"
    assert "owner: me" not in out


def test_a_pipe_gets_nothing_but_objects(capsys) -> None:
    _, out, err = apply(capsys, "policies.yaml", "-r", "pods.yaml", "-i")
    assert [d["metadata"]["name"] for d in yaml.safe_load_all(out) if d] == ["good"]
    assert "pass: 2, fail: 1" in err


def test_other_families_are_named_not_passed_over(capsys) -> None:
    code, out, _ = apply(capsys, "later.yaml", "-r", "pods.yaml")
    assert code == 1
    assert ": policies of kind ValidatingPolicy are not supported yet)" in out
    assert "error: 1" in out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "require policy"),
        (("policies.yaml",), "resource file(s) or cluster required"),
        (("policies.yaml", "-c", "--kubeconfig", "absent"), "absent: no such file"),
        (("nothing.yaml", "-r", "pods.yaml"), "nothing.yaml"),
        (("policies.yaml", "-r", "nothing.yaml"), "nothing.yaml"),
        (("policies.yaml", "-r", "pods.yaml", "-s", "a=b", "-f", "v.yaml"), "either using set"),
        (("policies.yaml", "-r", "pods.yaml", "-f", "v.yaml"), "v.yaml"),
        (("policies.yaml", "-r", "pods.yaml", "--output-format", "odd"), "odd"),
        (("-", "-r", "-"), "stdin pipe"),
        (
            ("policies.yaml", "-r", "policies.yaml,pods.yaml", "--crd-path=a", "--kubeconfig=b"),
            "exclusive",
        ),
        (("policies.yaml", "-r", "pods.yaml", "--json", "x.json"), "can not be used together"),
        (("p.yaml", "-r", "x", "--generate-exceptions", "--generated-exception-ttl", "soon"), ""),
    ],
)
def test_wrong_calls(capsys, arguments, message: str) -> None:
    code, _, err = apply(capsys, *arguments)
    assert code == 1
    assert message in err


def test_a_broken_resource_stops_unless_told_otherwise(capsys, folder: Path) -> None:
    (folder / "odd.yaml").write_text(PODS + "---\nkind: [\n---\n" + PODS)
    code, _, err = apply(capsys, "policies.yaml", "-r", "odd.yaml")
    assert code == 1
    assert "odd.yaml:" in err
    _, out, err = apply(capsys, "policies.yaml", "-r", "odd.yaml", "--continue-on-fail")
    assert "pass: 4, fail: 2" in out
    assert "odd.yaml:" in err


def test_a_later_path_that_is_missing_is_told(capsys) -> None:
    _, out, _ = apply(capsys, "policies.yaml", "-r", "pods.yaml", "-r", "gone.yaml")
    assert "failed to load resources: gone.yaml." in out
    assert "pass: 2, fail: 1" in out


@pytest.mark.parametrize("processes", ["1", "3"])
def test_processes_do_not_change_the_answer(capsys, folder: Path, processes: str) -> None:
    pods = "---".join(PODS.replace("bad", f"bad-{n}") for n in range(60))
    (folder / "many.yaml").write_text(pods)
    arguments = ("policies.yaml", "-r", "many.yaml", "-t", "--parallel", processes)
    _, out, _ = apply(capsys, *arguments)
    shown = [line.split("│")[4].strip() for line in out.splitlines() if "Fail" in line]
    assert shown == [f"default/Pod/bad-{n}" for n in range(60)]


def test_values_from_flags(capsys, folder: Path) -> None:
    (folder / "asks.yaml").write_text("""
apiVersion: kyverno.io/v1
kind: ClusterPolicy
metadata: {name: asks}
spec:
  background: false
  rules:
  - name: who
    match: {any: [{resources: {kinds: [Pod]}}]}
    validate:
      message: "{{ request.userInfo.username }} may not"
      deny: {conditions: {all: [{key: "{{ request.userInfo.username }}", operator: NotEquals, value: me}]}}
""")
    flags = ("asks.yaml", "-r", "pods.yaml", "-s")
    assert "pass: 2, fail: 0" in apply(capsys, *flags, "request.userInfo.username=me")[1]
    assert "you may not" in apply(capsys, *flags, "request.userInfo.username=you")[1]
