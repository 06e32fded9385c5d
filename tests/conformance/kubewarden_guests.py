"""The guests of the Kubewarden corpus, built once into the cache folder: WAT, Rust, Go and Rego."""

import hashlib
import json
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from fcntl import LOCK_EX, flock
from functools import partial
from pathlib import Path
from typing import Any

import wasmtime
from shared_cases import CASES

from lictor.core.release import REFERENCES

CORPUS = CASES / "kubewarden"
GUESTS = CORPUS / "guests"
RULES = (
    {
        "apiGroups": [""],
        "apiVersions": ["v1"],
        "resources": ["pods"],
        "operations": ["CREATE", "UPDATE"],
    },
)
_CONTEXT = (
    {"apiVersion": "apps/v1", "kind": "Deployment"},
    {"apiVersion": "v1", "kind": "Namespace"},
)
_SECTION = b"io.kubewarden.metadata"
_OPA = ("opa", "builtins")
_WITH_CONTEXT = ("wapc", "wasi", "opa", "gk_shapes")
# As the corpus was made: the version is told back by `inspect`.
_KWCTL = "1.36.0-beta.1"
_RUSTC = "/usr/bin/rustc"
_OPA_MODULE = f"github.com/open-policy-agent/opa@{REFERENCES['opa']}"
_OPA_SOURCE = """\
package main

import (
	"context"
	"os"

	"github.com/open-policy-agent/opa/v1/ast"
	"github.com/open-policy-agent/opa/v1/compile"
)

func main() {
	build := compile.New().WithPaths(os.Args[3:]...).WithTarget(compile.TargetWasm)
	build = build.WithEntrypoints(os.Args[2]).WithRegoVersion(ast.RegoV0)
	if err := build.Build(context.Background()); err != nil {
		panic(err)
	}
	if err := os.WriteFile(os.Args[1], build.Bundle().WasmModules[0].Raw, 0o644); err != nil {
		panic(err)
	}
}
"""
# A policy that wants a builtin which Kubewarden does not have.
_PREFIX_REGO = """\
package missing_builtin

violation[{"msg": msg}] {
	strings.any_prefix_match(input.review.object.metadata.name, ["forbidden"])
	msg := "the name begins with forbidden"
}
"""


@dataclass(frozen=True)
class Guests:
    """A folder with every guest as `x.wasm` and `x.raw.wasm`, and what could not be built."""

    folder: Path
    missing: frozenset[str]


def build_guests() -> Guests:
    """Build what is not in the cache yet; guests whose compiler is not here are missing."""
    folder = _cache() / _digest_sources()
    folder.mkdir(parents=True, exist_ok=True)
    with _lock(folder):
        for path in sorted((GUESTS / "wat").glob("*.wat")):
            _make(folder, path.stem, partial(_build_wat, path))
        _make(folder, "wapc", partial(_build_rust, "wapc"))
        _make(folder, "wasi", partial(_build_rust, "wasi"))
        _make(folder, "go-wasi", _build_go)
        for name in ("opa", "gk_shapes", "gk_object", "builtins"):
            _make(folder, name, partial(_build_rego, name))
        _make(folder, "missing_builtin", partial(_build_rego, "missing_builtin"))
        _derive(folder)
    names = [path.name for path in folder.glob("*.missing")]
    return Guests(folder, frozenset(name.removesuffix(".missing") for name in names))


def annotate(module: bytes, metadata: Mapping[str, Any] | bytes) -> bytes:
    """The module with the metadata as its last custom section."""
    text = metadata if isinstance(metadata, bytes) else json.dumps(metadata).encode()
    content = _leb(len(_SECTION)) + _SECTION + text
    return module + b"\0" + _leb(len(content)) + content


def describe(name: str, mode: str = "kubewarden-wapc", **more: Any) -> dict[str, Any]:
    """The metadata that the guests of the corpus were annotated with."""
    metadata = {
        "protocolVersion": "v1" if mode == "kubewarden-wapc" else "Unknown",
        "rules": list(RULES),
        "annotations": {
            "io.kubewarden.kwctl": _KWCTL,
            "io.kubewarden.policy.title": name,
            "io.kubewarden.policy.version": "0.1.0",
        },
        "mutating": False,
        "backgroundAudit": True,
        "executionMode": mode,
        "policyType": "kubernetes",
        "contextAwareResources": list(_CONTEXT) if name in _WITH_CONTEXT else [],
    }
    return metadata | more


def _modes(name: str) -> str:
    if name.startswith("gk_") or name == "missing_builtin":
        return "gatekeeper"
    if name in _OPA:
        return "opa"
    return "wasi" if name.startswith("wasi") or name == "go-wasi" else "kubewarden-wapc"


def _make(folder: Path, name: str, build: Callable[[Path], None]) -> None:
    raw, missing = folder / f"{name}.raw.wasm", folder / f"{name}.missing"
    if raw.exists():
        return
    unfinished = folder / f".{name}.unfinished"
    try:
        build(unfinished)
    except (OSError, subprocess.SubprocessError) as error:
        told = getattr(error, "stderr", None) or str(error).encode()
        missing.write_bytes(told)
        return
    missing.unlink(missing_ok=True)
    (folder / f"{name}.wasm").write_bytes(
        annotate(unfinished.read_bytes(), describe(name, _modes(name)))
    )
    unfinished.replace(raw)


def _derive(folder: Path) -> None:
    """Modules that differ from another in their metadata only, and files that are no modules."""
    accept = (folder / "accept.raw.wasm").read_bytes()
    made = {
        "text.wasm": b"this is no module\n",
        "badmeta.wasm": annotate(accept, b"{x"),
        "newer.wasm": annotate(accept, describe("newer", minimumKubewardenVersion="9.9.0")),
        "wrong_wasi.wasm": annotate(accept, describe("wrong_wasi", "wasi")),
        "wrong_gk.wasm": annotate(accept, describe("wrong_gk", "gatekeeper")),
        "rawp.wasm": annotate(accept, describe("guest", policyType="raw", rules=[])),
    }
    if (folder / "wapc.raw.wasm").exists():
        wapc = (folder / "wapc.raw.wasm").read_bytes()
        made["rawtype.wasm"] = annotate(wapc, describe("rawtype", policyType="raw"))
    if (folder / "gk_shapes.raw.wasm").exists():
        shapes = (folder / "gk_shapes.raw.wasm").read_bytes()
        made["as_opa.wasm"] = annotate(shapes, describe("as_opa", "opa"))
        made["as_gk.wasm"] = annotate(shapes, describe("as_gk", "gatekeeper"))
    for name, content in made.items():
        (folder / name).write_bytes(content)


def _build_wat(source: Path, target: Path) -> None:
    target.write_bytes(bytes(wasmtime.wat2wasm(source.read_text(encoding="utf-8"))))


def _build_rust(name: str, target: Path) -> None:
    kind = "wasm32-wasi" if name == "wasi" else "wasm32-unknown-unknown"
    crate = [] if name == "wasi" else ["--crate-type", "cdylib"]
    words = ["--target", kind, *crate, "-O", "-C", f"linker={_linker()}", "-o", str(target)]
    _run([_RUSTC, *words, str(GUESTS / "rust" / f"{name}.rs")], GUESTS / "rust")


def _linker() -> str:
    """Debian's package of rustc has one in some releases; rustup's toolchains always do."""
    found = shutil.which("rust-lld") or shutil.which("wasm-ld")
    kept = (Path.home() / ".rustup" / "toolchains").glob("*/lib/rustlib/*/bin/rust-lld")
    return found or next((str(path) for path in sorted(kept)), "rust-lld")


def _build_go(target: Path) -> None:
    words = ["go", "build", "-buildvcs=false", "-ldflags=-w -s", "-o", str(target), "."]
    _run(words, GUESTS / "go-wasi", GOOS="wasip1", GOARCH="wasm")


def _build_rego(name: str, target: Path) -> None:
    source = GUESTS / "rego" / f"{name}.rego"
    if name == "missing_builtin":
        source = target.with_name("missing_builtin.rego")
        source.write_text(_PREFIX_REGO, encoding="utf-8")
    text = source.read_text(encoding="utf-8")
    package = next(line.split()[1] for line in text.splitlines() if line.startswith("package "))
    rule = "main" if name in _OPA else "violation"
    _run([str(_opa_compiler()), str(target), f"{package}/{rule}", source.name], source.parent)


def _opa_compiler() -> Path:
    """OPA's compiler as a program of a few lines."""
    folder = _cache() / "opa-compiler"
    program = folder / "opawasm"
    if not program.exists():
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        (folder / "main.go").write_text(_OPA_SOURCE, encoding="utf-8")
        _run(["go", "mod", "init", "opawasm"], folder)
        _run(["go", "get", _OPA_MODULE], folder)
        _run(["go", "mod", "tidy"], folder)
        _run(["go", "build", "-buildvcs=false", "-o", "opawasm", "."], folder)
    return program


def _run(words: list[str], folder: Path, **environment: str) -> None:
    subprocess.run(
        ["nice", "-n", "10", *words],
        cwd=folder,
        env=os.environ | {"GOFLAGS": "-mod=mod", "GOWORK": "off"} | environment,
        check=True,
        capture_output=True,
    )


def _cache() -> Path:
    root = os.environ.get("LICTOR_CACHE")
    base = Path(root) if root else Path.home() / ".cache" / "lictor"
    return base / "kubewarden-guests"


def _digest_sources() -> str:
    files = [path for path in GUESTS.rglob("*") if path.suffix in (".wat", ".rs", ".go", ".rego")]
    content = b"".join(path.read_bytes() for path in (*sorted(files), Path(__file__)))
    return hashlib.sha256(content).hexdigest()[:16]


@contextmanager
def _lock(folder: Path) -> Iterator[None]:
    with (folder / ".lock").open("w") as file:
        flock(file, LOCK_EX)
        yield


def _leb(number: int) -> bytes:
    digits = []
    while number > 0x7F:
        digits.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes((*digits, number))
