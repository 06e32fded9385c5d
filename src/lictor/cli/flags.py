"""The flags of the controllers on the command line: from the fields of `Flags`, read as Go does."""

import os
from collections.abc import Callable, Iterator, Sequence
from functools import wraps
from pathlib import Path

import click
import msgspec

from lictor.cli.flag_command import FlagCommand
from lictor.cli.flag_pairs import CHOICES, is_duration
from lictor.cli.flag_words import IGNORED, REASONS, WORDS
from lictor.cluster.flags import Flags
from lictor.cluster.names import Names
from lictor.raw import Json

_NAMESPACE_FILE = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")
_FIELDS = {field.encode_name: field for field in msgspec.structs.fields(Flags)}


class ControllerCommand(FlagCommand):
    """A command whose flags may have one dash, as Go's; Kyverno's that mean nothing are told."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        return super().parse_args(ctx, list(_read_go_style(args)))


def with_flags(function: Callable[..., None]) -> Callable[..., None]:
    """Give a command all flags of the controllers; its function gets `flags` and `names`.

    For commands of the class ControllerCommand.
    """

    @wraps(function)
    def call(**given: Json) -> None:
        fields = {field.name: given.pop(field.name) for field in _FIELDS.values()}
        names = Names(prefix=given.pop("prefix"), namespace=given.pop("namespace"))
        function(flags=Flags(**fields), names=names, **given)

    options = [_build_option(name) for name in sorted(_FIELDS, key=str.lower)]
    for option in reversed([*_build_name_options(), *options]):
        option(call)
    return call


def _build_name_options() -> list[Callable[..., Json]]:
    return [
        click.option(
            "--namespace",
            default=_find_namespace,
            show_default="the Pod's own, or lictor",
            help="Namespace of this installation.",
        ),
        click.option(
            "--prefix",
            default="lictor",
            show_default=True,
            help="How the names of this installation's objects begin.",
        ),
    ]


def _build_option(name: str) -> Callable[..., Json]:
    field = _FIELDS[name]
    more: dict[str, Json] = {"show_default": field.default != ""}
    if field.type is bool:
        more |= {"is_flag": True, "flag_value": True}
    elif field.name in CHOICES:
        more["type"] = click.Choice(CHOICES[field.name], case_sensitive=False)
    elif field.type is int:
        more["type"] = click.IntRange(min=0)
    elif is_duration(field.default):
        more["callback"] = _check_duration
        more["metavar"] = "DURATION"
    return click.option(
        f"--{name}", field.name, default=field.default, help=WORDS[field.name], **more
    )


def _check_duration(_: click.Context, parameter: click.Parameter, text: str) -> str:
    if is_duration(text):
        return text
    name = parameter.opts[0]
    raise click.UsageError(
        f'invalid argument "{text}" for "{name}" flag: write a duration such as 30s or 15m'
    )


def _find_namespace() -> str:
    for variable in ("POD_NAMESPACE", "KYVERNO_NAMESPACE"):
        if os.environ.get(variable):
            return os.environ[variable]
    try:
        return _NAMESPACE_FILE.read_text(encoding="utf-8").strip() or "lictor"
    except OSError:
        return "lictor"


def _read_go_style(args: Sequence[str]) -> Iterator[str]:
    """One dash becomes two, and flags that mean nothing here are left out with a warning."""
    waiting = iter(args)
    for argument in waiting:
        if argument == "--":
            yield argument
            yield from waiting
            return
        name, equals, value = argument.lstrip("-").partition("=")
        if not argument.startswith("-") or name not in _FIELDS | IGNORED:
            yield argument
        elif name in IGNORED:
            if not equals and not IGNORED[name]:
                next(waiting, None)
            click.echo(
                f"Warning: --{name} is accepted but has no effect: {REASONS[name]}", err=True
            )
        else:
            yield f"--{name}{equals}{value}"
