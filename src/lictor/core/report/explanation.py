"""Explanations of results as a tree of text, or as JSON."""

from collections.abc import Iterator

import msgspec

from lictor.core.families.explanation import (
    CheckedSigner,
    ComparedCondition,
    EvaluatedExpression,
    MatchClause,
    RuleExplanation,
)
from lictor.core.lang.go_number import dump_go_json
from lictor.core.model.result import Result, Status
from lictor.core.raw import Json, JsonObject
from lictor.core.report.summary import render_failure

MAX_SHOWN = 120


class Explanation(msgspec.Struct, frozen=True):
    """Explains the result of one policy for one resource."""

    policy: str
    resource: str
    rules: tuple[RuleExplanation, ...] = ()

    @property
    def failed(self) -> "Explanation":
        """The same, with only those rules that are not fine."""
        fine = (Status.PASS, Status.SKIP)
        wrong = (r for r in self.rules if any(each.status not in fine for each in r.results))
        return msgspec.structs.replace(self, rules=tuple(wrong))


# --- as text


def render_explanation(explanation: Explanation, *, width: int = MAX_SHOWN) -> Iterator[str]:
    """A tree, line by line; values and expressions are cut at a width, or not at all for 0."""
    yield f"{explanation.policy} -> {explanation.resource}"
    for index, rule in enumerate(explanation.rules):
        last = index == len(explanation.rules) - 1
        title = rule.title or f"rule {rule.rule}"
        yield f"{'└──' if last else '├──'} {title}: {_verdict(rule)}"
        lines = list(_rule_lines(rule, width))
        for number, text in enumerate(lines):
            branch = "└──" if number == len(lines) - 1 else "├──"
            yield f"{'    ' if last else '│   '}{branch} {text}"


def _verdict(rule: RuleExplanation) -> str:
    if not rule.matched:
        return "does not concern this resource"
    if not rule.results:
        return "matched, without a result"
    return ", ".join(sorted({str(result.status) for result in rule.results}))


def _rule_lines(rule: RuleExplanation, width: int) -> Iterator[str]:
    for clause in rule.clauses:
        if not any(other.path.startswith(f"{clause.path}.") for other in rule.clauses):
            yield _clause_line(clause, width)
    for loaded in rule.context:
        shown = (
            f"could not be loaded: {loaded.error}" if loaded.error else _shown(loaded.value, width)
        )
        yield f"context {loaded.name} = {shown}"
    for compared in rule.conditions:
        yield _condition_line(compared, width)
    for evaluated in rule.expressions:
        yield _expression_line(evaluated, width)
    for signer in rule.signers:
        yield from _signer_lines(signer)
    for result in rule.results:
        yield f"{result.status}: {result.message}"
        if result.failure is not None:
            yield render_failure(result.failure)


def _clause_line(clause: MatchClause, width: int) -> str:
    mark = "✓" if clause.fits else "✗"
    return f"{mark} {clause.path} {_shown(clause.wanted, width)}"


def _condition_line(compared: ComparedCondition, width: int) -> str:
    if compared.error:
        return f"! {compared.path}: {compared.error}"
    mark = "holds" if compared.holds else "does not hold"
    return (
        f"{compared.path}: {_shown(compared.key, width)} {compared.operator} "
        f"{_shown(compared.value, width)}: {mark}"
    )


def _expression_line(evaluated: EvaluatedExpression, width: int) -> str:
    shown = _cut(" ".join(evaluated.text.split()), width)
    path = evaluated.path.removesuffix(".expression")
    named = f"{path}: {shown}" if shown else path
    if evaluated.error:
        return f"! {named}: {evaluated.error}"
    return f"{named} = {_shown(evaluated.value, width)}"


def _signer_lines(signer: CheckedSigner) -> Iterator[str]:
    if signer.refused:
        yield f"✗ {signer.path}: {signer.refused}"
    for proved in signer.proved:
        yield f"✓ {signer.path}: {proved}"


def _shown(value: Json, width: int) -> str:
    return _cut(dump_go_json(to_plain(value)), width)


def _cut(text: str, width: int) -> str:
    return text if not width or len(text) <= width else f"{text[:width]}…"


# --- as JSON


def explanation_to_json(explanation: Explanation) -> JsonObject:
    """The explanation as JSON."""
    return {
        "policy": explanation.policy,
        "resource": explanation.resource,
        "rules": [_rule_to_json(rule) for rule in explanation.rules],
    }


def _rule_to_json(rule: RuleExplanation) -> JsonObject:
    return {
        "rule": rule.rule,
        "matched": rule.matched,
        "clauses": [
            {"path": c.path, "fits": c.fits, "wanted": to_plain(c.wanted)} for c in rule.clauses
        ],
        "context": [
            {"name": c.name, "value": to_plain(c.value), "error": c.error} for c in rule.context
        ],
        "conditions": [
            {
                "path": c.path,
                "key": to_plain(c.key),
                "operator": c.operator,
                "value": to_plain(c.value),
                "holds": c.holds,
                "error": c.error,
            }
            for c in rule.conditions
        ],
        "expressions": [
            {"path": e.path, "text": e.text, "value": to_plain(e.value), "error": e.error}
            for e in rule.expressions
        ],
        "signers": [
            {"path": s.path, "proved": list(s.proved), "refused": s.refused} for s in rule.signers
        ],
        "results": [_result_to_json(result) for result in rule.results],
    }


def _result_to_json(result: Result) -> JsonObject:
    entry: JsonObject = {"status": str(result.status), "message": result.message}
    if result.failure is not None:
        entry["failure"] = {
            "path": result.failure.path,
            "expected": to_plain(result.failure.expected),
            "found": to_plain(result.failure.found),
            "reason": result.failure.reason,
        }
    return entry


def to_plain(value: Json) -> Json:
    """Records of a policy as plain JSON; what has no such form as its text."""
    if value is None or isinstance(value, (str, int, float, bool)):
        return value
    if isinstance(value, dict):
        return {str(key): to_plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [to_plain(item) for item in value]
    fields = getattr(value, "__struct_fields__", None)
    if fields is not None:
        named = zip(fields, value.__struct_encode_fields__, strict=True)
        made = {name: to_plain(getattr(value, field)) for field, name in named}
        return {name: item for name, item in made.items() if item not in (None, "", [], {})}
    return str(value)
