"""The plug-in from its archive, as krew installs it, run by kubectl; by real krew where that is here."""

import hashlib
import os
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest
import yaml
from package_sources import Built

from lictor.core.release import VERSION

KREW = shutil.which("kubectl-krew") or shutil.which("krew")
pytestmark = pytest.mark.skipif(shutil.which("kubectl") is None, reason="no kubectl here")


@pytest.fixture(scope="module")
def packed(built: Built) -> Path:
    """The folder with the archive and its manifest."""
    folder = built.wheel.parent
    script = built.source / "scripts" / "make_krew.py"
    subprocess.run([sys.executable, str(script), "--folder", str(folder)], check=True)
    return folder


def test_the_archive_is_what_the_manifest_says(packed: Path) -> None:
    manifest = yaml.safe_load((packed / "lictor.krew.yaml").read_text())
    archive = packed / "kubectl-lictor.tar.gz"
    [platform] = manifest["spec"]["platforms"]
    assert platform["sha256"] == hashlib.sha256(archive.read_bytes()).hexdigest()
    assert manifest["spec"]["version"] == f"v{VERSION}"
    with tarfile.open(archive) as opened:
        names = opened.getnames()
        assert opened.getmember(platform["bin"]).mode & 0o111
    assert {"LICENSE", "requirements-run.lock", f"lictor-{VERSION}-py3-none-any.whl"} <= set(names)


def unpack(archive: Path, manifest: Path, root: Path) -> None:
    """What krew does with an archive: unpack the files that are named, and link the program."""
    [platform] = yaml.safe_load(manifest.read_text())["spec"]["platforms"]
    store = root / "store" / "lictor" / f"v{VERSION}"
    assert platform["files"] == [{"from": "*", "to": "."}]
    with tarfile.open(archive) as opened:
        opened.extractall(store, filter="data")
    (root / "bin").mkdir()
    (root / "bin" / "kubectl-lictor").symlink_to(store / platform["bin"])


@pytest.fixture(scope="module", params=["unpacked", "krew"])
def plugin(
    request: pytest.FixtureRequest,
    packed: Path,
    offline: dict[str, str],
    tmp_path_factory: pytest.TempPathFactory,
) -> dict[str, str]:
    """An environment in which the plug-in is installed, and was never called."""
    if request.param == "krew" and KREW is None:
        pytest.skip("no krew here")
    root, tools = tmp_path_factory.mktemp("krew"), tmp_path_factory.mktemp("tools")
    (tools / "python3").symlink_to(Path(sys.executable).resolve())
    environment = {
        **offline,
        "KREW_ROOT": str(root),
        "XDG_CACHE_HOME": str(tmp_path_factory.mktemp("cache")),
        "PATH": f"{root / 'bin'}:{tools}:{offline['PATH']}",
    }
    archive, manifest = packed / "kubectl-lictor.tar.gz", packed / "lictor.krew.yaml"
    if request.param == "unpacked":
        unpack(archive, manifest, root)
    else:
        words = ["install", f"--manifest={manifest}", f"--archive={archive}"]
        subprocess.run([str(KREW), *words], env=environment, check=True)
    return environment


def test_kubectl_runs_it(plugin: dict[str, str]) -> None:
    # Two first calls at once: both answer, whoever of them installs.
    calls = [
        subprocess.Popen(
            ["kubectl", "lictor", "version"],
            env=plugin,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for _ in range(2)
    ]
    for call in calls:
        output, errors = call.communicate(timeout=300)
        assert (call.returncode, output.split("\n")[0]) == (0, f"Version: {VERSION}"), errors
    again = subprocess.run(
        ["kubectl", "lictor", "version"], env=plugin, capture_output=True, text=True, check=True
    )
    assert again.stderr == ""
    folder = Path(plugin["XDG_CACHE_HOME"]) / "lictor" / "kubectl-plugin"
    assert len(list(folder.iterdir())) == 1, "a second environment was left behind"


def test_without_a_fitting_python_it_says_so(plugin: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "python3").write_text("#!/bin/sh\nexit 1\n")
    (tmp_path / "python3").chmod(0o755)
    for name in ("sh", "dirname", "readlink", "cksum", "cut", "mkdir"):
        (tmp_path / name).symlink_to(str(shutil.which(name)))
    done = subprocess.run(
        [str(Path(plugin["KREW_ROOT"]) / "bin" / "kubectl-lictor"), "version"],
        env={"PATH": str(tmp_path), "HOME": str(tmp_path), "LANG": os.environ.get("LANG", "C")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert "needs Python 3.11 or newer" in done.stderr
