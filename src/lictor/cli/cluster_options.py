"""Options and output of commands that inspect an installation in a cluster."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, TypeVar

import click
import msgspec

from lictor.cli.flag_command import format_option

if TYPE_CHECKING:
    from lictor.kubernetes.client import Client

Answer = TypeVar("Answer")
Function = TypeVar("Function", bound=Callable[..., object])


def with_cluster(function: Function) -> Function:
    """Which cluster, which installation in it, and how the answer is written."""
    options = (
        format_option("text", "json"),
        click.option(
            "--namespace", default="lictor", show_default=True, help="Where lictor is installed."
        ),
        click.option(
            "--prefix",
            default="lictor",
            show_default=True,
            help="Prefix of the names of its objects.",
        ),
        click.option("--kubeconfig", default="", help="The kubeconfig file to use."),
        click.option("--context", default="", help="The context of the kubeconfig to use."),
    )
    for option in reversed(options):
        function = option(function)
    return function


def query_cluster(
    kubeconfig: str, context: str, query: "Callable[[Client], Awaitable[Answer]]"
) -> Answer:
    """What a coroutine learns from the API server."""
    from lictor.kubernetes.client import Client
    from lictor.kubernetes.kubeconfig import load_config

    async def run() -> Answer:
        client = Client(load_config(kubeconfig, context))
        try:
            return await query(client)
        finally:
            await client.close()

    return asyncio.run(run())


def render_record(record: object) -> str:
    """A record, or a list of records, as indented JSON that ends in a newline."""
    return msgspec.json.format(msgspec.json.encode(record), indent=2).decode() + "\n"


def count_noun(number: int, noun: str) -> str:
    """`1 kind`, `2 kinds`."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def render_columns(rows: Sequence[tuple[str, ...]], indent: str = "  ") -> list[str]:
    """Rows as lines with columns of equal width; control characters are escaped."""
    clean = [tuple(clean_line(cell) for cell in row) for row in rows]
    widths = [max(map(len, column)) for column in zip(*clean, strict=True)]
    return [
        indent + "  ".join(cell.ljust(w) for cell, w in zip(row, widths, strict=True)).rstrip()
        for row in clean
    ]


def clean_line(text: str) -> str:
    """The text without signs that steer a terminal, or begin a new line."""
    return "".join(sign if sign.isprintable() else " " for sign in text)
