"""Which files tests depend on, and how they were when someone last looked."""

import os
from collections.abc import Iterable, Iterator, Mapping
from typing import TypeAlias

from lictor.cli.inputs.repositories import GitAccess, is_repository_url
from lictor.cli.inputs.sources import expand_glob, is_url
from lictor.cli.test_cases import TestCase, find_test_files, load_cases
from lictor.core.errors import LictorError, UsageError
from lictor.core.files import is_visible, is_yaml, list_files

_TEST_FOLDER = ".kyverno-test"
# By path: when it was changed, and its size.
FileTimes: TypeAlias = Mapping[str, tuple[int, int]]


class WatchedFiles:
    """All files of tests below folders, and those that the tests name."""

    def __init__(self, paths: tuple[str, ...], file_name: str) -> None:
        for path in paths:
            if is_url(path) or is_repository_url(path):
                raise UsageError(f"{path}: only local folders can be watched")
        self._paths = paths
        self._file_name = file_name
        # While a test file is being written it cannot be read: what it named still counts.
        self._named: frozenset[str] = frozenset()

    def look(self) -> FileTimes:
        """How all of them are now; what is not there is left out."""
        below = (file for path in self._paths for file in _list_below(path))
        self._named = self._list_named() or self._named
        return {path: times for path in (*below, *self._named) if (times := _read_times(path))}

    def _list_named(self) -> frozenset[str]:
        try:
            found = [
                file
                for path in self._paths
                for file in find_test_files(path, self._file_name, GitAccess(""))
            ]
            cases, _ = load_cases(found)
            return frozenset(file for case in cases for file in _list_inputs(case))
        except (LictorError, OSError):
            return frozenset()


def _list_below(path: str) -> Iterator[str]:
    if os.path.exists(path):
        yield from list_files(path, is_yaml, lambda name: is_visible(name) or name == _TEST_FOLDER)


def _list_inputs(case: TestCase) -> Iterator[str]:
    test = case.test
    named: Iterable[str] = (
        *test.policies, *test.resources, *test.target_resources, *test.param_resources,
        *test.exceptions, *test.cluster_resources, test.variables,
    )  # fmt: skip
    for name in filter(None, named):
        if not is_url(name) and not is_repository_url(name):
            for path in expand_glob(case.locate(name)):
                yield from _list_below(path)


def _read_times(path: str) -> tuple[int, int] | None:
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size
