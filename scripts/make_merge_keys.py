"""Write the table of merge keys from a Kubernetes OpenAPI document.

    python scripts/make_merge_keys.py swagger.json

`swagger.json` is `api/openapi-spec/swagger.json` of a Kubernetes release. The table that is checked
in comes from v1.21.2, the release by which Kyverno merges: lists of kinds and fields that are newer
are replaced, there as here.

The table tells, for each kind, the way to those lists that a patch merges, and their keys:

    kinds   apiVersion -> kind -> type
    types   type -> field -> type of the object there,
                          or [type of the elements or null, key, ...] for a list that is merged
"""

import json
import sys
from pathlib import Path

TARGET = Path(__file__).parent.parent / "src/lictor/lang/patch/merge_keys.json"
PREFIXES = ("io.k8s.api.", "io.k8s.apimachinery.pkg.apis.", "io.k8s.")
# Kinds of which nothing but the metadata is merged are many; they share one type.
METADATA_ONLY = "Object"


def main(arguments: list[str]) -> None:
    """Read the document that is named, and write the table."""
    if len(arguments) != 1:
        raise SystemExit(__doc__)
    definitions = json.loads(Path(arguments[0]).read_bytes())["definitions"]
    types = prune({name: describe(schema) for name, schema in definitions.items()})
    table = build_table(types, definitions)
    TARGET.write_text(render(table), encoding="utf-8")
    print(f"{TARGET}: {len(table['types'])} types")


def describe(schema: dict) -> dict:
    """Tell what each field of one definition leads to; fields that lead nowhere are left out."""
    fields: dict = {}
    for name, field in (schema.get("properties") or {}).items():
        if merges(field):
            keys = field.get("x-kubernetes-list-map-keys") or [
                key for key in [field.get("x-kubernetes-patch-merge-key")] if key
            ]
            fields[name] = [reference(field.get("items") or {}), *keys]
        elif reference(field):
            fields[name] = reference(field)
    return fields


def merges(field: dict) -> bool:
    """Tell whether a field is a list whose elements are merged."""
    strategies = field.get("x-kubernetes-patch-strategy", "").split(",")
    return field.get("type") == "array" and "merge" in strategies


def reference(field: dict) -> str | None:
    """Name the definition that a field refers to."""
    target = field.get("$ref")
    return target.removeprefix("#/definitions/") if target else None


def prune(types: dict) -> dict:
    """Keep the types from which a merged list can be reached, and the fields that lead there."""
    useful = {name for name, fields in types.items() if any(map(is_list, fields.values()))}
    while True:
        found = {name for name, fields in types.items() if leads_to(useful, fields)} | useful
        if found == useful:
            break
        useful = found
    return {name: keep(useful, fields) for name, fields in types.items() if name in useful}


def is_list(field: str | list) -> bool:
    """Tell a merged list from an object."""
    return isinstance(field, list)


def leads_to(useful: set[str], fields: dict) -> bool:
    """Tell whether a field is an object of a type that is kept."""
    return any(not is_list(field) and field in useful for field in fields.values())


def keep(useful: set[str], fields: dict) -> dict:
    """Leave out fields that lead nowhere."""
    kept = {}
    for key, field in fields.items():
        if is_list(field):
            kept[key] = [field[0] if field[0] in useful else None, *field[1:]]
        elif field in useful:
            kept[key] = field
    return kept


def build_table(types: dict, definitions: dict) -> dict:
    """Bring kinds and types together under short names."""
    metadata_only = {name for name, fields in types.items() if set(fields) == {"metadata"}}
    names = {name: METADATA_ONLY if name in metadata_only else shorten(name) for name in types}
    renamed = {
        names[name]: {key: rename(field, names) for key, field in sorted(fields.items())}
        for name, fields in sorted(types.items())
    }
    kinds: dict = {}
    for name in sorted(types):
        for kind in definitions[name].get("x-kubernetes-group-version-kind") or ():
            version = "/".join(part for part in (kind.get("group"), kind["version"]) if part)
            kinds.setdefault(version, {})[kind["kind"]] = names[name]
    return {"kinds": dict(sorted(kinds.items())), "types": dict(sorted(renamed.items()))}


def rename(field: str | list, names: dict) -> str | list:
    """Use the short names in what a field leads to."""
    if isinstance(field, list):
        return [names.get(field[0]), *field[1:]]
    return names[field]


def shorten(name: str) -> str:
    """Cut off what all names begin with."""
    for prefix in PREFIXES:
        name = name.removeprefix(prefix)
    return name


def render(table: dict) -> str:
    """One line per apiVersion and per type, so that a new release reads well in a diff."""
    parts = []
    for section, entries in table.items():
        lines = [f"  {json.dumps(key)}: {json.dumps(entry)}" for key, entry in entries.items()]
        parts.append(f" {json.dumps(section)}: {{\n" + ",\n".join(lines) + "\n }")
    return "{\n" + ",\n".join(parts) + "\n}\n"


if __name__ == "__main__":
    main(sys.argv[1:])
