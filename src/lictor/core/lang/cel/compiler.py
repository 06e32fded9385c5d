"""Turns a checked tree into closures over a frame: slot 0 has the state, others have variables."""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, ClassVar, TypeAlias

import msgspec

from lictor.core.lang.cel import calls, chains
from lictor.core.lang.cel.calls import Run
from lictor.core.lang.cel.faults import CelCompileError, CelError, Issue
from lictor.core.lang.cel.functions import (
    Cost,
    Functions,
    Implementation,
    find_implementation,
    is_converted_literal,
    read_constant,
)
from lictor.core.lang.cel.operators import check_key
from lictor.core.lang.cel.state import UNSET
from lictor.core.lang.cel.syntax import (
    Call,
    CelNode,
    Fold,
    Ident,
    ListNode,
    Literal,
    MapNode,
    Select,
    StructNode,
)
from lictor.core.lang.cel.values import Value

# Builds a struct from its name and its fields.
MakeStruct: TypeAlias = Callable[[str, dict[str, Value]], Value]
# Its cost in cel-go is the largest number there is; added to any other cost it starts from zero
# again, so that only a constant alone exceeds the limit.
INFINITE_COST = "json.encode"
_INDEXES = {"_[_]": False, "_[?_]": True}


class Code(msgspec.Struct, frozen=True):
    """A compiled expression: `run` on a frame that starts as `template`.

    `cost` is what it costs at most, loops and calls that depend on sizes aside.
    """

    run: Run
    template: list[Any]
    # The slots of the variables that it uses.
    variables: Mapping[str, int]
    cost: int


# Wraps the closure of a node, to see its values.
Trace: TypeAlias = Callable[[CelNode, Run], Run]


class CelCompiler:
    """Compiles one expression; hands out the slots of its frame."""

    is_measuring = False

    def __init__(
        self,
        functions: Functions,
        make_struct: MakeStruct,
        trace: Trace | None = None,
        *,
        costs: Mapping[str, Cost] = MappingProxyType({}),
        has_nan_order: bool = False,
    ) -> None:
        self._costs = costs
        self.functions = functions
        self.cost = 0
        self.size = 1
        self.variables: dict[str, int] = {}
        self._make_struct = make_struct
        self._trace = trace
        # One closure for each part of the expression, without short paths.
        self._is_stepwise = trace is not None or self.is_measuring
        self._has_nan_order = has_nan_order
        self._scopes: list[tuple[str, int, Run | None]] = []
        self._loads: dict[tuple[int, str | None], Run] = {}

    def build(self, root: CelNode, known: Mapping[str, Value]) -> Code:
        """The code of a whole expression; `known` has the values of some variables."""
        run = self.compile(root)
        template = [UNSET] * self.size
        for name, slot in self.variables.items():
            template[slot] = known.get(name, UNSET)
        return Code(run, template, self.variables, self.cost)

    def compile(self, node: CelNode) -> Run:
        """The closure that computes a node."""
        run = self._compilers[type(node)](self, node)
        return run if self._trace is None else self._trace(node, run)

    def new_slot(self) -> int:
        self.size += 1
        return self.size - 1

    def scope(self, name: str, slot: int, first: Run | None = None) -> None:
        """Begin the scope of a local variable; `first` computes it when it is first needed."""
        self._scopes.append((name, slot, first))

    def leave(self, count: int = 1) -> None:
        del self._scopes[-count:]

    # -- leaves

    def _literal(self, node: Literal) -> Run:
        return calls.constant(node.value)

    def _ident(self, node: Ident) -> Run:
        if node.constant is not None:
            return calls.constant(node.constant)
        self.cost += 1
        if node.is_local:
            return chains.load_local(*self._find_local(node.name))
        return chains.load_variable(self._variable(node.name), node.name)

    def _variable(self, name: str) -> int:
        slot = self.variables.get(name)
        if slot is None:
            slot = self.variables[name] = self.new_slot()
        return slot

    def _find_local(self, name: str) -> tuple[int, Run | None]:
        return next((slot, first) for known, slot, first in reversed(self._scopes) if known == name)

    def find_slot(self, node: CelNode) -> tuple[int, str | None] | None:
        """The slot that a plain variable is in, and its name if it must be loaded first."""
        if not isinstance(node, Ident) or node.constant is not None or self._is_stepwise:
            return None
        if not node.is_local:
            return self._variable(node.name), node.name
        slot, first = self._find_local(node.name)
        return (slot, None) if first is None else None

    # -- selections

    def _select(self, node: CelNode) -> Run:
        if isinstance(node, Select) and node.resolved is not None:
            return self._ident(node.resolved)
        base, steps = self._read_chain(node)
        self.cost += len(steps)
        is_test = isinstance(node, Select) and node.is_test
        return chains.build_chain(self._base(base), steps, is_test=is_test)

    def _read_chain(self, node: CelNode) -> tuple[CelNode, list[chains.Step]]:
        """What a selection starts from, and its steps; when traced, one step at a time."""
        steps: list[chains.Step] = []
        step = self._read_step(node)
        while step is not None:
            steps.append(step)
            node = node.operand if isinstance(node, Select) else node.args[0]  # type: ignore[attr-defined]
            step = self._read_step(node) if not self._is_stepwise else None
        return node, steps[::-1]

    def _base(self, node: CelNode) -> Run:
        slot = self.find_slot(node)
        if slot is None:
            return self.compile(node)
        self.cost += 1
        if slot not in self._loads:
            self._loads[slot] = chains.load_slot(*slot)
        return self._loads[slot]

    def _read_step(self, node: CelNode) -> chains.Step | None:
        if isinstance(node, Select):
            return None if node.resolved is not None else (node.field, None, node.is_optional)
        if isinstance(node, Call) and node.function in _INDEXES:
            index = node.args[1]
            optional = _INDEXES[node.function]
            is_constant, value = read_constant(index)
            if is_constant:
                self._check_constant_key(index, value)
                return value, None, optional
            if isinstance(index, Call) and is_converted_literal(index):
                self._check_constant_key(index, self.compile(index)([]))
            return None, self.compile(index), optional
        return None

    def _check_constant_key(self, node: CelNode, value: Value) -> None:
        try:
            check_key(value)
        except CelError as error:
            raise CelCompileError([Issue(node.position, str(error))], "") from error

    # -- calls

    def _call(self, node: Call) -> Run:
        name = node.function
        if name in _INDEXES:
            return self._select(node)
        special = self._special.get(name)
        if special is not None:
            made = special(self, node)
            if made is not None:
                return made
        parts = node.args if node.target is None else [node.target, *node.args]
        runs = [self.compile(part) for part in parts]
        self.cost += 1
        if name == INFINITE_COST and read_constant(node.args[0])[0]:
            return calls.exceed_cost
        if is_converted_literal(node):
            implementation = find_implementation(self.functions, node, parts)
            return self._fold_constant(node, implementation, runs[0]([]))
        return self.invoke(node, parts, runs)

    def invoke(self, node: Call, parts: list[CelNode], runs: list[Run]) -> Run:
        """A call of a function or an operator."""
        name = node.function
        operator = calls.build_operator(name, parts, runs, has_nan_order=self._has_nan_order)
        if operator is not None:
            return operator
        implementation = find_implementation(self.functions, node, parts)
        cost = self._costs.get(name)
        if cost is not None:
            return calls.call_measured(implementation, runs, cost)
        return calls.call(implementation, runs)

    def _fold_constant(self, node: Call, implementation: Implementation, value: Value) -> Run:
        """Conversions of constants happen once; cel-go refuses those that fail."""
        try:
            return calls.constant(implementation(value))
        except CelError as error:
            raise CelCompileError([Issue(node.position, str(error))], "") from error

    def _conditional(self, node: Call) -> Run:
        condition, first = node.args[:2]
        if isinstance(condition, Call) and condition.target:
            made = self._optional_map(condition.target, first)
            if made is not None:
                return made
        self.cost += 1
        runs = [self.compile(arg) for arg in node.args]
        return calls.choose(*runs)

    def _optional_map(self, target: CelNode, mapped: CelNode) -> Run | None:
        """optMap() and optFlatMap()."""
        wraps = isinstance(mapped, Call) and mapped.function == "optional.of"
        fold = mapped.args[0] if isinstance(mapped, Call) and wraps else mapped
        if not isinstance(fold, Fold) or fold.macro != "bind":
            return None
        value = fold.initial
        # Both calls of the macro share the node of their target.
        if not (isinstance(value, Call) and value.target is target):
            return None
        run = self.compile(target)
        slot = self.new_slot()
        self.scope(fold.accumulator, slot)
        body = self.compile(fold.result)
        self.leave()
        self.cost += 4
        return chains.map_optional(run, slot, body, wraps=wraps)

    def _logic(self, node: Call) -> Run:
        self.cost += 1
        runs = [self.compile(arg) for arg in node.args]
        return calls.build_logic(runs, is_and=node.function == "_&&_")

    def _optional_or(self, node: Call) -> Run | None:
        if node.target is None:
            return None
        self.cost += 1
        unwraps = node.function == "orValue"
        fused = self._select_or(node.target, node.args[0]) if unwraps else None
        if fused is not None:
            return fused
        first, second = self.compile(node.target), self.compile(node.args[0])
        lenient = not self.functions[node.function].is_single
        return calls.choose_optional(first, second, unwraps=unwraps, lenient=lenient)

    def _or_value(self, node: Call) -> Run | None:
        return self._select_or(*node.args)

    def _select_or(self, target: CelNode, default: CelNode) -> Run | None:
        """`a.?b.orValue(constant)` as one closure; None for other shapes."""
        is_constant, value = read_constant(default)
        if not is_constant or self._is_stepwise:
            return None
        if not isinstance(target, Select) or target.resolved is not None:
            return None
        base, steps = self._read_chain(target)
        if any(run is not None for _, run, _ in steps):
            return None
        return chains.select_or(self._base(base), steps, value)

    # -- aggregates

    def _list(self, node: ListNode) -> Run:
        runs = [self.compile(element) for element in node.elements]
        self.cost += 10
        if node.optionals:
            return calls.build_list(runs, node.optionals)
        is_constant, value = read_constant(node)
        if is_constant and not self._is_stepwise:
            return calls.constant(value)
        return lambda frame: [run(frame) for run in runs]

    def _map(self, node: MapNode) -> Run:
        self.cost += 30
        is_constant, value = read_constant(node)
        if is_constant and not self._is_stepwise:
            return calls.constant(value)
        return calls.build_map(
            [
                (self.compile(entry.key), self.compile(entry.value), entry.is_optional)
                for entry in node.entries
                if entry.key is not None
            ]
        )

    def _struct(self, node: StructNode) -> Run:
        self.cost += 40
        name, make = node.name, self._make_struct
        build = calls.build_map(
            [
                (calls.constant(entry.name), self.compile(entry.value), entry.is_optional)
                for entry in node.entries
            ]
        )
        return lambda frame: make(name, build(frame))

    def loop_cost(self, macro: str, body: int) -> int:  # noqa: ARG002 - for the subclass
        """What one turn of a loop costs at most."""
        return body + 4

    def _fold(self, node: Fold) -> Run:
        if node.macro == "bind":
            first = self.compile(node.initial)
            slot = self.new_slot()
            self.scope(node.accumulator, slot, first)
            body = self.compile(node.result)
            self.leave()
            self.cost += 1
            return chains.bind(slot, body)
        ranged = self.compile(node.range)
        outside, self.cost = self.cost, 0
        first_slot = self.new_slot()
        second_slot = self.new_slot() if node.variables[1] else 0
        self.scope(node.variables[0], first_slot)
        self.scope(node.variables[1], second_slot)
        parts = [None if part is None else self.compile(part) for part in node.body]
        self.leave(2)
        inside, self.cost = self.loop_cost(node.macro, self.cost), outside + 1
        macro = self.finish_parts(node.macro, parts)
        return chains.build_loop(macro, ranged, (first_slot, second_slot), parts, inside)

    def finish_parts(self, macro: str, parts: list[Run | None]) -> str:  # noqa: ARG002 - for the subclass
        """The macro whose loop runs the parts."""
        return macro

    _compilers: ClassVar[Mapping[type, Callable[..., Run]]] = {
        Literal: _literal, Ident: _ident, Select: _select, Call: _call, ListNode: _list,
        MapNode: _map, StructNode: _struct, Fold: _fold,
    }  # fmt: skip
    _special: ClassVar[Mapping[str, Callable[..., Run | None]]] = {
        "_?_:_": _conditional, "_&&_": _logic, "_||_": _logic, "or": _optional_or,
        "orValue": _optional_or, "__orValueCompat__": _or_value,
    }  # fmt: skip
