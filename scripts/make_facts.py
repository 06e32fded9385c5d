"""Write `src/lictor/core/facts/facts.jsonl`: Kubernetes' description of its kinds.

    python scripts/make_facts.py [MODULES]

MODULES is Go's folder of modules (default: ~/go/pkg/mod). If a module is missing there, `go mod
download` fetches it: k8s.io/kubernetes of the release that core/release.py names, with its OpenAPI
v3 and discovery documents, and `api`, `apimachinery`, `apiextensions-apiserver` and
`kube-aggregator`, whose Go types alone tell which fields are left out where they are empty, and the
numbers of fields in protobuf.

Each line is `[section, key, value]`:

    release     what -> release
    names       apiVersion -> {namespaced, cluster: kind -> plural; subresources: name ->
                [apiVersion, kind] where the kind is not that of the resource itself}
    groups      group -> the versions that the API server serves, the preferred one first
    served      apiVersion -> kind -> {short, categories, verbs where not all, subresources}
    kinds       apiVersion -> kind -> type
    types       type -> form, see below
    fields      type -> {required, formats (numbers without one are int32), enums, patches (strategy
                and key of strategic merges), silent (left out where they are "", 0 or false),
                kept (lists and maps that are written even if empty)}
    wire        type -> numbers of its fields in protobuf: `3replicas`; `1*replicas` a pointer,
                whose zero means something; `2=data` bytes; `2~Type` a message whose fields are
                fields of this one
    merge_kinds, merge_types    which lists Kyverno merges, and by which keys

A form is one of

    "string" "number" "boolean"     a scalar
    "scalar"                        any scalar: a quantity, a time, an int-or-string
    "deduced" "untyped"             anything: maps are merged; nothing is merged
    "=Type"                         a type of the table
    {"fields": field -> form}       an object; with "atomic" merged as a whole
    {"map": form}                   keys of the author's choice
    {"list": form}                  a list that is replaced
    {"set": form}                   a list of scalars, each once
    {"keyed": form, "by": {key: default or null}}       a list of objects, merged by key

Two exceptions to the one release are carried over from the file as it is: names of kinds that only
other releases have (1.23 to 1.36), so that older manifests and newer clusters are understood; and
merge keys, which must stay those of v1.21.2, the release by which Kyverno merges.
"""

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from lictor.core.release import REFERENCES

RELEASE = REFERENCES["kubernetes"]
# Modules with Go types, released together with Kubernetes.
TYPES_RELEASE = RELEASE.replace("v1", "v0", 1)
TYPES = ("api", "apimachinery")
EXTENSIONS = ("apiextensions-apiserver", "kube-aggregator")
# Files with Go types. FieldsV1 has one file for each way of storing it.
TYPE_FILES = ("types*.go", "fieldsv1_byte.go", "group_version.go")
TARGET = Path(__file__).parent.parent / "src" / "lictor" / "core" / "facts" / "facts.jsonl"
# Groups and versions that the embedded API server serves beside the stable ones.
PREVIEWS = {
    "admissionregistration.k8s.io/v1alpha1": ("MutatingAdmissionPolicy",),
    "admissionregistration.k8s.io/v1beta1": ("MutatingAdmissionPolicy",),
}
# Old, and answered without any objects behind it.
UNSERVED = {"ComponentStatus"}
# Objects of these kinds exist for one response and are never stored; lists are not patched.
UNWANTED = ("List", "Options", "Status", "WatchEvent", "APIGroup", "APIResourceList", "APIVersions")
PREFIXES = ("io.k8s.api.", "io.k8s.apimachinery.pkg.apis.", "io.k8s.apimachinery.pkg.", "io.k8s.")
ALL_VERBS = ["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"]
KIND = "x-kubernetes-group-version-kind"

Json = Any
Section = dict[str, Json]


def main(arguments: list[str]) -> None:
    """Read the modules, and write the file."""
    modules = Path(arguments[0] if arguments else "~/go/pkg/mod").expanduser() / "k8s.io"
    source = modules / f"kubernetes@{RELEASE}/api"
    download_modules(modules)
    before = read_facts()
    documents = [
        json.loads(path.read_bytes()) for path in sorted(source.glob("openapi-spec/v3/*.json"))
    ]
    models = {
        name: model
        for document in documents
        for name, model in document.get("components", {}).get("schemas", {}).items()
    }
    kinds, types = describe_types(models)
    groups, served = describe_served(source / "discovery")
    structs = read_structs(modules)
    facts = {
        "release": {"kubernetes": RELEASE, "merge keys": "v1.21.2"},
        "names": carry_names(before.get("names", {}), describe_names(documents)),
        "groups": groups,
        "served": served,
        "kinds": kinds,
        "types": types,
        "fields": describe_fields(models, types, structs, read_enums(modules)),
        "wire": describe_wire(structs, types),
        "merge_kinds": before["merge_kinds"],
        "merge_types": before["merge_types"],
    }
    lines = [
        json.dumps([section, key, value], separators=(",", ":"))
        for section, entries in facts.items()
        for key, value in entries.items()
    ]
    TARGET.write_text("\n".join(lines) + "\n", encoding="utf-8")
    print(f"{TARGET}: {len(types)} types, {sum(map(len, served.values()))} served kinds")


def download_modules(modules: Path) -> None:
    """Fetch the modules of the release that are missing."""
    names = {"kubernetes": RELEASE, **dict.fromkeys((*TYPES, *EXTENSIONS), TYPES_RELEASE)}
    missing = [f"{name}@{release}" for name, release in names.items()]
    missing = [name for name in missing if not (modules / name).is_dir()]
    if missing:
        command = ["go", "mod", "download", *(f"k8s.io/{name}" for name in missing)]
        subprocess.run(command, cwd=TARGET.parent, check=True)


def read_facts() -> dict[str, Section]:
    """The file as it is."""
    facts: dict[str, Section] = {}
    for line in TARGET.read_text(encoding="utf-8").splitlines():
        section, key, value = json.loads(line)
        facts.setdefault(section, {})[key] = value
    return facts


def shorten(name: str) -> str:
    """Cut off what all names begin with."""
    for prefix in PREFIXES:
        name = name.removeprefix(prefix)
    return name


def name_version(kind: Json) -> str:
    """Group and version as an apiVersion."""
    return "/".join(part for part in (kind.get("group"), kind["version"]) if part)


# --- names

PATH = re.compile(
    r"/apis?/(?P<version>v[^/]+|[^/]+/v[^/]+)/(?P<namespaced>namespaces/\{namespace\}/)?"
    r"(?P<resource>[a-z]+)(?:/\{name\}(?:/(?P<subresource>[a-z]+))?)?/?"
)


def describe_names(documents: list[Json]) -> Section:
    """Plurals, scopes and subresources, by the paths of the documents."""
    table: Section = {}
    for document in documents:
        for path, operations in document.get("paths", {}).items():
            add_path(table, path, operations)
    for version, entry in table.items():
        # Namespaced objects can also be listed over all namespaces.
        for kind in entry["namespaced"]:
            entry["cluster"].pop(kind, None)
        kinds = {r: k for s in ("namespaced", "cluster") for k, r in entry[s].items()}
        entry["subresources"] = {
            name: kind
            for name, kind in entry["subresources"].items()
            if kind != [version, kinds.get(name.partition("/")[0])]
        }
    return table


def add_path(table: Section, path: str, operations: Json) -> None:
    """Record the facts of one path; most paths of watches and proxies add nothing."""
    found = PATH.fullmatch(path)
    methods = ("get", "put", "post", "patch", "delete")
    kind = next((operations[m][KIND] for m in methods if KIND in operations.get(m, {})), None)
    if found is None or kind is None:
        return
    empty: Section = {"namespaced": {}, "cluster": {}, "subresources": {}}
    entry = table.setdefault(found["version"], empty)
    if found["subresource"]:
        name = f"{found['resource']}/{found['subresource']}"
        entry["subresources"][name] = [name_version(kind), kind["kind"]]
    else:
        scope = "namespaced" if found["namespaced"] else "cluster"
        entry[scope][kind["kind"]] = found["resource"]


def carry_names(before: Section, names: Section) -> Section:
    """The names of this release, and those that only other releases have."""
    table: Section = {}
    for version in sorted({*before, *names}):
        old, new = before.get(version, {}), names.get(version, {})
        merged = {
            part: dict(sorted({**old.get(part, {}), **new.get(part, {})}.items()))
            for part in ("namespaced", "cluster", "subresources")
        }
        table[version] = {part: entries for part, entries in merged.items() if entries}
    return table


# --- what is served


def describe_served(folder: Path) -> tuple[Section, Section]:
    """Groups and kinds of discovery; stable versions, and PREVIEWS."""
    listed = json.loads((folder / "apis.json").read_bytes())["groups"]
    versions = ["v1", *(each["groupVersion"] for group in listed for each in group["versions"])]
    groups: Section = {}
    served: Section = {}
    for version in versions:
        group, _, name = version.rpartition("/")
        if re.fullmatch(r"v\d+", name) or version in PREVIEWS:
            groups.setdefault(group, []).append(name)
            path = f"apis__{version.replace('/', '__')}.json" if group else f"api__{version}.json"
            served[version] = describe_kinds(json.loads((folder / path).read_bytes()), version)
    return groups, served


def describe_kinds(document: Json, version: str) -> Section:
    """The kinds of one apiVersion, each with its subresources."""
    kinds: Section = {}
    owners: dict[str, tuple[str, Section]] = {}
    for entry in document["resources"]:
        resource, _, subresource = entry["name"].partition("/")
        name = entry["kind"]
        if subresource and resource in owners:
            add_subresource(*owners[resource], subresource, entry, version)
        elif not subresource and name not in UNSERVED:
            if version in PREVIEWS and not name.startswith(PREVIEWS[version]):
                continue
            facts = {
                "short": entry.get("shortNames"),
                "categories": entry.get("categories"),
                "verbs": entry["verbs"] if entry["verbs"] != ALL_VERBS else None,
            }
            kinds[name] = {key: value for key, value in facts.items() if value}
            owners[resource] = name, kinds[name]
    return kinds


def add_subresource(kind: str, facts: Section, name: str, entry: Json, version: str) -> None:
    """Verbs, and apiVersion and kind of what is sent there, if it is not the owner's."""
    described: Section = {"verbs": entry["verbs"]}
    group = [part for part in (entry.get("group"), entry.get("version")) if part]
    if entry["kind"] != kind:
        described["kind"] = ["/".join(group) or version, entry["kind"]]
    facts.setdefault("subresources", {})[name] = described


# --- types and their forms

SCALARS = {"integer": "number", "number": "number", "boolean": "boolean"}
SPECIAL = {
    "io.k8s.apimachinery.pkg.api.resource.Quantity": "scalar",
    "io.k8s.apimachinery.pkg.runtime.RawExtension": "untyped",
}


def describe_types(models: Section) -> tuple[Section, Section]:
    """The kinds, and the types that they reach."""
    kinds: Section = {}
    for name, model in sorted(models.items()):
        for kind in model.get(KIND) or ():
            if not kind["kind"].endswith(UNWANTED):
                kinds.setdefault(name_version(kind), {})[kind["kind"]] = shorten(name)
    types = {
        shorten(name): SPECIAL.get(name) or describe_schema(model, models)
        for name, model in models.items()
    }
    todo = [name for entries in kinds.values() for name in entries.values()]
    used: set[str] = set()
    while todo:
        name = todo.pop()
        if name not in used:
            used.add(name)
            todo.extend(list_references(types[name]))
    return dict(sorted(kinds.items())), {name: types[name] for name in sorted(used)}


def list_references(form: Json) -> Iterator[str]:
    """The types that a form names."""
    if isinstance(form, str) and form.startswith("="):
        yield form[1:]
    elif isinstance(form, dict):
        for key, value in form.items():
            if key != "by":
                yield from list_references(value)


def describe_schema(schema: Json, models: Section) -> Json:
    """The form of a schema that stands inside another, or of a definition."""
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


def find_reference(schema: Json) -> str:
    """The definition that a schema refers to, directly or as the only part of `allOf`."""
    parts: list[Json] = schema.get("allOf") or []
    target = schema.get("$ref") or (parts[0].get("$ref") if len(parts) == 1 else "")
    return str(target or "").rpartition("/")[2]


def describe_object(schema: Json, models: Section) -> Section:
    """The form of an object with fields, or of a map."""
    extra = schema.get("additionalProperties")
    form: Section = {}
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


def describe_list(schema: Json, models: Section) -> Section:
    """The form of a list by the markers for server-side apply, or else for patches."""
    form = describe_schema(schema.get("items") or {}, models)
    kind = schema.get("x-kubernetes-list-type")
    keys = schema.get("x-kubernetes-list-map-keys") or []
    if kind is None and "merge" in schema.get("x-kubernetes-patch-strategy", "").split(","):
        key = schema.get("x-kubernetes-patch-merge-key")
        kind, keys = ("map", [key]) if key else ("set", [])
    if kind == "map":
        properties = models.get(find_reference(schema["items"]), {}).get("properties", {})
        return {"keyed": form, "by": {key: properties.get(key, {}).get("default") for key in keys}}
    return {"set" if kind == "set" else "list": form}


# --- what else is known of fields


def describe_fields(models: Section, types: Section, structs: "Structs", enums: Section) -> Section:
    """Facts of all types that are wanted."""
    # Lists have only items; options are never stored.
    unwanted = ("List", "Options", "ComponentStatus", "ComponentCondition")
    described = {
        shorten(name): describe_model(model)
        for name, model in sorted(models.items())
        if not name.endswith(unwanted)
    }
    for name, values in enums.items():
        described.setdefault(name, {})["enums"] = values
    # These identify elements of lists: they are significant even if empty.
    elements = {element for form in types.values() for element in list_elements(form)}
    for name, form in types.items():
        keys = {"name", *(key for element, key in elements if element == f"={name}")}
        scalars = form.get("fields", {}) if isinstance(form, dict) else {}
        silent = [
            field
            for field in list_silent(structs, name)
            if field not in keys and scalars.get(field) in ("string", "number", "boolean")
        ]
        kept = [field for field in list_kept(structs, name) if field in scalars]
        for key, fields in (("silent", silent), ("kept", kept)):
            if fields:
                described.setdefault(name, {})[key] = fields
    return {n: facts for n, facts in sorted(described.items()) if facts and n in types}


def describe_model(model: Json) -> Section:
    """The facts of one definition."""
    properties = model.get("properties", {})
    inner = {
        field: schema.get("items") or schema.get("additionalProperties") or schema
        for field, schema in properties.items()
    }
    formats = {field: schema.get("format") for field, schema in inner.items()}
    facts = {
        "required": model.get("required"),
        "formats": {f: v for f, v in formats.items() if v and v != "int32"},
        "patches": {f: v for f, schema in properties.items() if (v := find_patch(schema))},
    }
    return {key: value for key, value in facts.items() if value}


def find_patch(schema: Json) -> list[str]:
    """How a strategic merge patch treats the field."""
    strategy = schema.get("x-kubernetes-patch-strategy")
    key = schema.get("x-kubernetes-patch-merge-key")
    return [each for each in (strategy, key) if each] if strategy else []


def list_elements(form: Json) -> Iterator[tuple[str, str]]:
    """Types of the elements of lists that are merged by keys, with each key."""
    if isinstance(form, dict):
        if isinstance(form.get("keyed"), str):
            yield from ((form["keyed"], key) for key in form["by"])
        for value in form.values():
            yield from list_elements(value)


# --- Go's types

STRUCT = re.compile(r"^type (\w+) struct \{\n(.*?)^\}", re.MULTILINE | re.DOTALL)
ALIAS = re.compile(r"^(?:type (?=\w+ v)|\s*(?:type )?(?=\w+ = ))(\w+) (?:= )?(v\w+)\.(\w+)$", re.M)
FIELD = re.compile(
    r"^\t(?:(?:\w+)[ \t]+)?(?P<type>[\w.*\[\]]+)[ \t]+"
    r"`json:\"(?P<name>[\w$-]*)(?P<options>,[^\"]*)?\""
    r"(?:[^`]*?protobuf:\"\w+,(?P<number>\d+),)?",
    re.MULTILINE,
)
# Type -> JSON name, Go type, options and protobuf number of its fields.
Structs = dict[str, list[tuple[str, str, str, str]]]


def list_sources(modules: Path) -> Iterator[tuple[str, str]]:
    """Packages as the names of types have them, and the texts of their files."""
    roots = {f"api@{TYPES_RELEASE}": "", f"apimachinery@{TYPES_RELEASE}/pkg/apis": ""}
    roots.update({f"{name}@{TYPES_RELEASE}": f"{name}." for name in EXTENSIONS})
    for folder, prefix in roots.items():
        files = (path for name in TYPE_FILES for path in (modules / folder).rglob(name))
        for path in sorted(files):
            package = ".".join(path.relative_to(modules / folder).parts[:-1])
            yield prefix + package, path.read_text(encoding="utf-8")


def read_structs(modules: Path) -> Structs:
    """The fields of all structs; one that has two names stands under both."""
    structs: Structs = {}
    aliases: dict[str, str] = {}
    for package, text in list_sources(modules):
        code = re.sub(r"^\s*//.*\n", "", text, flags=re.MULTILINE)
        for name, body in STRUCT.findall(code):
            structs[f"{package}.{name}"] = [
                (each["name"], each["type"], each["options"] or "", each["number"] or "")
                for each in FIELD.finditer(body)
            ]
        for name, version, target in ALIAS.findall(code):
            aliases[f"{package}.{name}"] = f"{package.partition('.')[0]}.{version}.{target}"
    named = {name: structs[target] for name, target in aliases.items() if target in structs}
    return {**structs, **named}


ENUM = re.compile(r"^// \+enum\n(?:^//.*\n)*^type (\w+) string", re.MULTILINE)
CONSTANT = re.compile(r'^\s*(?:const )?(\w+)\s+(\w+)\s+= "([^"]*)"', re.MULTILINE)
CONVERSION = re.compile(r'^\s*\w+\s+= (\w+)\((?:\w+\.)?("?)(\w+)"?\)', re.MULTILINE)


def read_enums(modules: Path) -> Section:
    """Type -> field -> values, where Go's type of the field is an enumeration."""
    sources = list(list_sources(modules))
    names = {f"{package}.{name}" for package, text in sources for name in ENUM.findall(text)}
    values: dict[str, set[str]] = {}
    constants = {name: value for _, text in sources for name, _, value in CONSTANT.findall(text)}
    for package, text in sources:
        found = [(kind, value) for _, kind, value in CONSTANT.findall(text)]
        for kind, quote, word in CONVERSION.findall(text):
            found.append((kind, word if quote else constants.get(word, "")))
        for kind, value in found:
            if value:
                values.setdefault(f"{package}.{kind}", set()).add(value)
    structs = read_structs(modules)
    enums: Section = {}
    for name in structs:
        for field, kind in list_fields(structs, name):
            enum = find_enum(kind, names)
            if enum and values.get(enum):
                enums.setdefault(name, {})[field] = sorted(values[enum])
    return {name: dict(sorted(fields.items())) for name, fields in enums.items()}


def list_fields(structs: Structs, name: str) -> Iterator[tuple[str, str]]:
    """Fields and their Go types with packages, also of embedded types."""
    package = name.rpartition(".")[0]
    for field, kind, _, _ in structs.get(name, ()):
        base = re.sub(r"map\[\w+\]|[*\[\]]", "", kind)
        if not field:
            yield from list_fields(structs, base if "." in base else f"{package}.{base}")
        else:
            yield field, base if "." in base else f"{package}.{base}"


def find_enum(kind: str, names: set[str]) -> str | None:
    """The enumeration that Go's type is; what is imported goes by the name of an import."""
    if kind in names:
        return kind
    package, _, short = kind.rpartition(".")
    found = sorted(name for name in names if name.endswith(f".{short}"))
    if not found or "." in package:
        return None
    return next((name for name in found if name.startswith("core.")), found[0])


def list_silent(structs: Structs, name: str) -> list[str]:
    """Fields that are no pointers, and left out where they are empty; also of embedded types."""
    found = list_options(structs, name)
    return sorted(
        {
            field
            for field, kind, options in found
            if "omitempty" in options and not kind.startswith(("*", "[", "map"))
        }
    )


def list_kept(structs: Structs, name: str) -> list[str]:
    """Lists and maps that are written even if they are empty; also of embedded types."""
    found = list_options(structs, name)
    return sorted(
        {
            field
            for field, kind, options in found
            if not re.search("omitempty|omitzero", options)
            and kind.startswith(("[", "map"))
            and kind != "[]byte"
        }
    )


def list_options(structs: Structs, name: str) -> Iterator[tuple[str, str, str]]:
    """Fields with their Go types and JSON options, also of embedded types."""
    package = name.rpartition(".")[0]
    for field, kind, options, _ in structs.get(name, ()):
        # Newer types write `json:""` for embedded structs, older ones `json:",inline"`.
        if not field:
            yield from list_options(structs, f"{package}.{kind.split('.')[-1]}")
        else:
            yield field, kind, options


def describe_wire(structs: Structs, types: Section) -> Section:
    """Numbers of all types that are wanted, and of those that are embedded in them."""
    found: Section = {}
    todo = [name for name in types if name in structs]
    while todo:
        name = todo.pop()
        words = []
        for field, kind, _, number in structs[name]:
            if not number:
                continue
            inline = not field
            whole = kind if "." in kind else f"{name.rpartition('.')[0]}.{kind}"
            if inline and whole in structs and whole not in found:
                todo.append(whole)
            mark = "~" if inline else "=" if "[]byte" in kind else "*" if kind[0] == "*" else ""
            words.append((int(number), f"{number}{mark}{whole if inline else field}"))
        if words:
            found[name] = " ".join(word for _, word in sorted(words))
    return dict(sorted(found.items()))


if __name__ == "__main__":
    main(sys.argv[1:])
