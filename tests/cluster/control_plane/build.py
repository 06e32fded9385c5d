"""Programs of a real control plane, made through Go modules into a cache folder, once."""

import os
import re
from collections.abc import Callable, Sequence
from pathlib import Path

from control_plane.go_modules import build, download, lock, read_language, write_module

from lictor.core.release import REFERENCES

# LICTOR_KUBERNETES=v1.35.4 runs the tests on another release than the one that lictor follows.
KUBERNETES = os.environ.get("LICTOR_KUBERNETES") or REFERENCES["kubernetes"]
ETCD = "v3.6.6"
KUBERNETES_PROGRAMS = ("kube-apiserver", "kube-controller-manager")
PROGRAMS = ("etcd", *KUBERNETES_PROGRAMS)
# The module of Kubernetes names its own parts as v0.0.0: they stand beside it in its repository.
_STAGED = re.compile(r"^\s*(?:require\s+)?(k8s\.io/\S+) v0\.0\.0\s*$", re.MULTILINE)

Report = Callable[[str], None]


def cache_folder() -> Path:
    """Where the programs lie: $LICTOR_CACHE, or below the user's own cache."""
    root = os.environ.get("LICTOR_CACHE")
    base = Path(root) if root else Path.home() / ".cache" / "lictor"
    return base / "control-plane" / KUBERNETES


def is_complete(folder: Path, programs: Sequence[str] = PROGRAMS) -> bool:
    """Tell whether all these programs are there and may be run."""
    return all(os.access(folder / name, os.X_OK) for name in programs)


def build_programs(folder: Path, report: Report = lambda _: None) -> None:
    """Make what is missing in the folder; a second run at the same time waits for the first."""
    folder.mkdir(parents=True, exist_ok=True)
    with lock(folder / ".lock"):
        if not is_complete(folder, ("etcd",)):
            report(f"building etcd {ETCD}")
            _build_etcd(folder)
        missing = [name for name in KUBERNETES_PROGRAMS if not is_complete(folder, (name,))]
        if missing:
            source = _write_kubernetes_module(folder / "source" / "kubernetes", missing)
            for name in missing:
                report(f"building {name} {KUBERNETES} (minutes, when it is the first time)")
                flags = ("-ldflags", _version_flags())
                build(source, f"k8s.io/kubernetes/cmd/{name}", folder / name, flags)


def _build_etcd(folder: Path) -> None:
    package = "go.etcd.io/etcd/server/v3"
    downloaded = download(f"{package}@{ETCD}")
    module = write_module(
        folder / "source" / "etcd",
        imports=[f"{package}/etcdmain"],
        lines=[f"go {read_language(downloaded)}", f"require {package} {ETCD}"],
    )
    build(module, package, folder / "etcd")


def _write_kubernetes_module(folder: Path, programs: Sequence[str]) -> Path:
    text = download(f"k8s.io/kubernetes@{KUBERNETES}")
    staged = f"v0.{KUBERNETES.partition('.')[2]}"
    replaced = [f"replace {name} => {name} {staged}" for name in _STAGED.findall(text)]
    return write_module(
        folder,
        imports=[f"k8s.io/kubernetes/cmd/{name}/app" for name in programs],
        lines=[f"go {read_language(text)}", f"require k8s.io/kubernetes {KUBERNETES}", *replaced],
    )


def _version_flags() -> str:
    """Without a version of its own the API server is one that clients refuse."""
    major, minor, _ = KUBERNETES.removeprefix("v").split(".")
    values = {"gitVersion": KUBERNETES, "gitMajor": major, "gitMinor": minor}
    place = "k8s.io/component-base/version"
    return " ".join(f"-X {place}.{name}={value}" for name, value in values.items())
