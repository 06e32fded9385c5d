"""Which requests does a classic rule, an exception or a cleanup policy concern?"""

from collections.abc import Iterable, Iterator

from msgspec.structs import replace

from lictor.core.lang.watch import Watch, unwatched
from lictor.core.match.combine import (
    Clause,
    RequestClass,
    always,
    every,
    negate,
    never,
    settle_all,
    some,
)
from lictor.core.match.resources import Manner, compile_callers, is_blank, resource_clauses
from lictor.core.model.matching import Match, ResourceDescription, ResourceFilter
from lictor.core.model.program import Matcher, Select
from lictor.core.model.request import GroupVersionKind, Operation

MATCH = Manner(
    operations=True,
    ephemeral_containers=True,
    namespaces_selectable=False,
    forgives_unknown_caller=True,
    wildcards_take_bookkeeping=False,
    without_filters=None,
)
EXCLUDE = Manner(
    operations=True,
    ephemeral_containers=True,
    namespaces_selectable=False,
    # An exclusion for some callers must not let everyone through when nobody is known.
    forgives_unknown_caller=False,
    wildcards_take_bookkeeping=True,
    without_filters=None,
)
EXCEPTION = Manner(
    operations=False,
    ephemeral_containers=True,
    namespaces_selectable=True,
    forgives_unknown_caller=False,
    wildcards_take_bookkeeping=True,
    without_filters=never,
)
CLEANUP = Manner(
    operations=False,
    ephemeral_containers=False,
    namespaces_selectable=True,
    forgives_unknown_caller=False,
    wildcards_take_bookkeeping=True,
    # Here empty means everything: a cleanup policy without filters sweeps every kind it is given.
    without_filters=always,
)


def compile_match(match: Match, exclude: Match | None, *, watch: Watch = unwatched) -> Select:
    """Join `match` and `exclude` of a rule, settled as far as a class of requests allows.

    Each clause is watched under its path, such as `match.any[0].resources.kinds`; the closure of
    `exclude` answers True where the request is excluded.
    """
    wanted = _compile_filters(match, MATCH, "match", watch)
    unwanted = (
        settle_all(never)
        if exclude is None
        else _compile_filters(exclude, EXCLUDE, "exclude", watch)
    )
    return _select(lambda requests: every((wanted(requests), negate(unwanted(requests)))))


def compile_filter(
    match: Match, manner: Manner, *, where: str = "match", watch: Watch = unwatched
) -> Select:
    """Join the filters of an exception (`EXCEPTION`) or a cleanup policy (`CLEANUP`)."""
    return _select(_compile_filters(match, manner, where, watch))


def names_operations(match: Match) -> bool:
    """Does it say which operations it is about?"""
    return any(each.operations for each in list_descriptions(match))


def names_deletion(match: Match) -> bool:
    """Does it name DELETE, rather than not speak of operations at all?"""
    return any("DELETE" in each.operations for each in list_descriptions(match))


def has_selectors(*matches: Match | None) -> bool:
    """Do they select by labels? Nothing else in them can be wrong."""
    return any(
        each.selector is not None or each.namespace_selector is not None
        for match in matches
        if match is not None
        for each in list_descriptions(match)
    )


def list_descriptions(match: Match) -> Iterator[ResourceDescription]:
    """All descriptions of resources in a match block, of either form."""
    yield match.resources
    for each in (*match.any, *match.all):
        yield each.resources


def without_selectors(match: Match) -> Match:
    """The same match, but for label selectors: for rules whose selectors make no sense."""

    def strip(wanted: ResourceDescription) -> ResourceDescription:
        return replace(wanted, selector=None, namespace_selector=None)

    return replace(
        match,
        any=tuple(replace(each, resources=strip(each.resources)) for each in match.any),
        all=tuple(replace(each, resources=strip(each.resources)) for each in match.all),
        resources=strip(match.resources),
    )


def _select(clause: Clause) -> Select:
    def select(kind: GroupVersionKind, subresource: str, operation: Operation) -> Matcher | None:
        matcher = clause(RequestClass(kind, subresource, operation))
        return None if matcher is never else matcher

    return select


def _compile_filters(match: Match, manner: Manner, where: str, watch: Watch) -> Clause:
    if match.any:
        parts = _compile_each(match.any, manner, f"{where}.any", watch)
        return lambda requests: watch(where, some(part(requests) for part in parts))
    if match.all:
        parts = _compile_each(match.all, manner, f"{where}.all", watch)
        return lambda requests: watch(where, every(part(requests) for part in parts))
    if manner.without_filters is not None:
        return settle_all(watch(where, manner.without_filters))
    alone = ResourceFilter(match.resources, match.subjects, match.roles, match.cluster_roles)
    return _compile_one(alone, manner, where, watch)


def _compile_each(
    filters: Iterable[ResourceFilter], manner: Manner, where: str, watch: Watch
) -> list[Clause]:
    return [
        _compile_one(each, manner, f"{where}[{index}]", watch) for index, each in enumerate(filters)
    ]


def _compile_one(wanted: ResourceFilter, manner: Manner, where: str, watch: Watch) -> Clause:
    blank = is_blank(wanted.resources)
    clauses = [
        (f"{where}.resources.{name}", clause)
        for name, clause in resource_clauses(wanted.resources, manner)
    ]
    # Without a known caller, a filter that asks for nothing but callers is an empty one.
    unknown = not blank if manner.forgives_unknown_caller else None
    clauses += [
        (f"{where}.{name}", settle_all(matcher))
        for name, matcher in compile_callers(wanted, unknown=unknown)
    ]
    if blank and not clauses:
        # An empty filter fits nothing: it would else be a rule about everything, or an exclusion
        # of everything, that nobody wrote.
        return settle_all(watch(where, never))

    def settle(requests: RequestClass) -> Matcher:
        return watch(where, every([watch(path, clause(requests)) for path, clause in clauses]))

    return settle
