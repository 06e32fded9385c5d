"""One result: what is wrong where, how to mend it, what the policy says, and how to be excepted."""

from http import HTTPStatus

import msgspec
from msgspec.structs import replace

from lictor.addons.web.markup import Child, Html, element, join
from lictor.addons.web.pages import addresses
from lictor.addons.web.pages.exceptions import render_exception
from lictor.addons.web.pages.page import PageContext, Section
from lictor.addons.web.pages.policy_text import (
    find_rule,
    read_title,
    render_documentation,
    render_facts,
    render_text,
)
from lictor.addons.web.pages.tables import link_policy, link_resource, link_result, render_results
from lictor.addons.web.pages.words import (
    WRONG,
    format_moment,
    name_resource_of,
    render_severity,
    render_status,
    render_time,
)
from lictor.addons.web.records import ReportedResult, ResultFilter, ShownPolicy
from lictor.core.model.result import Failure
from lictor.core.raw import Json
from lictor.core.report.json_text import render_json

_MOST_ALIKE = 20
_MOST_OTHERS = 10
_LONGEST_VALUE = 4000
# Patterns that everybody writes and not everybody reads.
_PATTERN_WORDS = {"?*": "any text that is not empty", "*": "any value"}
# Where a resource was read, if it came from a file: `path:line`.
PLACE_PROPERTY = "file"
# What other tools call their advice.
_ADVICE_PROPERTIES = ("remediation", "resolution", "fix", "recommendation")


class ResultFacts(msgspec.Struct, frozen=True):
    """A result with everything that is known around it."""

    row: ReportedResult
    policy: ShownPolicy | None = None
    failure: Failure | None = None


async def render_result(context: PageContext, chosen: ResultFilter) -> Section:
    """The page of the result that the address names."""
    found = context.state.results.select(chosen, context.viewer, limit=_MOST_ALIKE)
    if not found.rows or not chosen.policies:
        return render_gone("There is no such result (any more)", context)
    at = context.request.read("at")
    number = int(at) if at.isascii() and at.isdigit() and len(at) < 3 else 0
    row = found.rows[min(number, len(found.rows) - 1)]
    facts = ResultFacts(row, find_policy_of(context, row), await _find_failure(context, row))
    content = join(
        _render_trail(context, row),
        _render_result_head(facts, context.request.now),
        _render_alike(context, found.rows, row),
        element(
            "div",
            element("div", render_cause(facts), render_advice(facts), class_="main-column"),
            element("div", _render_report(context, row), class_="side-column"),
            class_="split",
        ),
        _render_policy(facts, link_policy(context, row)),
        render_exception(row, facts.policy),
        _render_others(context, row),
    )
    return Section(f"{row.policy}: {name_resource_of(row)}", content)


def render_gone(text: str, context: PageContext) -> Section:
    """What stands in the place of something that is not there, or not for this viewer."""
    content = join(
        element("h1", text),
        element("p", "It may have been mended since, or it is not yours to see."),
        element(
            "p", element("a", "All results", href=context.link(addresses.RESULTS), class_="button")
        ),
    )
    return Section(text, content, HTTPStatus.NOT_FOUND)


def find_policy_of(context: PageContext, row: ReportedResult) -> ShownPolicy | None:
    """The policy of a result; None where it is gone, or not for the viewer."""
    return context.state.find_policy(row.cluster, row.policy, context.viewer)


async def _find_failure(context: PageContext, row: ReportedResult) -> Failure | None:
    if row.status not in WRONG:
        return None
    return await context.state.find_failure(row, context.viewer)


def _render_trail(context: PageContext, row: ReportedResult) -> Html:
    """Where this page is: namespace, resource."""
    place = ResultFilter(clusters=(row.cluster,), namespaces=(row.namespace,))
    links = [
        element("a", "Results", href=context.link(addresses.RESULTS)),
        element(
            "a", row.namespace or "cluster-wide", href=context.link(addresses.NAMESPACE, place)
        ),
        element("a", f"{row.kind} {row.name}", href=link_resource(context, row)),
    ]
    items = [element("li", link) for link in links]
    return element("nav", element("ol", items), class_="trail", aria_label="Where this is")


def _render_result_head(facts: ResultFacts, now: int) -> Html:
    """The status, the title of the policy, and what it is about."""
    row = facts.row
    return element(
        "div",
        element(
            "p",
            render_status(row.status),
            render_severity(row.severity),
            render_time(row.timestamp, now),
        ),
        element("h1", read_title(facts.policy, row.policy or "no policy")),
        element(
            "p",
            element("code", f"{row.policy}{f' / {row.rule}' if row.rule else ''}"),
            " on ",
            element("code", name_resource_of(row)),
            element("span", row.cluster, class_="cluster") if row.cluster else None,
            class_="subject",
        ),
        class_="result-head",
    )


def _render_alike(
    context: PageContext, rows: tuple[ReportedResult, ...], row: ReportedResult
) -> Html | None:
    """A tool may say several things about the same resource under the same rule."""
    if len(rows) < 2:
        return None
    items = [
        element(
            "li",
            element(
                "a",
                other.message or other.status,
                href=link_result(context, other, number),
                aria_current="true" if other is row else None,
            ),
        )
        for number, other in enumerate(rows)
    ]
    return element(
        "section",
        element("h2", f"{len(rows)} entries about this"),
        element("ol", items, class_="alike"),
        class_="panel",
    )


# --- what is wrong


def render_cause(facts: ResultFacts) -> Html:
    """The message, and the place in the resource with what was expected and found there."""
    row, failure = facts.row, facts.failure
    titles = {"pass": "Why it passes", "skip": "Why it was skipped", "error": "What went wrong"}
    message = element("p", row.message or "The report says no more than this.", class_="message")
    return element(
        "section",
        element("h2", titles.get(row.status, "What is wrong")),
        message,
        _render_failure(failure) if failure is not None else None,
        class_="panel cause",
    )


def _render_failure(failure: Failure) -> Html | None:
    pairs: list[tuple[str, Html | str | None]] = [("At", _code(_trim(failure.path)))]
    if failure.expected is not None or failure.found is not None:
        pairs.append(("Expected", _render_value(failure.expected, "expected")))
        pairs.append(("Found", _render_value(failure.found, "found")))
    if failure.reason and failure.expected is None:
        pairs.append(("Reason", failure.reason))
    return render_facts(pairs)


def _trim(path: str) -> str:
    return path.rstrip("/") or path


def _code(text: str) -> Html | None:
    return element("code", text, class_="path") if text else None


def _render_value(value: Json, word: str) -> Html:
    if value is None:
        return element("em", "nothing")
    text = value if isinstance(value, str) else render_json(value, indent=True)
    short = text if len(text) <= _LONGEST_VALUE else f"{text[:_LONGEST_VALUE]}…"
    if "\n" in short:
        return element("pre", element("code", short), class_=word, tabindex="0")
    return element("code", short, class_=word)


# --- how to mend it


def render_advice(facts: ResultFacts) -> Html | None:
    """What to do, in steps; nothing where nothing is wrong."""
    row = facts.row
    if row.status not in WRONG:
        return None
    steps = [*_list_given_advice(row), *_list_steps(facts)]
    items = [element("li", step) for step in steps]
    return element(
        "section",
        element("h2", "How to fix it"),
        element("ol", items, class_="steps"),
        class_="panel",
    )


def _list_given_advice(row: ReportedResult) -> list[Child]:
    found = {key.lower(): value for key, value in row.properties.items()}
    return [found[key] for key in _ADVICE_PROPERTIES if found.get(key)]


def _list_steps(facts: ResultFacts) -> list[Child]:
    row = facts.row
    if row.status == "error":
        return [
            "The rule could not be decided: read the message, and correct the policy or what it "
            "asks for.",
            join("Try it on the resource alone: ", element("code", _write_explain(facts))),
        ]
    steps: list[Child] = []
    change = describe_change(facts.failure)
    if change is not None:
        steps.append(change)
    elif facts.policy is not None:
        steps.append("Compare the resource with the marked lines of the policy below.")
    if row.name:
        steps.append(_name_place(row))
    if facts.policy is not None and row.name:
        steps.append(join("See what the rule sees: ", element("code", _write_explain(facts))))
    return steps


def _name_place(row: ReportedResult) -> Html:
    """Where to change the resource."""
    place = row.properties.get(PLACE_PROPERTY)
    if place:
        return join("Change it in ", element("code", place), ".")
    return join(
        "Change it where it is kept, for example in your repository, or directly: ",
        element("code", _write_kubectl("edit", row)),
    )


def describe_change(failure: Failure | None) -> Html | None:
    """The one thing to do, where expected and found say it."""
    if failure is None or not failure.path:
        return None
    path = element("code", _trim(failure.path))
    if failure.expected is None:
        return join("Correct ", path, ".") if failure.found is not None else None
    expected = _describe_expected(failure.expected)
    if failure.found is None:
        return join("Add ", path, ": ", expected, ".")
    found = element("code", _shorten(failure.found))
    return join("Change ", path, " from ", found, " to ", expected, ".")


def _describe_expected(value: Json) -> Html:
    word = _PATTERN_WORDS.get(value) if isinstance(value, str) else None
    return join(word) if word else element("code", _shorten(value))


def _shorten(value: Json) -> str:
    text = value if isinstance(value, str) else render_json(value)
    return text if len(text) <= 120 else f"{text[:117]}..."


def _write_kubectl(verb: str, row: ReportedResult) -> str:
    group = row.api_version.rpartition("/")[0]
    kind = f"{row.kind}.{row.api_version.partition('/')[2]}.{group}" if group else row.kind
    place = f" -n {row.namespace}" if row.namespace else ""
    return f"kubectl {verb} {kind.lower()} {row.name}{place}"


def _write_explain(facts: ResultFacts) -> str:
    policy = facts.policy.name if facts.policy is not None else facts.row.policy
    place = facts.row.properties.get(PLACE_PROPERTY, "").rpartition(":")[0]
    if place:
        return f"lictor explain {policy}.yaml -r {place}"
    return f"{_write_kubectl('get', facts.row)} -o yaml | lictor explain {policy}.yaml -r -"


# --- the policy


def _render_policy(facts: ResultFacts, href: str) -> Html:
    head = element(
        "div",
        element("h2", "The policy"),
        element("a", "All its results", href=href),
        class_="heading",
    )
    return element("section", head, render_policy_of(facts), class_="panel")


def render_policy_of(facts: ResultFacts) -> Html:
    """Documentation and text, with the rule marked."""
    policy = facts.policy
    if policy is None:
        message = "The text of this policy is not known here: it is gone, or another tool's."
        return element("p", message, class_="empty")
    marked = find_rule(policy, facts.row.rule)
    jump = element("p", element("a", "To the rule", href="#rule")) if marked else None
    return join(render_documentation(policy), jump, render_text(policy.text, marked))


# --- around it


def _render_report(context: PageContext, row: ReportedResult) -> Html:
    facts: list[tuple[str, str | Html | None]] = [
        ("Source", row.source),
        ("Category", row.category),
        ("Reported", format_moment(row.timestamp) if row.timestamp else ""),
        ("Report", row.report),
        ("Cluster", row.cluster if context.is_plural else ""),
        ("UID", element("code", row.uid) if row.uid else None),
    ]
    facts += [(key, shown) for key, shown in sorted(row.properties.items())]
    return element("section", element("h2", "From the report"), render_facts(facts), class_="panel")


def _render_others(context: PageContext, row: ReportedResult) -> Html | None:
    """What else is wrong with the resource."""
    chosen = ResultFilter(
        clusters=(row.cluster,),
        namespaces=(row.namespace,),
        kinds=(row.kind,),
        name=row.name,
        statuses=WRONG,
    )
    page = context.state.results.select(chosen, context.viewer, limit=_MOST_OTHERS + 1)
    others = [other for other in page.rows if _identify(other) != _identify(row)]
    if not others:
        return None
    head = element(
        "div",
        element("h2", "What else is wrong with it"),
        element(
            "a", "All about it", href=context.link(addresses.RESOURCE, replace(chosen, statuses=()))
        ),
        class_="heading",
    )
    table = render_results(context, others[:_MOST_OTHERS], "Other results of this resource")
    return element("section", head, table, class_="panel")


def _identify(row: ReportedResult) -> tuple[str, str, int]:
    return row.cluster, row.report, row.position
