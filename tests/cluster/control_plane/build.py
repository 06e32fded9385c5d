"""Programs of a real control plane, made through Go modules into a cache folder, once."""

import fcntl
import json
import os
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

KUBERNETES = "v1.34.3"
ETCD = "v3.6.6"
KUBERNETES_PROGRAMS = ("kube-apiserver", "kube-controller-manager")
PROGRAMS = ("etcd", *KUBERNETES_PROGRAMS)
# The module of Kubernetes names its own parts as v0.0.0: they stand beside it in its repository.
_STAGED = re.compile(r"^\s*(?:require\s+)?(k8s\.io/\S+) v0\.0\.0\s*$", re.MULTILINE)
_LANGUAGE = re.compile(r"^go (\S+)$", re.MULTILINE)

Report = Callable[[str], None]


class BuildError(RuntimeError):
    """A command of Go failed; the text is the end of what it said."""


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
    with _lock(folder / ".lock"):
        if not is_complete(folder, ("etcd",)):
            report(f"building etcd {ETCD}")
            _build_etcd(folder)
        missing = [name for name in KUBERNETES_PROGRAMS if not is_complete(folder, (name,))]
        if missing:
            source = _write_kubernetes_module(folder / "source" / "kubernetes", missing)
            for name in missing:
                report(f"building {name} {KUBERNETES} (minutes, when it is the first time)")
                flags = ("-ldflags", _version_flags())
                _build(source, f"k8s.io/kubernetes/cmd/{name}", folder / name, flags)


@contextmanager
def _lock(path: Path) -> Iterator[None]:
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _build_etcd(folder: Path) -> None:
    package = "go.etcd.io/etcd/server/v3"
    downloaded = _download(f"{package}@{ETCD}")
    module = _write_module(
        folder / "source" / "etcd",
        imports=[f"{package}/etcdmain"],
        lines=[f"go {_language(downloaded)}", f"require {package} {ETCD}"],
    )
    _build(module, package, folder / "etcd")


def _write_kubernetes_module(folder: Path, programs: Sequence[str]) -> Path:
    text = _download(f"k8s.io/kubernetes@{KUBERNETES}")
    staged = f"v0.{KUBERNETES.partition('.')[2]}"
    replaced = [f"replace {name} => {name} {staged}" for name in _STAGED.findall(text)]
    return _write_module(
        folder,
        imports=[f"k8s.io/kubernetes/cmd/{name}/app" for name in programs],
        lines=[f"go {_language(text)}", f"require k8s.io/kubernetes {KUBERNETES}", *replaced],
    )


def _language(module: str) -> str:
    found = _LANGUAGE.search(module)
    return found[1] if found else "1.24.0"


def _download(module: str) -> str:
    """The go.mod of a module, after fetching it."""
    answer = json.loads(_go(Path.cwd(), "mod", "download", "-json", module))
    return Path(answer["GoMod"]).read_text(encoding="utf-8")


def _write_module(folder: Path, *, imports: Sequence[str], lines: Sequence[str]) -> Path:
    """A module whose only file names the packages, so that `tidy` finds all they need."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    (folder / "go.mod").write_text("\n".join(["module programs", *lines, ""]), encoding="utf-8")
    named = "\n".join(f'import _ "{name}"' for name in imports)
    (folder / "programs.go").write_text(f"package programs\n\n{named}\n", encoding="utf-8")
    _go(folder, "mod", "tidy")
    return folder


def _version_flags() -> str:
    """Without a version of its own the API server is one that clients refuse."""
    major, minor, _ = KUBERNETES.removeprefix("v").split(".")
    values = {"gitVersion": KUBERNETES, "gitMajor": major, "gitMinor": minor}
    place = "k8s.io/component-base/version"
    return " ".join(f"-X {place}.{name}={value}" for name, value in values.items())


def _build(module: Path, package: str, target: Path, flags: Sequence[str] = ()) -> None:
    """Build beside the target and move: nobody sees half a program."""
    unfinished = target.with_name(f".{target.name}.unfinished")
    _go(module, "build", "-buildvcs=false", *flags, "-o", str(unfinished), package)
    unfinished.replace(target)


def _go(folder: Path, *words: str) -> str:
    done = subprocess.run(
        ["go", *words],
        cwd=folder,
        env={**os.environ, "GOWORK": "off", "GOFLAGS": "-mod=mod"},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        end = (done.stderr or done.stdout)[-2000:]
        raise BuildError(f"go {' '.join(words)} failed in {folder}:\n{end}")
    return done.stdout
