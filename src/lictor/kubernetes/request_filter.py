"""Requests that are exempt from policies: by user or by resource."""

from collections.abc import Callable, Iterable
from typing import TypeAlias

import msgspec

from lictor.core.facts.resource_names import builtin_names
from lictor.core.lang.kind_selector import compile_kind_selector, parse_kind_selector
from lictor.core.lang.wildcard import compile_wildcard, has_wildcard
from lictor.core.model.request import Caller, GroupVersionKind, Request
from lictor.core.raw import Json
from lictor.kubernetes.settings import Settings

RequestFilter: TypeAlias = Callable[[Request], bool]
# kind, subresource, namespace and name
ResourceFilterTest: TypeAlias = Callable[[GroupVersionKind, str, str, str], bool]
_CallerTest: TypeAlias = Callable[[Caller], bool]

_NAMESPACE = GroupVersionKind("", "v1", "Namespace")
# Kyverno's internal objects: evaluating them would create more of them.
_OWN_KINDS = frozenset({
    "AdmissionReport", "ClusterAdmissionReport", "BackgroundScanReport",
    "ClusterBackgroundScanReport", "UpdateRequest",
})  # fmt: skip
# More kinds than any API server serves; a forged review must not fill the memory.
_MAX_KINDS = 4096


def build_filter(
    settings: Settings, *, skip_resource_filters: bool = False, own_accounts: str = ""
) -> RequestFilter:
    """Whether this request is exempt, by its caller or its resource."""
    # Events and reports of lictor's service accounts (by prefix) are exempt.
    is_excluded = _build_caller_test(settings)
    if skip_resource_filters:
        settings = msgspec.structs.replace(settings, resource_filters=())
    is_filtered = build_resource_filter(settings)
    find_kind = builtin_names().of_resource

    def is_left_alone(request: Request) -> bool:
        caller = request.caller
        if caller is not None and is_excluded(caller):
            return True
        kind = request.kind
        if kind.kind in _OWN_KINDS:
            return True
        if own_accounts and kind.is_bookkeeping and _is_own(caller, own_accounts):
            return True
        admission = request.admission
        if admission is None:
            metadata = request.resource.get("metadata") or {}
            place, name = metadata.get("namespace") or "", metadata.get("name") or ""
            return is_filtered(kind, request.subresource, place, name)
        if request.subresource:
            # The body (a Scale, PodExecOptions) is not of the kind of the resource.
            asked = admission.get("resource") or {}
            group, version = asked.get("group") or "", asked.get("version") or ""
            owner = find_kind(group, version, asked.get("resource") or "")
            kind = GroupVersionKind(group, version, owner.kind) if owner is not None else kind
        return is_filtered(
            kind,
            request.subresource,
            admission.get("namespace") or "",
            admission.get("name") or "",
        )

    return is_left_alone


def _is_own(caller: Caller | None, own_accounts: str) -> bool:
    return caller is not None and caller.username.startswith(own_accounts)


def build_resource_filter(settings: Settings) -> ResourceFilterTest:
    """Whether an object of this kind, namespace and name is exempt."""
    filters = [
        (
            compile_kind_selector(parse_kind_selector(each.kind)),
            compile_wildcard(each.namespace),
            compile_wildcard(each.name),
        )
        for each in settings.resource_filters
    ]
    # Most filters name a kind: the filters of each kind are cached.
    concerned: dict[tuple[GroupVersionKind, str], list[tuple[Json, Json]]] = {}

    def find(kind: GroupVersionKind, subresource: str) -> list[tuple[Json, Json]]:
        found = [
            (fits_namespace, fits_name)
            for fits, fits_namespace, fits_name in filters
            if fits(kind.group, kind.version, kind.kind, subresource)
        ]
        if len(concerned) >= _MAX_KINDS:
            concerned.clear()
        concerned[kind, subresource] = found
        return found

    def is_filtered(kind: GroupVersionKind, subresource: str, namespace: str, name: str) -> bool:
        tests = concerned.get((kind, subresource))
        if tests is None:
            tests = find(kind, subresource)
        for fits_namespace, fits_name in tests:
            if fits_namespace(namespace) and fits_name(name):
                return True
            # A filter for a namespace's objects also covers the namespace.
            if kind == _NAMESPACE and fits_namespace(name):
                return True
        return False

    return is_filtered if filters else lambda *_: False


def _build_caller_test(settings: Settings) -> _CallerTest:
    chosen = (
        settings.exclude_usernames,
        settings.exclude_groups,
        settings.exclude_roles,
        settings.exclude_cluster_roles,
    )
    is_excluded = _compile_callers([each.excluded for each in chosen])
    is_included = _compile_callers([each.included for each in chosen])
    if is_excluded is None:
        return lambda _: False
    if is_included is None:
        return is_excluded
    return lambda caller: is_excluded(caller) and not is_included(caller)


def _compile_callers(patterns: list[tuple[str, ...]]) -> _CallerTest | None:
    """Whether one of a caller's names matches a pattern; None if there are no patterns."""
    if not any(patterns):
        return None
    usernames, groups, roles, cluster_roles = (_compile_names(each) for each in patterns)

    def fits(caller: Caller) -> bool:
        return (
            usernames((caller.username,))
            or groups(caller.groups)
            or roles(caller.roles)
            or cluster_roles(caller.cluster_roles)
        )

    return fits


def _compile_names(patterns: Iterable[str]) -> Callable[[tuple[str, ...]], bool]:
    exact = frozenset(pattern for pattern in patterns if not has_wildcard(pattern))
    tests = [compile_wildcard(pattern) for pattern in patterns if has_wildcard(pattern)]
    if not tests:
        return (lambda names: not exact.isdisjoint(names)) if exact else lambda _: False

    def fits(names: tuple[str, ...]) -> bool:
        return not exact.isdisjoint(names) or any(test(name) for name in names for test in tests)

    return fits
