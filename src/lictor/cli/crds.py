"""`crds`: the CustomResourceDefinitions of all kinds of policies and reports."""

from collections.abc import Iterable

import click

from lictor.cli.flag_command import FlagCommand, format_option, slice_option
from lictor.core.raw import JsonObject

_EXAMPLES = """\
# Install or update all kinds
lictor crds | kubectl apply --server-side -f -

# Only the kinds of CEL policies
lictor crds --group policies.kyverno.io

# As one List in JSON
lictor crds --format json"""


@click.command(cls=FlagCommand, examples=_EXAMPLES)
@slice_option("--group", help="Only the kinds of these API groups.")
@click.option("--openreports", is_flag=True, help="Also the kinds of openreports.io.")
@click.option(
    "--deprecation-warnings",
    is_flag=True,
    default=True,
    help="Let API servers warn about kinds that Kyverno deprecates.",
)
@format_option("yaml", "json")
def crds(
    *, group: tuple[str, ...], openreports: bool, deprecation_warnings: bool, form: str
) -> None:
    """Print the CustomResourceDefinitions of all kinds of policies and reports."""
    from lictor.install.crds import build_crds

    made = build_crds(group, open_reports=openreports, warns=deprecation_warnings)
    click.echo(render_manifests(made, form), nl=False)


def render_manifests(manifests: Iterable[JsonObject], form: str) -> str:
    """Manifests as YAML documents, or as one List in JSON."""
    if form == "yaml":
        from lictor.core.report.yaml_text import render_yaml

        return "".join(f"---\n{render_yaml(manifest)}" for manifest in manifests)
    import json

    whole = {"apiVersion": "v1", "kind": "List", "items": list(manifests)}
    return json.dumps(whole, indent=2, ensure_ascii=False) + "\n"
