"""Runs a test: evaluates its policies on its resources, and its checks on the results."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain

import msgspec
from msgspec.structs import replace

from lictor.cli.deletions import compile_deletions
from lictor.cli.inputs.lookups import GivenObjects
from lictor.cli.inputs.programs import compile_for_payloads, compile_given, report_guessed_names
from lictor.cli.inputs.records import Check, TestResult
from lictor.cli.inputs.requests import RequestFactory
from lictor.cli.responses import (
    ResourceKey,
    TestAnswers,
    TestedResponse,
    key_of,
    list_responses,
    list_tested_policies,
)
from lictor.cli.test_cases import CaseInputs, CaseReader, Note, PrintLine, TestCase
from lictor.cli.test_results import ResultComparer, find_target
from lictor.core.engine import Engine
from lictor.core.families.registry import registry
from lictor.core.lang.assertion import compile_assertion
from lictor.core.model.request import Request
from lictor.core.model.result import Result, Status
from lictor.core.ports import Registries
from lictor.core.raw import Json, JsonObject
from lictor.core.report.outcomes import TestOutcome

# What of a value is not as the tree wants it: empty where all is well.
Assertion = Callable[[Json], Sequence[str]]


def run_checks(
    checks: Iterable[Check], answers: TestAnswers, source: str = ""
) -> Iterator[TestOutcome]:
    """An outcome for each answer that a check is about."""
    number = 0
    for check in checks:
        must, must_not = _compile(check.assert_), _compile(check.error)
        selected = list(_select(check, answers))
        # What must not be found may well have no result.
        if not selected and must is not None:
            number += 1
            message = "the check matches no result"
            yield TestOutcome(
                number, "", "", "", Status.FAIL, "Not found", message, ok=False, source=source
            )
        for response, result in selected:
            facts = _describe_result(result)
            for assertion, wanted in ((must, True), (must_not, False)):
                if assertion is not None:
                    number += 1
                    problems = assertion(facts)
                    verdict = _compare_check(problems, wanted=wanted)
                    yield _make_outcome(number, response, result, verdict, source)


def _compile(tree: Json) -> Assertion | None:
    if tree is None:
        return None
    assertion = compile_assertion(tree)
    return lambda value: [str(problem) for problem in assertion(value, {})]


def _select(check: Check, answers: TestAnswers) -> Iterator[tuple[TestedResponse, Result]]:
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
        # Not in Kyverno: without it no test could distinguish Enforce from Audit.
        "action": str(result.action),
        "exceptions": [
            {"metadata": {"name": used.name, "namespace": used.namespace}}
            for used in result.exceptions
        ],
    }


def _compare_check(problems: Sequence[str], *, wanted: bool) -> tuple[bool, str]:
    if wanted:
        return not problems, "; ".join(problems) or "Ok"
    reason = "; ".join(problems) or "The assertion succeeded but was expected to fail"
    return bool(problems), reason


def _make_outcome(
    number: int, response: TestedResponse, result: Result, verdict: tuple[bool, str], source: str
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


class CaseRun:
    """Loads one test case, evaluates it, and compares the results."""

    def __init__(
        self,
        case: TestCase,
        print_line: PrintLine,
        note: Note = lambda _: None,
        registries: Registries | None = None,
    ) -> None:
        self._case = case
        self._registries = registries
        self._print_line = print_line
        self._reader = CaseReader(case, print_line, note)

    def run(self) -> TestAnswers:
        """Evaluate every policy on every resource; raises LictorError where that is impossible."""
        return evaluate_inputs(self.load())

    def load(self) -> CaseInputs:
        """Read all files, and return the next step. Raises LictorError if one cannot be read."""
        inputs = self._reader.load()
        inputs = replace(inputs, given=replace(inputs.given, registries=self._registries))
        self._print_line(
            f"  Applying {_count(len(inputs.policies), 'policy', 'policies')} to "
            f"{_count(len(inputs.resources), 'resource', 'resources')} with "
            f"{_count(len(inputs.exceptions), 'exception', 'exceptions')} ..."
        )
        self._report_guesses(inputs)
        return inputs

    def compare(self, rows: Iterable[TestResult], answers: TestAnswers) -> list[TestOutcome]:
        """The outcomes of these rows, and of all checks of this test."""
        comparer = self.make_comparer(answers)
        outcomes = [outcome for row in rows for outcome in comparer.compare(row)]
        return outcomes + list(run_checks(self._case.test.checks, answers, self._case.path))

    def make_comparer(self, answers: TestAnswers) -> ResultComparer:
        """What compares the answers with the rows of this test."""
        return ResultComparer(answers, self._reader.read_expected, self._case.path)

    def _report_guesses(self, inputs: CaseInputs) -> None:
        describe = report_guessed_names(inputs.policies, inputs.given)
        if describe is None:
            return
        requests = RequestFactory(inputs.values)
        messages = (describe(requests.make_request(each).kind) for each in inputs.resources)
        for message in dict.fromkeys(filter(None, messages)):
            self._print_line(f"  note: {message}")


def evaluate_inputs(inputs: CaseInputs) -> TestAnswers:
    """The results of all policies and resources of a test, for each operation that it names."""
    answers = _evaluate_once(inputs)
    for operation in inputs.operations:
        changed = replace(inputs, values=inputs.values.with_operation(operation))
        answers.by_operation[operation] = _evaluate_once(changed)
    return answers


def _evaluate_once(inputs: CaseInputs) -> TestAnswers:
    answers = TestAnswers()
    for key, responses in chain(_evaluate_resources(inputs), _evaluate_payloads(inputs)):
        # A file may hold several payloads, all under its name.
        answers.triggers.setdefault(key, []).extend(responses)
    answers.targets.update(_find_targets(answers, inputs.targets))
    return answers


def _evaluate_resources(inputs: CaseInputs) -> Iterator[tuple[ResourceKey, list[TestedResponse]]]:
    policies, exceptions, given = inputs.policies, inputs.exceptions, inputs.given
    lookups = inputs.make_lookups(inputs.values, given)
    engine = Engine(compile_given(policies, exceptions, lookups, given))
    evaluate_deletions = compile_deletions(policies, exceptions, lookups, given)
    tested_policies = list_tested_policies((*policies.policies, *policies.listed_deletions))
    requests = RequestFactory(inputs.values, inputs.caller, _read_namespace_labels(given))
    for resource in inputs.resources:
        request = requests.make_request(resource)
        verdict = engine.evaluate(request, adapt=requests.adapt)
        results = (*verdict.results, *evaluate_deletions(request))
        yield (
            key_of(resource),
            list_responses(replace(verdict, results=results), tested_policies),
        )


def _evaluate_payloads(inputs: CaseInputs) -> Iterator[tuple[ResourceKey, list[TestedResponse]]]:
    policies, given = inputs.policies, inputs.given
    lookups = inputs.make_lookups(inputs.values, given)
    tested_policies = list_tested_policies(
        policy
        for policy in (*policies.policies, *policies.listed_deletions)
        if not registry().of(policy).has_named_rules
    )
    evaluate_deletions = compile_deletions(policies, inputs.exceptions, lookups, given)
    for mode, payloads in inputs.payloads.items():
        chosen = policies.of_mode(mode)
        engine = Engine(compile_for_payloads(chosen, inputs.exceptions, lookups, given))
        for payload in payloads:
            verdict = engine.evaluate(payload.make_request(mode))
            deletions = evaluate_deletions(Request.of(payload.body)) if mode == "JSON" else ()
            verdict = replace(verdict, results=(*verdict.results, *deletions))
            yield ("", "", "", payload.path), list_responses(verdict, tested_policies)


def _find_targets(
    answers: TestAnswers, targets: list[JsonObject]
) -> Iterator[tuple[ResourceKey, list[TestedResponse]]]:
    for target in targets:
        key = key_of(target)
        found = [
            response
            for responses in answers.triggers.values()
            for response in responses
            if find_target(response, key) is not None
        ]
        if found:
            yield key, found


def _read_namespace_labels(given: GivenObjects) -> dict[str, dict[str, str]]:
    labels = {}
    for found in given.cluster or ():
        api_version, kind, _, name = key_of(found)
        metadata = found.get("metadata")
        if (api_version, kind) == ("v1", "Namespace") and isinstance(metadata, dict):
            own = metadata.get("labels")
            labels[name] = own if isinstance(own, dict) else {}
    return labels


def _count(number: int, one: str, many: str) -> str:
    return f"{number} {one if number == 1 else many}"
