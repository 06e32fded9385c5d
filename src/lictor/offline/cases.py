"""Test files, found and read."""

import os
from collections.abc import Iterable, Iterator
from pathlib import Path

import msgspec

from lictor.errors import LictorError, LoadError
from lictor.files import walk_folder
from lictor.load.test_files import is_older_form, load_tests
from lictor.model.offline import Test
from lictor.offline.git_clone import GitAccess
from lictor.offline.repositories import clone_repository, is_repository_url
from lictor.offline.sources import read_file, resolve_path

TEST_FILE = "kyverno-test.yaml"


class TestCase(msgspec.Struct, frozen=True):
    """One Test document, and the file that it stands in."""

    # pytest must not take this for a test class.
    __test__ = False

    path: str
    test: Test

    @property
    def folder(self) -> Path:
        return Path(self.path).parent

    def locate(self, path: str) -> str:
        """A path as seen from the folder of the file."""
        return resolve_path(path, self.folder)

    def resolve(self, paths: Iterable[str]) -> tuple[str, ...]:
        """Paths as seen from the folder of the file."""
        return tuple(map(self.locate, paths))


def find_test_files(path: str, file_name: str, access: GitAccess) -> Iterator[str]:
    """The test files below a folder or in a repository, in the order of their names."""
    if is_repository_url(path, branch=access.branch):
        path = clone_repository(path, access)
    if os.path.isfile(path):
        yield path
    else:
        # As Kyverno does: hidden folders are entered, links to folders are not.
        found = walk_folder(path, lambda name: name == file_name, lambda name: name != ".git")
        yield from map(os.path.normpath, found)


def load_cases(paths: Iterable[str]) -> tuple[list[TestCase], dict[str, str]]:
    """The tests of all files, and what is wrong with those that cannot be read."""
    cases: list[TestCase] = []
    problems: dict[str, str] = {}
    for path in paths:
        try:
            cases += _load_file(path)
        except LictorError as error:
            problems[path] = str(error)
    return cases, problems


def _load_file(path: str) -> Iterator[TestCase]:
    text = read_file(path)
    try:
        tests = load_tests(text.content, text.path)
    except LoadError as error:
        if not is_older_form(text.content, text.path):
            raise
        raise LoadError(f"{error.message}\n{hint_at_fix(path)}", where=error.where) from error
    yield from (TestCase(path, test.record) for test in tests)


def hint_at_fix(path: str) -> str:
    """What to do with a test file of an older form."""
    folder, name = os.path.split(path)
    other = "" if name == TEST_FILE else f" --file-name {name}"
    return (
        "this is an older form of test files; "
        f"`lictor fix test {folder or '.'}{other} --save` brings it up to date"
    )
