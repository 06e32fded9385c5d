"""`help`: show the help of a command."""

from collections.abc import Iterable

import click

from lictor.cli.flag_command import FlagCommand, WordText


def _list_commands() -> Iterable[str]:
    # Imported here: the command tree imports this module.
    from lictor.cli.main import COMMANDS

    return sorted(COMMANDS)


@click.command(
    "help",
    cls=FlagCommand,
    arity=(0, None),
    argument_type=WordText(_list_commands),
    examples="lictor help jp query",
)
@click.pass_context
def show_help(ctx: click.Context, arguments: tuple[str, ...]) -> None:
    """Show the help of a command."""
    parent = ctx.parent
    if parent is None:
        return
    context = parent
    for name in arguments:
        command = context.command
        found = command.get_command(context, name) if isinstance(command, click.Group) else None
        if found is None:
            raise click.UsageError(
                f'unknown command "{name}" for "{context.command_path}"', context
            )
        context = click.Context(found, info_name=name, parent=context)
    click.echo(context.get_help())
