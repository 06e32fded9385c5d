"""`make sbom`: what lictor consists of when it runs, as a CycloneDX document.

    python scripts/make_sbom.py [--output build/lictor.cdx.json]

Versions and hashes are those of requirements-run.lock, which the image is built from; licences and
who needs whom come from the metadata of the packages that are installed here. The same source gives
the same document, byte for byte.
"""

import argparse
import json
import re
import uuid
from dataclasses import dataclass
from importlib.metadata import metadata
from pathlib import Path
from typing import Any

from check_dependencies import ROOT, Locked, list_needed, read_lock
from list_licences import find_licence, list_runtime
from packaging.utils import canonicalize_name

from lictor.core.release import VERSION

LOCK = ROOT / "requirements-run.lock"
# In the lock for installation from source; absent when lictor runs.
BUILDING = frozenset(("setuptools",))
_HASH = re.compile(r"--hash=sha256:([0-9a-f]{64})")
_BLOCK = re.compile(r"^(?P<name>[A-Za-z0-9._-]+)==(?P<rest>(?:.*\\\n)*.*)", re.MULTILINE)


@dataclass(frozen=True)
class Component:
    """One package of the lock."""

    entry: Locked
    hashes: tuple[str, ...]
    # Not needed for more than tracing.
    optional: bool

    @property
    def reference(self) -> str:
        return f"pkg:pypi/{self.entry.name}@{self.entry.version}"


def read_components(text: str) -> list[Component]:
    """What the lock names, without what only the build needs."""
    hashes = {
        canonicalize_name(block["name"]): tuple(_HASH.findall(block["rest"]))
        for block in _BLOCK.finditer(text)
    }
    entries, problems = read_lock(text)
    if problems or not entries:
        raise SystemExit(f"{LOCK}: {'; '.join(problems) or 'no entries'}")
    used = list_runtime()
    return [
        Component(entry, hashes[entry.name], entry.name not in used)
        for entry in sorted(entries, key=lambda entry: entry.name)
        if entry.name not in BUILDING
    ]


def render_component(component: Component) -> dict[str, Any]:
    """A library, as CycloneDX writes one."""
    return {
        "type": "library",
        "bom-ref": component.reference,
        "name": component.entry.name,
        "version": component.entry.version,
        "scope": "optional" if component.optional else "required",
        "licenses": [render_licence(component.entry.name)],
        "purl": component.reference,
        # Of every file that the lock allows, one for each system: pip takes one of them.
        "externalReferences": [
            {
                "type": "distribution",
                "url": component.reference,
                "hashes": [{"alg": "SHA-256", "content": each} for each in component.hashes],
            }
        ],
    }


def render_licence(name: str) -> dict[str, Any]:
    """An SPDX expression if the package has one, otherwise its licence text."""
    told = metadata(name).get_all("License-Expression")
    return {"expression": told[0]} if told else {"license": {"name": find_licence(name)}}


def render_dependencies(components: list[Component], root: str) -> list[dict[str, Any]]:
    """Who needs whom; at the top is lictor."""
    known = {component.entry.name: component.reference for component in components}

    def needs(name: str, extras: set[str]) -> list[str]:
        wanted = {canonicalize_name(each.name) for each in list_needed(name, extras)}
        return sorted(known[each] for each in wanted & known.keys())

    listed = [(root, needs("lictor", {"tracing"}))]
    listed += [(each.reference, needs(each.entry.name, set())) for each in components]
    return [{"ref": name, "dependsOn": wanted} for name, wanted in listed]


def build_document(text: str) -> dict[str, Any]:
    """The whole document."""
    components = read_components(text)
    root = f"pkg:pypi/lictor@{VERSION}"
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "serialNumber": f"urn:uuid:{uuid.uuid5(uuid.NAMESPACE_URL, root + text)}",
        "version": 1,
        "metadata": {
            "component": {
                "type": "application",
                "bom-ref": root,
                "name": "lictor",
                "version": VERSION,
                "licenses": [{"license": {"id": "Apache-2.0"}}],
                "purl": root,
            }
        },
        "components": [render_component(each) for each in components],
        "dependencies": render_dependencies(components, root),
    }


def main() -> None:
    """Write the document."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--output", type=Path, default=ROOT / "build" / "lictor.cdx.json")
    output = parser.parse_args().output
    document = build_document(LOCK.read_text(encoding="utf-8"))
    output.parent.mkdir(parents=True, exist_ok=True)
    output.write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")
    print(f"{output}: {len(document['components'])} packages")


if __name__ == "__main__":
    main()
