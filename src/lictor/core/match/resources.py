"""Does a `resources` block, its roles and its subjects match a request?"""

from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache
from typing import TypeAlias

import msgspec
from msgspec.structs import replace

from lictor.core.errors import LookupFailedError
from lictor.core.lang.kind_selector import compile_kind_selector, parse_kind_selector
from lictor.core.lang.label_selector import compile_entry
from lictor.core.lang.wildcard import has_wildcard
from lictor.core.match.combine import Clause, RequestClass, always, never, settle_all, settled
from lictor.core.match.metadata import (
    clean_map,
    compile_any_wildcard,
    compile_selector,
    read_map,
    read_name,
    read_text,
)
from lictor.core.model.matching import ResourceDescription, ResourceFilter, Subject
from lictor.core.model.metadata import LabelSelector
from lictor.core.model.program import Matcher
from lictor.core.model.request import Caller, GroupVersionKind, Request, UnknownNamespace

CallerTest: TypeAlias = Callable[[Caller], bool]

_UNKNOWN_CALLER = Caller()


def compile_callers(
    wanted: ResourceFilter, *, unknown: bool | None
) -> Iterator[tuple[str, Matcher]]:
    """Yield a matcher for each clause about the caller, with the clause's name.

    `unknown` is the result for an unknown caller; None evaluates the test with a caller without
    name, groups or roles.
    """
    for name, test in _compile_tests(wanted):
        yield (
            name,
            _match_caller(test, unknown=test(_UNKNOWN_CALLER) if unknown is None else unknown),
        )


def _match_caller(test: CallerTest, *, unknown: bool) -> Matcher:
    return lambda request: unknown if request.caller is None else test(request.caller)


def _compile_tests(wanted: ResourceFilter) -> Iterator[tuple[str, CallerTest]]:
    if wanted.roles:
        roles = frozenset(wanted.roles)
        yield "roles", lambda caller: not roles.isdisjoint(caller.roles)
    if wanted.cluster_roles:
        cluster_roles = frozenset(wanted.cluster_roles)
        yield "clusterRoles", lambda caller: not cluster_roles.isdisjoint(caller.cluster_roles)
    if wanted.subjects:
        yield "subjects", _compile_subjects(wanted.subjects)


def _compile_subjects(subjects: Iterable[Subject]) -> CallerTest:
    users: list[str] = []
    groups: list[str] = []
    for subject in subjects:
        match subject.kind:
            case "User":
                users.append(subject.name)
            case "ServiceAccount":
                users.append(f"system:serviceaccount:{subject.namespace}:{subject.name}")
            case "Group":
                groups.append(subject.name)
            # Any other kind matches no caller.
    is_user = compile_any_wildcard(users)
    is_group = compile_any_wildcard(groups)
    return lambda caller: is_user(caller.username) or any(map(is_group, caller.groups))


_POD = GroupVersionKind("", "v1", "Pod")


class FilterOptions(msgspec.Struct, frozen=True):
    """How filters differ between the fields that contain them."""

    # Whether `operations` is evaluated.
    operations: bool
    # Whether `Pod` also matches its ephemeral containers, which once were no subresource.
    ephemeral_containers: bool
    # Whether a Namespace itself can match a filter with a namespaceSelector.
    namespaces_selectable: bool
    # Whether clauses about the caller are skipped if the caller is unknown.
    forgives_unknown_caller: bool
    # Whether a wildcard also matches Events, Leases and reports.
    wildcards_take_bookkeeping: bool
    # The meaning of neither `any` nor `all`: None is the older form, a filter without either.
    without_filters: Matcher | None


def resource_clauses(
    wanted: ResourceDescription, options: FilterOptions
) -> Iterator[tuple[str, Clause]]:
    """Yield each clause of the author, with its name."""
    if options.operations and wanted.operations:
        yield "operations", _match_operations(wanted)
    if wanted.kinds:
        yield "kinds", _match_kinds(wanted.kinds, options)
    if wanted.namespace_selector is not None:
        # Early: reading the labels of a missing namespace must be reported as an error.
        yield "namespaceSelector", _match_namespace_labels(wanted.namespace_selector, options)
    if wanted.name:
        yield "name", settle_all(_match_names((wanted.name,)))
    if wanted.names:
        yield "names", settle_all(_match_names(wanted.names))
    if wanted.namespaces:
        yield "namespaces", _match_namespaces(wanted)
    if wanted.annotations:
        yield "annotations", settle_all(_match_annotations(wanted))
    if wanted.selector is not None:
        fits = compile_selector(wanted.selector)
        yield "selector", settle_all(lambda request: fits(read_map(request.resource, "labels")))


def _match_operations(wanted: ResourceDescription) -> Clause:
    operations = wanted.operations
    return lambda requests: settled(answer=requests.operation in operations)


# Thousands of policies name the same few kinds.
@lru_cache(maxsize=1024)
def _match_kinds(kinds: tuple[str, ...], options: FilterOptions) -> Clause:
    selectors = [parse_kind_selector(kind) for kind in kinds]
    tests = [compile_kind_selector(selector) for selector in selectors]
    wide_tests = [compile_kind_selector(replace(each, subresource="*")) for each in selectors]
    naming_tests = tests
    if not options.wildcards_take_bookkeeping:
        named = [each for each in selectors if not has_wildcard(each.kind)]
        naming_tests = [compile_kind_selector(each) for each in named]

    def settle(requests: RequestClass) -> Matcher:
        kind, subresource = requests.kind, requests.subresource
        asked = naming_tests if kind.is_bookkeeping else tests
        if options.ephemeral_containers and subresource == "ephemeralcontainers" and kind == _POD:
            asked = wide_tests
        fits = any(test(kind.group, kind.version, kind.kind, subresource) for test in asked)
        return always if fits else never

    return settle


def _match_names(names: tuple[str, ...]) -> Matcher:
    fits = compile_any_wildcard(names)
    return lambda request: fits(read_name(request.resource))


def _match_namespaces(wanted: ResourceDescription) -> Clause:
    fits = compile_any_wildcard(wanted.namespaces)

    def settle(requests: RequestClass) -> Matcher:
        # A Namespace is cluster-scoped: the author means its own name.
        field = "name" if requests.kind.kind == "Namespace" else "namespace"
        return lambda request: fits(read_text(request.resource, field))

    return settle


def _match_annotations(wanted: ResourceDescription) -> Matcher:
    tests = tuple(compile_entry(key, value) for key, value in wanted.annotations.items())

    def matches(request: Request) -> bool:
        annotations = read_map(request.resource, "annotations")
        return all(test(annotations) for test in tests)

    return matches


def _match_namespace_labels(selector: LabelSelector, options: FilterOptions) -> Clause:
    fits = compile_selector(selector)

    def matches(request: Request) -> bool:
        labels = request.namespace_labels
        if isinstance(labels, UnknownNamespace):
            raise LookupFailedError(f'namespace "{labels.name}" not found')
        return fits(clean_map(labels))

    def settle(requests: RequestClass) -> Matcher:
        if requests.kind.kind == "Namespace":
            return settled(answer=options.namespaces_selectable)
        return matches if requests.kind.kind else always

    return settle
