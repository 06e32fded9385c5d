"""A report as one HTML file, which loads nothing from elsewhere."""

import base64
from collections.abc import Mapping, Sequence
from hashlib import sha256
from typing import TypeAlias

import msgspec

from lictor.addons.web.pages.details import ResultFacts
from lictor.addons.web.pages.layout import read_static
from lictor.addons.web.pages.policy_text import read_title
from lictor.addons.web.pages.tables import sum_groups
from lictor.addons.web.pages.templates import render_template
from lictor.addons.web.pages.words import WRONG
from lictor.addons.web.records import ReportedResult, ResultFilter, ShownPolicy, Viewer
from lictor.addons.web.sources.page_data import PageData
from lictor.core.model.result import Failure

# Each is some kilobytes: a browser opens so many at once.
_MOST_RESULTS = 2000
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
    from markupsafe import Markup

    groups = report.state.results.count(ResultFilter(), report.viewer, ("policy",))
    resources = report.state.results.count(
        ResultFilter(), report.viewer, ("namespace", "kind", "name")
    )
    wrong = ResultFilter(statuses=WRONG)
    rows, total = report.state.results.select_many(wrong, report.viewer, _MOST_RESULTS)
    policies = _find_policies(report, rows)
    style, script = _read("page.css"), _read("page.js")
    return render_template(
        "standalone.html",
        # As on the pages, only our own style and script run, with any content of a report.
        rules=f"default-src 'none'; style-src '{_hash(style)}'; script-src '{_hash(script)}'",
        style=Markup(style),  # noqa: S704  (a file of this package)
        script=Markup(script),  # noqa: S704  (a file of this package)
        now=report.now,
        totals=sum_groups(groups),
        resources=len(resources),
        groups=groups,
        findings_shown=[_collect_facts(report, row, policies) for row in rows],
        total=total,
        policies=[
            (name, policy, read_title(policy, name)) for name, policy in sorted(policies.items())
        ],
        anchors={name: _anchor(name) for name in policies},
    )


def _collect_facts(
    report: StandaloneReport, row: ReportedResult, policies: Mapping[str, ShownPolicy]
) -> ResultFacts:
    return ResultFacts(row, policies.get(row.policy), report.failures.get(identify_result(row)))


def _read(name: str) -> str:
    found = read_static(name)
    return found.body.decode() if found else ""


def _hash(text: str) -> str:
    return f"sha256-{base64.b64encode(sha256(text.encode()).digest()).decode()}"


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


def _anchor(policy: str) -> str:
    # The name of a policy can contain blanks; an address cannot.
    return f"policy-{sha256(policy.encode(errors='replace')).hexdigest()[:12]}"
