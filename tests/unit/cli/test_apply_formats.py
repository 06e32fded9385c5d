"""Where the results of `apply` go, and in which form: what people ask for is what they get."""

import json
import re
from pathlib import Path

import pytest
import yaml

from lictor.cli.exit_codes import run
from lictor.core.report.exceptions import make_object_name

POLICY = """
apiVersion: kyverno.io/v1
kind: ClusterPolicy
metadata: {name: need-team}
spec:
  rules:
  - name: RULE
    match: {any: [{resources: {kinds: [Pod]}}]}
    validate: {message: a team is needed, pattern: {metadata: {labels: {team: "?*"}}}}
---
apiVersion: kyverno.io/v1
kind: Policy
metadata: {name: own, namespace: default}
spec:
  rules:
  - name: owner
    match: {any: [{resources: {kinds: [Pod]}}]}
    validate: {message: an owner is needed, pattern: {metadata: {labels: {owner: "?*"}}}}
"""
POD = "apiVersion: v1\nkind: Pod\nmetadata: {name: mine}\n"


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "policy.yaml").write_text(POLICY.replace("RULE", "team"))
    (tmp_path / "pod.yaml").write_text(POD)
    return tmp_path


def apply(capsys, *flags: str) -> tuple[int, str, str]:
    code = run(["apply", "policy.yaml", "-r", "pod.yaml", *flags])
    return code, *capsys.readouterr()


def read_json(text: str) -> list[dict]:
    """All JSON documents of a text, as `jq` reads them."""
    decoder = json.JSONDecoder()
    found = []
    while text := text.lstrip():
        document, end = decoder.raw_decode(text)
        found.append(document)
        text = text[end:]
    return found


@pytest.mark.parametrize("flags", [[], ["-p"], ["-t"]], ids=str)
def test_json_is_json(capsys, flags: list[str]) -> None:
    code, out, _ = apply(capsys, "--output-format", "json", *flags)
    assert code == 1
    assert [found["kind"] for found in read_json(out)] == ["ClusterReport", "PolicyReport"]


def test_json_is_json_where_nothing_is_said(capsys) -> None:
    Path("pod.yaml").write_text(POD.replace("Pod", "Service"))
    code, out, _ = apply(capsys, "--output-format", "json")
    assert code == 0
    assert [(found["results"], found["summary"]["pass"]) for found in read_json(out)] == [([], 0)]


def test_exceptions_as_json(capsys) -> None:
    _, out, _ = apply(capsys, "--output-format", "json", "--generate-exceptions")
    assert [found["kind"] for found in read_json(out)] == ["PolicyException"]


@pytest.mark.parametrize(
    ("flags", "begin"),
    [
        (["--output-format", "sarif"], "{"),
        (["--output-format", "junit"], "<?xml"),
        (["--output-format", "markdown"], "| ID"),
        (["--output-format", "json"], '{"kind":"ClusterReport"'),
        (["-p"], "apiVersion: openreports.io"),
        (["--generate-exceptions"], "---\napiVersion: kyverno.io"),
    ],
    ids=str,
)
def test_reports_are_written_to_the_file_that_is_named(capsys, flags, begin) -> None:
    _, printed, _ = apply(capsys, *flags)
    code, out, _ = apply(capsys, *flags, "-o", "new/report.out")
    assert (code, out) == (1, "")
    written = Path("new/report.out").read_text()
    assert written.startswith(begin)
    assert len(written) == len(printed)


def test_a_folder_is_no_file_for_a_report(capsys) -> None:
    Path("there").mkdir()
    code, _, err = apply(capsys, "--output-format", "sarif", "-o", "there")
    assert code == 1
    assert "failed to create file (there: Is a directory)" in err


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--output-format", "xml"], "choose one of yaml, json, markdown, junit, sarif"),
        (["-p", "--report-api", "x"], "choose one of openreports.io, wgpolicyk8s.io"),
    ],
)
def test_what_can_be_chosen_is_told(capsys, flags: list[str], message: str) -> None:
    code, _, err = apply(capsys, *flags)
    assert code == 1
    assert message in err


@pytest.mark.parametrize("form", ["yaml", "json"])
@pytest.mark.parametrize(
    ("flags", "heads"),
    [
        (
            [],
            [
                ("openreports.io/v1alpha1", "ClusterReport"),
                ("openreports.io/v1alpha1", "PolicyReport"),
            ],
        ),
        (
            ["--report-api", "wgpolicyk8s.io"],
            [
                ("wgpolicyk8s.io/v1alpha2", "ClusterPolicyReport"),
                ("wgpolicyk8s.io/v1alpha2", "PolicyReport"),
            ],
        ),
    ],
)
def test_the_api_of_reports_is_chosen(capsys, form: str, flags: list[str], heads: list) -> None:
    _, out, _ = apply(capsys, "-p", "--output-format", form, *flags)
    reports = read_json(out) if form == "json" else list(yaml.safe_load_all(out))
    assert [(found["apiVersion"], found["kind"]) for found in reports] == heads
    # A field that the older API does not have: a strict server would refuse it.
    assert all(("source" in found) is (not flags) for found in reports)


@pytest.mark.parametrize(
    ("rule", "expected"),
    [
        ("team", "need-team-team-default-mine"),
        ("a" * 63, None),
        ("Who Owns This?", None),
    ],
)
def test_names_of_exceptions_are_names(capsys, rule: str, expected: str | None) -> None:
    Path("policy.yaml").write_text(POLICY.replace("RULE", rule))
    _, out, _ = apply(capsys, "--generate-exceptions")
    name = yaml.safe_load(out)["metadata"]["name"]
    assert re.fullmatch(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?", name)
    assert expected is None or name == expected
    Path("exception.yaml").write_text(out)
    assert run(["lint", "policy.yaml", "exception.yaml"]) == 0


def test_long_names_stay_different() -> None:
    names = {make_object_name("p" * 100 + end) for end in ("a", "b", "A", "-a", "")}
    assert len(names) == 5
    assert {len(name) for name in names} == {63}
    assert make_object_name("???").isalnum()


SECRET = """
apiVersion: v1
kind: Secret
metadata: {name: mine, namespace: shop, labels: {team: hidden-value}}
---
apiVersion: v1
kind: Pod
metadata: {name: "</script><script>alert(1)</script>", namespace: shop}
"""


def test_html_is_one_file_that_says_what_is_wrong_where(folder: Path, capsys) -> None:
    Path("policy.yaml").write_text(POLICY)
    Path("pod.yaml").write_text(POD)
    assert run(["apply", "policy.yaml", "-r", "pod.yaml", "--output-format", "html"]) == 1
    page = capsys.readouterr().out
    assert page.startswith("<!doctype html>")
    for words in ("need-team", "a team is needed", "/metadata/labels", "pod.yaml:1", "Expected"):
        assert words in page, words
    # Nothing is loaded from elsewhere.
    assert not re.findall(r'(?:src|href)="(?!#)', page)
    assert "default-src &#39;none&#39;" in page


def test_html_tells_no_secrets_and_runs_nothing(folder: Path, capsys) -> None:
    bad = POLICY.replace("kinds: [Pod]", "kinds: [Pod, Secret]").replace('"?*"', "red", 1)
    Path("policy.yaml").write_text(bad)
    Path("objects.yaml").write_text(SECRET)
    run(["apply", "policy.yaml", "-r", "objects.yaml", "--output-format", "html", "-o", "out.html"])
    page = Path("out.html").read_text()
    assert "(hidden)" in page
    assert "hidden-value" not in page
    assert page.count("<script>") == 1


def test_totals_of_html_are_about_all_results(folder: Path, capsys) -> None:
    good = POD.replace("name: mine", "name: good, labels: {team: a, owner: b}")
    Path("pod.yaml").write_text(f"{POD}---\n{good}")
    arguments = ["apply", "policy.yaml", "-r", "pod.yaml", "--output-format", "html"]
    pages = []
    for flags in ([], ["--failed-only"]):
        assert run([*arguments, *flags]) == 1
        pages.append(capsys.readouterr().out)
    assert "<strong>50 %</strong>" in pages[0]
    moment = re.compile(r'<p class="lead">[^·]*')
    assert moment.sub("", pages[0]) == moment.sub("", pages[1])


@pytest.mark.parametrize(
    ("written", "misspelt"), [("pattern:", "patern:"), ("validate:", "validat:")]
)
def test_a_rule_whose_body_is_misspelt_is_no_pass(folder: Path, capsys, written, misspelt) -> None:
    Path("policy.yaml").write_text(POLICY.replace(written, misspelt))
    code, out, err = apply(capsys)
    assert (code, "pass: 0, fail: 0, warn: 0, error: 2" in out) == (1, True)
    assert f'unknown field "{misspelt[:-1]}"' in err
    row = "{policy: need-team, rule: RULE, resources: [mine], kind: Pod, result: pass}"
    Path("kyverno-test.yaml").write_text(
        "apiVersion: cli.kyverno.io/v1alpha1\nkind: Test\nmetadata: {name: t}\n"
        f"policies: [policy.yaml]\nresources: [pod.yaml]\nresults: [{row}]\n"
    )
    assert run(["test", "."]) == 1
    assert "Want pass, got error" in capsys.readouterr().out
