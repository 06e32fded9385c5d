"""Write docs/reference/licences.md: the licence of every package in the lock.

python scripts/list_licences.py > docs/reference/licences.md
"""

import tomllib
from importlib.metadata import PackageMetadata, PackageNotFoundError, metadata

from check_dependencies import ROOT, Locked, list_needed, read_lock
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

HEAD = """# Licences of dependencies

Lictor itself is under the Apache License 2.0. It needs the packages marked *runtime* to run; the
others are for those who work on it, or for tracing. Written by `scripts/list_licences.py` from the
metadata of the versions in `requirements.lock`; a test keeps it current.

| package | version | licence | |
|---|---|---|---|
"""
# For other systems, so that their metadata are not here; from the packages' own pages.
ELSEWHERE = {"colorama": "BSD-3-Clause", "tomli": "MIT", "exceptiongroup": "MIT"}
_CLASSIFIER = "License :: "


def main() -> None:
    """Print the page."""
    entries, _ = read_lock((ROOT / "requirements.lock").read_text(encoding="utf-8"))
    print(render_page(entries), end="")


def render_page(entries: list[Locked]) -> str:
    """The whole page."""
    used = list_runtime()
    lines = [HEAD]
    for entry in sorted(entries, key=lambda entry: entry.name):
        mark = "runtime" if entry.name in used else ""
        lines.append(f"| {entry.name} | {entry.version} | {find_licence(entry.name)} | {mark} |\n")
    return "".join(lines)


def list_runtime() -> set[str]:
    """The packages that pyproject.toml names for running, and what they need in turn."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    queue = list(map(Requirement, project["dependencies"]))
    found: set[str] = set()
    while queue:
        wanted = queue.pop()
        name = canonicalize_name(wanted.name)
        if name not in found:
            found.add(name)
            queue += list_needed(name, wanted.extras)
    return found


def find_licence(name: str) -> str:
    """An SPDX expression where the package has one, else its classifiers or its own short words."""
    try:
        told = metadata(name)
    except PackageNotFoundError:
        return ELSEWHERE.get(name, "not installed here")
    return _read_field(told, "License-Expression") or _read_classifiers(told) or _read_words(told)


def _read_field(told: PackageMetadata, name: str) -> str:
    found = told.get_all(name)
    return found[0] if found else ""


def _read_classifiers(told: PackageMetadata) -> str:
    found = [each for each in told.get_all("Classifier") or () if each.startswith(_CLASSIFIER)]
    return ", ".join(each.rpartition(" :: ")[2] for each in found)


def _read_words(told: PackageMetadata) -> str:
    # Some put the whole text there.
    words = _read_field(told, "License").strip().splitlines()
    return words[0][:60] if words else "unknown"


if __name__ == "__main__":
    main()
