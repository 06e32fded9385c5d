"""Write what the embedded API server must know of built-in kinds, from a real API server.

    KUBECONFIG=... python scripts/make_builtin_kinds.py MODULES

Discovery and the OpenAPI v3 documents are asked for through kubectl; MODULES is the folder of Go's
modules, with `k8s.io/api` and `k8s.io/apimachinery` of the same release: only Go's types tell which
fields are not written where they are empty. The table that is checked in comes from v1.34.3, with
both versions of MutatingAdmissionPolicy switched on, and no custom kinds. It holds only what
`lang/resource_names.json` (plurals, scopes) and `lang/kind_schemas.json` (fields, and how they are
merged) do not tell; descriptions are left out.

    groups  group -> versions, the preferred one first; both in the order of discovery
    kinds   apiVersion -> kind -> short (names), categories, verbs (where not all of them),
            subresources (name -> verbs, and where it has a kind of its own: that kind)
    types   type -> required (fields), formats (field -> format; numbers without one are int32),
            enums (field -> values), patches (field -> strategy, and key, of strategic merges),
            silent (fields that are not there where they are "", 0 or false)
"""

import json
import re
import subprocess
import sys
from pathlib import Path

TARGET = Path(__file__).parent.parent / "src/lictor/apiserver/kinds/builtin_kinds.json"
FIELDS = TARGET.parent.parent / "lang/kind_schemas.json"
SCALARS = ("string", "number", "boolean")
PREFIXES = ("io.k8s.api.", "io.k8s.apimachinery.pkg.apis.", "io.k8s.apimachinery.pkg.", "io.k8s.")
ALL_VERBS = ["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"]
# Old, and answered without any objects behind it.
UNWANTED = {"ComponentStatus"}
RELEASE = "v0.34.3"
STRUCT = re.compile(r"^type (\w+) struct \{\n(.*?)^\}", re.MULTILINE | re.DOTALL)
FIELD = re.compile(r'^\s*(\w+)?\s*([*\[\]\w.]+)\s+`json:"([\w$-]*),?([\w,]*)"', re.MULTILINE)


def main(arguments: list[str]) -> None:
    """Ask, and write the table."""
    if len(arguments) != 1:
        raise SystemExit(__doc__)
    versions = list_versions()
    groups: dict = {}
    for version in versions:
        group, _, name = version.rpartition("/")
        groups.setdefault(group, []).append(name)
    kinds = {version: list_kinds(version) for version in versions}
    types = list_types(versions)
    silent = list_silent(Path(arguments[0]) / "k8s.io")
    forms = json.loads(FIELDS.read_bytes())["types"]
    # Elements of lists are told apart by these: they say something even where they are empty.
    keys = set(find_keys(forms)) | {"name"}
    for name, form in forms.items():
        scalars = form.get("fields", {}) if isinstance(form, dict) else {}
        written = [each for each in silent.get(name, ()) if each not in keys]
        fields = [each for each in written if scalars.get(each) in SCALARS]
        if fields:
            types.setdefault(name, {})["silent"] = fields
    table = {"groups": groups, "kinds": kinds, "types": dict(sorted(types.items()))}
    TARGET.write_text(render(table), encoding="utf-8")
    print(f"{TARGET}: {sum(map(len, kinds.values()))} kinds, {len(table['types'])} types")


def ask(path: str) -> dict:
    """One answer of the API server."""
    command = ["kubectl", "get", "--raw", path]
    return json.loads(subprocess.run(command, check=True, capture_output=True).stdout)


def list_versions() -> list[str]:
    """All apiVersions, in the order of discovery."""
    groups = ask("/apis")["groups"]
    return ["v1", *(version["groupVersion"] for group in groups for version in group["versions"])]


def list_kinds(version: str) -> dict:
    """The kinds of one apiVersion."""
    kinds: dict = {}
    owners: dict = {}
    for entry in ask(f"/apis/{version}" if "/" in version else f"/api/{version}")["resources"]:
        resource, _, subresource = entry["name"].partition("/")
        if subresource:
            if resource in owners:
                add_subresource(owners[resource], subresource, entry, version)
        elif entry["kind"] not in UNWANTED:
            owners[resource] = kinds[entry["kind"]] = describe_kind(entry)
            owners[resource]["kind"] = entry["kind"]
    for kind in kinds.values():
        del kind["kind"]
    return kinds


def describe_kind(entry: dict) -> dict:
    """What is special about one kind."""
    verbs = entry["verbs"]
    facts = {
        "short": entry.get("shortNames"),
        "categories": entry.get("categories"),
        "verbs": verbs if verbs != ALL_VERBS else None,
    }
    return {key: value for key, value in facts.items() if value}


def add_subresource(owner: dict, name: str, entry: dict, version: str) -> None:
    """Verbs, and the apiVersion and kind of what is sent there, if it is not the owner's."""
    facts = {"verbs": entry["verbs"]}
    group = [part for part in (entry.get("group"), entry.get("version")) if part]
    if entry["kind"] != owner["kind"]:
        facts["kind"] = ["/".join(group) or version, entry["kind"]]
    owner.setdefault("subresources", {})[name] = facts


def list_types(versions: list[str]) -> dict:
    """What the documents tell of fields and the other tables do not."""
    models: dict = {}
    for version in versions:
        path = f"apis/{version}" if "/" in version else f"api/{version}"
        models.update(ask(f"/openapi/v3/{path}")["components"]["schemas"])
    described = {shorten(name): describe_type(model) for name, model in sorted(models.items())}
    return {name: facts for name, facts in described.items() if facts and is_wanted(name)}


def is_wanted(name: str) -> bool:
    """Lists say no more than that they have items; options are never stored."""
    return not name.endswith(("List", "Options", "ComponentStatus", "ComponentCondition"))


def describe_type(model: dict) -> dict:
    """The facts of one definition."""
    properties = model.get("properties", {})
    facts: dict = {
        "required": model.get("required"),
        "formats": {f: v for f, p in properties.items() if (v := find_format(p))},
        "enums": {f: v for f, p in properties.items() if (v := find_enum(p))},  # type: ignore[assignment]
        "patches": {f: v for f, p in properties.items() if (v := find_patch(p))},  # type: ignore[assignment]
    }
    return {key: value for key, value in facts.items() if value}


def find_inner(schema: dict) -> dict:
    """What a map or list holds, or the field itself."""
    return schema.get("items") or schema.get("additionalProperties") or schema


def find_format(schema: dict) -> str | None:
    """The format of a field, where it is not the usual one."""
    found = find_inner(schema).get("format")
    return None if found == "int32" else found


def find_enum(schema: dict) -> list | None:
    """The values that a field may have."""
    return find_inner(schema).get("enum")


def find_patch(schema: dict) -> list | None:
    """How a strategic merge patch treats the field."""
    strategy = schema.get("x-kubernetes-patch-strategy")
    key = schema.get("x-kubernetes-patch-merge-key")
    return [each for each in (strategy, key) if each] if strategy else None


def find_keys(form: object) -> list[str]:
    """The keys of all lists that are merged by keys."""
    if not isinstance(form, dict):
        return []
    inner = [key for value in form.values() for key in find_keys(value)]
    return [*form["by"], *inner] if "keyed" in form else inner


def list_silent(modules: Path) -> dict:
    """Fields of Go's types that are no pointers, and left out where they are empty."""
    structs: dict = {}
    folders = {f"api@{RELEASE}": "", f"apimachinery@{RELEASE}/pkg/apis": ""}
    for folder, prefix in folders.items():
        for path in sorted((modules / folder).rglob("types*.go")):
            package = ".".join(path.relative_to(modules / folder).parts[:-1])
            for name, body in STRUCT.findall(path.read_text(encoding="utf-8")):
                structs[f"{prefix}{package}.{name}"] = FIELD.findall(body)
    return {name: sorted(set(find_silent(name, structs))) for name in structs}


def find_silent(name: str, structs: dict) -> list[str]:
    """Those of one type, and of the types that stand in it without a name."""
    found = []
    package = name.rpartition(".")[0]
    for _, kind, field, options in structs.get(name, ()):
        if "inline" in options:
            inner = kind.split(".")[-1]
            found += find_silent(f"{package}.{inner}", structs)
        elif field and "omitempty" in options and not kind.startswith(("*", "[", "map")):
            found.append(field)
    return found


def shorten(name: str) -> str:
    """Cut off what all names begin with."""
    for prefix in PREFIXES:
        name = name.removeprefix(prefix)
    return name


def render(table: dict) -> str:
    """One line per entry, so that a new release reads well in a diff."""
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
