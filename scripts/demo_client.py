"""The few commands of kubectl that the demo needs, for machines without kubectl."""

import argparse
import asyncio
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import yaml

from lictor.core.errors import ApiError
from lictor.core.report.yaml_text import render_yaml
from lictor.kubernetes.client import Client
from lictor.kubernetes.kubeconfig import load_config
from lictor.kubernetes.resource import Resource

Object = dict[str, Any]
TABLE = "application/json;as=Table;g=meta.k8s.io;v=v1"
KINDS = {
    each.kind.lower(): each
    for each in (
        Resource("", "v1", "pods", "Pod"),
        Resource("", "v1", "namespaces", "Namespace", namespaced=False),
        Resource("networking.k8s.io", "v1", "networkpolicies", "NetworkPolicy"),
        Resource("kyverno.io", "v1", "clusterpolicies", "ClusterPolicy", namespaced=False),
        Resource("wgpolicyk8s.io", "v1alpha2", "policyreports", "PolicyReport"),
    )
}


def parse_arguments() -> argparse.Namespace:
    """The words of kubectl, as far as they are known here."""
    parser = argparse.ArgumentParser(prog="demo_client.py", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    for name in ("create", "apply", "run", "get"):
        command = commands.add_parser(name)
        command.add_argument("words", nargs="*")
        command.add_argument("-n", dest="namespace", default="default")
        command.add_argument("-o", dest="output", default="")
        command.add_argument("-f", dest="files", type=Path)
        command.add_argument("-l", dest="labels", default="")
        command.add_argument("--image", default="")
        command.add_argument("--privileged", action="store_true")
    return parser.parse_args()


async def create(client: Client, arguments: argparse.Namespace) -> str:
    """`create namespace NAME`"""
    kind, name = arguments.words
    resource = KINDS[kind]
    body = {"apiVersion": "v1", "kind": resource.kind, "metadata": {"name": name}}
    await client.create(resource, body)
    return f"{kind}/{name} created"


async def apply(client: Client, arguments: argparse.Namespace) -> str:
    """`apply -f PATH`"""
    return "\n".join([await apply_one(client, body) for body in read_files(arguments.files)])


async def apply_one(client: Client, body: Object) -> str:
    """One object of a file."""
    resource = KINDS[body["kind"].lower()]
    await client.apply(resource, body)
    kind = f"{resource.kind.lower()}.{resource.group}" if resource.group else resource.kind.lower()
    return f"{kind}/{body['metadata']['name']} applied"


def read_files(path: Path) -> Iterator[Object]:
    """All objects in a file, or in the files of a folder."""
    for file in sorted(path.glob("*.yaml")) if path.is_dir() else [path]:
        yield from yaml.safe_load_all(file.read_text(encoding="utf-8"))


async def run(client: Client, arguments: argparse.Namespace) -> str:
    """`run NAME --image=IMAGE`"""
    (name,) = arguments.words
    container: Object = {"name": name, "image": arguments.image}
    if arguments.privileged:
        container["securityContext"] = {"privileged": True}
    labels = dict(pair.split("=", 1) for pair in arguments.labels.split(",") if pair)
    metadata = {"name": name, "namespace": arguments.namespace, "labels": labels}
    spec = {"containers": [container]}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}
    await client.create(KINDS["pod"], pod)
    return f"pod/{name} created"


async def get(client: Client, arguments: argparse.Namespace) -> str:
    """`get KIND [NAME]`"""
    resource = KINDS[arguments.words[0]]
    name = arguments.words[1] if len(arguments.words) > 1 else ""
    namespace = arguments.namespace if resource.namespaced else ""
    path = resource.path(namespace, name)
    if not arguments.output:
        return render_table(await client.request("GET", path, accept=TABLE))
    found = await client.request("GET", path)
    if arguments.output == "yaml":
        return render_yaml(found)
    return render_columns(found, arguments.output.removeprefix("custom-columns="))


def render_table(table: Object) -> str:
    """A Table, as the server fills it."""
    columns = [i for i, each in enumerate(table["columnDefinitions"]) if not each.get("priority")]
    rows = [[table["columnDefinitions"][i]["name"].upper() for i in columns]]
    rows += [[show_cell(row["cells"][i]) for i in columns] for row in table.get("rows") or ()]
    return align(rows)


def show_cell(value: Any) -> str:
    """A cell as kubectl prints it."""
    if value is None:
        return ""
    return str(value).lower() if isinstance(value, bool) else str(value)


def render_columns(found: Object, columns: str) -> str:
    """`custom-columns`, with paths of names and [*]."""
    pairs = [column.split(":", 1) for column in columns.split(",")]
    rows = [[title for title, _ in pairs]]
    for item in found.get("items", [found]):
        rows.append([",".join(map(str, follow(item, path))) or "<none>" for _, path in pairs])
    return align(rows)


def follow(value: Any, path: str) -> list[Any]:
    """All values at a path."""
    values = [value]
    for step, star in re.findall(r"\.(\w+)(\[\*\])?", path):
        values = [each[step] for each in values if step in each]
        if star:
            values = [inner for each in values for inner in each]
    return values


def align(rows: list[list[str]]) -> str:
    """Rows with columns of equal width."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join(
        "   ".join(cell.ljust(w) for cell, w in zip(row, widths, strict=True)).rstrip()
        for row in rows
    )


async def main() -> int:
    """Run the given command."""
    arguments = parse_arguments()
    commands: dict[str, Callable[..., Any]] = {
        "create": create,
        "apply": apply,
        "run": run,
        "get": get,
    }
    client = Client(load_config(), field_manager="demo")
    try:
        print(await commands[arguments.command](client, arguments))
    except ApiError as error:
        print(f"Error from server: {error}")
        return 1
    finally:
        await client.close()
    return 0


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
