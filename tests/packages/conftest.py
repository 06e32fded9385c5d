"""Packages as users get them: built, installed and run by the real tools. Run when asked for.

    LICTOR_PACKAGE_TESTS=1 pytest tests/packages        or just        pytest tests/packages

The packages that lictor needs are fetched once, as the lock names them, from the index that pip is set to, into the usual
cache; after that nothing here asks anybody. `pytest` on everything leaves this folder out.
"""

import hashlib
import os
import shutil
import subprocess
import sys
import venv
from pathlib import Path

import pytest

HERE = Path(__file__).parent
sys.path.append(str(HERE / "sources"))

from package_sources import ROOT, Built, copy_sources  # noqa: E402

ASKED = "LICTOR_PACKAGE_TESTS"
LOCK = ROOT / "requirements-run.lock"
CACHE = Path(os.environ.get("LICTOR_CACHE") or Path.home() / ".cache" / "lictor")


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leave the folder out unless it was named, by the variable or on the command line."""
    if os.environ.get(ASKED) == "1" or HERE not in collection_path.parents:
        return None
    named = (Path(str(word).partition("::")[0]).absolute() for word in config.args)
    return None if any(path == HERE or HERE in path.parents for path in named) else True


@pytest.fixture(scope="session")
def wheels() -> Path:
    """A folder with the packages of the lock: fetched once."""
    folder = CACHE / "wheels" / hashlib.sha256(LOCK.read_bytes()).hexdigest()[:16]
    if not (folder / "complete").exists():
        shutil.rmtree(folder, ignore_errors=True)
        command = [
            sys.executable,
            "-m",
            "pip",
            "download",
            "--quiet",
            "--disable-pip-version-check",
        ]
        command += [
            "--require-hashes",
            "--only-binary",
            ":all:",
            "-d",
            str(folder),
            "-r",
            str(LOCK),
        ]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            pytest.skip(f"no package index can be reached: {done.stderr.strip().splitlines()[-1]}")
        (folder / "complete").touch()
    return folder


@pytest.fixture(scope="session")
def offline(wheels: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The environment of programs that install something: only what lies here."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("PIP_", "UV_", "GITHUB_"))}
    home = tmp_path_factory.mktemp("home")
    # A configuration that names an index must not be found.
    return {
        **kept,
        "HOME": str(home),
        "XDG_CACHE_HOME": str(home / ".cache"),
        "PIP_CONFIG_FILE": os.devnull,
        "PIP_NO_INDEX": "1",
        "PIP_FIND_LINKS": str(wheels),
        "UV_OFFLINE": "1",
        "UV_NO_INDEX": "1",
        "UV_FIND_LINKS": str(wheels),
    }


@pytest.fixture(scope="session")
def built(tmp_path_factory: pytest.TempPathFactory) -> Built:
    source = copy_sources(tmp_path_factory.mktemp("source"))
    subprocess.run(
        [sys.executable, "-m", "build", "--no-isolation"],
        cwd=source,
        env={**os.environ, "SOURCE_DATE_EPOCH": "1700000000"},
        capture_output=True,
        check=True,
    )
    [wheel] = (source / "dist").glob("*.whl")
    [sdist] = (source / "dist").glob("*.tar.gz")
    return Built(source, wheel, sdist)


@pytest.fixture(scope="session")
def programs(
    built: Built, offline: dict[str, str], tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """The folder with the programs of an environment in which the wheel is installed."""
    folder = tmp_path_factory.mktemp("installed")
    venv.create(folder, with_pip=True)
    subprocess.run(
        [folder / "bin/python", "-m", "pip", "install", "--quiet", str(built.wheel)],
        env=offline,
        check=True,
    )
    return folder / "bin"
