"""Expressions and input for `jp`: from arguments, files, or what is piped or typed in."""

import sys
from collections.abc import Sequence
from pathlib import Path

import click

from lictor.errors import LoadError, SyntaxFaultError
from lictor.load.yaml import iter_documents
from lictor.raw import Json


def collect_expressions(arguments: Sequence[str], files: Sequence[str]) -> list[str]:
    """The expressions given by hand, then those in files."""
    return [*arguments, *(read_text(file) for file in files)]


def read_text(file: str) -> str:
    """A file's text; an error names the file."""
    try:
        return Path(file).read_text(encoding="utf-8", errors="replace")
    except FileNotFoundError as error:
        raise LoadError(f"failed open file {file}: no such file or directory") from error
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise LoadError(f"failed to read file {file}: {reason}") from error


def ask(what: str) -> str:
    """Read standard input, saying what is expected of it."""
    click.echo("Reading from terminal input.")
    click.echo(f"Enter {what} and hit Ctrl+D.")
    return sys.stdin.buffer.read().decode("utf-8", errors="replace")


def read_input(text: str, source: str) -> Json:
    """The first document of a YAML or JSON text; null where there is none."""
    try:
        for document in iter_documents(text, source):
            return document.body
    except LoadError as error:
        raise LoadError(f"error parsing input json: {error}") from error
    return None


def describe_fault(error: SyntaxFaultError, expression: str) -> str:
    """What is wrong, with a mark below the place."""
    text = error.text or expression
    start = text.rfind("\n", 0, error.position) + 1
    line = text[start:].split("\n", 1)[0]
    return f"{error.message}\n{line}\n{' ' * (error.position - start)}^"
