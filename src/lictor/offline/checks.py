"""The `checks` of a test file: assertion trees that rules' answers must, or must not, fulfil."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain

import msgspec

from lictor.lang.assertion import compile_assertion
from lictor.model.offline import Check
from lictor.model.result import Result, Status
from lictor.offline.responses import Answers, Response, key_of
from lictor.raw import Json, JsonObject
from lictor.report.test_outcome import TestOutcome

# What of a value is not as the tree wants it: empty where all is well.
Assertion = Callable[[Json], Sequence[str]]


def run_checks(
    checks: Iterable[Check], answers: Answers, source: str = ""
) -> Iterator[TestOutcome]:
    """An outcome for each answer that a check is about."""
    number = 0
    for check in checks:
        must, must_not = _compile(check.assert_), _compile(check.error)
        for response, result in _select(check, answers):
            facts = _describe_result(result)
            for assertion, wanted in ((must, True), (must_not, False)):
                if assertion is not None:
                    number += 1
                    problems = assertion(facts)
                    verdict = _judge(problems, wanted=wanted)
                    yield _make_outcome(number, response, result, verdict, source)


def _compile(tree: Json) -> Assertion | None:
    if tree is None:
        return None
    assertion = compile_assertion(tree)
    return lambda value: [str(problem) for problem in assertion(value, {})]


def _select(check: Check, answers: Answers) -> Iterator[tuple[Response, Result]]:
    of_resource = _compile(check.match.resource)
    of_policy = _compile(check.match.policy)
    of_rule = _compile(check.match.rule)
    for response in chain.from_iterable(answers.triggers.values()):
        if of_resource is not None and of_resource(response.resource):
            continue
        if of_policy is not None and of_policy(msgspec.to_builtins(response.policy)):
            continue
        for result in response.results:
            if of_rule is None or not of_rule({"name": result.rule}):
                yield response, result


def _describe_result(result: Result) -> JsonObject:
    """A rule's answer as a check sees it."""
    return {
        "name": result.rule,
        "ruleType": str(result.type),
        "message": result.message,
        "status": str(result.status),
        "podSecurityChecks": None,
        "exceptions": [
            {"metadata": {"name": used.name, "namespace": used.namespace}}
            for used in result.exceptions
        ],
    }


def _judge(problems: Sequence[str], *, wanted: bool) -> tuple[bool, str]:
    if wanted:
        return not problems, "; ".join(problems) or "Ok"
    reason = "; ".join(problems) or "The assertion succeeded but was expected to fail"
    return bool(problems), reason


def _make_outcome(
    number: int, response: Response, result: Result, verdict: tuple[bool, str], source: str
) -> TestOutcome:
    _, kind, namespace, name = key_of(response.resource)
    ok, reason = verdict
    return TestOutcome(
        id=number,
        policy=response.policy.metadata.name,
        rule=result.rule,
        resource="/".join(part for part in (namespace, kind, name) if part),
        result=Status.PASS if ok else Status.FAIL,
        reason=reason,
        message=result.message,
        ok=ok,
        source=source,
    )
