"""Which cosign, notation and crane do the tests run? Built through Go modules, once."""

import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from control_plane.go_modules import build, download, lock, read_language, write_module

ABSENT = "no tools that sign images: install Go, and cosign, notation and crane are built"


class NoToolsError(RuntimeError):
    """The programs are neither here nor can they be made."""


@dataclass(frozen=True)
class Tool:
    """A program, and the module that it is a part of."""

    name: str
    module: str
    version: str


COSIGN = Tool("cosign", "github.com/sigstore/cosign/v3", "v3.0.6")
NOTATION = Tool("notation", "github.com/notaryproject/notation", "v1.3.2")
CRANE = Tool("crane", "github.com/google/go-containerregistry", "v0.20.6")


def find_tool(tool: Tool, report: Callable[[str], None] = lambda _: None) -> Path:
    """What the cache holds, else what Go can build: a second run at the same time waits."""
    folder = _cache_folder()
    target = folder / f"{tool.name}-{tool.version}"
    if os.access(target, os.X_OK):
        return target
    if shutil.which("go") is None:
        raise NoToolsError(ABSENT)
    folder.mkdir(parents=True, exist_ok=True)
    with lock(folder / f".{tool.name}.lock"):
        if not os.access(target, os.X_OK):
            report(f"building {tool.name} {tool.version} (minutes, when it is the first time)")
            _build_tool(tool, folder / "source" / tool.name, target)
    return target


def _cache_folder() -> Path:
    """$LICTOR_CACHE, or below the user's own cache, as for the control plane."""
    root = os.environ.get("LICTOR_CACHE")
    return (Path(root) if root else Path.home() / ".cache" / "lictor") / "image-tools"


def _build_tool(tool: Tool, source: Path, target: Path) -> None:
    package = f"{tool.module}/cmd/{tool.name}"
    language = read_language(download(f"{tool.module}@{tool.version}"))
    lines = [f"go {language}", f"require {tool.module} {tool.version}"]
    build(write_module(source, imports=[package], lines=lines), package, target)
