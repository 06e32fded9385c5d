"""Matches requests against classic rules, exceptions and cleanup policies."""

from collections.abc import Iterator

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
from lictor.core.match.resources import FilterOptions, compile_callers, resource_clauses
from lictor.core.model.matching import Match, ResourceDescription, ResourceFilter
from lictor.core.model.program import Matcher, Select
from lictor.core.model.request import GroupVersionKind, Operation

MATCH = FilterOptions(
    operations=True,
    ephemeral_containers=True,
    namespaces_selectable=False,
    forgives_unknown_caller=True,
    wildcards_take_bookkeeping=False,
    without_filters=None,
)
EXCLUDE = FilterOptions(
    operations=True,
    ephemeral_containers=True,
    namespaces_selectable=False,
    # An exclusion for some callers must not exclude everyone if the caller is unknown.
    forgives_unknown_caller=False,
    wildcards_take_bookkeeping=True,
    without_filters=None,
)
EXCEPTION = FilterOptions(
    operations=False,
    ephemeral_containers=True,
    namespaces_selectable=True,
    forgives_unknown_caller=False,
    wildcards_take_bookkeeping=True,
    without_filters=never,
)
CLEANUP = FilterOptions(
    operations=False,
    ephemeral_containers=False,
    namespaces_selectable=True,
    forgives_unknown_caller=False,
    wildcards_take_bookkeeping=True,
    # Here empty means everything: a cleanup policy without filters matches every kind it gets.
    without_filters=always,
)


def compile_match(match: Match, exclude: Match | None, *, watch: Watch = unwatched) -> Select:
    """Join `match` and `exclude` of a rule, evaluated as far as a class of requests allows.

    Each clause is traced under its path, such as `match.any[0].resources.kinds`; the closure of
    `exclude` returns True if the request is excluded.
    """
    wanted = _compile_filters(match, MATCH, "match", watch)
    if exclude is None:
        return _select(wanted)
    unwanted = _compile_filters(exclude, EXCLUDE, "exclude", watch)
    return _select(lambda requests: every((wanted(requests), negate(unwanted(requests)))))


def compile_filter(
    match: Match, options: FilterOptions, *, where: str = "match", watch: Watch = unwatched
) -> Select:
    """Join the filters of an exception (`EXCEPTION`) or a cleanup policy (`CLEANUP`)."""
    return _select(_compile_filters(match, options, where, watch))


def names_operations(match: Match) -> bool:
    """Whether it names the operations it matches."""
    return any(each.operations for each in list_descriptions(match))


def names_deletion(match: Match) -> bool:
    """Whether it names DELETE explicitly."""
    return any("DELETE" in each.operations for each in list_descriptions(match))


def has_selectors(*matches: Match | None) -> bool:
    """Whether they select by labels, the only part that can be invalid."""
    return any(
        each.selector is not None or each.namespace_selector is not None
        for match in matches
        if match is not None
        for each in list_descriptions(match)
    )


def list_descriptions(match: Match) -> Iterator[ResourceDescription]:
    """All resource descriptions of a match block, of either form."""
    yield match.resources
    for each in (*match.any, *match.all):
        yield each.resources


def without_selectors(match: Match) -> Match:
    """The same match without label selectors: for rules whose selectors are invalid."""

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


def _compile_filters(match: Match, options: FilterOptions, where: str, watch: Watch) -> Clause:
    name, filters, join = ("any", match.any, some) if match.any else ("all", match.all, every)
    if filters:
        parts = [
            _compile_one(each, options, f"{where}.{name}[{index}]", watch)
            for index, each in enumerate(filters)
        ]
        if len(parts) == 1 and watch is unwatched:
            return parts[0]
        return lambda requests: watch(where, join(part(requests) for part in parts))
    if options.without_filters is not None:
        return settle_all(watch(where, options.without_filters))
    alone = ResourceFilter(match.resources, match.subjects, match.roles, match.cluster_roles)
    return _compile_one(alone, options, where, watch)


def _compile_one(
    wanted: ResourceFilter, options: FilterOptions, where: str, watch: Watch
) -> Clause:
    blank = wanted.resources == ResourceDescription()
    clauses = [
        (f"{where}.resources.{name}", clause)
        for name, clause in resource_clauses(wanted.resources, options)
    ]
    # If the caller is unknown, a filter with only clauses about callers counts as empty.
    unknown = not blank if options.forgives_unknown_caller else None
    if wanted.roles or wanted.cluster_roles or wanted.subjects:
        clauses += [
            (f"{where}.{name}", settle_all(matcher))
            for name, matcher in compile_callers(wanted, unknown=unknown)
        ]
    if blank and not clauses:
        # An empty filter matches nothing: otherwise it would match, or exclude, everything without
        # the author having written that.
        return settle_all(watch(where, never))

    def settle(requests: RequestClass) -> Matcher:
        if watch is unwatched:
            return every([clause(requests) for _, clause in clauses])
        return watch(where, every([watch(path, clause(requests)) for path, clause in clauses]))

    return settle
