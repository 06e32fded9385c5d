"""The installed program in pipelines and as a plug-in of kubectl: scripts are run as their runners would."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from package_sources import ROOT, Built

from lictor.core.release import VERSION

TEMPLATE = (ROOT / "templates" / "lictor.yml").read_text()
INPUT = re.compile(r"\$\[\[ inputs\.([a-z]+) \]\]")

# --- GitLab


def read_template(**given: str) -> dict[str, Any]:
    """The jobs, with inputs filled in as GitLab does."""
    head, _, body = TEMPLATE.partition("\n---\n")
    inputs = yaml.safe_load(head)["spec"]["inputs"]
    values = {name: str((told or {}).get("default", "")) for name, told in inputs.items()}
    assert given.keys() <= values.keys()
    return yaml.safe_load(INPUT.sub(lambda found: {**values, **given}[found[1]], body))


def run_job(
    name: str, folder: Path, programs: Path, **given: str
) -> subprocess.CompletedProcess[str]:
    jobs = read_template(package="unused", **given)
    base = jobs[".lictor"]
    lines = [*base["before_script"], *jobs[name]["script"]]
    variables = {key: str(value or "") for key, value in base["variables"].items()}
    return subprocess.run(
        ["sh", "-e", "-c", "\n".join(lines)],
        cwd=folder,
        env={**os.environ, **variables, "PATH": f"{programs}:{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize(
    ("job", "code", "said"),
    [
        ("lictor-lint", 0, "no problems"),
        ("lictor-test", 0, "<testsuites"),
        ("lictor-apply", 1, "debug"),
    ],
)
def test_jobs(job: str, code: int, said: str, tmp_path: Path, programs: Path) -> None:
    folder = tmp_path / "project"
    shutil.copytree(
        ROOT / "examples", folder, ignore=shutil.ignore_patterns("kubewarden", "argocd", "flux")
    )
    policies = "policies" if job == "lictor-apply" else "."
    done = run_job(job, folder, programs, policies=policies, resources="resources")
    assert done.returncode == code, done.stderr
    assert said in done.stdout
    report = read_template()[job].get("artifacts", {}).get("reports", {}).get("junit")
    if report:
        assert (folder / report).read_text().startswith("<?xml")


def test_a_job_installs_what_it_is_told_to(
    built: Built, offline: dict[str, str], tmp_path: Path
) -> None:
    base = read_template(package=str(built.wheel))[".lictor"]
    (tmp_path / "python3").symlink_to(Path(sys.executable).resolve())
    done = subprocess.run(
        ["sh", "-e", "-c", "\n".join(base["before_script"])],
        cwd=tmp_path,
        env={**offline, **base["variables"], "PATH": f"{tmp_path}:/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == f"lictor {VERSION}"


# --- kubectl


@pytest.mark.skipif(shutil.which("kubectl") is None, reason="no kubectl here")
@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["lictor", "version"], 0, "Version: "),
        (["lictor", "lint", str(ROOT / "examples" / "policies")], 0, "no problems"),
        (["lictor", "lint", "--wrong"], 2, "kubectl lictor lint --help"),
        (["plugin", "list"], 0, "kubectl-lictor"),
        (["__complete", "lictor", "app"], 0, "apply\tApply policies to resources.\n:4"),
        (["__complete", "lictor", "apply", ""], 0, ":0"),
        (["__complete", "lictor", "lint", "--format", ""], 0, "sarif\n"),
    ],
)
def test_kubectl_finds_the_plug_in(words: list[str], code: int, said: str, programs: Path) -> None:
    done = subprocess.run(
        ["kubectl", *words],
        env={**os.environ, "PATH": f"{programs}:{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == code, done.stderr
    assert said in done.stdout + done.stderr
