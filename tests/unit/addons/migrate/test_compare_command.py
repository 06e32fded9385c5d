"""`lictor compare`: the same inputs for another program, and the rows that differ."""

import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from lictor.addons.migrate.program_rows import RowKey, read_report_rows, read_table_rows
from lictor.cli.main import cli
from lictor.core.errors import LictorError, UsageError

POLICY = """\
apiVersion: kyverno.io/v1
kind: ClusterPolicy
metadata: {name: team}
spec:
  rules:
  - name: label
    match: {any: [{resources: {kinds: [ConfigMap]}}]}
    validate: {message: m, pattern: {metadata: {labels: {team: "?*"}}}}
"""
RESOURCES = """\
apiVersion: v1
kind: ConfigMap
metadata: {name: a, namespace: x}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: b, namespace: x, labels: {team: t}}
"""
TEST = """\
apiVersion: cli.kyverno.io/v1alpha1
kind: Test
metadata: {name: t}
policies: [policy.yaml]
resources: [resources.yaml]
results:
- {policy: team, rule: label, kind: ConfigMap, resources: [x/a], result: fail}
- {policy: team, rule: label, kind: ConfigMap, resources: [x/b], result: pass}
"""
# As a kyverno of 1.17 prints it: other reports, and text around them.
REPORTS = """\

Applying 1 policy rule(s) to 2 resource(s)...
Warning: policy.yaml: something is deprecated
----------------------------------------------------------------------
POLICY REPORT:
----------------------------------------------------------------------
apiVersion: wgpolicyk8s.io/v1alpha2
kind: ClusterPolicyReport
metadata:
  name: merged
results:
- message: |-
    two lines

    apart
  policy: team
  resources:
  - {apiVersion: v1, kind: ConfigMap, name: a, namespace: x}
  result: FAIL
  rule: label
---
apiVersion: wgpolicyk8s.io/v1alpha2
kind: PolicyReport
scope: {kind: ConfigMap, name: b, namespace: x}
results:
- {policy: team, result: pass, rule: label}

pass: 1, fail: 1, warn: 0, error: 0, skip: 0
"""
TABLE = """\
Loading test  ( kyverno-test.yaml ) ...

│────│────────│───────│────────────────────│────────│────────│
│ ID │ POLICY │ RULE  │ RESOURCE           │ RESULT │ REASON │
│────│────────│───────│────────────────────│────────│────────│
│ 1  │ team   │ label │ v1/ConfigMap/x/a   │ \x1b[32mPass\x1b[0m   │ Ok     │
│ 2  │ team   │ label │ v1/ConfigM         │ Fail   │ Want   │
│    │        │       │ ap/x/b             │        │ fail   │
│────│────────│───────│────────────────────│────────│────────│

Test Summary: 1 tests passed and 1 tests failed
"""


def _key(resource: str) -> RowKey:
    return RowKey("team", "label", resource)


def test_reports_of_any_version_are_read():
    expected = {_key("ConfigMap/x/a"): "FAIL", _key("ConfigMap/x/b"): "pass"}
    assert read_report_rows(REPORTS) == expected


def test_tables_with_long_cells_are_read():
    rows = read_table_rows(TABLE.replace("\x1b[32m", "").replace("\x1b[0m", ""))
    assert rows == {_key("v1/ConfigMap/x/a"): "Pass", _key("v1/ConfigMap/x/b"): "Fail"}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    files = {"policy.yaml": POLICY, "resources.yaml": RESOURCES, "kyverno-test.yaml": TEST}
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def _stand_in(folder: Path, text: str) -> str:
    """A program that prints a text, and writes down its arguments."""
    script = folder / "stand_in.py"
    script.write_text(
        "import sys\nopen('arguments', 'w').write(' '.join(sys.argv[1:]))\n"
        f"sys.stdout.write({text!r})\n"
    )
    return f"{sys.executable} {script}"


def _compare(*arguments: str) -> tuple[int, list[str]]:
    done = CliRunner().invoke(cli, ["compare", *arguments])
    return done.exit_code, done.output.splitlines()


def test_rows_that_differ_are_listed(folder):
    program = _stand_in(folder, REPORTS.replace("result: pass", "result: error"))
    code, lines = _compare("--with", program, "policy.yaml", "-r", "resources.yaml")
    assert code == 1
    assert lines == [
        "policy  rule   resource       theirs  ours",
        "team    label  ConfigMap/x/a  FAIL    fail",
        "team    label  ConfigMap/x/b  error   pass",
        "",
        "2 rows compared: 0 the same, 2 different",
    ]
    given = (folder / "arguments").read_text()
    assert given == "apply policy.yaml --policy-report --resource resources.yaml"


def test_rows_that_a_program_does_not_have_differ(folder):
    program = _stand_in(folder, REPORTS.partition("\n---\n")[0].replace("FAIL", "fail") + "\n")
    code, lines = _compare("--with", program, "policy.yaml", "-r", "resources.yaml")
    assert (code, lines[1].split()) == (1, ["team", "label", "ConfigMap/x/b", "-", "pass"])


def test_the_same_program_answers_alike(folder):
    program = f"{sys.executable} -P -m lictor"
    code, lines = _compare("--with", program, "--test", ".")
    assert (code, lines) == (0, ["2 rows compared: 2 the same, 0 different"])


def test_test_files_are_compared(folder):
    program = _stand_in(folder, TABLE)
    code, lines = _compare("--with", program, "--test", ".", "--format", "json")
    assert code == 1
    assert '"different": 1' in "\n".join(lines)
    assert (folder / "arguments").read_text() == "test . --remove-color"


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        (("policy.yaml", "-r", "resources.yaml"), UsageError, "name the other program"),
        (("--with", "x"), UsageError, "give either POLICIES"),
        (("--with", "/no/such", "policy.yaml"), UsageError, "cannot be run"),
        (("--with", "true", "policy.yaml"), LictorError, "printed nothing"),
    ],
)
def test_wrong_calls(folder, arguments, error, message):
    found = CliRunner().invoke(cli, ["compare", *arguments]).exception
    assert isinstance(found, error)
    assert message in str(found)
