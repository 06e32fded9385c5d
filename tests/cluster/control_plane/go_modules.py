"""Builds programs through Go modules, without a checkout of their repositories."""

import fcntl
import json
import os
import re
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

_LANGUAGE = re.compile(r"^go (\S+)$", re.MULTILINE)


class BuildError(RuntimeError):
    """A command of Go failed; the text is the end of what it said."""


@contextmanager
def lock(path: Path) -> Iterator[None]:
    """One builder at a time; the others wait."""
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def read_language(module: str) -> str:
    """Which Go a go.mod asks for."""
    found = _LANGUAGE.search(module)
    return found[1] if found else "1.24.0"


def download(module: str) -> str:
    """The go.mod of a module, after fetching it."""
    answer = json.loads(run_go(Path.cwd(), "mod", "download", "-json", module))
    return Path(answer["GoMod"]).read_text(encoding="utf-8")


def write_module(folder: Path, *, imports: Sequence[str], lines: Sequence[str]) -> Path:
    """A module whose only file names the packages, so that `tidy` finds all they need."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    (folder / "go.mod").write_text("\n".join(["module programs", *lines, ""]), encoding="utf-8")
    named = "\n".join(f'import _ "{name}"' for name in imports)
    (folder / "programs.go").write_text(f"package programs\n\n{named}\n", encoding="utf-8")
    run_go(folder, "mod", "tidy")
    return folder


def build(module: Path, package: str, target: Path, flags: Sequence[str] = ()) -> None:
    """Build beside the target and move: nobody sees half a program."""
    unfinished = target.with_name(f".{target.name}.unfinished")
    run_go(module, "build", "-buildvcs=false", *flags, "-o", str(unfinished), package)
    unfinished.replace(target)


def run_go(folder: Path, *words: str) -> str:
    """What a command of Go printed; other work of the machine goes first."""
    done = subprocess.run(
        ["nice", "-n", "10", "go", *words],
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
