"""`lint`: checks policies, exceptions and test files for mistakes."""

import os
from collections.abc import Iterator, Sequence
from pathlib import Path

import click

from lictor.cli.flag_command import FlagCommand
from lictor.errors import LoadError, LookupFailedError, UsageError
from lictor.files import is_visible, is_yaml, list_files
from lictor.offline.repositories import is_repository_url
from lictor.offline.sources import (
    STDIN,
    expand_glob,
    is_url,
    read_file,
    read_policies,
    resolve_path,
)
from lictor.release import VERSION

_FORMATS = ("text", "json", "sarif", "github")
_EXAMPLES = """\
# Check all policies and tests of a folder
lictor lint policies/

# Let warnings count as errors
lictor lint --strict policy.yaml

# Mark the lines of a pull request
lictor lint --format github policies/

# Check what is piped in
cat policy.yaml | lictor lint -"""
# Hidden folders are others' business, but for the one in which tests are kept.
_TEST_FOLDER = ".kyverno-test"


@click.command(cls=FlagCommand, arity=(1, None), examples=_EXAMPLES)
@click.option(
    "--format",
    "form",
    type=click.Choice(_FORMATS),
    default="text",
    help="How problems are written: text, json, sarif or github.",
)
@click.option("--strict", is_flag=True, help="Let warnings count as errors.")
def lint(*, arguments: tuple[str, ...], form: str, strict: bool) -> int:
    """Check policies, exceptions, cleanup policies and test files for mistakes.

    Exits with 0 where there are no errors, with 1 where there are, and with 2 on a wrong call.
    """
    from lictor.lint.render import LintFormat, render_report
    from lictor.lint.run import lint_texts

    report = lint_texts(_read_texts(arguments), _read_named)
    click.echo(render_report(report, LintFormat(form), version=VERSION), nl=False)
    return 1 if report.errors or (strict and report.warnings) else 0


def _read_texts(paths: Sequence[str]) -> Iterator[tuple[str, bytes]]:
    for given in paths:
        if given == STDIN or is_url(given) or is_repository_url(given):
            yield from ((text.path, text.content) for text in read_policies([given]))
            continue
        for path in expand_glob(given):
            if not os.path.exists(path):
                raise UsageError(f"{path}: no such file or directory")
            for file in _list_files(path):
                yield file, read_file(file).content


def _list_files(path: str) -> Iterator[str]:
    """A file, or the YAML files below a folder."""
    return list_files(path, is_yaml, lambda name: is_visible(name) or name == _TEST_FOLDER)


def _read_named(path: str, source: str) -> list[tuple[str, bytes]] | None:
    """The files that a path in a test file stands for; None where there is none."""
    if is_url(path) or is_url(source):
        raise LookupFailedError(f"{path} is not a local file")
    try:
        named = expand_glob(resolve_path(path, Path(source).parent))
        found = [each for each in named if os.path.exists(each)]
        if not found:
            return None
        return [(file, read_file(file).content) for p in found for file in _list_files(p)]
    except LoadError as error:
        raise LookupFailedError(str(error)) from error
