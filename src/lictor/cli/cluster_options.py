"""Options and output of commands that inspect an installation in a cluster."""

from collections.abc import Callable, Sequence
from typing import TypeVar

import click

Function = TypeVar("Function", bound=Callable[..., object])


def with_cluster(function: Function) -> Function:
    """Which cluster, which installation in it, and how the answer is written."""
    options = (
        click.option(
            "--format",
            "form",
            type=click.Choice(("text", "json")),
            default="text",
            help="How it is written: text or json.",
        ),
        click.option(
            "--namespace", default="lictor", show_default=True, help="Where lictor is installed."
        ),
        click.option(
            "--prefix",
            default="lictor",
            show_default=True,
            help="How the names of its objects begin.",
        ),
        click.option("--kubeconfig", default="", help="The kubeconfig file to use."),
        click.option("--context", default="", help="The context of the kubeconfig to use."),
    )
    for option in reversed(options):
        function = option(function)
    return function


def count_noun(number: int, noun: str) -> str:
    """`1 kind`, `2 kinds`."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def render_columns(rows: Sequence[tuple[str, ...]], indent: str = "  ") -> list[str]:
    """Rows as lines with columns of equal width; no character of theirs can steer a terminal."""
    clean = [tuple(_clean(cell) for cell in row) for row in rows]
    widths = [max(map(len, column)) for column in zip(*clean, strict=True)]
    return [
        indent + "  ".join(cell.ljust(w) for cell, w in zip(row, widths, strict=True)).rstrip()
        for row in clean
    ]


def _clean(text: str) -> str:
    return "".join(sign if sign.isprintable() else " " for sign in text)
