"""An index over the rules of all programs, to find those that may match a request.

By kind and operation first, then by the namespaces and names that rules name literally: the cost
of a request depends on the rules that may match, not on the number of all rules.
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
from lictor.core.match.combine import NAME_LABEL, RequestClass, always, read_requested
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

# Only namespaces and names of policies count; many other ones cannot fill it.
_MAX_CHOICES = 4096
# In the size of a plan, an opened rule counts as one; an unopened part is only a reference.
_PARTS_PER_RULE = 16


# A rule, the remaining test of a request (None if there is none), the check, and the timer.
RuleStep: TypeAlias = tuple[CompiledRule, Matcher | None, Check, RuleTimer | None]


class Step(msgspec.Struct, frozen=True):
    """The rules of one program and phase that may match one class of requests."""

    # Its position in the evaluation order.
    order: int
    program: Program
    rules: tuple["RuleStep", ...]
    # Whether evaluation stops after the first rule that applied.
    first_only: bool


class Choice(msgspec.Struct, frozen=True):
    """All rules that may match a request, and what they need besides it."""

    steps: tuple[Step, ...]
    needs: Needs


class _Part(msgspec.Struct, frozen=True):
    """Rules of one program and phase in the index, before they are opened as a step."""

    order: int
    program: Program
    phase: Phase
    rules: tuple[CompiledRule, ...]

    def list_kinds(self) -> Iterable[str] | None:
        """The kinds that the rules may match; None for any."""
        kinds: set[str] = set()
        for rule in self.rules:
            if rule.bounds.kinds is None:
                return None
            kinds |= rule.bounds.kinds
        return kinds

    def keep_kind(self, kind: str) -> "_Part":
        """The same without rules for other kinds."""
        kept = [r for r in self.rules if r.bounds.kinds is None or kind in r.bounds.kinds]
        return self if len(kept) == len(self.rules) else replace(self, rules=tuple(kept))


_order = attrgetter("order")


class RuleIndex:
    """The rules of all programs by kind, in evaluation order: phase by phase."""

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
        return (id(program), phase) in self._phases

    def make_plan(self, kind: GroupVersionKind, subresource: str, operation: Operation) -> "Plan":
        """The rules that may match one class of requests."""
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
    """The rules that may match requests of one class, by namespace and name; opened on demand."""

    def __init__(self, requests: RequestClass, parts: Sequence[_Part]) -> None:
        self._requests = requests
        self._parts = parts
        self._steps: dict[int, Step | None] = {}
        # The size of this plan, in rules.
        self.weight = len(parts) // _PARTS_PER_RULE
        # An unbounded part is always included.
        self._always: list[_Part] = []
        axes: dict[str, _Axis] = {}
        for part in parts:
            found = _find_axis(part, is_namespace=requests.kind.kind == "Namespace")
            if found is None:
                self._always.append(part)
                continue
            name, texts = found
            if name not in axes:
                axes[name] = _Axis(name, _READERS[name])
            axes[name].add(part, texts)
        self._axes = tuple(axis for axis in axes.values() if axis.by_text)
        self._choices: dict[tuple[str | None, ...], Choice] = {}

    def choose(self, request: Request) -> Choice:
        """The rules that may match a request, by its object's namespace and name."""
        if self._axes and request.object is None and request.old_object is None:
            # A request without an object has no namespace or name, so nothing can be skipped.
            return self._everything
        key = tuple([axis.locate(request) for axis in self._axes])
        return self._choices.get(key) or self._make_choice(key)

    def find_known_needs(self, request: Request) -> Needs | None:
        """What the rules that may match the request need; None if not all are compiled."""
        if self._axes and request.object is None and request.old_object is None:
            known = self.__dict__.get("_everything")
        else:
            known = self._choices.get(tuple([axis.locate(request) for axis in self._axes]))
        return None if known is None else known.needs

    def open_like(self, before: "Plan", is_over: Callable[[], bool]) -> None:
        """Compile what another plan for the same requests has used, so that no request waits.

        Stops when `is_over`: the rest is compiled on demand.
        """
        if "_everything" in before.__dict__ and self._open_each(self._parts, is_over):
            self.__dict__["_everything"] = self._open_all(self._parts)
        for asked in tuple(before._choices):  # noqa: SLF001  (same class)
            known = {axis.name: text for axis, text in zip(before._axes, asked, strict=True)}  # noqa: SLF001
            key = tuple([axis.find(known.get(axis.name)) for axis in self._axes])
            if self._open_each(self._find_parts(key), is_over):
                self._make_choice(key)

    def _open_each(self, parts: Iterable[_Part], is_over: Callable[[], bool]) -> bool:
        """False if `is_over` before all of them were compiled."""
        for part in parts:
            if is_over():
                return False
            self._open(part)
        return True

    def choose_rest(self, request: Request, last: Step, *, compiles: bool) -> tuple[Step, ...]:
        """The steps after one that has changed the request."""
        if not compiles and self.find_known_needs(request) is None:
            raise NotCompiledError("rules for the changed object are not compiled", request=request)
        steps = self.choose(request).steps
        return steps[bisect_right(steps, last.order, key=_order) :]

    def of_program(self, program: Program, phase: Phase) -> tuple[Step, ...]:
        """The rules of one program and phase, for any namespace."""
        part = self._by_program.get((id(program), phase))
        step = None if part is None else self._open(part)
        return () if step is None else (step,)

    def has_policies_of(self, namespace: str) -> bool:
        """Whether policies of a namespace may match such a request."""
        parts = self._by_namespace.get(namespace, ()) if namespace else ()
        requests = astuple(self._requests)
        return any(rule.select(*requests) is not None for part in parts for rule in part.rules)

    def _make_choice(self, key: tuple[str | None, ...]) -> Choice:
        if len(self._choices) >= _MAX_CHOICES:
            self._choices.clear()
        parts = self._find_parts(key) if key else self._always
        made = self._choices[key] = self._open_all(parts)
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
        """The rules with their remaining tests and compiled checks; None if no rule is left."""
        if part.order not in self._steps:
            kind, subresource, operation = astuple(self._requests)
            # One by one: garbage collection may run after a policy that takes long to compile.
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
    """Compile a deferred check, so that later calls have no overhead."""
    made = check.resolve() if isinstance(check, DeferredCheck) else check
    return made.settle(operation) if isinstance(made, UpdateCheck) else made


# --- by what an object's place and name are compared


class _Axis:
    """Parts by the literal values of which one must equal a value of the request."""

    def __init__(self, name: str, read: Callable[[Request], str]) -> None:
        self.name = name
        self._read = read
        self.by_text: dict[str, list[_Part]] = {}

    def add(self, part: _Part, texts: Iterable[str]) -> None:
        for text in texts:
            self.by_text.setdefault(text, []).append(part)

    def locate(self, request: Request) -> str | None:
        """The value of the request, if a rule uses it."""
        text = self._read(request)
        return text if text in self.by_text else None

    def find(self, text: str | None) -> str | None:
        """The text, if a rule uses it."""
        return text if text in self.by_text else None


def _read_namespace(request: Request) -> str:
    return read_text(request.resource, "namespace")


def _read_own_name(request: Request) -> str:
    return read_text(request.resource, "name")


def _read_request_namespace(request: Request) -> str:
    """The namespace of the request itself; see `requested_within`."""
    if request.admission is None:
        return _read_namespace(request)
    told = request.admission.get("namespace")
    return told if isinstance(told, str) else ""


def _read_label(request: Request) -> str:
    """The label with the namespace's name; the API server sets it on every namespace."""
    namespace = read_requested(request, "namespace")
    return namespace and clean_map(request.namespace_labels).get(NAME_LABEL, namespace)


_READERS: dict[str, Callable[[Request], str]] = {
    "namespace": _read_namespace,
    "asked": _read_request_namespace,
    "label": _read_label,
    "own name": _read_own_name,
    "name": lambda request: read_name(request.resource),
}
_Axes: TypeAlias = dict[str, frozenset[str]]


def _find_axis(part: _Part, *, is_namespace: bool) -> tuple[str, frozenset[str]] | None:
    """By which field and texts to find a part; None if it must always be included."""
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
        # A Namespace is cluster-scoped: the author means its own name.
        axes["own name" if is_namespace else "namespace"] = bounds.namespaces
    if bounds.home:
        axes["namespace"] = frozenset((bounds.home,))
    if bounds.labelled is not None and not is_namespace:
        # A cluster-scoped object is not excluded by a namespace selector.
        axes["label"] = bounds.labelled | {""}
    if bounds.asked_in:
        axes["asked"] = frozenset((bounds.asked_in,))
    return axes
