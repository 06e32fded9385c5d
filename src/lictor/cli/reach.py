"""Which rules and conditions of a policy do tests reach, and with which answers?"""

import os
import re
from collections.abc import Iterator
from typing import cast

import msgspec

from lictor.cli.deletions import evaluate_deletion
from lictor.cli.inputs.lookups import OfflineLookups
from lictor.cli.inputs.programs import choose_options
from lictor.cli.inputs.requests import RequestFactory
from lictor.cli.responses import TestAnswers
from lictor.cli.test_cases import CaseInputs
from lictor.core.assembly import compile_cleanups, compile_documents
from lictor.core.engine import Engine
from lictor.core.families.kind_facts import Role
from lictor.core.families.registry import refer, registry
from lictor.core.lang.watch import Closure, Watch
from lictor.core.load.policies import Sourced
from lictor.core.model.finding import FieldPath, write_path
from lictor.core.model.metadata import PolicyRecord
from lictor.core.model.result import RuleType, Status
from lictor.core.raw import Json
from lictor.core.report.coverage import CoverageGap

_AUTOGEN = re.compile("^autogen-(cronjob-)?")
_STEP = re.compile(r"\[(\d+)\]|([^.\[\]]+)")


class ReachPoint(msgspec.Struct, frozen=True):
    """A rule, or one side of a condition, and whether a test came there."""

    gap: CoverageGap
    is_reached: bool


def make_gap(policy: Sourced[PolicyRecord], path: FieldPath, words: str) -> CoverageGap:
    """A gap at a field of a policy."""
    line, _ = policy.position(path)
    file = os.path.normpath(policy.source)
    return CoverageGap(file, line, refer(policy.record).key, write_path(path), words)


class PolicyReach:
    """Collects what tests reach of one policy."""

    def __init__(self, policy: Sourced[PolicyRecord]) -> None:
        self._policy = policy
        # By rule (those made for controllers count as their origin) and condition.
        self._conditions: dict[tuple[str, str], set[bool]] = {}
        self._answers: dict[str, set[Status]] = {}
        self._types: dict[str, RuleType] = {}

    def add(self, inputs: CaseInputs, answers: TestAnswers) -> None:
        """What one test reached."""
        own = refer(self._policy.record).key
        for responses in answers.triggers.values():
            for response in responses:
                if refer(response.policy).key == own:
                    for result in response.results:
                        rule = self._name_rule(result.rule)
                        self._answers.setdefault(rule, set()).add(result.status)
                        self._types[rule] = result.type
        self._watch_conditions(inputs)

    def _name_rule(self, rule: str) -> str:
        named = registry().of(self._policy.record).has_named_rules
        return _AUTOGEN.sub("", rule) if named else ""

    def _watch_conditions(self, inputs: CaseInputs) -> None:
        policy = self._policy.record
        options = choose_options(inputs.given, OfflineLookups(inputs.values, inputs.given))
        options["watch_rule"] = self._watch_rule
        options["is_lazy"] = False
        documents = (policy, *inputs.policies.bindings, *inputs.policies.servers)
        documents += inputs.exceptions
        requests = RequestFactory(inputs.values, inputs.caller)
        made = [requests.make_request(resource) for resource in inputs.resources]
        if registry().of(policy).role is Role.DELETION:
            for program in compile_cleanups(documents, **options):
                for request in made:
                    evaluate_deletion(program, request)
        else:
            engine = Engine(compile_documents(documents, **options))
            for request in made:
                engine.evaluate(request, adapt=requests.adapt)

    def _watch_rule(self, rule: str) -> Watch:
        name = self._name_rule(rule)

        def watch(what: str, closure: Closure) -> Closure:
            if not _is_condition(what):
                return closure
            seen = self._conditions.setdefault((name, what), set())

            def watched(*given: Json) -> Json:
                answer = closure(*given)
                if isinstance(answer, bool):
                    seen.add(answer)
                return answer

            return cast("Closure", watched)

        return watch

    def list_rules(self) -> Iterator[ReachPoint]:
        """List the rules; one is reached if it applied to a resource."""
        for rule, path in self._locate_rules().items():
            reached = bool(self._answers.get(rule, set()) - {Status.SKIP})
            gap = make_gap(self._policy, path, "no test reaches it")
            yield ReachPoint(gap, reached)

    def list_branches(self) -> Iterator[ReachPoint]:
        """Both answers of each condition, and of each rule that can refuse."""
        rules = self._locate_rules()
        for rule, path in rules.items():
            if self._types.get(rule) is RuleType.VALIDATION:
                for status in (Status.PASS, Status.FAIL):
                    gap = make_gap(self._policy, path, f"no test sees it {status}")
                    yield ReachPoint(gap, status in self._answers[rule])
        for (rule, what), seen in self._conditions.items():
            path = (*rules.get(rule, ("spec",)), *_read_steps(what))
            for side in (True, False):
                words = f"no test has it {'true' if side else 'false'}"
                yield ReachPoint(make_gap(self._policy, path, words), side in seen)

    def _locate_rules(self) -> dict[str, FieldPath]:
        policy = self._policy.record
        if not registry().of(policy).has_named_rules:
            return {"": ("spec",)}
        return {rule.name: ("spec", "rules", index) for index, rule in enumerate(policy.spec.rules)}


def _is_condition(what: str) -> bool:
    """Whether an answer decides the branch of a rule; match blocks are counted by parts."""
    return "onditions" in what or "validations" in what


def _read_steps(what: str) -> FieldPath:
    found = (each.groups() for each in _STEP.finditer(what))
    return tuple(int(index) if index else name for index, name in found)
