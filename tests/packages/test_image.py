"""The image: built by buildah without a network, and run as a cluster would: read-only, as nobody, without a shell.

Needs a base image with Python: LICTOR_PYTHON_IMAGE names one, or `make image-base` has made one of Debian's packages.
"""

import json
import os
import re
import shutil
import socket
import ssl
import stat
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from package_sources import ROOT, Built

from lictor.core.release import VERSION

BASE = os.environ.get("LICTOR_PYTHON_IMAGE", "localhost/lictor-python:debian")
NAME = "localhost/lictor-test:image"
NOBODY = 65534
# A mount of the image's files in namespaces of its own, read-only but for /tmp, and no way back to what is outside.
ENTER = """\
set -eu
mount --bind "$ROOT" "$MOUNT"
mount -o remount,bind,ro "$MOUNT"
mount -t tmpfs tmpfs "$MOUNT/tmp"
mount --rbind /proc "$MOUNT/proc"
mount --rbind /dev "$MOUNT/dev"
mkdir "$MOUNT/tmp/examples"
mount --bind -o ro "$EXAMPLES" "$MOUNT/tmp/examples"
cd /
exec chroot --userspec=65534:65534 "$MOUNT" /opt/lictor/bin/"$@"
"""


def _explain_absence() -> str:
    if shutil.which("buildah") is None or shutil.which("unshare") is None:
        return "no buildah here"
    if os.geteuid():
        return "buildah's mounts need root here"
    done = subprocess.run(
        ["buildah", "inspect", "--type=image", BASE], capture_output=True, check=False
    )
    return f"no base image {BASE}: `make image-base` makes it" if done.returncode else ""


@pytest.fixture(scope="module")
def root(built: Built, wheels: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The files of the image."""
    reason = _explain_absence()
    if reason:
        pytest.skip(reason)
    settings = tmp_path_factory.mktemp("pip") / "pip.conf"
    settings.write_text("[global]\nno-index = true\nfind-links = /run/wheels\n")
    flags = ["--isolation=chroot", f"--volume={wheels}:/run/wheels:ro"]
    flags.append(f"--secret=id=pip.conf,src={settings}")
    script = [sys.executable, "scripts/make_image.py", "--builder=buildah", f"--base={BASE}"]
    done = subprocess.run(
        [*script, f"--tag={NAME}", "--", *flags],
        cwd=built.source,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    container = _read(["buildah", "from", NAME])
    try:
        yield Path(_read(["buildah", "mount", container]))
    finally:
        subprocess.run(["buildah", "rm", container], capture_output=True, check=True)
        subprocess.run(["buildah", "rmi", NAME], capture_output=True, check=True)


def _read(command: list[str]) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def enter(root: Path, folder: Path, *words: str) -> list[str]:
    """The call that runs a program of the image."""
    (folder / "mount").mkdir(exist_ok=True)
    told = {"ROOT": root, "MOUNT": folder / "mount", "EXAMPLES": ROOT / "examples"}
    variables = [f"{name}={value}" for name, value in told.items()]
    variables += ["PATH=/usr/sbin:/usr/bin:/sbin:/bin", "LANG=C.UTF-8", "HOME=/tmp"]
    return ["env", "-i", *variables, "unshare", "--mount", "sh", "-c", ENTER, "sh", *words]


def run_inside(root: Path, folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        enter(root, folder, *words), capture_output=True, text=True, check=False, timeout=120
    )


def test_how_it_is_started(root: Path) -> None:
    told = json.loads(_read(["buildah", "inspect", "--type=image", NAME]))["OCIv1"]["config"]
    assert told["Entrypoint"] == ["lictor"]
    assert told["User"] == f"{NOBODY}:{NOBODY}"
    assert "PATH=/opt/lictor/bin" in told["Env"]
    assert told["Labels"]["org.opencontainers.image.version"] == VERSION


def test_there_is_no_shell_and_no_other_program(root: Path) -> None:
    programs = [
        path.relative_to(root)
        for folder in ("bin", "sbin", "usr/bin", "usr/sbin", "usr/local/bin", "opt/lictor/bin")
        for path in (root / folder).glob("*")
    ]
    assert {path.name.rstrip("0123456789.") for path in programs} == {"python", "lictor"}
    packages = [path.name for path in (root / "opt/lictor/lib").glob("python*/site-packages/*")]
    assert not [name for name in packages if name.startswith(("pip", "setuptools"))]


def test_nothing_gives_more_rights(root: Path) -> None:
    for path in root.rglob("*"):
        mode = path.lstat().st_mode
        if path.is_symlink():
            continue
        assert not mode & (stat.S_ISUID | stat.S_ISGID), path
        assert not mode & stat.S_IWOTH or path == root / "tmp", path


def test_scanners_find_the_packages_of_debian(root: Path) -> None:
    records = {path.name: path.read_text() for path in (root / "var/lib/dpkg/status.d").iterdir()}
    assert {"libc6", "libssl3"} <= records.keys() or {"libc6", "libssl3t64"} <= records.keys()
    assert all("\nVersion: " in text for text in records.values())
    assert (root / "etc/os-release").read_text().startswith("PRETTY_NAME=")
    assert (root / "usr/share/doc/libc6/copyright").exists()


def test_it_runs_read_only_as_nobody(root: Path, tmp_path: Path) -> None:
    done = run_inside(root, tmp_path, "lictor", "version")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(f"Version: {VERSION}\n")
    tries = "import os; print(os.getuid(), os.access('/opt', os.W_OK), os.access('/tmp', os.W_OK))"
    assert run_inside(root, tmp_path, "python", "-c", tries).stdout == f"{NOBODY} False True\n"


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        # With policies in CEL and in WebAssembly.
        (("test", "/tmp/examples"), 0, "passed"),
        (("apply", "/tmp/examples/policies", "-r", "/tmp/examples/resources"), 1, "fail: 3"),
        (("lint", "/tmp/examples/argocd"), 0, "no problems"),
        (("crds",), 0, "CustomResourceDefinition"),
    ],
)
def test_commands(root: Path, tmp_path: Path, words: tuple[str, ...], code: int, said: str) -> None:
    done = run_inside(root, tmp_path, "lictor", *words)
    assert done.returncode == code, done.stderr
    assert said in done.stdout


def test_every_module_can_be_imported(root: Path, tmp_path: Path) -> None:
    # What the standard library lacks here, or a library that was not found, would show up in a cluster only.
    program = (
        "import importlib, pkgutil, lictor\n"
        "names = [m.name for m in pkgutil.walk_packages(lictor.__path__, 'lictor.')]\n"
        "for name in names:\n"
        "    if name.rpartition('.')[2] != '__main__': importlib.import_module(name)\n"
        "import zoneinfo, ssl, sqlite3, opentelemetry.exporter.otlp.proto.grpc.trace_exporter\n"
        "zoneinfo.ZoneInfo('Europe/Rome')\n"
        "print(len(names))\n"
    )
    done = run_inside(root, tmp_path, "python", "-c", program)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) > 500


def test_bytecode_is_there(root: Path, tmp_path: Path) -> None:
    done = run_inside(root, tmp_path, "python", "-v", "-c", "import lictor.cli.apply")
    assert done.returncode == 0
    assert "lictor/cli/__pycache__/apply.cpython" in done.stderr
    assert not re.search(r"# code object from '[^']*\.py'", done.stderr), "compiled anew"


def test_the_webhook_answers(root: Path, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    words = ["serve", "--policies", "/tmp/examples/policies", "--workers", "1"]
    words += ["--webhookServerPort", str(port), "--disableMetrics", "--shutdownDelay=0s"]
    log = tmp_path / "log"
    with log.open("w") as errors:
        server = subprocess.Popen(enter(root, tmp_path, "lictor", *words), stderr=errors)
    try:
        assert _ask(f"https://127.0.0.1:{port}/health/readiness", server) == 200, log.read_text()
    finally:
        server.terminate()
        server.wait(timeout=60)


def _ask(address: str, server: subprocess.Popen[bytes]) -> int:
    trusting = ssl.create_default_context()
    trusting.check_hostname, trusting.verify_mode = False, ssl.CERT_NONE
    end = time.monotonic() + 60
    while time.monotonic() < end and server.poll() is None:
        try:
            with urllib.request.urlopen(address, context=trusting, timeout=5) as answer:
                return int(answer.status)
        except (urllib.error.URLError, OSError):
            time.sleep(0.2)
    return 0
