"""`pattern` and `anyPattern`: the resource, or an element of it, must match the given shape."""

from collections.abc import Callable, Sequence
from typing import TypeAlias

from lictor.core.errors import CompileError
from lictor.core.evaluate.expressions import remember_compiled
from lictor.core.evaluate.rule_context import Message, RuleContext, RuleOutcome
from lictor.core.lang.pattern import (
    Mismatch,
    Seen,
    compile_node,
    compile_pattern,
    explain_fault,
    resolve_references,
)
from lictor.core.model.program import Case, Check
from lictor.core.model.result import Failure, Result, Status
from lictor.core.raw import Json

Test: TypeAlias = Callable[[Json], Mismatch | None]
# The case and the part of the resource to compare.
EvaluateSubject: TypeAlias = Callable[[Case, Json], RuleOutcome | None]


def compile_pattern_check(
    pattern: Json, message: Message, setting: RuleContext
) -> Callable[[Case], tuple[Result, ...]]:
    """The check of a rule with one pattern, with as few calls as possible."""
    document = setting.expressions.document(resolve_references(pattern))
    if not document.is_constant:
        evaluate = compile_patterns(pattern, None, message, setting)
        return answer_by(evaluate, setting)
    # Its shape was checked with its references.
    compare = compile_node(document.constant)
    text = f"validation rule '{setting.rule}' passed."
    passed = setting.fixed(Status.PASS, text)

    def check(case: Case) -> tuple[Result, ...]:
        subject = case.request.object
        if subject is None:
            return ()  # there is no object to compare on DELETE
        seen: Seen = {}
        fault = compare(subject, seen)
        if fault is None:
            return passed or (setting.result(case, RuleOutcome(Status.PASS, text)),)
        mismatch = explain_fault(fault, seen)
        return (setting.result(case, build_mismatch_outcome(case, mismatch, message)),)

    return check


def compile_patterns(
    pattern: Json, any_pattern: Json, message: Message, setting: RuleContext
) -> EvaluateSubject:
    """The test of `pattern` or, if that is missing, `anyPattern`."""
    if pattern is not None:
        return _compile_one(pattern, message, setting)
    if not isinstance(any_pattern, list) and not isinstance(any_pattern, str):
        raise CompileError("anyPattern must be a list of patterns", where=setting.rule)
    return _compile_any(any_pattern, message, setting)


def answer_by(evaluate: EvaluateSubject, setting: RuleContext) -> Check:
    """The check that applies this test to the whole object."""
    # Whether an outcome becomes the same result for all requests.
    is_fixed = setting.override is None and setting.properties.is_constant
    # A pass is nearly always the same outcome: its result is built once. One pair, as threads share
    # it.
    known: tuple[RuleOutcome | None, tuple[Result, ...]] = (None, ())

    def check(case: Case) -> tuple[Result, ...]:
        nonlocal known
        outcome = evaluate(case, case.request.object)
        if outcome is None:
            return ()
        last, results = known
        if outcome is not last:
            results = (setting.result(case, outcome),)
            if is_fixed and outcome.status is Status.PASS:
                known = outcome, results
        return results

    return check


def _compile_one(pattern: Json, message: Message, setting: RuleContext) -> EvaluateSubject:
    tests = _compile_tests(pattern, setting, single=True)
    passed = RuleOutcome(Status.PASS, f"validation rule '{setting.rule}' passed.")

    def evaluate(case: Case, subject: Json) -> RuleOutcome | None:
        if subject is None:
            return None
        mismatch = tests(case)[0](subject)
        return passed if mismatch is None else build_mismatch_outcome(case, mismatch, message)

    return evaluate


def _compile_any(any_pattern: Json, message: Message, setting: RuleContext) -> EvaluateSubject:
    tests = _compile_tests(any_pattern, setting, single=False)
    rule = setting.rule
    passed: dict[int, RuleOutcome] = {}

    def evaluate(case: Case, subject: Json) -> RuleOutcome | None:
        if subject is None:
            return None
        mismatches = []
        for index, test in enumerate(tests(case)):
            mismatch = test(subject)
            if mismatch is None:
                if index not in passed:
                    text = f"validation rule '{rule}' anyPattern[{index}] passed."
                    passed[index] = RuleOutcome(Status.PASS, text)
                return passed[index]
            mismatches.append((index, mismatch))
        return _build_all_outcome(case, mismatches, message, rule)

    return evaluate


def _compile_tests(
    patterns: Json, setting: RuleContext, *, single: bool
) -> Callable[[Case], Sequence[Test]]:
    """The tests of one pattern or of a list; compiled now, or per request."""
    # References first: text from a request must never be interpreted as one.
    document = setting.expressions.document(resolve_references(patterns))
    if document.is_constant:
        tests = _compile_each(document.constant, single=single)
        return lambda _: tests
    compile_filled = remember_compiled(lambda filled: _compile_each(filled, single=single))
    return lambda case: compile_filled(document.fill(case.scope))


def _compile_each(patterns: Json, *, single: bool) -> Sequence[Test]:
    if single:
        return (compile_pattern(patterns, references=False),)
    if not isinstance(patterns, list):
        raise CompileError("anyPattern must be a list of patterns")
    return tuple(compile_pattern(pattern, references=False) for pattern in patterns)


def build_mismatch_outcome(case: Case, mismatch: Mismatch, message: Message) -> RuleOutcome:
    """The outcome of the rule for one mismatch."""
    if mismatch.skip:
        return RuleOutcome(Status.SKIP, mismatch.reason)
    if not mismatch.path:
        return RuleOutcome(Status.ERROR, message.of_error(case, mismatch.reason))
    return RuleOutcome(Status.FAIL, message.of_path(case, mismatch.path), _failure(mismatch))


def _failure(mismatch: Mismatch) -> Failure:
    # Expected and found values suffice; a reason is needed only if nothing was expected.
    reason = "" if mismatch.expected is not None else mismatch.reason
    return Failure(mismatch.path, mismatch.expected, mismatch.found, reason)


def _build_all_outcome(
    case: Case, mismatches: list[tuple[int, Mismatch]], message: Message, rule: str
) -> RuleOutcome:
    failed = [(index, m) for index, m in mismatches if not m.skip]
    if not failed:
        if not mismatches:
            return RuleOutcome(Status.PASS, message.text)
        skipped = [f"rule {rule}[{index}] skipped: {m.reason}" for index, m in mismatches]
        return RuleOutcome(Status.SKIP, " ".join(skipped))
    reasons = [
        f"rule {rule}[{index}] failed at path {m.path}"
        if m.path
        else f"rule {rule}[{index}] failed: {m.reason}"
        for index, m in failed
    ]
    return RuleOutcome(
        Status.FAIL, message.of_reasons(case, " ".join(reasons)), _failure(failed[0][1])
    )
