"""A whole report as one HTML file: nothing is loaded from elsewhere, and nothing is asked again."""

import base64
from collections.abc import Mapping, Sequence
from hashlib import sha256
from typing import TypeAlias

import msgspec

from lictor.addons.web.markup import Html, element, join
from lictor.addons.web.pages.charts import render_bar
from lictor.addons.web.pages.details import PLACE_PROPERTY, ResultFacts, render_advice, render_cause
from lictor.addons.web.pages.exceptions import render_exception
from lictor.addons.web.pages.layout import read_static
from lictor.addons.web.pages.policy_text import (
    read_title,
    render_documentation,
    render_facts,
    render_text,
)
from lictor.addons.web.pages.tables import render_empty, render_groups, shorten, sum_groups
from lictor.addons.web.pages.words import (
    WRONG,
    count_things,
    describe_counts,
    format_moment,
    format_number,
    name_resource_of,
    render_severity,
    render_share,
    render_status,
)
from lictor.addons.web.records import (
    STATUSES,
    GroupCount,
    ReportedResult,
    ResultFilter,
    ShownPolicy,
    Viewer,
)
from lictor.addons.web.sources.page_data import PageData
from lictor.core.model.result import Failure
from lictor.core.release import VERSION

# Each is some kilobytes: a browser opens so many at once.
_MOST_RESULTS = 2000
_BATCH = 1000
ResultKey: TypeAlias = tuple[str, str, str, str, str]


def identify_result(row: ReportedResult) -> ResultKey:
    """What a result is about: policy, rule, namespace, kind and name."""
    return row.policy, row.rule, row.namespace, row.kind, row.name


class StandaloneReport(msgspec.Struct, frozen=True):
    """Everything that the file shows."""

    state: PageData
    viewer: Viewer
    # Where resources break rules.
    failures: Mapping[ResultKey, Failure]
    # Seconds since 1970.
    now: int


def render_standalone(report: StandaloneReport) -> str:
    """The document, from its doctype on."""
    groups = report.state.results.count(ResultFilter(), report.viewer, ("policy",))
    rows, total = _select_wrong(report)
    policies = _find_policies(report, rows)
    content = join(
        _render_head(report, groups),
        _render_groups(groups, policies),
        element("h2", f"{count_things(total, 'finding')}", id="findings"),
        _render_search() if rows else None,
        _render_rows(report, rows, policies) if rows else render_empty("Nothing is wrong."),
        _render_left_out(total - len(rows)),
        element("h2", "Policies") if policies else None,
        [_render_policy(name, policy) for name, policy in sorted(policies.items())],
        element("p", f"lictor {VERSION}", class_="quiet"),
    )
    return _wrap(content)


def _wrap(content: Html) -> str:
    style, script = _read("page.css"), _read("page.js")
    # The same rules as on the page: only our own style and script run, whatever a report holds.
    rules = f"default-src 'none'; style-src '{_hash(style)}'; script-src '{_hash(script)}'"
    head = element(
        "head",
        element("meta", charset="utf-8"),
        element("meta", http_equiv="Content-Security-Policy", content=rules),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("meta", name="color-scheme", content="light dark"),
        element("title", "Policy report"),
        element("style", Html(style)),
        element("script", Html(script)),
    )
    main = element("main", content, id="content")
    document = element("html", head, element("body", main), lang="en", class_="bare alone")
    return f"<!doctype html>\n{document}\n"


def _read(name: str) -> str:
    found = read_static(name)
    return found.body.decode() if found else ""


def _hash(text: str) -> str:
    return f"sha256-{base64.b64encode(sha256(text.encode()).digest()).decode()}"


def _select_wrong(report: StandaloneReport) -> tuple[list[ReportedResult], int]:
    rows: list[ReportedResult] = []
    chosen = ResultFilter(statuses=WRONG)
    while True:
        page = report.state.results.select(chosen, report.viewer, offset=len(rows), limit=_BATCH)
        rows += page.rows
        if len(page.rows) < _BATCH or len(rows) >= _MOST_RESULTS:
            return rows, page.total


def _find_policies(
    report: StandaloneReport, rows: Sequence[ReportedResult]
) -> dict[str, ShownPolicy]:
    found: dict[str, ShownPolicy] = {}
    for row in rows:
        if row.policy not in found:
            policy = report.state.find_policy(row.cluster, row.policy, report.viewer)
            if policy is not None:
                found[row.policy] = policy
    return found


# --- totals


def _render_head(report: StandaloneReport, groups: Sequence[GroupCount]) -> Html:
    totals = sum_groups(groups)
    resources = report.state.results.count(
        ResultFilter(), report.viewer, ("namespace", "kind", "name")
    )
    tiles = [
        element(
            "li",
            element(
                "div",
                element("span", status.capitalize(), class_="tile-name"),
                element("strong", format_number(totals[status])),
                class_=f"tile {status}",
            ),
        )
        for status in STATUSES
    ]
    message = (
        f"{format_moment(report.now)} · {count_things(len(resources), 'resource')} · "
        f"{count_things(len(groups), 'policy', 'policies')}"
    )
    share = element("strong", render_share(totals))
    return join(
        element("h1", "Policy report"),
        element("p", message, class_="lead"),
        element("ul", tiles, class_="tiles"),
        render_bar(totals),
        element("p", share, f" of results pass: {describe_counts(totals)}"),
    )


def _render_groups(groups: Sequence[GroupCount], policies: Mapping[str, ShownPolicy]) -> Html:
    def name(group: GroupCount) -> Html:
        policy = group.key[0]
        if policy not in policies:
            return join(policy or "no policy")
        return element("a", policy, href=f"#{_anchor(policy)}")

    return render_groups("Results by policy", "Policy", groups, name)


def _anchor(policy: str) -> str:
    # Names of policies are texts; an address has no blanks.
    return f"policy-{sha256(policy.encode(errors='replace')).hexdigest()[:12]}"


# --- findings


def _render_search() -> Html:
    box = element("input", type="search", data_filter="finding", placeholder="part of a finding")
    return element("label", element("span", "Search"), box, class_="field search", hidden=True)


def _render_rows(
    report: StandaloneReport, rows: Sequence[ReportedResult], policies: Mapping[str, ShownPolicy]
) -> Html:
    items = [
        _render_row(
            ResultFacts(row, policies.get(row.policy), report.failures.get(identify_result(row)))
        )
        for row in rows
    ]
    return element("ul", items, class_="findings")


def _render_row(facts: ResultFacts) -> Html:
    row = facts.row
    summary = element(
        "summary",
        render_status(row.status),
        render_severity(row.severity),
        element("strong", row.policy or "no policy"),
        element("span", name_resource_of(row), class_="subject"),
        element("span", shorten(row.message, 160), class_="quiet"),
    )
    link = None
    if facts.policy is not None:
        link = element("p", element("a", "The policy", href=f"#{_anchor(row.policy)}"))
    body = element(
        "div",
        element("h3", read_title(facts.policy, row.policy or "no policy")),
        render_facts((("Rule", row.rule), ("File", row.properties.get(PLACE_PROPERTY)))),
        render_cause(facts),
        render_advice(facts),
        render_exception(row, facts.policy),
        link,
        class_="finding-body",
    )
    return element("li", element("details", summary, body), class_="finding")


def _render_left_out(number: int) -> Html | None:
    if number <= 0:
        return None
    return element("p", f"{count_things(number, 'more finding')} are not shown.", class_="notice")


def _render_policy(name: str, policy: ShownPolicy) -> Html:
    return element(
        "section",
        element("h3", read_title(policy, name)),
        element("p", element("code", name), class_="subject"),
        render_documentation(policy),
        element("details", element("summary", "Its text"), render_text(policy.text)),
        id=_anchor(name),
        class_="panel",
    )
