"""Check the dependencies: the lock is complete, is what is installed, and has no known hole.

    python scripts/check_dependencies.py [--offline]

Exit codes: 0 all is well; 1 something is wrong; 3 the service that knows the holes could not be
asked, while the rest is well. Known holes come from OSV (https://osv.dev), which
`pip-audit --vulnerability-service osv` asks too.
"""

import argparse
import json
import re
import sys
import tomllib
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, distribution, distributions
from pathlib import Path

from packaging.markers import Marker
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parent.parent
SERVICE = "https://api.osv.dev"
UNKNOWN = 3
_ENTRY = re.compile(
    r"^(?P<name>[A-Za-z0-9._-]+)==(?P<version>[^\s;\\]+)\s*(?:;(?P<marker>[^\\]+))?"
)
_HASH = re.compile(r"--hash=sha256:[0-9a-f]{64}")
# Not of the lock: ourselves, and the program that writes the lock (see the Makefile).
_OTHERS = frozenset(("lictor", "uv"))
_PATIENCE = 20


@dataclass(frozen=True)
class Locked:
    """One entry of the lock."""

    name: str
    version: str
    marker: str
    hashes: int

    @property
    def applies(self) -> bool:
        """Is it for this Python and this system?"""
        return not self.marker or Marker(self.marker).evaluate()


def read_lock(text: str) -> tuple[list[Locked], list[str]]:
    """The entries, and what is wrong with the lines."""
    entries: list[Locked] = []
    problems: list[str] = []
    for block in re.split(r"\n(?=\S)", text):
        found = _ENTRY.match(block)
        if found is None:
            if block.strip() and not block.startswith("#"):
                problems.append(f"{block.splitlines()[0]}: not pinned to one version by ==")
            continue
        marker = (found["marker"] or "").strip()
        hashes = len(_HASH.findall(block))
        name = canonicalize_name(found["name"])
        entries.append(Locked(name, found["version"], marker, hashes))
        if not hashes:
            problems.append(f"{name}: no hash")
    return entries, problems


# Extras and groups that have their own lock, requirements-NAME.lock.
_APART = frozenset(("docs", "ray"))


def list_declared(project: str) -> Iterator[Requirement]:
    """The dependencies in pyproject.toml: to run, to trace, to develop, to build."""
    content = tomllib.loads(project)
    extras = content["project"].get("optional-dependencies", {})
    development = content.get("dependency-groups", {})
    groups = [
        content["project"]["dependencies"],
        *(needed for name, needed in (extras | development).items() if name not in _APART),
        content["build-system"]["requires"],
    ]
    for group in groups:
        yield from map(Requirement, group)


def find_gaps(entries: list[Locked], declared: Iterator[Requirement]) -> Iterator[str]:
    """What is declared, or needed by what is locked and installed, and not in the lock."""
    known = {entry.name: entry.version for entry in entries}
    queue = [("pyproject.toml", each) for each in declared]
    seen: set[tuple[str, frozenset[str]]] = set()
    while queue:
        origin, wanted = queue.pop()
        name = canonicalize_name(wanted.name)
        key = (name, frozenset(wanted.extras))
        if key in seen or (wanted.marker is not None and not wanted.marker.evaluate({"extra": ""})):
            continue
        seen.add(key)
        if name not in known:
            yield f"{name}: wanted by {origin}, not in the lock"
        elif not wanted.specifier.contains(known[name], prereleases=True):
            yield f"{name} {known[name]}: {origin} wants {wanted.specifier}"
        queue += [(name, each) for each in list_needed(name, wanted.extras)]


def list_needed(name: str, extras: set[str]) -> Iterator[Requirement]:
    """The dependencies of an installed package, on this system."""
    try:
        lines = distribution(name).requires or []
    except PackageNotFoundError:
        return
    for requirement in map(Requirement, lines):
        marker = requirement.marker
        if marker is None or any(marker.evaluate({"extra": each}) for each in ("", *extras)):
            yield Requirement(str(requirement).partition(";")[0])


def find_differences(entries: list[Locked]) -> Iterator[str]:
    """Where the environment that runs this is not the lock's."""
    installed: dict[str, str] = {
        canonicalize_name(each.name): each.version for each in distributions()
    }
    for entry in entries:
        if not entry.applies:
            continue
        found = installed.get(entry.name)
        if found != entry.version:
            yield f"{entry.name}: {entry.version} in the lock, {found or 'nothing'} installed"
    for name in sorted(set(installed) - {entry.name for entry in entries} - _OTHERS):
        yield f"{name} {installed[name]}: installed, not in the lock"


def find_holes(entries: list[Locked], service: str) -> list[str]:
    """Known vulnerabilities of the locked versions. Raises OSError if the service is down."""
    package = [
        {"package": {"ecosystem": "PyPI", "name": each.name}, "version": each.version}
        for each in entries
    ]
    request = urllib.request.Request(
        f"{service}/v1/querybatch",
        data=json.dumps({"queries": package}).encode(),
        headers={"Content-Type": "application/json"},
    )
    with urllib.request.urlopen(request, timeout=_PATIENCE) as answer:
        results = json.load(answer)["results"]
    if len(results) != len(entries):
        # An answer that is missing must not read as "nothing known".
        raise OSError(f"{len(results)} answers to {len(entries)} questions")
    return [
        f"{entry.name} {entry.version}: {hole['id']}"
        for entry, result in zip(entries, results, strict=True)
        for hole in result.get("vulns") or ()
    ]


def check_offline(lock: Path, project: Path) -> tuple[list[Locked], list[str]]:
    """The entries, and all findings that need no network."""
    entries, problems = read_lock(lock.read_text(encoding="utf-8"))
    if not entries:
        problems.append(f"{lock}: no entries")
    problems += find_gaps(entries, list_declared(project.read_text(encoding="utf-8")))
    problems += find_differences(entries)
    return entries, problems


def main() -> int:
    """Check, and print the result."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--lock", type=Path, default=ROOT / "requirements.lock")
    parser.add_argument("--project", type=Path, default=ROOT / "pyproject.toml")
    parser.add_argument("--service", default=SERVICE, help="who knows the holes")
    parser.add_argument("--offline", action="store_true", help="use no network")
    given = parser.parse_args()
    entries, problems = check_offline(given.lock, given.project)
    unknown = ""
    if not given.offline:
        try:
            problems += find_holes(entries, given.service)
        except (OSError, ValueError, KeyError) as error:
            unknown = f"known vulnerabilities: NOT CHECKED, {given.service} is unavailable: {error}"
    for line in problems:
        print(line)
    hashes = sum(entry.hashes for entry in entries)
    print(f"{len(entries)} packages with {hashes} hashes in the lock: {len(problems)} problems")
    if unknown:
        print(unknown, file=sys.stderr)
    return 1 if problems else UNKNOWN if unknown else 0


if __name__ == "__main__":
    sys.exit(main())
