"""Does a text fit one of several wildcard patterns?"""

from collections.abc import Callable, Iterable
from typing import TypeAlias

from lictor.lang.wildcard import compile_wildcard, has_wildcard

TextTest: TypeAlias = Callable[[str], bool]


def compile_any_wildcard(patterns: Iterable[str]) -> TextTest:
    """A test that passes where one of the patterns fits."""
    given = tuple(dict.fromkeys(patterns))
    exact = frozenset(pattern for pattern in given if not has_wildcard(pattern))
    tests = tuple(compile_wildcard(pattern) for pattern in given if has_wildcard(pattern))
    if not tests:
        return exact.__contains__
    if not exact and len(tests) == 1:
        return tests[0]

    def fits(text: str) -> bool:
        if text in exact:
            return True
        for test in tests:  # noqa: SIM110  (a generator would cost more than the tests)
            if test(text):
                return True
        return False

    return fits
