"""Explanations of rules: the recorded answers of their closures, as records."""

from collections.abc import Callable, Iterable, Iterator, Sequence

import msgspec

from lictor.core.lang.watch import ClosureAnswer
from lictor.core.model.metadata import PolicyRecord
from lictor.core.model.result import Result
from lictor.core.raw import Json


class MatchClause(msgspec.Struct, frozen=True):
    """One clause of match or exclude, and whether it fits."""

    path: str
    fits: bool
    wanted: Json = None


class ComparedCondition(msgspec.Struct, frozen=True):
    """One condition: what its key became, and whether it holds."""

    path: str
    key: Json
    operator: str
    value: Json
    holds: bool | None
    error: str = ""


class LoadedEntry(msgspec.Struct, frozen=True):
    """One context entry that was used, and its value or why it has none."""

    name: str
    value: Json = None
    error: str = ""


class EvaluatedExpression(msgspec.Struct, frozen=True):
    """One expression in CEL, or a variable of such: what it answered, or why it has no answer."""

    path: str
    text: str = ""
    value: Json = None
    error: str = ""


class CheckedSigner(msgspec.Struct, frozen=True):
    """One who must have signed an image: what they proved, or why they do not count."""

    # Where the policy names them: `attestors[0].entries[0].keys`.
    path: str
    proved: tuple[str, ...] = ()
    refused: str = ""


class RuleExplanation(msgspec.Struct, frozen=True):
    """Explains one rule; a CEL policy has one explanation per binding and autogen variant."""

    rule: str
    matched: bool
    clauses: tuple[MatchClause, ...] = ()
    context: tuple[LoadedEntry, ...] = ()
    conditions: tuple[ComparedCondition, ...] = ()
    expressions: tuple[EvaluatedExpression, ...] = ()
    signers: tuple[CheckedSigner, ...] = ()
    results: tuple[Result, ...] = ()
    # The heading of a rule without a name.
    title: str = ""


def explain_results(
    policy: PolicyRecord,
    recorded: Sequence[ClosureAnswer],
    results: Sequence[Result],
) -> tuple[RuleExplanation, ...]:
    """Explain each rule that returned a result, for kinds without a special explanation."""
    rules = dict.fromkeys(result.rule for result in results)
    if not rules:
        return (RuleExplanation(policy.metadata.name, matched=False),)
    return tuple(
        RuleExplanation(
            rule,
            matched=True,
            expressions=tuple(list_expressions(select_rule(recorded, rule), lambda _: None)),
            results=tuple(each for each in results if each.rule == rule),
        )
        for rule in rules
    )


def select_rule(recorded: Sequence[ClosureAnswer], rule: str) -> list[ClosureAnswer]:
    """The answers that were recorded for one rule."""
    return [each for each in recorded if each.rule == rule]


def is_expression(path: str) -> bool:
    """Whether it is CEL that answered."""
    begins = ("variables.", "images.", _IMAGE_REFERENCE)
    return path.startswith(begins) or path.endswith(_ENDS_OF_EXPRESSIONS)


# Whether a policy matches an image, by its image references.
_IMAGE_REFERENCE = "matchImageReferences["


_ENDS_OF_EXPRESSIONS = ("].expression", ".messageExpression", ".valueExpression", ".expression")


def list_expressions(
    recorded: Iterable[ClosureAnswer], find_text: Callable[[str], Json]
) -> Iterator[EvaluatedExpression]:
    """What expressions and their variables answered, each once for the same answer."""
    seen: list[tuple[Json, ...]] = []
    for each in recorded:
        image = each.given[0] if each.what.startswith(_IMAGE_REFERENCE) else ""
        key = (each.what, image, each.answer, each.error)
        if not is_expression(each.what) or key in seen:
            continue
        seen.append(key)
        text = _word_reference(image, each.what, find_text) if image else find_text(each.what)
        yield EvaluatedExpression(
            each.what, text if isinstance(text, str) else "", each.answer, each.error
        )


def _word_reference(image: str, path: str, find_text: Callable[[str], Json]) -> str:
    glob = find_text(f"{path}.glob")
    return f"{image} like {glob}" if glob else f"{image}: {find_text(f'{path}.expression')}"


def dig(record: Json, path: str) -> Json:
    """What the author wrote at a path such as `match.any[0].resources.kinds`."""
    here: Json = record
    for part in path.replace("[", ".[").split("."):
        if part.startswith("["):
            index = int(part[1:-1])
            here = here[index] if isinstance(here, (list, tuple)) and index < len(here) else None
        elif isinstance(here, dict):
            here = here.get(part)
        else:
            here = getattr(here, _snake(part), None)
    return here


def _snake(name: str) -> str:
    return "".join(f"_{c.lower()}" if c.isupper() else c for c in name)
