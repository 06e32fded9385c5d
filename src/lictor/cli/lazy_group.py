"""Command groups that import a command only when it is called."""

from collections.abc import Iterable, Mapping
from importlib import import_module

import click
import msgspec

from lictor.cli.flag_command import write_examples
from lictor.core.raw import Json


class LazyCommand(msgspec.Struct, frozen=True):
    """Where a command lives, and what its line in the help of its group says."""

    module: str
    name: str
    summary: str


class LazyGroup(click.Group):
    """A group that knows its commands by name only; without a command it shows its help.

    `bare_code` is the exit code where no command is given.
    """

    def __init__(
        self,
        *args: Json,
        lazy: Mapping[str, LazyCommand],
        examples: str = "",
        bare_code: int = 0,
        **kwargs: Json,
    ) -> None:
        kwargs.setdefault("invoke_without_command", True)
        super().__init__(*args, callback=_show_help, **kwargs)
        self.lazy = lazy
        self.bare_code = bare_code
        self.examples = examples

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002  (click's)
        return sorted(self.lazy)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        entry = self.lazy.get(cmd_name)
        if entry is None:
            return None
        command = getattr(import_module(entry.module), entry.name)
        if not isinstance(command, click.Command):
            raise TypeError(f"{entry.module}.{entry.name} is no command")
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and args[0] not in self.lazy and not ctx.resilient_parsing:
            message = f'unknown command "{args[0]}" for "{ctx.command_path}"'
            raise click.UsageError(message + suggest(args[0], self.lazy), ctx)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        rows = [(name, self.lazy[name].summary) for name in self.list_commands(ctx)]
        with formatter.section("Commands"):
            formatter.write_dl(rows)

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        write_examples(self.examples, formatter)


def suggest(word: str, known: Iterable[str]) -> str:
    """A suggestion for a misspelt word; empty if no known word is similar."""
    # Loaded where something went wrong: start-up counts.
    from difflib import get_close_matches

    meant = get_close_matches(word, list(known), n=1)
    return f' (did you mean "{meant[0]}"?)' if meant else ""


@click.pass_context
def _show_help(ctx: click.Context) -> int:
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help())
    return ctx.command.bare_code if isinstance(ctx.command, LazyGroup) else 0
