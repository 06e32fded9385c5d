"""The wheel and the sdist: what is in them, and that they run where nothing else of the project is."""

import os
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest
from package_sources import ROOT, Built

from lictor.core.release import VERSION


def test_the_wheel_holds_every_file_of_the_package(built: Built) -> None:
    packed = set(zipfile.ZipFile(built.wheel).namelist())
    listed = subprocess.run(
        ["git", "ls-files", "src/lictor"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    missing = [
        name
        for name in listed.stdout.split()
        # What the build does not know as data is left out in silence: `package-data` in pyproject.toml names it.
        if name.removeprefix("src/") not in packed and not name.endswith(".md")
    ]
    assert missing == []


def test_the_wheel_holds_nothing_else(built: Built) -> None:
    tops = {name.partition("/")[0] for name in zipfile.ZipFile(built.wheel).namelist()}
    assert tops == {"lictor", f"lictor-{VERSION}.dist-info"}


def test_metadata(built: Built) -> None:
    archive = zipfile.ZipFile(built.wheel)
    told = archive.read(f"lictor-{VERSION}.dist-info/METADATA").decode()
    assert f"\nVersion: {VERSION}\n" in told
    assert "\nLicense-Expression: Apache-2.0\n" in told
    assert "\nRequires-Python: >=3.11\n" in told
    scripts = archive.read(f"lictor-{VERSION}.dist-info/entry_points.txt").decode()
    names = {"lictor", "kubectl-lictor", "kubectl_complete-lictor"}
    assert names <= set(re.findall(r"^(\S+) = ", scripts, re.MULTILINE))


def test_the_sdist_builds_the_same_wheel(built: Built, tmp_path: Path) -> None:
    with tarfile.open(built.sdist) as archive:
        archive.extractall(tmp_path, filter="data")
    [source] = tmp_path.iterdir()
    assert (source / "LICENSE").exists()
    subprocess.run(
        [sys.executable, "-m", "build", "--no-isolation", "--wheel"],
        cwd=source,
        env={**os.environ, "SOURCE_DATE_EPOCH": "1700000000"},
        capture_output=True,
        check=True,
    )
    [wheel] = (source / "dist").glob("*.whl")
    assert wheel.read_bytes() == built.wheel.read_bytes()


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["version"], 0, f"Version: {VERSION}\n"),
        (["lint", "policies"], 0, "no problems"),
        (["test", "."], 0, "passed"),
        (["apply", "policies", "-r", "resources"], 1, "fail: 3"),
        (["wasm", "--help"], 0, "Usage"),
        (["crds"], 0, "CustomResourceDefinition"),
    ],
)
def test_the_installed_program(
    programs: Path, tmp_path: Path, words: list[str], code: int, said: str
) -> None:
    shutil.copytree(ROOT / "examples", tmp_path / "examples")
    done = subprocess.run(
        [programs / "lictor", *words],
        cwd=tmp_path / "examples",
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == code, done.stderr
    assert said in done.stdout


def find_uvx() -> str | None:
    return os.environ.get("UVX") or shutil.which("uvx")


@pytest.mark.skipif(find_uvx() is None, reason="no uvx here; UVX names one")
def test_uvx_runs_it_from_the_wheel(built: Built, offline: dict[str, str], tmp_path: Path) -> None:
    done = subprocess.run(
        [str(find_uvx()), "--from", str(built.wheel), "lictor", "version"],
        cwd=tmp_path,
        env={**offline, "UV_CACHE_DIR": str(tmp_path / "cache")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(f"Version: {VERSION}\n")
