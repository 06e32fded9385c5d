"""Outcomes become JUnit XML: a suite for each policy, a case for each rule on each resource."""

import re
from collections.abc import Iterable, Sequence
from xml.sax.saxutils import quoteattr

from lictor.core.model.result import Status
from lictor.core.raw import JsonObject
from lictor.core.report.json_text import render_json
from lictor.core.report.outcomes import TestOutcome
from lictor.core.report.table import HEADERS, MESSAGE_HEADER
from lictor.core.report.yaml_text import render_yaml


def render_outcomes_json(outcomes: Iterable[TestOutcome], *, detailed: bool = False) -> str:
    """An indented JSON list, ending in a newline."""
    return render_json(_build_list(outcomes, detailed=detailed), indent=True) + "\n"


def render_outcomes_yaml(outcomes: Iterable[TestOutcome], *, detailed: bool = False) -> str:
    """A YAML list, ending in a newline."""
    return render_yaml(_build_list(outcomes, detailed=detailed))


def _build_list(outcomes: Iterable[TestOutcome], *, detailed: bool) -> list[JsonObject]:
    return [_build_object(outcome, detailed=detailed) for outcome in outcomes]


def _build_object(outcome: TestOutcome, *, detailed: bool) -> JsonObject:
    made = {
        "ID": outcome.id,
        "POLICY": outcome.policy,
        "RULE": outcome.rule,
        "RESOURCE": outcome.resource,
        "RESULT": outcome.title,
        "REASON": outcome.reason,
    }
    # The one key that is not in capitals: so it is with Kyverno, and scripts read it.
    return {**made, "Message": outcome.message} if detailed else made


# What would end a cell, or hide text as a tag.
_ESCAPES = str.maketrans({"|": "\\|", "\n": "<br>", "\r": "", "<": "&lt;", "`": "\\`", "*": "\\*"})


def render_markdown(outcomes: Iterable[TestOutcome], *, detailed: bool = False) -> str:
    """A table with one line for each outcome; the header is there even when nothing follows."""
    headers = [*HEADERS, MESSAGE_HEADER] if detailed else list(HEADERS)
    lines = [f"| {' | '.join(headers)} | ", "|" + "----|" * len(headers)]
    lines += [_render_line(outcome, detailed=detailed) for outcome in outcomes]
    return "\n".join(lines) + "\n"


def _render_line(outcome: TestOutcome, *, detailed: bool) -> str:
    cells = [
        str(outcome.id),
        outcome.policy,
        outcome.rule,
        outcome.resource,
        outcome.title,
        outcome.reason,
    ]
    if detailed:
        cells.append(outcome.message.rstrip("\n"))
    return "| " + " | ".join(cell.translate(_ESCAPES) for cell in cells) + " |"


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
