"""Matchers joined by and, or and not; a part that is settled costs nothing later.

`always` and `never` are known by identity and fold away. A watched part is another function, so
under a watch nothing folds and every answer is heard.
"""

from collections.abc import Callable, Iterable
from typing import TypeAlias

import msgspec

from lictor.model.program import Matcher
from lictor.model.request import GroupVersionKind, Operation, Request


class RequestClass(msgspec.Struct, frozen=True):
    """What is the same for many requests: enough to settle some clauses once for all of them."""

    kind: GroupVersionKind
    subresource: str
    operation: Operation


# One condition of a filter: gives the test that is left for requests of one class.
Clause: TypeAlias = Callable[[RequestClass], Matcher]


def always(request: Request) -> bool:  # noqa: ARG001
    """Every request."""
    return True


def never(request: Request) -> bool:  # noqa: ARG001
    """No request."""
    return False


def settled(*, answer: bool) -> Matcher:
    """The constant matcher with this answer."""
    return always if answer else never


def settle_all(matcher: Matcher) -> Clause:
    """A clause whose test is the same for every class of requests."""
    return lambda _: matcher


def every(matchers: Iterable[Matcher]) -> Matcher:
    """A matcher that asks for all of them, in this order; none at all is `always`."""
    open_ones = tuple(matcher for matcher in matchers if matcher is not always)
    if never in open_ones:
        return never
    match open_ones:
        case ():
            return always
        case (single,):
            return single
        case (first, second):
            return lambda request: first(request) and second(request)

    def matches(request: Request) -> bool:
        for matcher in open_ones:  # noqa: SIM110  (a generator would cost more than the tests)
            if not matcher(request):
                return False
        return True

    return matches


def some(matchers: Iterable[Matcher]) -> Matcher:
    """A matcher that asks for one of them, in this order; none at all is `never`."""
    open_ones = tuple(matcher for matcher in matchers if matcher is not never)
    if always in open_ones:
        return always
    match open_ones:
        case ():
            return never
        case (single,):
            return single
        case (first, second):
            return lambda request: first(request) or second(request)

    def matches(request: Request) -> bool:
        for matcher in open_ones:  # noqa: SIM110  (a generator would cost more than the tests)
            if matcher(request):
                return True
        return False

    return matches


def negate(matcher: Matcher) -> Matcher:
    """A matcher with the opposite answer."""
    if matcher is never:
        return always
    if matcher is always:
        return never
    return lambda request: not matcher(request)
