"""Test files, found and read."""

import os
from collections.abc import Iterable, Iterator
from pathlib import Path

import msgspec

from lictor.cli.offline.repositories import GitAccess, clone_repository, is_repository_url
from lictor.cli.sources import read_file, resolve_path
from lictor.errors import LictorError, LoadError
from lictor.load.test_files import load_tests
from lictor.model.offline import Test


class TestCase(msgspec.Struct, frozen=True):
    """One Test document, and the file that it stands in."""

    # pytest must not take this for a test class.
    __test__ = False

    path: str
    test: Test

    @property
    def folder(self) -> Path:
        return Path(self.path).parent

    def resolve(self, paths: Iterable[str]) -> tuple[str, ...]:
        """Paths as seen from the folder of the file."""
        return tuple(resolve_path(path, self.folder) for path in paths)


def find_test_files(path: str, file_name: str, access: GitAccess) -> Iterator[str]:
    """The test files below a folder or in a repository, in the order of their names."""
    if is_repository_url(path, branch=access.branch):
        root, folder = clone_repository(path, access)
        yield from _walk(os.path.join(root, folder), file_name)
    elif os.path.isfile(path):
        yield path
    else:
        yield from _walk(os.path.normpath(path), file_name)


def load_cases(paths: Iterable[str]) -> tuple[list[TestCase], dict[str, str]]:
    """The tests of all files, and what is wrong with those that cannot be read."""
    cases: list[TestCase] = []
    problems: dict[str, str] = {}
    for path in paths:
        try:
            text = read_file(path)
            cases += (TestCase(path, t.record) for t in load_tests(text.content, text.path))
        except LictorError as error:
            problems[path] = str(error)
    return cases, problems


def _walk(folder: str, file_name: str) -> Iterator[str]:
    try:
        names = sorted(os.listdir(folder))
    except OSError as error:
        raise LoadError(error.strerror or str(error), where=folder) from error
    for name in names:
        path = os.path.normpath(os.path.join(folder, name))
        if os.path.isdir(path) and not os.path.islink(path):
            yield from _walk(path, file_name)
        elif name == file_name:
            yield path
