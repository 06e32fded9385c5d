"""Nothing that we start runs code of the folder that it is started in: that may be a pull request's."""

import ast
import asyncio
import os
import re
import subprocess
from collections.abc import Iterator
from itertools import takewhile
from pathlib import Path

import pytest
import yaml

from lictor.addons.editor.run_tests import run_test

ROOT = Path(__file__).parents[2]
SCRIPTS = sorted(
    [
        ROOT / "action.yml",
        ROOT / "Dockerfile",
        *(
            path
            for folder in ("templates", "plugin", "charts", "examples", "scripts")
            for path in (ROOT / folder).rglob("*")
            if path.is_file() and path.suffix != ".py" and "__pycache__" not in path.parts
        ),
    ]
)
PROGRAMS = sorted(path for folder in ("src", "scripts") for path in (ROOT / folder).rglob("*.py"))
# A Python by name or by variable, its options, and what makes it look into the current folder.
_CALL = re.compile(r"""(?:python[\d.]*|\$\{?(?:name|python)\}?)["']?((?:\s+-\w+)*?)\s+-[mc]\b""")
_SAFE = {"-P", "-I"}
HOSTILE = "import pathlib, sys\npathlib.Path(r'{}').write_text('ran')\nsys.exit(1)\n"


def find_unsafe_calls(text: str) -> Iterator[str]:
    for found in _CALL.finditer(text):
        if not _SAFE & set(found[1].split()):
            yield found[0]


def find_unsafe_lists(tree: ast.AST) -> Iterator[int]:
    """Lines where this interpreter is started with `-m` or `-c` and nothing before that."""
    for node in ast.walk(tree):
        words = node.args if isinstance(node, ast.Call) else getattr(node, "elts", ())
        names = [ast.unparse(word).strip("'\"") for word in words]
        for number, name in enumerate(names):
            # Up to the script, if there is one: its own folder comes first then.
            options = list(takewhile(lambda each: each[:1] in ("-", "*"), names[number + 1 :]))
            is_risky = any(each in ("-m", "-c") or each[:1] == "*" for each in options)
            if name == "sys.executable" and is_risky and options[0] not in _SAFE:
                yield words[number].lineno


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("python3 -m venv x", 1),
        ('"$new/bin/python" -m pip', 1),
        ("python3 -I -m pip; python3.12 -c 'x'", 1),
        ('"$python" -m venv', 1),
        ('"$name" -I -c x', 0),
    ],
)
def test_what_the_search_finds(text: str, count: int) -> None:
    assert len(list(find_unsafe_calls(text))) == count
    listed = 'run([sys.executable, "-m", "a"], x)\nrun(sys.executable, "-P", "-m", "a")'
    assert list(find_unsafe_lists(ast.parse(listed))) == [1]


def test_scripts_and_templates_are_safe() -> None:
    found = {}
    for path in SCRIPTS:
        try:
            text = path.read_text(encoding="utf-8")
        except UnicodeDecodeError:
            continue
        if calls := list(find_unsafe_calls(text)):
            found[str(path.relative_to(ROOT))] = calls
        assert "$PWD/" not in text, path
    assert found == {}


def test_processes_are_started_safely() -> None:
    found = {
        str(path.relative_to(ROOT)): lines
        for path in PROGRAMS
        if "sys.executable" in (text := path.read_text(encoding="utf-8"))
        and (lines := list(find_unsafe_lists(ast.parse(text))))
    }
    assert found == {}


@pytest.fixture
def hostile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The current folder; what it brings says so if it is run."""
    folder = tmp_path / "checkout"
    folder.mkdir()
    told = tmp_path / "told"
    for name in ("venv", "ensurepip", "pip", "orjson", "msgspec", "lictor", "runpy"):
        (folder / f"{name}.py").write_text(HOSTILE.format(told))
    monkeypatch.chdir(folder)
    yield folder
    assert not told.exists()


def run_shell(text: str, **variables: str) -> str:
    done = subprocess.run(
        ["bash", "-c", text],
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    return done.stdout


def test_the_action_installs_nothing_of_the_checkout(hostile: Path, tmp_path: Path) -> None:
    steps = yaml.safe_load((ROOT / "action.yml").read_text(encoding="utf-8"))["runs"]["steps"]
    script = next(step["run"] for step in steps if step["name"] == "Install lictor")
    run_shell(script.splitlines()[0] + " --without-pip", RUNNER_TEMP=str(tmp_path))
    assert (tmp_path / "lictor" / "bin" / "python").exists()


def test_the_gitlab_job_starts_no_program_of_the_checkout(hostile: Path, tmp_path: Path) -> None:
    text = (ROOT / "templates" / "lictor.yml").read_text(encoding="utf-8")
    job = yaml.safe_load(text.partition("\n---\n")[2].replace("$[[", "'[[").replace("]]", "]]'"))
    for folder in (hostile / ".lictor" / "bin", tmp_path / "image"):
        folder.mkdir(parents=True)
        (folder / "lictor").write_text(f"#!/bin/sh\necho {folder.name}\n")
        (folder / "lictor").chmod(0o755)
    path = f"{tmp_path}/image:{os.environ['PATH']}"
    lines = "\n".join(job[".lictor"]["before_script"])
    assert run_shell(lines, PATH=path, LICTOR_PACKAGE="x").splitlines()[-1] == "image"


def test_the_plugin_looks_for_python_safely(hostile: Path) -> None:
    text = (ROOT / "plugin" / "kubectl-lictor").read_text(encoding="utf-8")
    body = text[text.index("find_python()") : text.index("# Another version")]
    assert run_shell(f"fail() {{ echo none; }}\n{body}\nfind_python").strip() != "none"


def test_the_editor_runs_tests_safely(hostile: Path) -> None:
    (hostile / "kyverno-test.yaml").write_text(
        "apiVersion: cli.kyverno.io/v1alpha1\nkind: Test\nmetadata: {name: t}\n"
        "policies: []\nresources: []\nresults: []\n"
    )
    asyncio.run(run_test("kyverno-test.yaml"))
