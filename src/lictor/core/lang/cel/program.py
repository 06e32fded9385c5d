"""Compiles expressions in an environment, and evaluates them."""

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from types import MappingProxyType
from typing import Any

import msgspec
from msgspec.structs import replace

from lictor.core.errors import SyntaxFaultError
from lictor.core.lang.cel.checker import Declarations, check_types
from lictor.core.lang.cel.compiler import CelCompiler, Code, Trace
from lictor.core.lang.cel.cost import COSTS, HEAVY, MeasuringCompiler
from lictor.core.lang.cel.faults import (
    CelCompileError,
    CelError,
    CelLimitError,
    CostExceededError,
    Issue,
)
from lictor.core.lang.cel.library.formatting import check_format
from lictor.core.lang.cel.parser import Macro, MacroKey, deep_recursion, parse_expression
from lictor.core.lang.cel.state import CALL_LIMIT, UNSET, State
from lictor.core.lang.cel.syntax import Call, CelNode, ListNode, Literal, MapNode, list_children
from lictor.core.lang.cel.types import CelType
from lictor.core.lang.cel.values import Value
from lictor.core.lang.regex import compile_regex

_HEAVY = {name: COSTS[name] for name in HEAVY}


class Environment(Declarations, frozen=True, eq=False):
    """Macros, functions, types and variables; `extend` declares more variables.

    `globals` has the values of variables that belong to the environment itself. The rest are ways
    in which versions differ: selectors in backquotes, whether lists may be mixed, whether `<` of
    NaN is false instead of an error, whether errors name the policy's variable (Kubernetes).
    """

    name: str
    macros: Mapping[MacroKey, Macro]
    globals: Mapping[str, Any] = MappingProxyType({})
    quoted: bool = True
    allows_mixed: bool = False
    has_nan_order: bool = False
    names_variables: bool = False

    def extend(self, variables: Mapping[str, CelType]) -> "Environment":
        """The same environment with more variables."""
        return replace(self, variables={**self.variables, **variables})

    def parse(self, source: str) -> CelNode:
        """The tree without types; CelCompileError for what is not in the grammar."""
        return parse_expression(source, self.macros, quoted=self.quoted)

    def check(self, root: CelNode) -> list[Issue]:
        """Set the types of a tree; the issues found."""
        with deep_recursion(root.depth):
            issues = check_types(root, self)
        return issues or validate_tree(root, is_mixed_allowed=self.allows_mixed)

    def compile(self, source: str) -> "CelProgram":
        """A program that can be evaluated; CelCompileError with all issues otherwise."""
        root = self.parse(source)
        issues = self.check(root)
        if issues:
            raise CelCompileError(issues, source)
        try:
            with deep_recursion(root.depth):
                code = self.build(root)
        except CelCompileError as error:
            raise CelCompileError(error.issues, source) from error
        return CelProgram(source, root.type, code, self)

    def build(self, root: CelNode, trace: Trace | None = None) -> Code:
        """Closures for a tree that `check` has accepted."""
        compiler = CelCompiler(
            self.functions, self.structs.make, trace, costs=_HEAVY, has_nan_order=self.has_nan_order
        )
        return compiler.build(root, self.globals)

    def list_overloads(self) -> Iterator["NamedOverload"]:
        """All ways to call functions; methods of the environment's own variables by their names."""
        owners = {of.name: name for name, of in self.variables.items() if name in self.globals}
        made = {each.result.name for of in self.functions.values() for each in of.overloads}
        for function in self.functions.values():
            for each in function.overloads:
                params, name, is_member = each.params, each.name, each.is_member
                owner = owners.get(params[0].name) if is_member else None
                if owner is not None and each.params[0].name in made:
                    yield NamedOverload(name, is_member, params, each.result)
                if owner is not None:
                    name, params, is_member = f"{owner}.{name}", params[1:], False
                yield NamedOverload(name, is_member, params, each.result)

    def measure(self, root: CelNode) -> Code:
        """Closures that count the cost as Kubernetes does."""
        return MeasuringCompiler(self.functions, self.structs.make).build(root, self.globals)


class NamedOverload(msgspec.Struct, frozen=True):
    """A way to call a function, as authors write it: `x.indexOf(y)` or `json.marshal(x)`."""

    name: str
    is_member: bool
    params: tuple[CelType, ...]
    result: CelType


class CelProgram:
    """A compiled expression."""

    __slots__ = ("_code", "_environment", "_measured", "result", "source")

    def __init__(self, source: str, result: CelType, code: Code, environment: Environment) -> None:
        self.source = source
        self.result = result
        self._code = code
        self._environment = environment
        self._measured: Code | None = None

    @property
    def variables(self) -> tuple[str, ...]:
        """The variables of the host that the expression uses."""
        return tuple(self._code.variables)

    def evaluate(
        self,
        activation: Mapping[str, Value],
        *,
        limit: int = CALL_LIMIT,
        deadline: float | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> Value:
        """The value of the expression; CelError if it has none, CelLimitError if it was stopped.

        A variable is looked up in `activation` when it is first used; KeyError means unset.
        """
        return self.run(State(activation, limit, deadline, clock))

    def run(self, state: State, variables: Value = UNSET) -> Value:
        """As `evaluate`; the expressions of one request can share a state.

        `variables` is the value of the variable with that name.
        """
        code = self._code
        state.restart(code.cost)
        try:
            return code.run(_fill(code, state, variables))
        except CostExceededError:
            return self._run_measured(state, variables)
        except RecursionError:
            raise CelLimitError("the expression or its value is nested too deeply") from None

    def _run_measured(self, state: State, variables: Value) -> Value:
        """The upper bound was exceeded: count what Kubernetes counts."""
        state.restart(0)
        if self._measured is None:
            root = self._environment.parse(self.source)
            self._environment.check(root)
            self._measured = self._environment.measure(root)
        return self._measured.run(_fill(self._measured, state, variables))

    def explain(self, activation: Mapping[str, Value]) -> list[tuple[CelNode, Value | CelError]]:
        """Every part of the expression that was evaluated, with its value or its error."""
        seen: list[tuple[CelNode, Value | CelError]] = []
        root = self._environment.parse(self.source)
        self._environment.check(root)

        def trace(
            node: CelNode, run: Callable[[list[Value]], Value]
        ) -> Callable[[list[Value]], Value]:
            def traced(frame: list[Value]) -> Value:
                try:
                    value = run(frame)
                except CelError as error:
                    seen.append((node, error))
                    raise
                seen.append((node, value))
                return value

            return traced

        code = self._environment.build(root, trace)
        frame = code.template.copy()
        frame[0] = State(activation, CALL_LIMIT, None, time.monotonic)
        with suppress(CelError):
            code.run(frame)
        return seen


def _fill(code: Code, state: State, variables: Value) -> list[Value]:
    frame = code.template.copy()
    frame[0] = state
    if variables is not UNSET:
        frame[code.variables["variables"]] = variables
    return frame


_TIMES = ("duration", "timestamp")
# Functions with the index of the argument that is a regular expression.
_PATTERNS = {"find": 1, "findAll": 1, "matches": 1}


def validate_tree(root: CelNode, *, is_mixed_allowed: bool = False) -> list[Issue]:
    """What Kubernetes refuses in an expression whose types are right."""
    issues: list[Issue] = []
    for node, is_formatted in _walk(root):
        if isinstance(node, Call):
            issues += _check_literals(node)
        elif isinstance(node, ListNode | MapNode) and not is_formatted and not is_mixed_allowed:
            issues += _check_mixed(node)
    return issues


def _walk(root: CelNode) -> Iterator[tuple[CelNode, bool]]:
    """All nodes, and whether they stand inside a call of format(), where lists may be mixed."""
    pending = [(root, False)]
    # The target of optMap() occurs twice.
    seen: set[int] = set()
    while pending:
        node, is_formatted = pending.pop()
        if id(node) in seen:
            continue
        seen.add(id(node))
        yield node, is_formatted
        inside = is_formatted or (isinstance(node, Call) and node.function == "format")
        pending += [(child, inside) for child in list_children(node)]


def _check_literals(call: Call) -> Iterator[Issue]:
    name = call.function
    first = call.args[0] if call.args else None
    if name in _TIMES and isinstance(first, Literal) and call.overloads:
        try:
            call.overloads[0].implementation(first.value)
        except CelError:
            yield Issue(first.position, f"invalid {name} argument")
    elif name == "matches" and isinstance(first, Literal):
        yield from _check_pattern(first, "invalid matches argument")
    if name in _PATTERNS:
        parts = call.args if call.target is None else [call.target, *call.args]
        pattern = parts[_PATTERNS[name]]
        if (isinstance(pattern, Literal) and pattern is not first) or name != "matches":
            yield from _check_pattern(pattern, "")
    if name == "format" and call.target is not None and len(call.args) == 1:
        issue = check_format(call)
        if issue is not None:
            yield issue


def _check_pattern(node: CelNode, message: str) -> Iterator[Issue]:
    if isinstance(node, Literal) and isinstance(node.value, str):
        try:
            compile_regex(node.value)
        except SyntaxFaultError as error:
            yield Issue(node.position, message or str(error))


def _check_mixed(node: ListNode | MapNode) -> Iterator[Issue]:
    if isinstance(node, ListNode):
        elements = [(e, i in node.optionals) for i, e in enumerate(node.elements)]
        yield from _find_other(elements)
        return
    yield from _find_other([(e.key, False) for e in node.entries if e.key is not None])
    yield from _find_other([(e.value, e.is_optional) for e in node.entries])


def _find_other(parts: list[tuple[CelNode, bool]]) -> Iterator[Issue]:
    first: CelType | None = None
    for node, is_optional in parts:
        found = node.type
        if is_optional and found.params:
            found = found.params[0]
        if first is None:
            first = found
        elif found is not first:
            yield Issue(node.position, f"expected type '{first}' but found '{found}'")
            return
