"""The steps of the GitHub Action, run by bash as GitHub's runner does, from the installation on."""

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from package_sources import ROOT, Built

ACTION = yaml.safe_load((ROOT / "action.yml").read_text())
_INPUT = re.compile(r"\$\{\{ inputs\.([a-z-]+) \}\}")


class Runner:
    """A job that uses the action; its own programs stay from step to step."""

    def __init__(self, source: Path, folder: Path, environment: dict[str, str]) -> None:
        self.folder = folder
        # What actions/setup-python does for the steps after it: `python3` is the one that was asked for.
        (folder / "tools").mkdir()
        (folder / "tools" / "python3").symlink_to(Path(sys.executable).resolve())
        self.environment = {
            **environment,
            "PATH": f"{folder / 'tools'}:{environment['PATH']}",
            "GITHUB_ACTION_PATH": str(source),
            "GITHUB_OUTPUT": str(folder / "output"),
            "GITHUB_STEP_SUMMARY": str(folder / "summary"),
            "RUNNER_TEMP": str(folder),
        }

    def run(self, name: str, **inputs: str) -> subprocess.CompletedProcess[str]:
        [step] = [each for each in ACTION["runs"]["steps"] if each["name"] == name]
        given = {key: str(value.get("default", "")) for key, value in ACTION["inputs"].items()}
        given |= inputs
        told = {
            key: _INPUT.sub(lambda found: given[found[1]], value)
            for key, value in step.get("env", {}).items()
        }
        script = self.folder / "step.sh"
        script.write_text(step["run"])
        for left in ("output", "summary"):
            (self.folder / left).unlink(missing_ok=True)
        return subprocess.run(
            ["bash", "--noprofile", "--norc", "-eo", "pipefail", str(script)],
            cwd=ROOT,
            env={**self.environment, **told},
            capture_output=True,
            text=True,
            check=False,
        )


@pytest.fixture(scope="module")
def runner(
    built: Built, offline: dict[str, str], tmp_path_factory: pytest.TempPathFactory
) -> Runner:
    made = Runner(built.source, tmp_path_factory.mktemp("runner"), offline)
    done = made.run("Install lictor")
    assert done.returncode == 0, done.stderr
    return made


def test_the_first_step_sets_up_python() -> None:
    first, *_ = ACTION["runs"]["steps"]
    assert first["uses"].startswith("actions/setup-python@")
    assert first["with"] == {"python-version": "${{ inputs.python-version }}"}


def test_it_installs_what_the_lock_names(runner: Runner) -> None:
    python = runner.folder / "lictor" / "bin" / "python"
    done = subprocess.run(
        [python, "-m", "pip", "freeze"], capture_output=True, text=True, check=True
    )
    lock = (ROOT / "requirements-run.lock").read_text()
    installed = [line for line in done.stdout.splitlines() if not line.startswith("lictor")]
    assert len(installed) > 30
    assert [
        line for line in installed if f"{line.lower().replace('_', '-')} " not in lock.lower()
    ] == []


def test_it_marks_lines_and_fails(runner: Runner) -> None:
    done = runner.run("Run lictor", policies="examples/policies", resources="examples/resources\n")
    assert done.returncode == 1, done.stderr
    assert (
        "::error file=examples/resources/pods.yaml,line=13,title=no-privileged-pods" in done.stdout
    )
    report = runner.folder / "lictor.sarif"
    assert len(json.loads(report.read_text())["runs"][0]["results"]) == 3
    assert (runner.folder / "output").read_text() == f"report={report}\nexit-code=1\n"
    assert "no-privileged-pods/not-privileged" in (runner.folder / "summary").read_text()


def test_it_passes_where_tests_pass(runner: Runner, tmp_path: Path) -> None:
    target = tmp_path / "reports" / "tests.xml"
    done = runner.run("Run lictor", command="test", policies="examples", report=str(target))
    assert done.returncode == 0, done.stderr
    assert "<testsuites" in target.read_text()


def test_lint_marks_lines_too(runner: Runner, tmp_path: Path) -> None:
    shutil.copytree(ROOT / "examples/policies", tmp_path / "policies")
    policy = tmp_path / "policies" / "team-label.yaml"
    policy.write_text(policy.read_text().replace("rules:", "rulez:"))
    done = runner.run("Run lictor", command="lint", policies=str(tmp_path / "policies"))
    assert done.returncode == 1
    assert re.search(r"^::error file=.*team-label.yaml,line=\d+,", done.stdout, re.MULTILINE)


def test_a_policy_that_is_missing_fails(runner: Runner) -> None:
    done = runner.run("Run lictor", policies="examples/none", resources="examples/resources")
    assert done.returncode != 0
    first, *_, after, told = done.stdout.splitlines()
    word = first.removeprefix("::stop-commands::")
    assert after == f"::{word}::", "what lictor prints must stand between the two"
    assert "exit code" in told
