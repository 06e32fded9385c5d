"""The evaluation loop: runs every rule of every program on one request and returns a verdict."""

import math
import time
from collections.abc import Callable, Iterable, Sequence
from functools import cached_property
from typing import TypeAlias

import msgspec
from msgspec.structs import replace

from lictor.core.errors import (
    DeadlineError,
    LictorError,
    OtherThreadError,
    SlowRequestError,
    TooLargeError,
    UsageError,
)
from lictor.core.evaluate.scope import build_scope
from lictor.core.evaluations import EVALUATIONS
from lictor.core.match.rule_index import Plan, RuleIndex, Step
from lictor.core.model.program import Case, CompiledRule, Needs, Phase, Program, TimedAnswer
from lictor.core.model.request import GroupVersionKind, Operation, Request
from lictor.core.model.result import PolicyRef, Result, RuleType, Status, Verdict
from lictor.core.raw import JsonObject

# Changes a request for one policy: values given explicitly for offline runs differ by policy.
Adapt: TypeAlias = Callable[[PolicyRef, Request], Request]
# Called with a request and the timings of its timed rules.
NoteTimes: TypeAlias = Callable[[Request, Sequence[TimedAnswer]], None]

_MAX_PLANS = 4096
# Limit of all cached plans together, in rules: many unknown kinds must not exhaust the memory.
_MAX_PLANNED = 200_000
_LOOK_EVERY = 32
# After one of these, a program with `first_only` evaluates no further rule.
_DECISIVE = (Status.PASS, Status.FAIL)
# Errors that the author of an object can cause by making it large, deep or slow to evaluate.
_LIMITS = (TooLargeError, DeadlineError, RecursionError, MemoryError)
_NATIVE_WORDS: dict[type, str] = {RecursionError: "nested too deeply", MemoryError: "out of memory"}
RULE_TYPES = {
    Phase.MUTATE: RuleType.MUTATION,
    Phase.VERIFY_IMAGES: RuleType.IMAGE_VERIFY,
    Phase.VALIDATE: RuleType.VALIDATION,
    Phase.GENERATE: RuleType.GENERATION,
}


class _Notes(msgspec.Struct, frozen=True):
    """The results of one request so far, and the durations of timed rules."""

    results: list[Result]
    timed: list[TimedAnswer]


class Engine:
    """Runs programs. Holds no client and no cache of requests."""

    def __init__(
        self,
        programs: Iterable[Program],
        *,
        clock: Callable[[], float] = time.monotonic,
        note_times: NoteTimes | None = None,
    ) -> None:
        self.programs = _check_programs(programs)
        self._clock = clock
        self._note_times = note_times
        self._is_noted = any(program.identity for program in self.programs)
        self._warning = frozenset(p.policy.key for p in self.programs if p.emit_warning)
        # Plans by kind, subresource and operation.
        self._plans: dict[tuple[GroupVersionKind, str, Operation], Plan] = {}

    def evaluate(
        self,
        subject: Request | JsonObject,
        *,
        adapt: Adapt | None = None,
        deadline: float | None = None,
        compiles: bool = True,
    ) -> Verdict:
        """Evaluate a request, or a resource as if it were created now, with all matching rules.

        Without `compiles`, raises NotCompiledError if a mutation makes other rules match that are
        not compiled yet.
        """
        request = subject if isinstance(subject, Request) else _read_resource(subject)
        if adapt is not None:
            return self._evaluate_adapted(request, adapt, deadline)
        plan, notes = self._find_plan(request), _Notes([], [])
        try:
            steps = plan.choose(request).steps
            case = Case(request, build_scope, deadline=deadline)
            case, last = self._run(steps, case, notes, deadline)
            while last is not None:
                # The mutated object may match other rules: its namespace or name may have changed.
                rest = plan.choose_rest(case.request, last, compiles=compiles)
                case, last = self._run(rest, case, notes, deadline)
        finally:
            if self._is_noted:
                (EVALUATIONS.place.note or EVALUATIONS.take_place())(b"")
            if self._note_times is not None:
                self._note_times(request, notes.timed)
        results = notes.results
        warnings = self._list_warnings(results) if self._warning else ()
        return Verdict(request, tuple(results), patched=case.request.object, warnings=warnings)

    def find_needs(self, request: Request) -> Needs:
        """What the rules that may match a request need besides the request."""
        return self._find_plan(request).choose(request).needs

    def find_known_needs(self, request: Request) -> Needs | None:
        """Like `find_needs`; None if a rule that may match is not compiled yet."""
        plan = self._plans.get((request.kind, request.subresource, request.operation))
        return None if plan is None else plan.find_known_needs(request)

    def prepare(self, request: Request) -> None:
        """Compile the rules that may match a request; may run on another thread."""
        self._find_plan(request).choose(request)

    def prepare_like(self, before: "Engine", is_over: Callable[[], bool]) -> None:
        """Compile what the engine that this one replaces has used, until `is_over`."""
        for key, plan in tuple(before._plans.items()):  # noqa: SLF001  (same class)
            if is_over():
                return
            self._plans[key] = self._index.make_plan(*key)
            self._plans[key].open_like(plan, is_over)

    def meets_policies_of(self, namespace: str, request: Request) -> bool:
        """Whether policies of a namespace may match a request."""
        return self._find_plan(request).has_policies_of(namespace)

    def _evaluate_adapted(self, request: Request, adapt: Adapt, deadline: float | None) -> Verdict:
        notes = _Notes([], [])
        current = request
        for phase in Phase:
            for program in self.programs:
                if not self._index.has_phase(program, phase):
                    continue
                seen = adapt(program.policy, current)
                steps = self._find_plan(seen).of_program(program, phase)
                case = Case(seen, build_scope, deadline=deadline)
                case, _ = self._run(steps, case, notes, deadline)
                changed = case.request.object
                if changed is not None and changed is not seen.object:
                    current = replace(current, object=changed)
        warnings = self._list_warnings(notes.results)
        return Verdict(request, tuple(notes.results), patched=current.object, warnings=warnings)

    def _run(
        self, steps: tuple[Step, ...], case: Case, notes: "_Notes", deadline: float | None
    ) -> tuple[Case, Step | None]:
        """Run the rules; stops after a step that changes the object, and returns that step."""
        # One frame for all rules: a frame for each would cost as much as most rules do.
        results, timed, clock = notes.results, notes.timed, self._clock
        reads_clock = deadline is not None or self._note_times is not None
        now, limit = clock(), math.inf if deadline is None else deadline
        # Without a supervisor, a no-op call is cheapest.
        writes = (EVALUATIONS.place.note or EVALUATIONS.take_place()) if self._is_noted else None
        note: Callable[[bytes], object] = writes or bool
        for step in steps:
            note(step.program.identity)
            before = case
            for rule, matches, check, own_timer in step.rules:
                if now > limit:
                    raise DeadlineError(f"no time left for policy {step.program.policy.key}")
                timer = None
                try:
                    if matches is not None and not matches(case.request):
                        now = clock()
                        continue
                    timer = own_timer
                    answers = check(case)
                except Exception as error:  # noqa: BLE001  (what is no answer is raised again)
                    answers = (_answer_error(step.program.policy, rule, case.request, error),)
                    # The rule is evaluated again on another thread; only that result counts.
                    timer = None if isinstance(error, OtherThreadError) else timer
                # The end of one rule is the start of the next: one clock read less.
                began, now = now, clock() if reads_clock else now
                if timer is not None:
                    timed.append((timer, answers, now - began))
                results += answers
                if len(answers) != 1 or answers[0].patched is not None:
                    case = _take_over(case, answers, results)
                if step.first_only and any(a.status in _DECISIVE for a in answers):
                    break
            if case is not before:
                return case, step
        return case, None

    def _list_warnings(self, results: list[Result]) -> tuple[str, ...]:
        return tuple(
            # A CEL policy has no rules with names.
            f"policy {'.'.join(filter(None, (result.policy.name, result.rule)))}: {result.message}"
            for result in results
            if result.policy.key in self._warning and result.status in (Status.FAIL, Status.ERROR)
        )

    def _find_plan(self, request: Request) -> Plan:
        key = (request.kind, request.subresource, request.operation)
        plan = self._plans.get(key)
        if plan is None:
            if self._plans and not len(self._plans) % _LOOK_EVERY:
                self._make_room()
            plan = self._plans[key] = self._index.make_plan(*key)
        return plan

    def _make_room(self) -> None:
        """Drop all plans if they exceed the limit; called from time to time."""
        planned = sum(plan.weight for plan in tuple(self._plans.values()))
        if len(self._plans) >= _MAX_PLANS or planned >= _MAX_PLANNED:
            self._plans.clear()

    @cached_property
    def _index(self) -> RuleIndex:
        return RuleIndex(self.programs)


def _take_over(case: Case, answers: tuple[Result, ...], results: list[Result]) -> Case:
    for answer in answers:
        if answer.patched is not None:
            if answer.is_silent:
                results.remove(answer)
            case = case.with_object(answer.patched)
    return case


def _check_programs(programs: Iterable[Program]) -> tuple[Program, ...]:
    if isinstance(programs, str | bytes) or not isinstance(programs, Iterable):
        raise UsageError("an Engine takes what load_policies or parse_policies gives")
    made = tuple(programs)
    for program in made:
        if not isinstance(program, Program):
            found = type(program).__name__
            raise UsageError(f"an Engine takes programs, not {found}: see load_policies")
    return made


def _read_resource(subject: JsonObject) -> Request:
    request = Request.of(subject)
    # No rule is about what has no kind or version: everything would pass.
    if not request.kind.kind or not request.kind.version:
        raise UsageError("a resource needs `kind` and `apiVersion`")
    return request


def _answer_error(
    policy: PolicyRef, rule: CompiledRule, request: Request, error: Exception
) -> Result:
    """The result of a rule that failed with an error; re-raises errors that are not the rule's."""
    if isinstance(error, SlowRequestError):
        # Another process evaluates the request: the results so far do not count.
        raise error
    if not isinstance(error, (LictorError, RecursionError, MemoryError)):
        if rule.timer is None:
            raise error
        error = rule.timer.explain(error)
    # An audit rule never blocks; an enforcing rule must not allow what it could not evaluate.
    changed = rule.override(request) if rule.override is not None else None
    text = _NATIVE_WORDS.get(type(error)) or str(error)
    return Result(
        policy=policy,
        rule=rule.name,
        type=RULE_TYPES[rule.phase],
        status=Status.ERROR,
        message=text,
        action=rule.action if changed is None else changed,
        over_limit=isinstance(error, _LIMITS),
    )
