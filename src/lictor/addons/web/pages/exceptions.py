"""The list of exceptions, and an exception for one result, to copy."""

from collections.abc import Mapping

from lictor.addons.web.pages.page import PageContext, Section
from lictor.addons.web.records import ReportedResult, ResultFilter, ShownException, ShownPolicy
from lictor.core.families.family import PolicyKind
from lictor.core.families.registry import registry
from lictor.core.model.result import PolicyRef
from lictor.core.report.exceptions import NO_NAMESPACE, build_exception
from lictor.core.report.manifest_text import render_manifest
from lictor.core.report.resource_report import ReportSubject

_SOON = 7 * 86400
_MOST_ROWS = 500
# In nanoseconds: an exception that is offered here ends after thirty days.
_EXCEPTION_TTL = 30 * 24 * 3600 * 1_000_000_000


def render_exception_list(context: PageContext) -> Section:
    """All exceptions, those that hide most first."""
    found = [
        each
        for each in context.state.list_exceptions(context.viewer)
        if each.cluster in context.clusters
    ]
    ordered = sorted(
        found, key=lambda each: (-each.hidden, each.cluster, each.namespace, each.name)
    )
    values: Mapping[str, object] = {
        "total": len(ordered),
        "hidden": sum(each.hidden for each in ordered),
        "exceptions": ordered[:_MOST_ROWS],
        "soon": context.request.now + _SOON,
        "filter_policy": _filter_policy,
        "filter_hidden": _filter_hidden,
    }
    return Section("Exceptions", "exceptions.html", values)


def _filter_policy(shown: ShownException, policy: str) -> ResultFilter:
    return ResultFilter(clusters=(shown.cluster,), policies=(policy,))


def _filter_hidden(shown: ShownException) -> ResultFilter:
    # Policies can be named by patterns, for which there is no filter.
    names = tuple(policy for policy, _ in shown.policies)
    return ResultFilter(clusters=(shown.cluster,), policies=names, statuses=("skip",))


def write_exception(row: ReportedResult, policy: ShownPolicy | None) -> str:
    """The exception as YAML; empty if such a policy or result has none."""
    if policy is None or row.status not in ("fail", "warn") or not row.name:
        return ""
    kind = _find_kind(policy)
    if kind is None:
        return ""
    ref = PolicyRef(
        name=policy.name,
        namespace=policy.namespace,
        kind=policy.kind,
        api_version=f"{kind.group}/{kind.preferred_version}",
    )
    namespace = row.namespace or NO_NAMESPACE
    subject = ReportSubject(row.api_version, row.kind, namespace, row.name, row.uid)
    made = build_exception(ref, row.rule, subject, _EXCEPTION_TTL, row.properties)
    if made is None:
        return ""
    if row.namespace:
        made["metadata"]["namespace"] = row.namespace
    return render_manifest(made)


def _find_kind(policy: ShownPolicy) -> PolicyKind | None:
    same = [kind for kind in registry().kinds if kind.kind == policy.kind]
    return next(
        (kind for kind in same if kind.family.name == policy.family), same[0] if same else None
    )
