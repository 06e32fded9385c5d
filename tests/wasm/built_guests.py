"""Guests in Go and Rust, compiled into the cache folder where the compilers are here."""

import functools
import hashlib
import os
import shutil
import subprocess
from collections.abc import Sequence
from fcntl import LOCK_EX, flock
from pathlib import Path

import pytest

_SOURCES = Path(__file__).parent
# rustup's toolchains have no standard library for Wasm unless it was asked for; Debian has a package.
_RUST_COMPILERS = ("/usr/bin/rustc", "rustc")


@functools.cache
def build_guest(name: str) -> bytes:
    """`go_wapc`, `go_wasi`, `rust_wapc` or `rust_wasi`; the test is skipped where it cannot be built."""
    language, _, kind = name.partition("_")
    folder = _SOURCES / (name if language == "go" else "rust")
    target = _cache_folder() / f"{name}-{_digest(folder)}.wasm"
    with (_cache_folder() / f".{name}.lock").open("w") as lock:
        flock(lock, LOCK_EX)
        if not target.exists():
            if not os.environ.get("LICTOR_KUBEWARDEN_TESTS"):
                pytest.skip("`make test-kubewarden` builds guests in Go and Rust")
            unfinished = target.with_suffix(".unfinished")
            build = _build_go if language == "go" else _build_rust
            build(folder, kind, unfinished)
            unfinished.rename(target)
    return target.read_bytes()


def _build_go(folder: Path, kind: str, target: Path) -> None:
    if shutil.which("go") is None:
        pytest.skip("Go is not here")
    words = ["go", "build", "-buildvcs=false", "-ldflags=-w -s", "-o", str(target)]
    if kind == "wapc":
        words.append("-buildmode=c-shared")
    _run([*words, "."], folder, GOOS="wasip1", GOARCH="wasm", GOWORK="off", GOFLAGS="-mod=mod")


def _build_rust(folder: Path, kind: str, target: Path) -> None:
    wanted = "wasm32-wasi" if kind == "wasi" else "wasm32-unknown-unknown"
    crate = ["--crate-type", "cdylib"] if kind == "wapc" else []
    options = ["-O", "-C", "strip=debuginfo", "-C", f"linker={_find_linker()}", "-o", str(target)]
    for compiler in _RUST_COMPILERS:
        try:
            _run([compiler, "--target", wanted, *crate, *options, f"{kind}.rs"], folder)
        except (OSError, subprocess.SubprocessError):
            continue
        return
    pytest.skip(f"Rust for {wanted} is not here")


def _find_linker() -> str:
    kept = (Path.home() / ".rustup" / "toolchains").glob("*/lib/rustlib/*/bin/rust-lld")
    return shutil.which("rust-lld") or next((str(path) for path in sorted(kept)), "rust-lld")


def _run(words: Sequence[str], folder: Path, **environment: str) -> None:
    subprocess.run(
        ["nice", "-n", "10", *words],
        cwd=folder,
        env=os.environ | environment,
        check=True,
        capture_output=True,
    )


def _cache_folder() -> Path:
    root = os.environ.get("LICTOR_CACHE")
    base = Path(root) if root else Path.home() / ".cache" / "lictor"
    folder = base / "wasm-guests"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def _digest(folder: Path) -> str:
    files = sorted(path for path in folder.iterdir() if path.suffix in (".go", ".mod", ".rs"))
    content = b"".join(path.read_bytes() for path in (*files, Path(__file__)))
    return hashlib.sha256(content).hexdigest()[:16]
