"""Outcomes become JSON or YAML: a list with one object for each."""

from collections.abc import Iterable

from lictor.raw import JsonObject
from lictor.report.json_text import render_json
from lictor.report.test_outcome import TestOutcome
from lictor.report.yaml_text import render_yaml


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
