"""Warnings about kinds that Kyverno deprecates, for the commands that evaluate policies."""

from collections.abc import Callable, Sequence
from typing import TypeVar

import click

from lictor.core.errors import LictorError

Function = TypeVar("Function", bound=Callable[..., object])


def warning_options(function: Function) -> Function:
    """The flags about deprecation warnings."""
    function = click.option(
        "--warnings-as-errors", is_flag=True, help="Deprecation warnings are errors."
    )(function)
    return click.option(
        "--deprecation-warnings",
        is_flag=True,
        help="Warn about kinds that Kyverno deprecates; lictor keeps them.",
    )(function)


def report_deprecations(found: Sequence[str], indent: str, *, as_errors: bool) -> None:
    """Print them to standard error, which programs that read results do not read."""
    for text in found:
        click.echo(f"{indent}Warning: {text}", err=True)
    if found and as_errors:
        raise LictorError(
            f"found {len(found)} deprecation warning(s) and --warnings-as-errors is set"
        )
