"""Real pre-commit runs our hooks, from a clone of the repository, in a repository of a user."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from package_sources import ROOT, copy_sources

CONFIGURATION = """\
repos:
- repo: {source}
  rev: {revision}
  hooks:
  - id: lictor-lint
  - id: lictor-test
  - id: lictor-apply
    args: [policies/, --resource, manifests/]
"""


def git(folder: Path, *words: str) -> str:
    who = ["-c", "user.name=a", "-c", "user.email=a@example.com", "-c", "commit.gpgsign=false"]
    done = subprocess.run(
        ["git", *who, *words], cwd=folder, capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


def start_repository(folder: Path) -> Path:
    git(folder, "init", "--quiet")
    git(folder, "add", ".")
    git(folder, "commit", "--quiet", "-m", "All there is")
    return folder


@pytest.fixture(scope="module")
def hooks(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A clone of lictor, as a user names it."""
    return start_repository(copy_sources(tmp_path_factory.mktemp("clone")))


@pytest.fixture(scope="module")
def project(hooks: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A user's repository with policies, tests and manifests."""
    folder = tmp_path_factory.mktemp("project")
    for name in ("policies", "resources", "exceptions", "expected", "kyverno-test.yaml"):
        copy = shutil.copytree if (ROOT / "examples" / name).is_dir() else shutil.copy
        copy(ROOT / "examples" / name, folder / name)
    (folder / "manifests").mkdir()
    shutil.copy(ROOT / "examples/resources/workloads.yaml", folder / "manifests")
    told = CONFIGURATION.format(source=hooks, revision=git(hooks, "rev-parse", "HEAD"))
    (folder / ".pre-commit-config.yaml").write_text(told)
    return start_repository(folder)


def run_hooks(project: Path, offline: dict[str, str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "pre_commit", "run", "--all-files", "--color=never", "--verbose"],
        cwd=project,
        env={**offline, "PRE_COMMIT_HOME": f"{offline['HOME']}/pre-commit", "LANG": "C.UTF-8"},
        capture_output=True,
        text=True,
        check=False,
    )


def test_hooks_pass(project: Path, offline: dict[str, str]) -> None:
    done = run_hooks(project, offline)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("Passed") == 3


def test_hooks_fail(project: Path, offline: dict[str, str]) -> None:
    policy = project / "policies" / "wrong.yaml"
    policy.write_text(
        (project / "policies/team-label.yaml").read_text().replace("rules:", "rulez:")
    )
    shutil.copy(ROOT / "examples/resources/pods.yaml", project / "manifests")
    git(project, "add", ".")
    done = run_hooks(project, offline)
    assert done.returncode == 1
    assert "rulez" in done.stdout
    assert "no-privileged-pods" in done.stdout
    assert done.stdout.count("Failed") >= 2, done.stdout
