"""`jp function`: what functions are there, and how are they called?"""

from collections.abc import Iterable

import click

from lictor.cli.flag_command import FlagCommand, WordText

_EXAMPLES = """\
# List functions
lictor jp function

# Describe one
lictor jp function truncate"""


def _list_functions() -> Iterable[str]:
    from lictor.lang.jmespath import FUNCTIONS

    return sorted(FUNCTIONS)


@click.command(
    cls=FlagCommand, arity=(0, None), argument_type=WordText(_list_functions), examples=_EXAMPLES
)
def function(*, arguments: tuple[str, ...]) -> None:
    """Describe functions: all of them, or the named ones."""
    from lictor.lang.jmespath import FUNCTIONS

    for entry in sorted(FUNCTIONS.values(), key=lambda entry: entry.signature):
        if not arguments or entry.name in arguments:
            click.echo(f"Name: {entry.name}\n  Signature: {entry.signature}")
            if entry.note:
                click.echo(f"  Note:      {entry.note}")
            click.echo()
