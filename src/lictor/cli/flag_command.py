"""Commands that read flags as Kyverno does: lists with commas, switches with values, log flags."""

import re
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, TypeVar

import click
import msgspec
from click.core import ParameterSource

from lictor.core.raw import Json

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

Function = TypeVar("Function", bound=Callable[..., object])

_TRUE = frozenset(("1", "t", "T", "true", "TRUE", "True"))
_FALSE = frozenset(("0", "f", "F", "false", "FALSE", "False"))
_LOG_SWITCHES = {
    "add_dir_header", "alsologtostderr", "legacy_stderr_threshold_behavior", "logtostderr",
    "one_output", "skip_headers", "skip_log_headers",
}  # fmt: skip
_LOG_OPTIONS = {
    "alsologtostderrthreshold", "log_backtrace_at", "log_dir", "log_file", "log_file_max_size",
    "stderrthreshold", "v", "vmodule",
}  # fmt: skip
_NUMBER = re.compile(r"-?[0-9]+")
_VERBOSITY = re.compile(r"-v=?-?[0-9]+")


class PathText(click.types.StringParamType):
    """Text that may be a path: shells complete it as one."""

    def shell_complete(
        self,
        ctx: click.Context,  # noqa: ARG002  (click's)
        param: click.Parameter,  # noqa: ARG002
        incomplete: str,
    ) -> "list[CompletionItem]":
        from click.shell_completion import CompletionItem

        return [CompletionItem(incomplete, type="file")]


class WordText(click.types.StringParamType):
    """Text for which shells complete some words; the command itself checks the value."""

    def __init__(self, words: Iterable[str] | Callable[[], Iterable[str]]) -> None:
        self._words = words

    def shell_complete(
        self,
        ctx: click.Context,  # noqa: ARG002  (click's)
        param: click.Parameter,  # noqa: ARG002
        incomplete: str,
    ) -> "list[CompletionItem]":
        from click.shell_completion import CompletionItem

        words = self._words() if callable(self._words) else self._words
        return [CompletionItem(word) for word in words if word.startswith(incomplete)]


class FlagCommand(click.Command):
    """A command that reads its arguments as Kyverno's does.

    `arity` is how few and how many arguments it takes (None: any number); its function gets them as
    `arguments`. `required_flags` must all be given, and an error names all that are missing.
    `argument_type` defines how shells complete the arguments.
    """

    def __init__(
        self,
        *args: Json,
        arity: tuple[int, int | None] = (0, 0),
        required_flags: Sequence[str] = (),
        examples: str = "",
        argument_type: "click.ParamType[str] | None" = None,
        **kwargs: Json,
    ) -> None:
        super().__init__(*args, **kwargs)
        for param in self.params:
            if param.type is click.STRING:
                param.type = PathText()
        self.arity = arity
        self.required_flags = tuple(required_flags)
        self.examples = examples
        if arity != (0, 0):
            kind = argument_type or PathText()
            self.params.append(click.Argument(["arguments"], nargs=-1, type=kind))

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        rest, given = _take_switches(self.get_params(ctx), args)
        if self.arity == (0, 0) and not ctx.resilient_parsing:
            _refuse_arguments(self, ctx, rest)
        left = super().parse_args(ctx, rest)
        ctx.params.update(given)
        if not ctx.resilient_parsing:
            if self.required_flags:
                self._check_required(ctx)
            if self.arity != (0, None):
                self._check_arity(ctx)
        return left

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        write_examples(self.examples, formatter)
        super().format_epilog(ctx, formatter)

    def _check_required(self, ctx: click.Context) -> None:
        unset = (ParameterSource.DEFAULT, ParameterSource.DEFAULT_MAP, None)
        missing = [
            f'"{flag}"'
            for flag in self.required_flags
            if ctx.get_parameter_source(flag.replace("-", "_")) in unset
        ]
        if missing:
            raise click.UsageError(f"required flag(s) {', '.join(missing)} not set", ctx)

    def _check_arity(self, ctx: click.Context) -> None:
        least, most = self.arity
        count = len(ctx.params.get("arguments") or ())
        if least == most and count != least:
            raise click.UsageError(f"accepts {least} arg(s), received {count}", ctx)
        if count < least:
            raise click.UsageError(f"requires at least {least} arg(s), only received {count}", ctx)


def write_examples(examples: str, formatter: click.HelpFormatter) -> None:
    """Write the examples at the end of a help page."""
    if examples:
        lines = "".join(f"  {line}\n" if line else "\n" for line in examples.splitlines())
        formatter.write(f"\nExamples:\n{lines}")


def slice_option(*names: str, help: str, **more: Json) -> Callable[[Function], Function]:
    """A flag that takes many values: given several times, or with commas between them."""
    return click.option(*names, multiple=True, callback=_split_values, help=help, **more)


def format_option(*choices: str) -> Callable[[Function], Function]:
    """The flag `--format`; the first choice is the default."""
    return click.option(
        "--format",
        "form",
        type=click.Choice(choices),
        default=choices[0],
        help=f"Output format: {' or '.join(choices)}.",
    )


def split_commas(text: str) -> list[str]:
    """The parts between commas; a part in double quotes may hold commas itself."""
    if not text:
        return []
    if '"' not in text:
        return text.split(",")
    import csv

    try:
        return next(csv.reader([text], strict=True))
    except csv.Error as error:
        raise click.UsageError(f"invalid list {text!r}: {error}") from error


class LogFlags(msgspec.Struct, frozen=True):
    """A command line without log flags, and the verbosity that they set."""

    arguments: tuple[str, ...]
    # From one on, ignored documents are listed; other log flags have no effect here.
    verbosity: int = 0


def take_log_flags(arguments: Sequence[str]) -> LogFlags:
    """Take the log flags out. `-v` needs no number: alone it means one."""
    kept: list[str] = []
    verbosity = 0
    position = 0
    while position < len(arguments):
        argument = arguments[position]
        following = arguments[position + 1 : position + 2]
        position += 1
        if argument == "--":
            kept.extend((argument, *arguments[position:]))
            break
        name, equals, value = argument.lstrip("-").partition("=")
        if not _is_log_flag(argument, name):
            kept.append(argument)
            continue
        if name == "v" and not equals and not (following and _NUMBER.fullmatch(following[0])):
            verbosity = 1
        elif argument in ("-v", f"--{name}") and name in _LOG_OPTIONS:
            position += 1
            value = following[0] if following else ""
        if name.startswith("v") and (number := _NUMBER.fullmatch(value or name[1:])):
            verbosity = int(number[0])
    return LogFlags(tuple(kept), verbosity)


def print_notes(notes: Iterable[str]) -> None:
    """Print notes on standard error if -v was given."""
    context = click.get_current_context(silent=True)
    verbosity = context.find_root().obj if context is not None else None
    if isinstance(verbosity, int) and verbosity > 0:
        for note in notes:
            click.echo(f"note: {note}", err=True)


def read_bool(text: str) -> bool | None:
    """Parse a boolean as Go's flags do; None if it is invalid."""
    if text in _TRUE:
        return True
    return False if text in _FALSE else None


def _is_log_flag(argument: str, name: str) -> bool:
    if argument.startswith("--"):
        return name in _LOG_SWITCHES or name in _LOG_OPTIONS
    return argument == "-v" or _VERBOSITY.fullmatch(argument) is not None


def _split_values(_: click.Context, __: click.Parameter, values: Iterable[str]) -> tuple[str, ...]:
    return tuple(
        part
        for value in values
        for part in (split_commas(value) if not value or "," in value or '"' in value else (value,))
    )


def _take_switches(
    params: Iterable[click.Parameter], args: Sequence[str]
) -> tuple[list[str], dict[str, bool]]:
    """Take `--flag=true` and `-f=false` out: click knows no values for switches."""
    switches = {
        name: param
        for param in params
        if isinstance(param, click.Option) and param.is_flag
        for name in param.opts
    }
    kept: list[str] = []
    given: dict[str, bool] = {}
    for position, argument in enumerate(args):
        if argument == "--":
            return [*kept, *args[position:]], given
        name, equals, text = argument.partition("=")
        switch = switches.get(name) if equals else None
        if switch is None or switch.name is None:
            kept.append(argument)
        else:
            given[switch.name] = _read_switch(switch, text)
    return kept, given


def _read_switch(switch: click.Option, text: str) -> bool:
    value = read_bool(text)
    if value is None:
        names = ", ".join(sorted(switch.opts, key=len))
        raise click.UsageError(
            f'invalid argument "{text}" for "{names}" flag: write true or false, or leave it out'
        )
    return value


def _refuse_arguments(command: click.Command, ctx: click.Context, args: list[str]) -> None:
    if any(name in args for name in ctx.help_option_names):
        return
    _, left, _ = command.make_parser(ctx).parse_args(args=list(args))
    if left:
        raise click.UsageError(f'unknown command "{left[0]}" for "{ctx.command_path}"', ctx)


def spread_values(
    args: Sequence[str], flag: str, belongs: Callable[[str], bool]
) -> tuple[list[str], bool]:
    """Repeat a flag for each of the values after it; also return whether it had none.

    The first word after the flag is always its value; others only if they belong to it.
    """
    made: list[str] = []
    is_bare = False
    words = list(args)
    while words:
        word = words.pop(0)
        if word != flag:
            made.append(word)
            continue
        values = _take_values(words, belongs)
        is_bare = is_bare or not values
        made.extend(part for value in values for part in (flag, value))
    return made, is_bare


def _take_values(words: list[str], belongs: Callable[[str], bool]) -> list[str]:
    values: list[str] = []
    while words and not words[0].startswith("-") and (not values or belongs(words[0])):
        values.append(words.pop(0))
    return values
