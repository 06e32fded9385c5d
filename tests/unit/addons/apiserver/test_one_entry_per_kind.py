"""A built-in kind is an entry of apiserver/resources/kinds.yaml and lines of generated data, nothing else.

A copy of the package gets both; a program that uses the copy then serves the kind.
"""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import lictor

_ENTRY = """
toys.k8s.io:
  Kite:
    flags: counts_generations
    columns: Name | Colour=spec.colour | Age
    select: spec.colour
    defaults:
      spec.colour: red
    checks:
    - spec:
      - between strings 1 9 must be at least 1
"""
_FACTS = (
    ["names", "toys.k8s.io/v1", {"namespaced": {"Kite": "kites"}}],
    ["groups", "toys.k8s.io", ["v1"]],
    ["served", "toys.k8s.io/v1", {"Kite": {"short": ["ki"]}}],
    ["kinds", "toys.k8s.io/v1", {"Kite": "toys.v1.Kite"}],
    [
        "types",
        "toys.v1.Kite",
        {
            "fields": {
                "apiVersion": "string",
                "kind": "string",
                "metadata": "=meta.v1.ObjectMeta",
                "spec": {"fields": {"colour": "string", "strings": "number"}},
            }
        },
    ],
)
_PROGRAM = """
import asyncio, json
from lictor.addons.apiserver.lists import compile_selectors
from lictor.addons.apiserver.rendering import render_table
from lictor.addons.apiserver.server import Server, ServerSettings
from lictor.addons.apiserver.loopback_client import SYSTEM
from lictor.core.errors import RefusedRequestError


async def main():
    server = Server(ServerSettings())
    await server.prepare()
    kind = server.catalogue.find("toys.k8s.io", "v1", "kites")
    namespace = "default"
    async def create(name, **spec):
        kite = {"metadata": {"name": name}, "spec": spec}
        return await server.api.create(SYSTEM, kind, kite, namespace=namespace)
    plain = await create("plain", tail="lost")
    await create("blue", colour="blue")
    try:
        await create("loose", strings=0)
        refused = ""
    except RefusedRequestError as error:
        refused = error.message
    wanted = compile_selectors(kind, "", "spec.colour=blue")
    selected = filter(wanted, server.store.list(kind, namespace))
    table = render_table(kind, [plain], list_metadata={})
    schemas = server._documents.find("/openapi/v3/apis/toys.k8s.io/v1").body
    print(json.dumps({
        "spec": plain["spec"],
        "generation": plain["metadata"]["generation"],
        "refused": refused,
        "selected": [each["metadata"]["name"] for each in selected],
        "columns": [each["name"] for each in table["columnDefinitions"]],
        "cells": table["rows"][0]["cells"][:2],
        "is_described": "io.k8s.api.toys.v1.Kite" in json.loads(schemas)["components"]["schemas"],
    }))


asyncio.run(main())
"""


def _add_facts(file: Path) -> None:
    """As the generator would: each line in its section."""
    lines = file.read_text().splitlines()
    for fact in _FACTS:
        first = next(n for n, line in enumerate(lines) if line.startswith(f'["{fact[0]}",'))
        lines.insert(first, json.dumps(fact, separators=(",", ":")))
    file.write_text("\n".join(lines) + "\n")


def test_a_kind_is_one_entry_and_generated_data(tmp_path: Path) -> None:
    package = tmp_path / "lictor"
    source = Path(lictor.__file__).parent
    shutil.copytree(source, package, ignore=shutil.ignore_patterns("__pycache__"))
    with (package / "addons/apiserver/resources/kinds.yaml").open("a") as table:
        table.write(_ENTRY)
    _add_facts(package / "core/facts/facts.jsonl")
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-c", _PROGRAM], env=environment, capture_output=True, check=False
    )
    assert done.returncode == 0, done.stderr.decode()
    assert json.loads(done.stdout) == {
        "spec": {"colour": "red"},
        "generation": 1,
        "refused": 'Kite.toys.k8s.io "loose" is invalid: spec.strings: Invalid value: 0: '
        "must be at least 1",
        "selected": ["blue"],
        "columns": ["Name", "Colour", "Age"],
        "cells": ["plain", "red"],
        "is_described": True,
    }
