"""Compiles policies in Rego to Wasm with `opa`, which must be installed."""

import re
import shutil
import subprocess
import tarfile
from pathlib import Path

from lictor.core.errors import LoadError
from lictor.core.files import read_bytes

_PACKAGE = re.compile(r"^package[ \t]+([\w.]+)", re.MULTILINE)
# What a policy answers with, by the first of these rules that it has.
_RULES = ("violation", "main", "deny")
_MODULE = "/policy.wasm"


def compile_rego(path: str, folder: Path) -> str:
    """The module that `opa` makes of a file, in `folder`; LoadError with the command to run."""
    bundle = folder / "bundle.tar.gz"
    entry = _find_entry(read_bytes(path).decode("utf-8", "replace"), path)
    arguments = ["build", "-t", "wasm", "-e", entry, "-o"]
    opa = shutil.which("opa")
    if opa is None:
        shown = " ".join(("opa", *arguments, "bundle.tar.gz", path))
        raise LoadError(
            f"opa is not installed, and compiles Rego: run `{shown}`, then "
            "`tar -xzf bundle.tar.gz /policy.wasm`, and name policy.wasm",
            where=path,
        )
    command = [opa, *arguments, str(bundle), path]
    done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603
    if done.returncode:
        raise LoadError(f"opa build failed: {done.stderr.strip()}", where=path)
    return _take_module(bundle, folder)


def _find_entry(text: str, path: str) -> str:
    package = _PACKAGE.search(text)
    if package is None:
        raise LoadError("no package: a policy in Rego begins with one", where=path)
    # `violation[...]`, `deny contains ...`, `main := ...`
    heads = {line.partition(" ")[0].partition("[")[0] for line in text.splitlines()}
    rules = [rule for rule in _RULES if rule in heads]
    return f"{package[1].replace('.', '/')}/{rules[0] if rules else 'main'}"


def _take_module(bundle: Path, folder: Path) -> str:
    with tarfile.open(bundle) as archive:
        names = [name for name in archive.getnames() if f"/{name.lstrip('/')}" == _MODULE]
        content = archive.extractfile(names[0]) if names else None
        if content is None:
            raise LoadError(f"no {_MODULE} in the bundle of opa", where=str(bundle))
        module = folder / "policy.wasm"
        module.write_bytes(content.read())
    return str(module)
