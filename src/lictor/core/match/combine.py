"""Joins matchers with and, or and not; constant parts are folded.

`always` and `never` are recognized by identity. A traced part is another function, so with a
trace nothing is folded and every value is recorded.
"""

from collections.abc import Callable, Iterable
from typing import Any, TypeAlias

import msgspec

from lictor.core.facts.resource_names import ResourceNames
from lictor.core.match.metadata import read_text
from lictor.core.model.program import Matcher, Select
from lictor.core.model.request import GroupVersionKind, Operation, Request

# The label that the API server sets on every namespace.
NAME_LABEL = "kubernetes.io/metadata.name"
# Policies of a namespace do not match reports about it: their authors could deny or falsify them.
REPORT_GROUPS = frozenset(("wgpolicyk8s.io", "openreports.io", "reports.kyverno.io"))
# Authors and administrators must be able to delete a policy: no policy of a namespace denies the
# deletion of policies, itself included.
_POLICIES = frozenset(("kyverno.io", "policies.kyverno.io", "policies.kubewarden.io"))
# More classes than a rule usually meets. There are thousands of rules: many invented kinds must
# not exhaust the memory.
_MAX_CLASSES = 128
_UNKNOWN: Matcher = lambda _: False  # noqa: E731  (known by identity)


def remember(select: Select) -> Select:
    """The same selection, cached by kind, subresource and operation."""
    known: dict[tuple[GroupVersionKind, str, Operation], Matcher | None] = {}

    def remembered(
        kind: GroupVersionKind, subresource: str, operation: Operation
    ) -> Matcher | None:
        key = (kind, subresource, operation)
        found = known.get(key, _UNKNOWN)
        if found is _UNKNOWN:
            # Another thread may clear the cache meanwhile: keep the value in a local.
            found = select(kind, subresource, operation)
            if len(known) >= _MAX_CLASSES:
                known.clear()
            known[key] = found
        return found

    return remembered


class DeferredSelect:
    """A selection that is built on first use and cached by class.

    Most rules are used for one kind, and most autogen rules for none: until then they need
    little memory.
    """

    __slots__ = ("_arguments", "_made", "_make")

    def __init__(self, make: Callable[..., Select], *arguments: Any) -> None:
        self._make = make
        self._arguments = arguments
        self._made: Select | None = None

    def __call__(
        self, kind: GroupVersionKind, subresource: str, operation: Operation
    ) -> Matcher | None:
        if self._made is None:
            self._made = remember(self._make(*self._arguments))
        return self._made(kind, subresource, operation)


def but_deletions(select: Select) -> Select:
    """The selection without DELETE: a deletion triggers nothing unless the rule names it."""

    def chosen(kind: GroupVersionKind, subresource: str, operation: Operation) -> Matcher | None:
        return None if operation is Operation.DELETE else select(kind, subresource, operation)

    return chosen


def within(namespace: str, select: Select) -> Select:
    """The selection, limited to the objects of one namespace: for a Policy."""
    return _bind(select, lambda request: _is_in(request, namespace))


def requested_within(namespace: str, select: Select) -> Select:
    """The selection, limited to requests in one namespace: for a namespaced CEL policy.

    The options of `kubectl exec` and a Namespace have no namespace; requests about them do.
    """

    def is_asked_there(request: Request) -> bool:
        if request.admission is None:
            return _is_in(request, namespace)
        return request.admission.get("namespace") == namespace

    return _bind(select, is_asked_there)


def _bind(select: Select, is_there: Matcher) -> Select:
    def bound(kind: GroupVersionKind, subresource: str, operation: Operation) -> Matcher | None:
        is_taken_back = operation is Operation.DELETE and kind.group in _POLICIES
        if is_taken_back or kind.group in REPORT_GROUPS:
            return None
        matches = select(kind, subresource, operation)
        if matches is None:
            return None
        return lambda request: is_there(request) and matches(request)

    return bound


def _is_in(request: Request, namespace: str) -> bool:
    for resource in (request.object, request.old_object):
        if resource is not None:
            metadata = resource.get("metadata")
            if not isinstance(metadata, dict) or metadata.get("namespace") != namespace:
                return False
    return True


class RequestClass(msgspec.Struct, frozen=True):
    """What many requests have in common: enough to evaluate some clauses once for all of them."""

    kind: GroupVersionKind
    subresource: str
    operation: Operation


# One condition of a filter: returns the remaining test for requests of one class.
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
    """A matcher that requires all of them, in this order; `always` if there are none."""
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
    """A matcher that requires one of them, in this order; `never` if there are none."""
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


def is_namespaced(requests: RequestClass, names: ResourceNames) -> bool | None:
    """Whether such an object is namespaced; None if unknown."""
    kind = requests.kind
    targets = names.targets(kind.group, kind.version, kind.kind, requests.subresource)
    return targets[0].namespaced


def read_requested(request: Request, field: str) -> str:
    """The `name` or `namespace` of the request's object."""
    if request.admission is not None:
        value = request.admission.get(field)
        if isinstance(value, str) and value:
            return value
    return read_text(request.resource, field)


def read_place(request: Request) -> tuple[str, str, str] | None:
    """Group, version and name of the resource, if an API server sent them."""
    place = request.admission.get("resource") if request.admission is not None else None
    if not isinstance(place, dict):
        return None
    group, version, resource = place.get("group", ""), place.get("version"), place.get("resource")
    if isinstance(group, str) and isinstance(version, str) and isinstance(resource, str):
        return group, version, resource
    return None
