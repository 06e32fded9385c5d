"""Outcomes become JUnit XML: a suite for each policy, a case for each rule on each resource."""

import re
from collections.abc import Iterable, Sequence
from xml.sax.saxutils import quoteattr

from lictor.model.result import Status
from lictor.report.test_outcome import TestOutcome

# What XML 1.0 cannot hold, not even escaped.
_FORBIDDEN = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def render_junit(outcomes: Iterable[TestOutcome], *, detailed: bool = False) -> str:
    """A whole XML document, ending in a newline."""
    suites: dict[str, list[TestOutcome]] = {}
    for outcome in outcomes:
        suites.setdefault(outcome.policy, []).append(outcome)
    every = [outcome for suite in suites.values() for outcome in suite]
    parts = ['<?xml version="1.0" encoding="UTF-8"?>\n', f"<testsuites {_count(every)}>\n"]
    for policy, suite in suites.items():
        parts.append(f" <testsuite name={_attribute(policy)} {_count(suite)}>\n")
        parts += [_render_case(outcome, detailed=detailed) for outcome in suite]
        parts.append(" </testsuite>\n")
    parts.append("</testsuites>\n")
    return "".join(parts)


def _count(outcomes: Sequence[TestOutcome]) -> str:
    failures = sum(not outcome.ok for outcome in outcomes)
    return f'tests="{len(outcomes)}" failures="{failures}"'


def _render_case(outcome: TestOutcome, *, detailed: bool) -> str:
    return (
        f"  <testcase classname={_attribute(outcome.rule)} name={_attribute(outcome.resource)}>\n"
        f"{_render_verdict(outcome, detailed=detailed)}"
        "  </testcase>\n"
    )


def _render_verdict(outcome: TestOutcome, *, detailed: bool) -> str:
    facts = [
        ("Policy", outcome.policy),
        ("Rule", outcome.rule),
        ("Resource", outcome.resource),
    ]
    message = [("Message", outcome.message)] if detailed else []
    if not outcome.ok:
        facts += [("Result", outcome.title), *message]
        reason = _attribute(outcome.reason or outcome.message or outcome.title)
        return f"   <failure message={reason}>{_data(facts)}</failure>\n"
    skipped = "   <skipped/>\n" if outcome.result is Status.SKIP else ""
    facts = [("Reason", outcome.reason or outcome.title), *facts, *message]
    return f"{skipped}   <system-out>{_data(facts)}</system-out>\n"


def _data(facts: Iterable[tuple[str, str]]) -> str:
    text = "".join(f"    {name}: {value}\n" for name, value in facts)
    # Only the end mark has a meaning inside CDATA.
    safe = _FORBIDDEN.sub("\N{REPLACEMENT CHARACTER}", text).replace("]]>", "]]]]><![CDATA[>")
    return f"<![CDATA[\n{safe}   ]]>"


def _attribute(text: str) -> str:
    return quoteattr(_FORBIDDEN.sub("\N{REPLACEMENT CHARACTER}", text))
