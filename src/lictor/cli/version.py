"""`version`: which lictor is this?"""

import click

from lictor.cli.flag_command import FlagCommand
from lictor.core.release import render_version


@click.command(cls=FlagCommand, short_help="Print the version.", examples="lictor version")
def version() -> None:
    """Print the version."""
    click.echo(render_version(), nl=False)
