"""OPA as a program for tests: it compiles Rego to Wasm, and says what OPA itself answers.

Built from rego/main.go through Go modules into the cache folder, once.
"""

import hashlib
import json
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

HERE = Path(__file__).parent
# What builds the control plane builds this too.
sys.path.append(str(HERE.parent / "cluster"))

from control_plane.go_modules import build, lock, run_go  # noqa: E402

from lictor.core.release import REFERENCES  # noqa: E402

OPA = REFERENCES["opa"]
SOURCE = HERE / "rego" / "main.go"
ABSENT = "no compiler for Rego: `make test-kubewarden` builds OPA's where Go is installed"


class NoCompilerError(RuntimeError):
    """OPA is neither here nor can it be made."""


@dataclass(frozen=True)
class Rego:
    """Sources by file name, and what of them is asked for."""

    files: dict[str, str]
    entrypoint: str
    version: str = "v1"


def find_opa() -> Path:
    """Returns the program from the cache, or builds it; a second run at the same time waits."""
    text = SOURCE.read_bytes()
    folder = _cache_folder()
    target = folder / f"opa-{OPA}-{hashlib.sha256(text).hexdigest()[:12]}"
    if os.access(target, os.X_OK):
        return target
    # Minutes of two processors: only commands that are about Kubewarden build it.
    if shutil.which("go") is None or not os.environ.get("LICTOR_KUBEWARDEN_TESTS"):
        raise NoCompilerError(ABSENT)
    source = folder / "source"
    source.mkdir(parents=True, exist_ok=True)
    with lock(folder / ".lock"):
        if not os.access(target, os.X_OK):
            (source / "main.go").write_bytes(text)
            (source / "go.mod").write_text("module opaprogram\n", encoding="utf-8")
            run_go(source, "get", f"github.com/open-policy-agent/opa@{OPA}")
            build(source, ".", target)
    return target


def find_own_cases() -> Path:
    """OPA's own tests of its language, which come with its module."""
    folder = find_opa().parent / "source"
    module = "github.com/open-policy-agent/opa"
    path = run_go(folder, "list", "-m", "-f", "{{.Dir}}", module).strip()
    return Path(path) / "v1" / "test" / "cases" / "testdata"


def _cache_folder() -> Path:
    root = os.environ.get("LICTOR_CACHE")
    return (Path(root) if root else Path.home() / ".cache" / "lictor") / "opa"


class Opa:
    """The program, running: one line in, one line out."""

    def __init__(self, program: Path) -> None:
        self._process = subprocess.Popen(
            [str(program)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._process.stdin.close()
        self._process.stdout.close()
        self._process.wait()

    def _ask(self, **job: Any) -> Any:
        self._process.stdin.write(json.dumps(job) + "\n")
        self._process.stdin.flush()
        answer = json.loads(self._process.stdout.readline())
        if "error" in answer:
            raise ValueError(answer["error"])
        return answer["value"]

    def build(self, rego: Rego, folder: Path) -> bytes:
        """The module; the same sources are compiled once into the folder."""
        key = json.dumps([OPA, rego.files, rego.entrypoint, rego.version], sort_keys=True)
        target = folder / f"{hashlib.sha256(key.encode()).hexdigest()[:32]}.wasm"
        if not target.exists():
            folder.mkdir(parents=True, exist_ok=True)
            made = target.with_suffix(f".{os.getpid()}")
            entrypoints = [rego.entrypoint]
            job = {"modules": rego.files, "version": rego.version, "entrypoints": entrypoints}
            self._ask(build={**job, "out": str(made)})
            made.replace(target)
        return target.read_bytes()

    def evaluate(self, query: str, *, version: str = "v1", strict: bool = False) -> list[Any]:
        """The values of an expression; ValueError where OPA calls it wrong."""
        values: list[Any] = self._ask(eval={"query": query, "version": version, "strict": strict})
        return values


def module_folder() -> Path:
    """Where compiled modules are kept."""
    return _cache_folder() / "modules"
