"""Which of thousands of rules can concern a request? An index over all programs of an engine.

By kind and operation first, then by the namespaces and names that rules name literally: what a
request costs follows from the rules that are about it, not from how many there are.
"""

from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from functools import cached_property, reduce
from operator import attrgetter, or_
from typing import TypeAlias

import msgspec
from msgspec.structs import astuple, replace

from lictor.core.errors import NotCompiledError
from lictor.core.garbage import keeping_garbage
from lictor.core.match.combine import NAME_LABEL, RequestClass, always, read_told
from lictor.core.match.metadata import clean_map, read_name, read_text
from lictor.core.model.program import (
    Bounds,
    Check,
    CompiledRule,
    DeferredCheck,
    Matcher,
    Needs,
    Phase,
    Program,
    RuleTimer,
    UpdateCheck,
)
from lictor.core.model.request import GroupVersionKind, Operation, Request

# Only namespaces and names that stand in policies count; a flood of others cannot fill it.
_MAX_CHOICES = 4096
# Of what a plan keeps, a rule that was opened counts as one; a part that was not is a reference.
_PARTS_PER_RULE = 16


# A rule, what is left to ask of a request (None where that is nothing), the check, and the timer.
RuleStep: TypeAlias = tuple[CompiledRule, Matcher | None, Check, RuleTimer | None]


class Step(msgspec.Struct, frozen=True):
    """The rules of one program and phase that can concern one class of requests."""

    # Its place in the order of work.
    order: int
    program: Program
    rules: tuple["RuleStep", ...]
    # Is no rule asked behind the one that gave an answer?
    first_only: bool


class Choice(msgspec.Struct, frozen=True):
    """All that can concern a request, and what it needs beside it."""

    steps: tuple[Step, ...]
    needs: Needs


class _Part(msgspec.Struct, frozen=True):
    """Rules of one program and phase that the index knows, before they are asked for a step."""

    order: int
    program: Program
    phase: Phase
    rules: tuple[CompiledRule, ...]

    def list_kinds(self) -> Iterable[str] | None:
        """The kinds that one of the rules can concern; None for any."""
        kinds: set[str] = set()
        for rule in self.rules:
            if rule.bounds.kinds is None:
                return None
            kinds |= rule.bounds.kinds
        return kinds

    def keep_kind(self, kind: str) -> "_Part":
        """The same without rules that are about other kinds."""
        kept = [r for r in self.rules if r.bounds.kinds is None or kind in r.bounds.kinds]
        return self if len(kept) == len(self.rules) else replace(self, rules=tuple(kept))


_order = attrgetter("order")


class RuleIndex:
    """The rules of all programs by kind, in the order of work: phase by phase."""

    def __init__(self, programs: Sequence[Program]) -> None:
        self._by_kind: dict[str, list[_Part]] = {}
        self._of_any_kind: list[_Part] = []
        # Which programs have rules of a phase, by id.
        self._phases: set[tuple[int, Phase]] = set()
        for part in _split_programs(programs):
            self._phases.add((id(part.program), part.phase))
            kinds = part.list_kinds()
            if kinds is None:
                self._of_any_kind.append(part)
            else:
                for kind in kinds:
                    self._by_kind.setdefault(kind, []).append(part)

    def has_phase(self, program: Program, phase: Phase) -> bool:
        """Has the program rules of a phase?"""
        return (id(program), phase) in self._phases

    def make_plan(self, kind: GroupVersionKind, subresource: str, operation: Operation) -> "Plan":
        """What can concern one class of requests."""
        parts = [*self._by_kind.get(kind.kind, ()), *self._of_any_kind]
        return Plan(
            RequestClass(kind, subresource, operation),
            [part.keep_kind(kind.kind) for part in sorted(parts, key=_order)],
        )


def _split_programs(programs: Sequence[Program]) -> Iterable[_Part]:
    order = 0
    for phase in Phase:
        for program in programs:
            rules = tuple(rule for rule in program.rules if rule.phase is phase)
            if rules:
                yield _Part(order, program, phase, rules)
                order += 1


class Plan:
    """What can concern requests of one class, by place and name; opened where it is asked for."""

    def __init__(self, requests: RequestClass, parts: Sequence[_Part]) -> None:
        self._requests = requests
        self._parts = parts
        self._steps: dict[int, Step | None] = {}
        # How much is kept here, in rules.
        self.weight = len(parts) // _PARTS_PER_RULE
        # Where no text bounds a part, it is always asked.
        self._always: list[_Part] = []
        axes = {name: _Axis(name, read) for name, read in _READERS.items()}
        for part in parts:
            found = _find_axis(part, is_namespace=requests.kind.kind == "Namespace")
            if found is None:
                self._always.append(part)
            else:
                axes[found[0]].add(part, found[1])
        self._axes = tuple(axis for axis in axes.values() if axis.by_text)
        self._choices: dict[tuple[str | None, ...], Choice] = {}

    def choose(self, request: Request) -> Choice:
        """What can concern a request, by where its object lies and what it is called."""
        if self._axes and request.object is None and request.old_object is None:
            # What has no object lies nowhere, and nothing can be left out for that.
            return self._everything
        key = tuple([axis.locate(request) for axis in self._axes])
        return self._choices.get(key) or self._make_choice(key)

    def find_known_needs(self, request: Request) -> Needs | None:
        """What the rules need that can concern the request; None where not all are compiled."""
        if self._axes and request.object is None and request.old_object is None:
            known = self.__dict__.get("_everything")
        else:
            known = self._choices.get(tuple([axis.locate(request) for axis in self._axes]))
        return None if known is None else known.needs

    def open_like(self, before: "Plan", is_over: Callable[[], bool]) -> None:
        """Compile what was asked of another plan for the same requests, so that nobody waits.

        Ends where time is over: the rest is compiled when it is asked.
        """
        if "_everything" in before.__dict__ and self._open_each(self._parts, is_over):
            self.__dict__["_everything"] = self._open_all(self._parts)
        for asked in tuple(before._choices):  # noqa: SLF001  (of its own class)
            known = {axis.name: text for axis, text in zip(before._axes, asked, strict=True)}  # noqa: SLF001
            key = tuple([axis.find(known.get(axis.name)) for axis in self._axes])
            if self._open_each(self._find_parts(key), is_over):
                self._make_choice(key)

    def _open_each(self, parts: Iterable[_Part], is_over: Callable[[], bool]) -> bool:
        """False where time was over before all of them were compiled."""
        for part in parts:
            if is_over():
                return False
            self._open(part)
        return True

    def choose_rest(self, request: Request, last: Step, *, compiles: bool) -> tuple[Step, ...]:
        """What comes after a step, for a request that this step has changed."""
        if not compiles and self.find_known_needs(request) is None:
            raise NotCompiledError("rules for the changed object are not compiled", request=request)
        steps = self.choose(request).steps
        return steps[bisect_right(steps, last.order, key=_order) :]

    def of_program(self, program: Program, phase: Phase) -> tuple[Step, ...]:
        """The rules of one program and phase, wherever the object lies."""
        part = self._by_program.get((id(program), phase))
        step = None if part is None else self._open(part)
        return () if step is None else (step,)

    def has_policies_of(self, namespace: str) -> bool:
        """Can policies that were written in a namespace concern such a request?"""
        parts = self._by_namespace.get(namespace, ()) if namespace else ()
        requests = astuple(self._requests)
        return any(rule.select(*requests) is not None for part in parts for rule in part.rules)

    def _make_choice(self, key: tuple[str | None, ...]) -> Choice:
        if len(self._choices) >= _MAX_CHOICES:
            self._choices.clear()
        made = self._choices[key] = self._open_all(self._find_parts(key))
        return made

    def _find_parts(self, key: tuple[str | None, ...]) -> list[_Part]:
        found = list(self._always)
        for axis, text in zip(self._axes, key, strict=True):
            if text is not None:
                found += axis.by_text[text]
        return sorted(found, key=_order)

    @cached_property
    def _everything(self) -> Choice:
        return self._open_all(self._parts)

    def _open_all(self, parts: Iterable[_Part]) -> Choice:
        steps = tuple(step for part in parts if (step := self._open(part)) is not None)
        needs = (rule.needs for step in steps for rule, *_ in step.rules)
        return Choice(steps, reduce(or_, needs, Needs.NOTHING))

    def _open(self, part: _Part) -> Step | None:
        """The rules with what is left to ask and their checks compiled; None where none is left."""
        if part.order not in self._steps:
            kind, subresource, operation = astuple(self._requests)
            # One by one: where a policy takes long to compile, the collector has its turn after it.
            with keeping_garbage():
                rules = tuple(
                    (
                        rule,
                        None if matches is always else matches,
                        _resolve(rule.check, operation),
                        rule.timer,
                    )
                    for rule in part.rules
                    if (matches := rule.select(kind, subresource, operation)) is not None
                )
            self.weight += len(rules) + 1
            first_only = part.program.first_only and len(rules) > 1
            step = Step(part.order, part.program, rules, first_only) if rules else None
            self._steps[part.order] = step
        return self._steps[part.order]

    @cached_property
    def _by_program(self) -> dict[tuple[int, Phase], _Part]:
        return {(id(part.program), part.phase): part for part in self._parts}

    @cached_property
    def _by_namespace(self) -> dict[str, list[_Part]]:
        found: dict[str, list[_Part]] = {}
        for part in self._parts:
            found.setdefault(part.program.policy.namespace, []).append(part)
        return found


def _resolve(check: Check, operation: Operation) -> Check:
    """The check compiled: from now on it costs nothing that this was put off."""
    made = check.resolve() if isinstance(check, DeferredCheck) else check
    return made.settle(operation) if isinstance(made, UpdateCheck) else made


# --- by what an object's place and name are compared


class _Axis:
    """Parts by the texts of which one must be what a request says in one place."""

    def __init__(self, name: str, read: Callable[[Request], str]) -> None:
        self.name = name
        self._read = read
        self.by_text: dict[str, list[_Part]] = {}

    def add(self, part: _Part, texts: Iterable[str]) -> None:
        for text in texts:
            self.by_text.setdefault(text, []).append(part)

    def locate(self, request: Request) -> str | None:
        """What the request says, where a rule asks for that."""
        text = self._read(request)
        return text if text in self.by_text else None

    def find(self, text: str | None) -> str | None:
        """The text, where a rule asks for it."""
        return text if text in self.by_text else None


def _read_namespace(request: Request) -> str:
    return read_text(request.resource, "namespace")


def _read_own_name(request: Request) -> str:
    return read_text(request.resource, "name")


def _read_asked(request: Request) -> str:
    """The namespace that the request itself is about; see `asked_within`."""
    if request.admission is None:
        return _read_namespace(request)
    told = request.admission.get("namespace")
    return told if isinstance(told, str) else ""


def _read_label(request: Request) -> str:
    """The label that names the namespace of the request; an API server puts it on all of them."""
    namespace = read_told(request, "namespace")
    return namespace and clean_map(request.namespace_labels).get(NAME_LABEL, namespace)


_READERS: dict[str, Callable[[Request], str]] = {
    "namespace": _read_namespace,
    "asked": _read_asked,
    "label": _read_label,
    "own name": _read_own_name,
    "name": lambda request: read_name(request.resource),
}
_Axes: TypeAlias = dict[str, frozenset[str]]


def _find_axis(part: _Part, *, is_namespace: bool) -> tuple[str, frozenset[str]] | None:
    """By what to find a part, and with which texts; None where it must always be asked."""
    found = [_list_axes(rule.bounds, is_namespace=is_namespace) for rule in part.rules]
    for name in _READERS:
        if all(name in each for each in found):
            return name, frozenset().union(*(each[name] for each in found))
    return None


def _list_axes(bounds: Bounds, *, is_namespace: bool) -> _Axes:
    axes: _Axes = {}
    if bounds.names is not None:
        axes["name"] = bounds.names
    if bounds.namespaces is not None:
        # A Namespace lies in no namespace: its own name is what the author means.
        axes["own name" if is_namespace else "namespace"] = bounds.namespaces
    if bounds.home:
        axes["namespace"] = frozenset((bounds.home,))
    if bounds.labelled is not None and not is_namespace:
        # What lies in no namespace is not spared because of one.
        axes["label"] = bounds.labelled | {""}
    if bounds.asked_in:
        axes["asked"] = frozenset((bounds.asked_in,))
    return axes
