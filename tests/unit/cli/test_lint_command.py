"""`lint` on the command line: exit codes, formats, positions, and what tests name."""

import json
from pathlib import Path

import pytest

from lictor.cli import exit_codes
from lictor.lint.catalog import CHECKS

GOOD = """\
apiVersion: kyverno.io/v1
kind: ClusterPolicy
metadata:
  name: labels
spec:
  rules:
  - name: team
    match:
      any:
      - resources:
          kinds: [Pod]
    validate:
      message: label it
      pattern:
        metadata:
          labels:
            team: "?*"
"""
OLD = GOOD.replace("spec:\n", "spec:\n  validationFailureAction: Audit\n")
BAD = GOOD.replace("message: label it", "mess%ge: label it")
CALL = GOOD.replace("message: label it", "message: \"{{ lenght('a') }}, 100%\"")
TEST = """\
apiVersion: cli.kyverno.io/v1alpha1
kind: Test
metadata:
  name: labels
policies:
- ../policy.yaml
resources:
- pod.yaml
variables: values.yaml
results:
- policy: labels
  rule: team
  kind: Pod
  resources: [plain]
  result: fail
"""
POD = "apiVersion: v1\nkind: Pod\nmetadata: {name: plain}\n"
VALUES = "apiVersion: cli.kyverno.io/v1alpha1\nkind: Values\nglobalValues: {request.mode: dev}\n"


@pytest.fixture
def run(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    def call(*arguments):
        code = exit_codes.run(["lint", *arguments])
        out, err = capsys.readouterr()
        return code, out, err

    return call


@pytest.fixture
def write(tmp_path):
    def put(name, text):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    return put


@pytest.mark.parametrize(
    ("text", "flags", "code"),
    [(GOOD, [], 0), (OLD, [], 0), (OLD, ["--strict"], 1), (BAD, [], 1), ("a: [", [], 1)],
)
def test_exit_codes(run, write, text, flags, code):
    write("policy.yaml", text)
    assert run("policy.yaml", *flags)[0] == code


@pytest.mark.parametrize(
    "arguments",
    [[], ["missing.yaml"], ["missing-*.yaml"], ["--format", "xml", "."], ["--nosuch", "."]],
)
def test_a_wrong_call_is_told_apart(run, arguments):
    code, out, err = run(*arguments)
    assert (code, out) == (2, "")
    assert err.startswith("Error: ")


def test_text_names_place_field_and_suggestion(run, write):
    write("policy.yaml", CALL)
    _, out, _ = run("policy.yaml")
    assert out == (
        "policy.yaml:13:20: error: spec.rules[0].validate.message: there is no function "
        '"lenght" (did you mean "length"?) [LIC403 unknown-function]\n'
        "    {{ lenght('a') }}, 100%\n"
        "       ^\n"
        "1 error, 0 warnings in 1 file\n"
    )


def test_text_says_that_all_is_well(run, write):
    write("policy.yaml", GOOD)
    assert run("policy.yaml")[1] == "no problems in 1 file\n"


BLOCK = GOOD.replace(
    "message: label it", "message: |\n        first\n\n        {{ nosuch(request) }}"
)
QUOTED = GOOD.replace("message: label it", "message: 'it''s {{ nosuch(''a'') }}'")
ESCAPED = GOOD.replace("message: label it", 'message: "say \\"x\\" {{ nosuch(request) }}"')
FOLDED = GOOD.replace(
    "message: label it", "message: >-\n        one\n        {{ nosuch(request) }}"
)
JSON_TEXT = json.dumps(
    {
        "apiVersion": "kyverno.io/v1",
        "kind": "ClusterPolicy",
        "metadata": {"name": "a"},
        "spec": {"rules": [{"name": "r", "match": {"any": [{"resources": {"kinds": ["Pod"]}}]}, "validate": {"deny": {}, "message": "{{ nosuch(request) }}"}}]},
    },
    indent=1,
)  # fmt: skip
LIST = "apiVersion: v1\nkind: List\nitems:\n- " + QUOTED.replace("\n", "\n  ")
SECOND = "---\n" + POD + "---\n" + QUOTED


@pytest.mark.parametrize("text", [BLOCK, QUOTED, ESCAPED, JSON_TEXT, LIST, SECOND])
def test_columns_are_those_of_the_file(run, write, text):
    write("policy.yaml", text)
    _, out, _ = run("--format", "json", "policy.yaml")
    (problem,) = json.loads(out)["problems"]
    line = text.split("\n")[problem["line"] - 1]
    assert line[problem["column"] - 1 :].startswith("nosuch")


def test_a_folded_text_is_followed_line_by_line(run, write):
    write("policy.yaml", FOLDED)
    _, out, _ = run("--format", "json", "policy.yaml")
    (problem,) = json.loads(out)["problems"]
    assert FOLDED.split("\n")[problem["line"] - 1][problem["column"] - 1 :].startswith("nosuch(")


def test_github_commands_are_escaped(run, write):
    write("a,b.yaml", BAD)
    _, out, _ = run("--format", "github", "a,b.yaml")
    assert out == (
        "::error file=a%2Cb.yaml,line=13,col=7,title=LIC103 unknown-field::spec.rules[0].validate.mess%25ge: "
        'unknown field "mess%25ge" (did you mean "message"?)\n'
    )


def test_json_and_sarif_tell_the_same(run, write):
    write("policy.yaml", BAD)
    told = json.loads(run("--format", "json", "policy.yaml")[1])
    log = json.loads(run("--format", "sarif", "policy.yaml")[1])
    assert (told["errors"], told["warnings"], told["files"]) == (1, 0, 1)
    (execution,) = log["runs"]
    rules = execution["tool"]["driver"]["rules"]
    assert [rule["id"] for rule in rules] == [check.code for check in CHECKS.values()]
    (problem,), (result,) = told["problems"], execution["results"]
    place = result["locations"][0]["physicalLocation"]
    assert rules[result["ruleIndex"]]["id"] == result["ruleId"] == problem["code"]
    assert place["region"] == {"startLine": problem["line"], "startColumn": problem["column"]}
    assert place["artifactLocation"]["uri"] == problem["file"]


def write_test(write, test=TEST, values=VALUES):
    write("policy.yaml", GOOD)
    write(".kyverno-test/kyverno-test.yaml", test)
    write(".kyverno-test/pod.yaml", POD)
    write(".kyverno-test/values.yaml", values)


def test_a_folder_with_tests(run, write):
    write_test(write)
    write(".hidden/policy.yaml", BAD)
    write("notes.txt", BAD)
    assert run(".")[:2] == (0, "no problems in 4 files\n")


@pytest.mark.parametrize(
    ("old", "new", "check", "line"),
    [
        ("- ../policy.yaml", "- ../polcy.yaml", "missing-file", 6),
        ("- pod.yaml", "- pods.yaml", "missing-file", 8),
        ("variables: values.yaml", "variables: value.yaml", "missing-file", 9),
        ("policy: labels", "policy: label", "unknown-target", 11),
        ("rule: team", "rule: tem", "unknown-target", 12),
        ("[plain]", "[plan]", "unknown-target", 14),
        ("result: fail", "result: failed", "bad-result", 15),
        ("resources:\n", "resource:\n", "unknown-field", 7),
        ("apiVersion: cli.kyverno.io/v1alpha1\nkind: Test\n", "", "outdated-file", 1),
        ("metadata:\n  name: labels\n", "name: labels\n", "outdated-file", 3),
    ],
)
def test_mistakes_in_tests(run, write, old, new, check, line):
    write_test(write, TEST.replace(old, new, 1))
    code, out, _ = run("--format", "json", ".")
    found = [(p["check"], p["line"]) for p in json.loads(out)["problems"]]
    assert code == 1
    assert (check, line) in found


def test_values_of_the_older_form_are_known_by_the_test_that_names_them(run, write):
    write_test(write, values="globalValues: {a: 1}\n")
    code, out, _ = run(".")
    assert code == 1
    assert "values.yaml:1:1: error: a Values file needs apiVersion" in out


def test_other_policies_are_errors(run, write):
    write("policy.yaml", "apiVersion: json.kyverno.io/v1alpha1\nkind: ValidatingPolicy\nspec: 7\n")
    code, out, _ = run(".")
    assert code == 1
    assert "policies of kind ValidatingPolicy are not supported yet" in out
    assert "1 policy of another family is not looked into yet" in out


@pytest.mark.parametrize(
    "words", [["rule", "LIC304"], ["rule", "wildcard-kind"], ["lint", "--explain", "lic304"]]
)
def test_a_rule_is_explained_as_on_its_page(capsys, words):
    page = Path(__file__).parents[3] / "docs" / "rules" / "LIC304.md"
    assert exit_codes.run(words) == 0
    out = capsys.readouterr().out
    assert out.startswith("# LIC304: wildcard-kind\n")
    assert page.read_text().startswith(out)


@pytest.mark.parametrize(
    "words", [["rule", "LIC999"], ["rule"], ["lint"], ["lint", "--explain", "x"]]
)
def test_a_rule_that_does_not_exist_is_an_invalid_call(capsys, words):
    assert exit_codes.run(words) == 2
    assert capsys.readouterr().out == ""


def test_gitlab_gets_a_report_of_code_quality(run, write):
    write("policy.yaml", BAD)
    code, out, _ = run("--format", "gitlab", "policy.yaml")
    (entry,) = json.loads(out)
    assert (code, entry["check_name"], entry["severity"]) == (1, "LIC103 unknown-field", "major")
    assert entry["location"] == {"path": "policy.yaml", "lines": {"begin": 13}}


def test_statistics_count_by_check(run, write):
    write("a.yaml", BAD)
    write("b.yaml", OLD)
    assert run("--statistics", ".")[:2] == (
        1,
        "    1  LIC103  error    unknown-field\n    1  LIC112  warning  deprecated\n"
        "1 error, 1 warning in 2 files\n",
    )


@pytest.mark.parametrize(
    ("flags", "codes"),
    [
        ([], {"LIC103", "LIC112"}),
        (["--select", "LIC1"], {"LIC103", "LIC112"}),
        (["--select", "LIC4"], set()),
        (["--select", "deprecated"], {"LIC112"}),
        (["--ignore", "lic112"], {"LIC103"}),
        (["--select", "ALL", "--ignore", "LIC103,deprecated"], set()),
    ],
)
def test_checks_are_chosen(run, write, flags, codes):
    write("a.yaml", BAD)
    write("b.yaml", OLD)
    _, out, _ = run("--format", "json", *flags, ".")
    assert {problem["code"] for problem in json.loads(out)["problems"]} == codes


@pytest.mark.parametrize(
    ("name", "meant"), [("deprecatd", "deprecated"), ("unknown-feld", "unknown-field"), ("L", "")]
)
def test_a_check_that_does_not_exist_is_an_error(run, write, name, meant):
    write("a.yaml", GOOD)
    code, out, err = run("--select", name, ".")
    assert (code, out) == (2, "")
    assert f"there is no check {name!r}" in err
    assert (f"did you mean {meant}?" in err) is bool(meant)


@pytest.mark.parametrize(
    ("text", "codes"),
    [
        (BAD.replace("label it", "label it  # lictor: ignore[LIC103]"), []),
        (BAD.replace("      mess%", "      # lictor: ignore[unknown-field]\n      mess%"), []),
        ("# lictor: ignore-file[LIC1]\n" + BAD, []),
        (BAD.replace("label it", "label it  # lictor: ignore[LIC112]"), ["LIC103", "LIC113"]),
        ("# lictor: ignore[LIC103]\n" + BAD, ["LIC113", "LIC103"]),
        (BAD.replace("label it", "label it  # lictor: ignore"), ["LIC103", "LIC113"]),
        (BAD.replace("label it", "label it  # lictor: ignore[LIC999]"), ["LIC103", "LIC113"]),
    ],
)
def test_comments_ignore_findings(run, write, text, codes):
    write("a.yaml", text)
    _, out, _ = run("--format", "json", "a.yaml")
    assert [problem["code"] for problem in json.loads(out)["problems"]] == codes


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("lictor.toml", "[lint]\nignore = ['LIC112']\n"),
        ("pyproject.toml", "[tool.lictor.lint]\nignore = ['deprecated']\n"),
        ("lictor.toml", "[lint.per-file-ignores]\n'deep/*' = ['LIC112']\n"),
    ],
)
def test_settings_are_found_upward(run, write, name, text):
    write("deep/down/policy.yaml", OLD)
    write(name, text)
    assert run("--strict", "deep/down")[:2] == (0, "no problems in 1 file\n")
    assert run("--strict", "--select", "ALL", "deep/down")[0] == 0


def test_settings_may_be_strict(run, write):
    write("policy.yaml", OLD)
    write("lictor.toml", "[lint]\nstrict = true\n")
    assert run(".")[0] == 1


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("[lint]\nselct = []\n", "selct"),
        ("[lint]\nselect = 'ALL'\n", "select"),
        ("[lint]\nignore = ['LIC999']\n", "there is no check 'LIC999'"),
        ("[lint\n", "line 1"),
    ],
)
def test_settings_that_are_wrong_are_told_with_their_file(run, write, text, told):
    write("policy.yaml", GOOD)
    write("lictor.toml", text)
    code, out, err = run(".")
    assert (code, out) == (2, "")
    assert "lictor.toml" in err
    assert told in err


FRAME = """\
error[LIC403] spec.rules[0].validate.message: there is no function "lenght"
  --> policy.yaml:13:20
   |
11 |           kinds: [Pod]
12 |     validate:
13 |       message: "{{ lenght('a') }}, 100%"
   |                    ^^^^^^
14 |       pattern:
   |
  = did you mean "length"?

1 error, 0 warnings in 1 file
"""


def test_full_shows_the_lines_around(run, write):
    write("policy.yaml", CALL)
    assert run("--format", "full", "policy.yaml")[1] == FRAME


@pytest.mark.parametrize(
    ("variables", "is_colored"),
    [({}, False), ({"FORCE_COLOR": "1"}, True), ({"FORCE_COLOR": "1", "NO_COLOR": "1"}, False)],
)
def test_colors_are_asked_for(run, write, monkeypatch, variables, is_colored):
    write("policy.yaml", CALL)
    for name in ("FORCE_COLOR", "NO_COLOR"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert ("\x1b[31merror[LIC403]\x1b[0m" in run("--format", "full", ".")[1]) is is_colored


def test_a_file_cannot_steer_the_terminal(run, write):
    write("policy.yaml", "a: \x1b]0;owned\x07 [\n")
    _, out, _ = run("--format", "full", "policy.yaml")
    assert "\x1b" not in out
    assert "\x07" not in out


def test_fixes_are_shown_and_written(run, write, tmp_path):
    write("policy.yaml", OLD)
    code, out, _ = run("--diff", ".")
    assert code == 1
    assert "-  validationFailureAction: Audit\n" in out
    assert "+      failureAction: Audit\n" in out
    assert (tmp_path / "policy.yaml").read_text() == OLD
    code, out, err = run("--strict", "--fix", ".")
    assert (code, out, err) == (0, "no problems in 1 file\n", "1 file put right\n")
    assert run("--diff", ".")[:2] == (0, "")
    assert list(tmp_path.iterdir()) == [tmp_path / "policy.yaml"]


def test_what_is_ignored_is_not_fixed(run, write, tmp_path):
    write("policy.yaml", OLD.replace("Audit\n", "Audit # lictor: ignore[LIC112]\n"))
    assert run("--diff", ".")[:2] == (0, "")
    write("policy.yaml", OLD)
    assert run("--diff", "--ignore", "deprecated", ".")[:2] == (0, "")
