"""Write the table of kinds, their fields and how these are merged, from OpenAPI v3 documents.

    python scripts/make_kind_schemas.py FOLDER

FOLDER holds the documents of one Kubernetes release, one file per group and version, as
`api/openapi-spec/v3` of that release or `/openapi/v3` of an API server gives them. The table that
is checked in comes from v1.35.

    kinds   apiVersion -> kind -> type
    types   type -> {"fields": field -> form, "atomic": true where it is merged as a whole}
            or type -> form, for types that are no objects

A form is one of

    "string" "number" "boolean"     a scalar
    "scalar"                        any scalar: a quantity, a time, an int-or-string
    "deduced" "untyped"             anything: maps are merged; nothing is merged
    "=Type"                         a type of the table
    {"map": form}                   keys of the author's choice; with "atomic" merged as a whole
    {"list": form}                  a list that is replaced
    {"set": form}                   a list of scalars, each once
    {"keyed": form, "by": {key: default or null}}       a list of objects, merged by key
"""

import json
import sys
from pathlib import Path

TARGET = Path(__file__).parent.parent / "src/lictor/lang/kind_schemas.json"
PREFIXES = ("io.k8s.api.", "io.k8s.apimachinery.pkg.apis.", "io.k8s.apimachinery.pkg.", "io.k8s.")
SCALARS = {"integer": "number", "number": "number", "boolean": "boolean"}
SPECIAL = {
    "io.k8s.apimachinery.pkg.api.resource.Quantity": "scalar",
    "io.k8s.apimachinery.pkg.runtime.RawExtension": "untyped",
}
# Objects of these kinds are made for a single answer and never stored; nobody patches a list.
UNWANTED = ("List", "Options", "Status", "WatchEvent", "APIGroup", "APIResourceList", "APIVersions")


def main(arguments: list[str]) -> None:
    """Read the documents, and write the table."""
    if len(arguments) != 1:
        raise SystemExit(__doc__)
    models: dict = {}
    for path in sorted(Path(arguments[0]).rglob("*.json")):
        models.update(json.loads(path.read_bytes()).get("components", {}).get("schemas", {}))
    table = build_table(models)
    TARGET.write_text(render(table), encoding="utf-8")
    print(f"{TARGET}: {len(table['types'])} types")


def build_table(models: dict) -> dict:
    """Bring together the kinds and the types that they reach."""
    kinds: dict = {}
    for name, model in sorted(models.items()):
        for kind in model.get("x-kubernetes-group-version-kind") or ():
            if not kind["kind"].endswith(UNWANTED):
                version = "/".join(part for part in (kind.get("group"), kind["version"]) if part)
                kinds.setdefault(version, {})[kind["kind"]] = shorten(name)
    types = {shorten(name): describe(name, model, models) for name, model in models.items()}
    used = reach(types, {name for entries in kinds.values() for name in entries.values()})
    return {
        "kinds": dict(sorted(kinds.items())),
        "types": {name: types[name] for name in sorted(used)},
    }


def reach(types: dict, wanted: set[str]) -> set[str]:
    """Find all types that the wanted ones lead to."""
    found: set[str] = set()
    todo = list(wanted)
    while todo:
        name = todo.pop()
        if name not in found:
            found.add(name)
            todo.extend(references(types[name]))
    return found


def references(form: object) -> list[str]:
    """List the types that a form names."""
    if isinstance(form, str):
        return [form[1:]] if form.startswith("=") else []
    if isinstance(form, dict):
        return [name for key, value in form.items() if key != "by" for name in references(value)]
    return []


def describe(name: str, model: dict, models: dict) -> object:
    """Tell the form of one definition."""
    return SPECIAL.get(name) or describe_schema(model, models)


def describe_schema(schema: dict, models: dict) -> object:
    """Tell the form of a schema that stands inside another, or of a definition."""
    target = find_reference(schema)
    if target:
        form = f"={shorten(target)}"
        return {"atomic": form} if schema.get("x-kubernetes-map-type") == "atomic" else form
    kind = schema.get("type")
    if kind == "object":
        return describe_object(schema, models)
    if kind == "array":
        return describe_list(schema, models)
    if kind == "string":
        return "string" if schema.get("format", "") in ("", "byte") else "scalar"
    return SCALARS.get(kind, "deduced" if kind is None else "scalar")


def find_reference(schema: dict) -> str:
    """Name the definition that a schema refers to, directly or as the only part of `allOf`."""
    parts = schema.get("allOf") or ()
    target = schema.get("$ref") or (parts[0].get("$ref") if len(parts) == 1 else "")  # type: ignore[misc]
    return (target or "").rpartition("/")[2]


def describe_object(schema: dict, models: dict) -> dict:
    """Tell the form of an object with fields, or of a map."""
    extra = schema.get("additionalProperties")
    form: dict = {}
    if schema.get("properties"):
        form["fields"] = {
            field: describe_schema(inner, models)
            for field, inner in sorted(schema["properties"].items())
        }
    if isinstance(extra, dict):
        form["map"] = describe_schema(extra, models)
    elif "fields" not in form or extra is True:
        form["map"] = "deduced"
    if schema.get("x-kubernetes-map-type") == "atomic":
        form["atomic"] = True
    return form


def describe_list(schema: dict, models: dict) -> dict:
    """Tell the form of a list by the markers for server-side apply, or else for patches."""
    form = describe_schema(schema.get("items") or {}, models)
    kind = schema.get("x-kubernetes-list-type")
    keys = schema.get("x-kubernetes-list-map-keys") or []
    if kind is None and "merge" in schema.get("x-kubernetes-patch-strategy", "").split(","):
        key = schema.get("x-kubernetes-patch-merge-key")
        kind, keys = ("map", [key]) if key else ("set", [])
    if kind == "map":
        properties = models.get(find_reference(schema["items"]), {}).get("properties", {})
        return {"keyed": form, "by": {key: properties[key].get("default") for key in keys}}
    return {"set" if kind == "set" else "list": form}


def shorten(name: str) -> str:
    """Cut off what all names begin with."""
    for prefix in PREFIXES:
        name = name.removeprefix(prefix)
    return name


def render(table: dict) -> str:
    """One line per apiVersion and per type, so that a new release reads well in a diff."""
    parts = []
    for section, entries in table.items():
        lines = [
            f"  {json.dumps(key)}: {json.dumps(entry, separators=(',', ':'))}"
            for key, entry in entries.items()
        ]
        parts.append(f" {json.dumps(section)}: {{\n" + ",\n".join(lines) + "\n }")
    return "{\n" + ",\n".join(parts) + "\n}\n"


if __name__ == "__main__":
    main(sys.argv[1:])
