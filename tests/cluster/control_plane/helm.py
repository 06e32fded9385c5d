"""Real helm for the tests, made through its Go module into the cache folder, once."""

import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

from control_plane.build import KUBERNETES, Report, is_complete
from control_plane.go_modules import build, download, lock, read_language, write_module

HELM = "v3.22.0"
ABSENT = "no helm: install Go, and it is built from its module into the cache"
_MODULE = "helm.sh/helm/v3"


def cache_folder() -> Path:
    """Where helm lies: $LICTOR_CACHE, or below the user's own cache."""
    root = os.environ.get("LICTOR_CACHE")
    base = Path(root) if root else Path.home() / ".cache" / "lictor"
    return base / "helm" / HELM


def find_helm(report: Report = lambda _: None) -> Path | None:
    """What the cache holds, else what Go can build; None where neither is."""
    folder = cache_folder()
    if not is_complete(folder, ("helm",)):
        if shutil.which("go") is None:
            return None
        _build_helm(folder, report)
    return folder / "helm"


def _build_helm(folder: Path, report: Report) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    with lock(folder / ".lock"):
        if is_complete(folder, ("helm",)):
            return
        report(f"building helm {HELM} (minutes, when it is the first time)")
        package = f"{_MODULE}/cmd/helm"
        lines = [f"go {read_language(download(f'{_MODULE}@{HELM}'))}", f"require {_MODULE} {HELM}"]
        module = write_module(folder / "source", imports=[package], lines=lines)
        build(module, package, folder / "helm", ("-ldflags", _version_flags()))


def _version_flags() -> str:
    """As helm's own builds have them; without, it takes every cluster for a very old one."""
    major, minor, _ = KUBERNETES.removeprefix("v").split(".")
    values = {"internal/version.version": HELM}
    for place in ("pkg/chartutil", "pkg/lint/rules"):
        values |= {f"{place}.k8sVersionMajor": major, f"{place}.k8sVersionMinor": minor}
    return " ".join(f"-X {_MODULE}/{name}={value}" for name, value in values.items())


def run_helm(command: Sequence[str], folder: Path) -> "subprocess.CompletedProcess[str]":
    """Run helm with folders of its own, so that nobody's settings count."""
    home = folder / "helm-home"
    environment = {
        "PATH": os.environ["PATH"],
        "HOME": str(home),
        "HELM_CACHE_HOME": str(home / "cache"),
        "HELM_CONFIG_HOME": str(home / "config"),
        "HELM_DATA_HOME": str(home / "data"),
    }
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
