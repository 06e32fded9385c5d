"""Write docs/reference/crds.md: the custom resources of lictor, as `lictor crds` defines them."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

PAGE = Path(__file__).parents[1] / "docs" / "reference" / "crds.md"
HEAD = """\
# Custom resources

Every kind that `lictor install` defines, with the fields of its `spec`. `kubectl explain
cpol.spec.rules` shows the fields below these. Written by `scripts/make_crds.py` from the
definitions that `lictor crds` prints.
"""


def render_page() -> str:
    """The whole page, by API group."""
    command = [sys.executable, "-P", "-m", "lictor", "crds", "--openreports", "--format", "json"]
    definitions = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)
    specs = [item["spec"] for item in definitions["items"]]
    lines = [HEAD]
    for group in dict.fromkeys(spec["group"] for spec in specs):
        found = [spec for spec in specs if spec["group"] == group]
        lines += [
            f"## {group}",
            "",
            "| kind | short name | scope | versions |",
            "|---|---|---|---|",
        ]
        lines += [_render_kind(spec) for spec in found] + [""]
        for spec in found:
            lines += _render_fields(spec)
    return "\n".join(lines)


def _render_kind(spec: dict[str, Any]) -> str:
    names = spec["names"]
    short = ", ".join(f"`{name}`" for name in names.get("shortNames", ()))
    versions = ", ".join(each["name"] for each in spec["versions"])
    return f"| {names['kind']} (`{names['plural']}`) | {short} | {spec['scope']} | {versions} |"


def _render_fields(spec: dict[str, Any]) -> Iterator[str]:
    stored = next(each for each in spec["versions"] if each["storage"])
    schema = stored["schema"]["openAPIV3Schema"]["properties"].get("spec", {})
    fields = schema.get("properties", {})
    if fields:
        yield from (f"### {spec['names']['kind']} {stored['name']}", "")
        yield from ("| field of `spec` | type | description |", "|---|---|---|")
        for name, field in fields.items():
            text = field.get("description", "").replace("|", "\\|").replace("\n", " ")
            yield f"| `{name}` | {_name_type(field)} | {text} |"
        yield ""


def _name_type(field: dict[str, Any]) -> str:
    if "enum" in field:
        return ", ".join(f"`{value}`" for value in field["enum"])
    if field.get("type") == "array":
        return f"list of {field.get('items', {}).get('type', 'values')}"
    return str(field.get("type", "any"))


if __name__ == "__main__":
    PAGE.write_text(render_page(), encoding="utf-8")
    print(f"{PAGE} written")
