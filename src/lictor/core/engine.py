"""The only loop: every program, every rule, one request, one verdict."""

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

# How a policy sees a request where policies differ in that: offline, with values given by hand.
Adapt: TypeAlias = Callable[[PolicyRef, Request], Request]
# Told of a request and the answers of those rules that have a timer.
NoteTimes: TypeAlias = Callable[[Request, Sequence[TimedAnswer]], None]

_MAX_PLANS = 4096
# What all plans keep together, in rules: a flood of kinds that nobody has must not fill the memory.
_MAX_PLANNED = 200_000
_LOOK_EVERY = 32
# After one of these, a program with `first_only` asks no further rule.
_DECISIVE = (Status.PASS, Status.FAIL)
# What an author of objects can bring about, by making them large, deep or slow to judge.
_LIMITS = (TooLargeError, DeadlineError, RecursionError, MemoryError)
_NATIVE_WORDS: dict[type, str] = {RecursionError: "nested too deeply", MemoryError: "out of memory"}
RULE_TYPES = {
    Phase.MUTATE: RuleType.MUTATION,
    Phase.VERIFY_IMAGES: RuleType.IMAGE_VERIFY,
    Phase.VALIDATE: RuleType.VALIDATION,
    Phase.GENERATE: RuleType.GENERATION,
}


class _Notes(msgspec.Struct, frozen=True):
    """What the rules have said of one request so far, and how long those with a timer took."""

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
        # What can concern a kind, subresource and operation, found once for each.
        self._plans: dict[tuple[GroupVersionKind, str, Operation], Plan] = {}

    def evaluate(
        self,
        subject: Request | JsonObject,
        *,
        adapt: Adapt | None = None,
        deadline: float | None = None,
        compiles: bool = True,
    ) -> Verdict:
        """Judge a request, or a resource as if it were created now, by every rule that matches.

        Without `compiles`: NotCompiledError where a mutation moves the object to other rules that
        nobody has prepared.
        """
        request = subject if isinstance(subject, Request) else _read_resource(subject)
        if adapt is not None:
            return self._evaluate_adapted(request, adapt, deadline)
        plan, notes = self._find_plan(request), _Notes([], [])
        try:
            case, last = self._run(
                plan.choose(request).steps, Case(request, build_scope), notes, deadline
            )
            while last is not None:
                # The object may now lie where other rules concern it, or have another name.
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
        """What the rules that can concern a request need beside it."""
        return self._find_plan(request).choose(request).needs

    def find_known_needs(self, request: Request) -> Needs | None:
        """The same, or None where what can concern the request is not compiled yet."""
        plan = self._plans.get((request.kind, request.subresource, request.operation))
        return None if plan is None else plan.find_known_needs(request)

    def prepare(self, request: Request) -> None:
        """Compile what can concern a request; another thread may do that."""
        self._find_plan(request).choose(request)

    def prepare_like(self, before: "Engine", is_over: Callable[[], bool]) -> None:
        """Compile what was asked of the engine whose place this one takes, until time is over."""
        for key, plan in tuple(before._plans.items()):  # noqa: SLF001  (of its own class)
            if is_over():
                return
            self._plans[key] = self._index.make_plan(*key)
            self._plans[key].open_like(plan, is_over)

    def meets_policies_of(self, namespace: str, request: Request) -> bool:
        """Can policies that were written in a namespace concern a request?"""
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
                case, _ = self._run(steps, Case(seen, build_scope), notes, deadline)
                changed = case.request.object
                if changed is not None and changed is not seen.object:
                    current = replace(current, object=changed)
        warnings = self._list_warnings(notes.results)
        return Verdict(request, tuple(notes.results), patched=current.object, warnings=warnings)

    def _run(
        self, steps: tuple[Step, ...], case: Case, notes: "_Notes", deadline: float | None
    ) -> tuple[Case, Step | None]:
        """Run the rules; ends early after the step that changes the object, and returns it."""
        # One frame for all of them, as a frame for each costs as much as most rules do.
        results, timed, clock = notes.results, notes.timed, self._clock
        reads_clock = deadline is not None or self._note_times is not None
        now, limit = clock(), math.inf if deadline is None else deadline
        # Where no process watches over this one, a call that does nothing is the cheapest.
        writes = EVALUATIONS.place.note or EVALUATIONS.take_place()
        note: Callable[[bytes], object] = writes if self._is_noted else bool
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
                    # Asked again on another thread: that answer counts.
                    timer = None if isinstance(error, OtherThreadError) else timer
                # The end of one rule is the beginning of the next: a look at the clock less.
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
            self._make_room()
            plan = self._plans[key] = self._index.make_plan(*key)
        return plan

    def _make_room(self) -> None:
        """Forget all plans where they keep too much; that is looked at now and then."""
        count = len(self._plans)
        if count % _LOOK_EVERY:
            return
        planned = sum(plan.weight for plan in tuple(self._plans.values()))
        if count >= _MAX_PLANS or planned >= _MAX_PLANNED:
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
    """The answer of a rule that cannot be decided; what is no matter of the rule is raised."""
    if isinstance(error, SlowRequestError):
        # Another process is asked: what a few rules have said does not count.
        raise error
    if not isinstance(error, (LictorError, RecursionError, MemoryError)):
        if rule.timer is None:
            raise error
        error = rule.timer.explain(error)
    # An audit rule never blocks; one that enforces must not let pass what it could not decide.
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
