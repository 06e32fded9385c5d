"""`version`: the version of lictor, and of the releases that it follows."""

import json

import click

from lictor.cli.flag_command import FlagCommand
from lictor.core.release import BUILT_AT, COMMIT, REFERENCES, VERSION, render_version


@click.command(
    cls=FlagCommand,
    short_help="Print the version.",
    examples="lictor version\n\n# With the releases that it follows\nlictor version -o json",
)
@click.option(
    "-o", "--output", type=click.Choice(["text", "json"]), default="text", help="text or json."
)
def version(output: str) -> None:
    """Print the version."""
    if output == "text":
        click.echo(render_version(), nl=False)
        return
    facts = {"version": VERSION, "time": BUILT_AT, "commit": COMMIT, "references": REFERENCES}
    click.echo(json.dumps(facts, indent=2))
