"""Lints the policies, exceptions and test files that paths name."""

import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from lictor.errors import LoadError, LookupFailedError, UsageError
from lictor.files import is_visible, is_yaml, list_files
from lictor.lint.render import LintReport
from lictor.lint.run import lint_texts
from lictor.offline.records import FILE_RECORDS
from lictor.offline.repositories import is_repository_url
from lictor.offline.sources import (
    STDIN,
    expand_glob,
    is_url,
    read_file,
    read_policies,
    resolve_path,
)

# Hidden folders are others' business, but for the one in which tests are kept.
_TEST_FOLDER = ".kyverno-test"


def _read_texts(paths: Sequence[str]) -> Iterator[tuple[str, bytes]]:
    for given in paths:
        if given == STDIN or is_url(given) or is_repository_url(given):
            yield from ((text.path, text.content) for text in read_policies([given]))
            continue
        for path in expand_glob(given):
            if not os.path.exists(path):
                raise UsageError(f"{path}: no such file or directory")
            for file in _list_linted(path):
                yield file, read_file(file).content


def _list_linted(path: str) -> Iterator[str]:
    """A file, or the YAML files below a folder."""
    return list_files(path, is_yaml, lambda name: is_visible(name) or name == _TEST_FOLDER)


def _read_named(path: str, source: str) -> list[tuple[str, bytes]] | None:
    """The files of a path in a test file; None if there is none."""
    if is_url(path) or is_url(source):
        raise LookupFailedError(f"{path} is not a local file")
    try:
        named = expand_glob(resolve_path(path, Path(source).parent))
        found = [each for each in named if os.path.exists(each)]
        if not found:
            return None
        return [(file, read_file(file).content) for p in found for file in _list_linted(p)]
    except LoadError as error:
        raise LookupFailedError(str(error)) from error


def lint_paths(paths: Sequence[str]) -> LintReport:
    """Everything that is wrong with the files that the paths name."""
    return lint_texts(_read_texts(paths), FILE_RECORDS, _read_named)
