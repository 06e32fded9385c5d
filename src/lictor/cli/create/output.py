"""Where a created file goes, and how its parts are written."""

from collections.abc import Iterable, Mapping
from pathlib import Path

import click

from lictor.report.yaml_text import render_scalar

_PLAIN_VALUES = frozenset(("true", "false"))


def write_text(text: str, path: str) -> None:
    """Print the text, or write it to a file where one is named."""
    if path:
        Path(path).write_text(text, encoding="utf-8")
    else:
        click.echo(text, nl=False)


def render_items(items: Iterable[str], indent: str) -> str:
    """The lines of a list; nothing where it is empty."""
    return "".join(f"{indent}- {render_scalar(item, indent)}\n" for item in items)


def render_labels(labels: Mapping[str, str], indent: str) -> str:
    """The lines of a mapping from text to text."""
    return "".join(
        f"{indent}{render_scalar(key)}: {render_scalar(value, indent)}\n"
        for key, value in sorted(labels.items())
    )


def render_values(values: Mapping[str, str], indent: str) -> str:
    """The lines of a mapping whose values may be numbers and booleans."""
    return "".join(
        f"{indent}{render_scalar(key)}: {_render_value(value, indent)}\n"
        for key, value in sorted(values.items())
    )


def parse_pairs(pairs: Iterable[str]) -> dict[str, str]:
    """`key=value` each; what is no such pair is an error that names it."""
    made: dict[str, str] = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not key or not equals or not value:
            raise click.UsageError(f'"{pair}" is no pair: write key=value')
        made[key] = value
    return made


def _render_value(text: str, indent: str) -> str:
    if text in _PLAIN_VALUES or text.removeprefix("-").isdecimal():
        return text
    return render_scalar(text, indent)
