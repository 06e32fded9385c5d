"""Exceptions: what they hide, from which policies, and when they end; and one to copy."""

from lictor.addons.web.markup import Child, Html, element, join
from lictor.addons.web.pages import addresses
from lictor.addons.web.pages.page import PageContext, Section
from lictor.addons.web.pages.policy_text import render_text
from lictor.addons.web.pages.tables import render_empty, render_heads
from lictor.addons.web.pages.words import count_things, format_number, render_time
from lictor.addons.web.records import ReportedResult, ResultFilter, ShownException, ShownPolicy
from lictor.core.families.registry import PolicyKind, registry
from lictor.core.model.result import PolicyRef
from lictor.core.report.exceptions import NO_NAMESPACE, build_exception
from lictor.core.report.manifest_text import render_manifest
from lictor.core.report.resource_report import ReportSubject

_SOON = 7 * 86400
_MOST_ROWS = 500
# Exceptions that are made here end after thirty days: nanoseconds, as durations are counted.
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
    hidden = sum(each.hidden for each in ordered)
    message = f"{count_things(len(ordered), 'exception')}, {count_things(hidden, 'result')} hidden"
    content = join(
        element("h1", "Exceptions"),
        element("p", message, class_="total"),
        element("p", f"The first {_MOST_ROWS} are shown.") if len(ordered) > _MOST_ROWS else None,
        _render_table(context, ordered[:_MOST_ROWS])
        if ordered
        else render_empty("There are no exceptions."),
    )
    return Section("Exceptions", content)


def _render_table(context: PageContext, found: list[ShownException]) -> Html:
    return element(
        "table",
        element("caption", "Exceptions", class_="unseen"),
        render_heads(("Exception", "From", "Ends"), ("Hides",)),
        element("tbody", [_render_row(context, each) for each in found]),
        class_="exceptions",
    )


def _render_row(context: PageContext, shown: ShownException) -> Html:
    place = element("span", f"{shown.namespace}/", class_="quiet") if shown.namespace else None
    where = element("span", shown.cluster, class_="cluster") if context.is_plural else None
    text = element("details", element("summary", "Its text"), render_text(shown.text))
    return element(
        "tr",
        element("th", where, place, shown.name, text, scope="row"),
        element("td", _render_policies(context, shown), data_label="From"),
        element("td", _render_end(shown, context.request.now), data_label="Ends"),
        element("td", _render_hidden(context, shown), class_="number", data_label="Hides"),
    )


def _render_policies(context: PageContext, shown: ShownException) -> Html:
    items = [
        element(
            "li",
            element("a", policy, href=context.link(addresses.POLICY, _choose(shown, policy))),
            element("span", f" {', '.join(rules)}", class_="quiet") if rules else None,
        )
        for policy, rules in shown.policies
    ]
    return element("ul", items, class_="bare")


def _choose(shown: ShownException, policy: str) -> ResultFilter:
    return ResultFilter(clusters=(shown.cluster,), policies=(policy,))


def _render_end(shown: ShownException, now: int) -> Child:
    if not shown.ends_at:
        return element("span", "never", class_="change worse")
    class_ = "ended" if shown.ends_at <= now else "soon" if shown.ends_at < now + _SOON else ""
    word = "ended " if shown.ends_at <= now else ""
    return element("span", word, render_time(shown.ends_at, now), class_=class_ or None)


def _render_hidden(context: PageContext, shown: ShownException) -> Child:
    if not shown.hidden:
        return element("span", "0", class_="nought", title="It hides nothing now")
    # Policies may be named by patterns, for which there is no filter.
    names = tuple(policy for policy, _ in shown.policies)
    chosen = ResultFilter(clusters=(shown.cluster,), policies=names, statuses=("skip",))
    return element("a", format_number(shown.hidden), href=context.link(addresses.RESULTS, chosen))


# --- an exception to copy


def render_exception(row: ReportedResult, policy: ShownPolicy | None) -> Html | None:
    """A PolicyException as YAML; the page never applies it."""
    text = _write_exception(row, policy)
    if not text:
        return None
    return element(
        "section",
        element("h2", "An exception"),
        element(
            "p",
            "Where this one resource may stay as it is: an exception to review, commit and apply. "
            "It ends after 30 days. This page changes nothing.",
        ),
        element(
            "div",
            element("button", "Copy", type="button", class_="copy", hidden=True),
            element("pre", element("code", text), class_="yaml", tabindex="0"),
            class_="copied",
        ),
        class_="panel",
    )


def _write_exception(row: ReportedResult, policy: ShownPolicy | None) -> str:
    """The exception as YAML; empty where there is none for such a policy or result."""
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
    return next((kind for kind in same if kind.family == policy.family), same[0] if same else None)
