"""`create cluster-role`: a ClusterRole that gives controllers more rights."""

from collections.abc import Iterable

import click

from lictor.cli.create.output import write_text
from lictor.cli.flag_command import FlagCommand, split_commas
from lictor.report.json_text import render_json
from lictor.report.yaml_text import render_scalar

_ALL_VERBS = ("create", "get", "update", "delete", "list", "watch")


@click.command(
    "cluster-role",
    cls=FlagCommand,
    arity=(1, 1),
    required_flags=["api-groups", "resources", "verbs"],
    examples="lictor create cluster-role jobs -g batch --resources jobs --verbs get,list",
)
@click.option("-o", "--output", default="", help="Write to this file instead of the terminal.")
@click.option("-g", "--api-groups", default="", help="API group of the resources.")
@click.option(
    "--controllers",
    multiple=True,
    default=("background-controller",),
    show_default=True,
    help="Controllers that get the rights.",
)
@click.option("--resources", multiple=True, help="Resources, with commas between them.")
@click.option("--verbs", multiple=True, help="Verbs, with commas between them, or 'all'.")
def cluster_role(
    *,
    arguments: tuple[str, ...],
    output: str,
    api_groups: str,
    controllers: tuple[str, ...],
    resources: tuple[str, ...],
    verbs: tuple[str, ...],
) -> None:
    """Create a ClusterRole with the given NAME for resources that policies work on."""
    if not all(controllers):
        raise click.UsageError("invalid controller provided: it has no name")
    chosen = _ALL_VERBS if verbs[0] == "all" else _split_all(verbs)
    labels = "".join(
        f'      {render_scalar(f"rbac.kyverno.io/aggregate-to-{name}")}: "true"\n'
        for name in controllers
    )
    name = render_scalar(f"kyverno-{arguments[0]}-permission")
    text = (
        "apiVersion: rbac.authorization.k8s.io/v1\nkind: ClusterRole\n"
        f"metadata:\n  name: {name}\n  labels:\n{labels}"
        f"rules:\n  - apiGroups: {_render_list([api_groups])}\n"
        f"    resources: {_render_list(_split_all(resources))}\n"
        f"    verbs: {_render_list(chosen)}\n"
    )
    write_text(text, output)


def _split_all(given: Iterable[str]) -> list[str]:
    return [part for text in given for part in split_commas(text)]


def _render_list(items: Iterable[str]) -> str:
    return "[" + ", ".join(render_json(item) for item in items) + "]"
