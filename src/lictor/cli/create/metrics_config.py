"""`create metrics-config`: a metrics configuration to start from."""

import textwrap

import click
import msgspec

from lictor.cli.create.output import write_text
from lictor.cli.flag_command import FlagCommand, slice_option
from lictor.report.yaml_text import render_scalar


@click.command(
    "metrics-config",
    cls=FlagCommand,
    examples="lictor create metrics-config -i ns-included-1 -i ns-included-2 -e ns-excluded",
)
@click.option("-o", "--output", default="", help="Write to this file instead of the terminal.")
@click.option("-n", "--name", default="kyverno-metrics", help="Name.", show_default=True)
@click.option("--namespace", default="kyverno", help="Namespace.", show_default=True)
@slice_option("-i", "--include", "included", help="Namespaces to include.")
@slice_option("-e", "--exclude", "excluded", help="Namespaces to exclude.")
def metrics_config(
    *, output: str, name: str, namespace: str, included: tuple[str, ...], excluded: tuple[str, ...]
) -> None:
    """Create a metrics configuration."""
    namespaces = {"include": included, "exclude": excluded}
    given = msgspec.json.encode({key: names for key, names in namespaces.items() if names})
    shown = msgspec.json.format(given, indent=2).decode()
    text = (
        f"apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: {render_scalar(name)}\n"
        f"  namespace: {render_scalar(namespace)}\ndata:\n  namespaces: |\n"
        f"{textwrap.indent(shown, '    ')}\n"
    )
    write_text(text, output)
