"""No command, in no format, sends what others wrote to the terminal as commands to it."""

import re
import tarfile
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from lictor.cli.apply_plan import APPLY_FORMATS
from lictor.cli.exit_codes import run
from lictor.cli.main import COMMANDS, cli
from lictor.cli.test import _FORMATS as TEST_FORMATS

# Title and clipboard of the terminal, a cleared screen, a bell, a line that overwrites another, C1.
BAD = "\\e]52;c;eA==\\a\\e]0;x\\a\\e[2J\\e[31mred\\rback\\x9b31m\\x85\\x7f"
RAW = BAD.replace("\\e", "\x1b").replace("\\a", "\x07").replace("\\r", "\r")
RAW = RAW.replace("\\x9b", "\x9b").replace("\\x85", "\x85").replace("\\x7f", "\x7f")
FORBIDDEN = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f]")
POLICY = f"""
apiVersion: kyverno.io/v1
kind: ClusterPolicy
metadata: {{name: "p{BAD}", labels: {{"a{BAD}": "b{BAD}"}}, annotations: {{"c{BAD}": "d{BAD}"}}}}
spec:
  validationFailureAction: Enforce
  rules:
  - name: "r{BAD}"
    match: {{any: [{{resources: {{kinds: [ConfigMap]}}}}]}}
    validate:
      message: "m{BAD} {{{{ request.object.metadata.labels.team }}}}"
      pattern: {{metadata: {{labels: {{team: "x{BAD}"}}}}}}
  - name: change
    match: {{any: [{{resources: {{kinds: [ConfigMap]}}}}]}}
    mutate: {{patchStrategicMerge: {{metadata: {{labels: {{added: "y{BAD}"}}}}}}}}
---
apiVersion: policies.kyverno.io/v1
kind: ValidatingPolicy
metadata: {{name: "cel{BAD}"}}
spec:
  matchConstraints:
    resourceRules: [{{apiGroups: [""], apiVersions: [v1], resources: [configmaps], operations: [CREATE]}}]
  validations:
  - {{expression: "object.metadata.labels.team == 'a'", messageExpression: "'is ' + object.metadata.labels.team"}}
"""
WRONG = f"""
apiVersion: kyverno.io/v1
kind: ClusterPolicy
metadata: {{name: wrong}}
spec:
  "field{BAD}": 1
  rules: [{{name: a, "unknown{BAD}": 2, match: {{any: [{{resources: {{kinds: ["Kind{BAD}"]}}}}]}}, validate: {{message: m, pattern: {{a: "{{{{ {BAD} }}}}"}}}}}}]
"""
RESOURCE = f"""
apiVersion: v1
kind: ConfigMap
metadata: {{name: "n{BAD}", namespace: "s{BAD}", labels: {{team: "t{BAD}"}}}}
data: {{"k{BAD}": "v{BAD}"}}
"""
TEST = f"""
apiVersion: cli.kyverno.io/v1alpha1
kind: Test
metadata: {{name: "test{BAD}"}}
policies: [policy.yaml]
resources: [resource.yaml]
results:
- {{policy: "p{BAD}", rule: "r{BAD}", kind: ConfigMap, resources: ["n{BAD}"], result: pass}}
- {{policy: "missing{BAD}", rule: "r{BAD}", kind: "K{BAD}", resources: ["o{BAD}"], result: fail}}
"""
KUBECONFIG = f"""
apiVersion: v1
kind: Config
current-context: c
contexts: [{{name: c, context: {{cluster: c, user: u, namespace: "n{BAD}"}}}}]
clusters: [{{name: c, cluster: {{server: "http://127.0.0.1:1/{BAD}"}}}}]
users: [{{name: u, user: {{token: t}}}}]
"""
# What serves others, and what shows nothing but our own words.
SERVERS = {"control", "lsp", "policy-server", "serve", "up", "web"}
OWN_WORDS = {"completion", "crds", "docs", "help", "version"}
CALLS = [
    "apply policy.yaml -r resource.yaml",
    "apply policy.yaml -r resource.yaml -t --detailed-results",
    "apply policy.yaml -r resource.yaml -p",
    "apply policy.yaml -r resource.yaml -q",
    "apply policy.yaml -r resource.yaml --generate-exceptions",
    "apply wrong.yaml -r resource.yaml",
    "apply policy.yaml -r FILE",
    "apply FILE -r FILE",
    "apply policy.yaml -r all.tar",
    "apply missing/FILE -r resource.yaml --set FILE",
    "apply policy.yaml -r resource.yaml -f FILE -e FILE -u FILE",
    "cleanup --dry-run FILE",
    "cleanup --dry-run --kubeconfig kubeconfig",
    "compare --with FILE policy.yaml -r resource.yaml",
    "compare --with ./other policy.yaml -r resource.yaml",
    "convert policy.yaml",
    "convert policy.yaml -r resource.yaml",
    "convert wrong.yaml FILE",
    "create test FILE",
    "create values -g FILE",
    "create exception FILE --policy-rules FILE,FILE --any kind=FILE",
    "explain policy.yaml -r resource.yaml",
    "explain wrong.yaml -r FILE",
    "fix test . --compress",
    "fix policy wrong.yaml FILE",
    "install --values FILE",
    "install --apply --yes --kubeconfig kubeconfig",
    "install --prefix FILE",
    "cel eval object.data -i resource.json",
    "cel eval object.data -i FILE",
    "jp parse -f FILE",
    "jp query -i FILE -q FILE",
    "jp query -u -i resource.json data",
    "lint policy.yaml wrong.yaml test FILE",
    "lint --config FILE .",
    "migrate policy.yaml wrong.yaml",
    "migrate --kubeconfig kubeconfig",
    "migrate --restore FILE --kubeconfig kubeconfig",
    "preview policy.yaml --kubeconfig kubeconfig",
    "preview wrong.yaml FILE",
    "rule FILE",
    "status --kubeconfig kubeconfig",
    "status --context FILE",
    "test test",
    "test test --detailed-results",
    "test FILE missing",
    "uninstall --yes --kubeconfig kubeconfig",
    "verify FILE",
    "verify --policy wrong.yaml localhost:1/FILE",
    "wasm run FILE -r resource.json",
    "wasm inspect FILE",
    "wasm FILE",
    "FILE",
    "apply --FILE",
]
FORMATS = {"apply": "policy.yaml -r resource.yaml", "test": "test", "explain": "policy.yaml -r resource.yaml", "lint": "policy.yaml wrong.yaml", "migrate": "policy.yaml wrong.yaml", "preview": "policy.yaml --kubeconfig kubeconfig", "status": "--kubeconfig kubeconfig", "cleanup": "--dry-run --kubeconfig kubeconfig"}  # fmt: skip


def list_formats() -> Iterator[str]:
    """Every command with every format that it has."""
    context = click.Context(cli)
    for name, rest in FORMATS.items():
        command = cli.get_command(context, name)
        assert command is not None
        for option in command.params:
            if isinstance(option, click.Option) and "format" in (option.name or ""):
                known = {"apply": APPLY_FORMATS, "test": TEST_FORMATS}.get(name)
                # Rows for a database are binary, and go to a file only.
                for choice in known or getattr(option.type, "choices", ()):
                    if choice != "parquet":
                        yield f"{name} {rest} {option.opts[-1]} {getattr(choice, 'value', choice)}"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("KUBECONFIG", "kubeconfig")
    for variable in ("FORCE_COLOR", "NO_COLOR"):
        monkeypatch.delenv(variable, raising=False)
    (tmp_path / "test").mkdir()
    for name in ("policy.yaml", "resource.yaml", "test/policy.yaml", "test/resource.yaml"):
        Path(name).write_text(POLICY if "policy" in name else RESOURCE)
    Path("test/kyverno-test.yaml").write_text(TEST)
    Path("wrong.yaml").write_text(WRONG)
    Path("kubeconfig").write_text(KUBECONFIG)
    Path("resource.json").write_text('{"data": "\\u001b]0;x\\u0007\\r\\u009b"}')
    Path("other").write_text(f"#!/bin/sh\nprintf '%s' '{RAW}' >&2\nprintf '%s' '{RAW}'\nexit 3\n")
    Path("other").chmod(0o755)
    # Names of files can be as bad.
    Path(name_file()).write_text(f"a: [\n# {RAW}\n{RAW}: 'x\n")
    with tarfile.open("all.tar", "w") as archive:
        archive.add("wrong.yaml", f"in{name_file()}")
        archive.add(name_file(), f"{name_file()}.yaml")
    return tmp_path


def name_file() -> str:
    return f"f{RAW}.yaml"


@pytest.mark.parametrize("call", [*CALLS, *list_formats()])
def test_nothing_steers_the_terminal(
    folder: Path, capfd: pytest.CaptureFixture[str], call: str
) -> None:
    run([word.replace("FILE", name_file()) for word in call.split()])
    out, err = capfd.readouterr()
    assert out or err, call
    assert FORBIDDEN.findall(out + err) == [], call


def test_every_command_is_called() -> None:
    assert {call.split()[0] for call in CALLS} >= COMMANDS.keys() - SERVERS - OWN_WORDS


def test_colours_are_all_that_a_terminal_gets(
    folder: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    run(["explain", "policy.yaml", "-r", "resource.yaml"])
    run(["test", "test"])
    out = re.sub("\x1b\\[(?:[01]|3[1-6])m", "", capfd.readouterr().out)
    assert FORBIDDEN.findall(out) == []
