"""Notes for people who asked for more words with `-v`."""

from collections.abc import Iterable

import click


def is_verbose() -> bool:
    """Whether the user asked to be told more."""
    context = click.get_current_context(silent=True)
    verbosity = context.find_root().obj if context is not None else None
    return isinstance(verbosity, int) and verbosity > 0


def tell_notes(notes: Iterable[str]) -> None:
    """Say on standard error what only those want to know who ask."""
    if is_verbose():
        for note in notes:
            click.echo(f"note: {note}", err=True)
