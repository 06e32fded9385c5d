"""Command groups that import a command only when it is called."""

from collections.abc import Iterable, Mapping
from importlib import import_module

import click
import msgspec

from lictor.cli.flag_command import write_examples
from lictor.core.errors import LoadError
from lictor.core.raw import Json


class LazyCommand(msgspec.Struct, frozen=True):
    """The module of a command, and its line in the help of its group."""

    module: str
    name: str
    summary: str


class LazyGroup(click.Group):
    """A group that knows its commands by name only; without a command it shows its help.

    `bare_code` is the exit code where no command is given. `entry_points` is the group of entry
    points that is searched for a command that is not in `lazy`.
    """

    def __init__(
        self,
        *args: Json,
        lazy: Mapping[str, LazyCommand],
        examples: str = "",
        bare_code: int = 0,
        entry_points: str = "",
        **kwargs: Json,
    ) -> None:
        kwargs.setdefault("invoke_without_command", True)
        super().__init__(*args, callback=_show_help, **kwargs)
        self.lazy = lazy
        self.bare_code = bare_code
        self.entry_points = entry_points
        self.examples = examples

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002  (click's)
        return sorted(self.lazy)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        entry = self.lazy.get(cmd_name)
        if entry is None:
            return self._find_outside(cmd_name)
        command = getattr(import_module(entry.module), entry.name)
        if not isinstance(command, click.Command):
            raise TypeError(f"{entry.module}.{entry.name} is no command")
        return command

    def _find_outside(self, name: str) -> click.Command | None:
        """The command of another package; None if no package has one of this name."""
        if not self.entry_points:
            return None
        # Scanning all installed packages takes long: known commands do not pay for it.
        from importlib.metadata import entry_points

        for entry in entry_points(group=self.entry_points, name=name):
            where = f"command {name} of {entry.dist.name if entry.dist else 'an unknown package'}"
            hint = "repair the package or uninstall it"
            try:
                command = entry.load()
            except Exception as error:
                text = f"{type(error).__name__}: {error}"
                raise LoadError(f"{where} cannot be loaded ({text}): {hint}") from error
            if not isinstance(command, click.Command):
                raise LoadError(f"{where} is a {type(command).__name__}, not a command: {hint}")
            return command
        return None

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        is_known = not args or args[0] in self.lazy or ctx.resilient_parsing
        if not is_known and self._find_outside(args[0]) is None:
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
    # Imported here: only errors need it, and start-up time matters.
    from difflib import get_close_matches

    meant = get_close_matches(word, list(known), n=1)
    return f' (did you mean "{meant[0]}"?)' if meant else ""


@click.pass_context
def _show_help(ctx: click.Context) -> int:
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help())
    return ctx.command.bare_code if isinstance(ctx.command, LazyGroup) else 0
