"""Explains classic rules: match clauses, context, conditions, expressions and signers."""

from collections.abc import Iterable, Iterator, Sequence

import msgspec

from lictor.core.evaluate.verify_images.block_verification import SIGNER_WATCH
from lictor.core.families.classic.autogen import expand_rules
from lictor.core.families.explanation import (
    CheckedSigner,
    ComparedCondition,
    EvaluatedExpression,
    LoadedEntry,
    MatchClause,
    RuleExplanation,
    dig,
    is_expression,
    list_expressions,
    select_rule,
)
from lictor.core.lang.watch import ClosureAnswer
from lictor.core.model.policy import Policy, Rule
from lictor.core.model.result import Result
from lictor.core.signatures.records import VerifiedSignature, VerifiedStatement


def explain_classic(
    policy: Policy,
    recorded: Sequence[ClosureAnswer],
    results: Sequence[Result],
) -> tuple[RuleExplanation, ...]:
    """Each rule of a classic policy, also those that autogen makes."""
    return tuple(_explain_rule(rule, recorded, results) for rule in expand_rules(policy))


def _explain_rule(
    rule: Rule, recorded: Sequence[ClosureAnswer], results: Iterable[Result]
) -> RuleExplanation:
    own = select_rule(recorded, rule.name)
    clauses = tuple(_clauses(rule, own))
    matched = _answer(clauses, "match", default=True) and not _answer(
        clauses, "exclude", default=False
    )
    return RuleExplanation(
        rule=rule.name,
        matched=matched,
        clauses=clauses,
        context=tuple(_loaded(own)),
        conditions=tuple(_compared(rule, own)),
        expressions=tuple(_evaluated(rule, own)),
        signers=tuple(_checked(own)),
        results=tuple(r for r in results if r.rule == rule.name),
    )


def _answer(clauses: Sequence[MatchClause], path: str, *, default: bool) -> bool:
    return next((clause.fits for clause in clauses if clause.path == path), default)


def _clauses(rule: Rule, recorded: Sequence[ClosureAnswer]) -> Iterator[MatchClause]:
    seen = set()
    for each in recorded:
        if each.what.startswith(("match", "exclude")) and each.what not in seen:
            if is_expression(each.what):
                continue
            seen.add(each.what)
            yield MatchClause(each.what, bool(each.answer), dig(rule, each.what))


def _loaded(recorded: Sequence[ClosureAnswer]) -> Iterator[LoadedEntry]:
    for each in recorded:
        if each.what.startswith("context."):
            yield LoadedEntry(each.what.removeprefix("context."), each.answer, each.error)


def _compared(rule: Rule, recorded: Sequence[ClosureAnswer]) -> Iterator[ComparedCondition]:
    for each in recorded:
        if "conditions" not in each.what or is_expression(each.what):
            continue
        written = dig(rule, each.what)
        operator = written.get("operator", "") if isinstance(written, dict) else ""
        constant = written.get("value") if isinstance(written, dict) else None
        yield ComparedCondition(
            path=each.what,
            key=each.given[0] if each.given else None,
            operator=str(operator),
            value=each.given[1] if len(each.given) > 1 else constant,
            holds=None if each.error else bool(each.answer),
            error=each.error,
        )


def _checked(recorded: Iterable[ClosureAnswer]) -> Iterator[CheckedSigner]:
    for each in recorded:
        if each.what != SIGNER_WATCH:
            continue
        [wanted] = each.given
        proofs = each.answer if isinstance(each.answer, tuple) else (each.answer,)
        yield CheckedSigner(
            wanted.field.removeprefix("."),
            () if each.error else tuple(map(_describe_proof, proofs)),
            each.error,
        )


def _describe_proof(proof: VerifiedSignature | VerifiedStatement) -> str:
    signer = proof.signer
    who = signer.subject or f"a key with SHA-256 {signer.key}"
    when = f" at {signer.signed_at.isoformat()}" if signer.signed_at is not None else ""
    return f"{proof.origin} by {who}{when}"


def _evaluated(rule: Rule, recorded: Iterable[ClosureAnswer]) -> Iterator[EvaluatedExpression]:
    cel = rule.validate.cel if rule.validate is not None else None
    variables = {each.name: each.expression for each in cel.variables} if cel is not None else {}
    for each in list_expressions(
        recorded, lambda path: variables.get(path.removeprefix("variables."))
    ):
        path = _find_cel(each.path)
        text = each.text or dig(rule, path)
        yield msgspec.structs.replace(each, path=path, text=text if isinstance(text, str) else "")


def _find_cel(path: str) -> str:
    """Where a classic rule has what the other kinds call so."""
    if path.startswith("variables."):
        return path
    if path.startswith("matchConditions"):
        return path.replace("matchConditions", "celPreconditions", 1)
    return f"validate.cel.{path.replace('validations', 'expressions', 1)}"
