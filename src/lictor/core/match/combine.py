"""Matchers joined by and, or and not; a part that is settled costs nothing later.

`always` and `never` are known by identity and fold away. A watched part is another function, so
under a watch nothing folds and every answer is heard.
"""

from collections.abc import Callable, Iterable
from typing import Any, TypeAlias

import msgspec

from lictor.core.facts.resource_names import ResourceNames
from lictor.core.match.metadata import read_text
from lictor.core.model.program import Matcher, Select
from lictor.core.model.request import GroupVersionKind, Operation, Request

# The label that the API server puts on every namespace.
NAME_LABEL = "kubernetes.io/metadata.name"
# What is reported about a namespace is not for those who write its policies: they could refuse it,
# or make it say something else.
REPORT_GROUPS = frozenset(("wgpolicyk8s.io", "openreports.io", "reports.kyverno.io"))
# Whoever writes a policy must be able to take it back, and an administrator too: no policy of a
# namespace refuses the deletion of policies, its own included.
_POLICIES = frozenset(("kyverno.io", "policies.kyverno.io", "policies.kubewarden.io"))
# More classes than a rule is usually asked about. There are thousands of rules: a flood of made-up
# kinds must not fill the memory.
_MAX_CLASSES = 128
_UNKNOWN: Matcher = lambda _: False  # noqa: E731  (known by identity)


def remember(select: Select) -> Select:
    """The same selection, asked only once for each kind, subresource and operation."""
    known: dict[tuple[GroupVersionKind, str, Operation], Matcher | None] = {}

    def remembered(
        kind: GroupVersionKind, subresource: str, operation: Operation
    ) -> Matcher | None:
        key = (kind, subresource, operation)
        found = known.get(key, _UNKNOWN)
        if found is _UNKNOWN:
            # Another thread may ask as well, and forget everything: what is found is kept by hand.
            found = select(kind, subresource, operation)
            if len(known) >= _MAX_CLASSES:
                known.clear()
            known[key] = found
        return found

    return remembered


class DeferredSelect:
    """A selection that is made when it is first asked, and then only once for each class.

    Most rules are asked about one kind, and most of those that were made for controllers about
    none: until then they take little room.
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
    """The selection without DELETE: what is gone sets nothing off unless the rule says so."""

    def chosen(kind: GroupVersionKind, subresource: str, operation: Operation) -> Matcher | None:
        return None if operation is Operation.DELETE else select(kind, subresource, operation)

    return chosen


def within(namespace: str, select: Select) -> Select:
    """The selection, bound to the objects of one namespace: what a Policy concerns."""
    return _bind(select, lambda request: _lies_in(request, namespace))


def asked_within(namespace: str, select: Select) -> Select:
    """The selection, bound to requests in one namespace: what a namespaced CEL policy concerns.

    The options of `kubectl exec` lie in no namespace, and neither does a Namespace; requests about
    them do.
    """

    def is_asked_there(request: Request) -> bool:
        if request.admission is None:
            return _lies_in(request, namespace)
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


def _lies_in(request: Request, namespace: str) -> bool:
    for resource in (request.object, request.old_object):
        if resource is not None:
            metadata = resource.get("metadata")
            if not isinstance(metadata, dict) or metadata.get("namespace") != namespace:
                return False
    return True


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


def is_namespaced(requests: RequestClass, names: ResourceNames) -> bool | None:
    """Does such an object lie in a namespace? None where nobody knows."""
    kind = requests.kind
    targets = names.targets(kind.group, kind.version, kind.kind, requests.subresource)
    return targets[0].namespaced


def read_told(request: Request, field: str) -> str:
    """The `name` or the `namespace` of what is asked for."""
    if request.admission is not None:
        value = request.admission.get(field)
        if isinstance(value, str) and value:
            return value
    return read_text(request.resource, field)


def read_place(request: Request) -> tuple[str, str, str] | None:
    """Group, version and name of the resource, where an API server told them."""
    place = request.admission.get("resource") if request.admission is not None else None
    if not isinstance(place, dict):
        return None
    group, version, resource = place.get("group", ""), place.get("version"), place.get("resource")
    if isinstance(group, str) and isinstance(version, str) and isinstance(resource, str):
        return group, version, resource
    return None
