"""Write the table of Kubernetes' own resources from OpenAPI documents.

    python scripts/make_resource_names.py DOCUMENT...

A document is `api/openapi-spec/swagger.json` of a Kubernetes release, or one of the files below
`api/openapi-spec/v3`. Give those of all releases whose kinds shall be known: the table that is
checked in holds those of 1.23 to 1.35, so that kinds which newer releases dropped are still known.

The table tells, for each apiVersion:

    namespaced, cluster     kind -> resource
    subresources            resource/subresource -> [apiVersion, kind], where the kind is not that
                            of the resource itself
"""

import json
import re
import sys
from pathlib import Path

TARGET = Path(__file__).parent.parent / "src/lictor/lang/resource_names.json"
PATH = re.compile(
    r"/apis?/(?P<version>v[^/]+|[^/]+/v[^/]+)/(?P<namespaced>namespaces/\{namespace\}/)?"
    r"(?P<resource>[a-z]+)(?:/\{name\}(?:/(?P<subresource>[a-z]+))?)?/?"
)
OPERATIONS = ("get", "put", "post", "patch", "delete")
KIND = "x-kubernetes-group-version-kind"


def main(arguments: list[str]) -> None:
    """Read the documents that are named, and write the table."""
    if not arguments:
        raise SystemExit(__doc__)
    table: dict = {}
    for argument in arguments:
        for path, operations in json.loads(Path(argument).read_bytes())["paths"].items():
            add_path(table, path, operations)
    settle(table)
    TARGET.write_text(render(table), encoding="utf-8")
    print(f"{TARGET}: {len(table)} versions")


def add_path(table: dict, path: str, operations: dict) -> None:
    """Take down what one path tells; most paths of watches and proxies tell nothing new."""
    found = PATH.fullmatch(path)
    kind = next((operations[o][KIND] for o in OPERATIONS if KIND in operations.get(o, {})), None)
    if found is None or kind is None:
        return
    entry = table.setdefault(
        found["version"], {"namespaced": {}, "cluster": {}, "subresources": {}}
    )
    if found["subresource"]:
        version = "/".join(part for part in (kind.get("group"), kind["version"]) if part)
        name = f"{found['resource']}/{found['subresource']}"
        entry["subresources"][name] = [version, kind["kind"]]
    else:
        scope = "namespaced" if found["namespaced"] else "cluster"
        entry[scope][kind["kind"]] = found["resource"]


def settle(table: dict) -> None:
    """Drop what is said twice."""
    for version, entry in table.items():
        # What lies in namespaces can also be listed over all of them.
        for kind in entry["namespaced"]:
            entry["cluster"].pop(kind, None)
        kinds = {r: k for s in ("namespaced", "cluster") for k, r in entry[s].items()}
        entry["subresources"] = {
            name: kind
            for name, kind in entry["subresources"].items()
            if kind != [version, kinds.get(name.partition("/")[0])]
        }


def render(table: dict) -> str:
    """One line per apiVersion, so that a new release reads well in a diff."""
    lines = []
    for version, entry in sorted(table.items()):
        kept = {scope: dict(sorted(kinds.items())) for scope, kinds in entry.items() if kinds}
        lines.append(f" {json.dumps(version)}: {json.dumps(kept)}")
    return "{\n" + ",\n".join(lines) + "\n}\n"


if __name__ == "__main__":
    main(sys.argv[1:])
