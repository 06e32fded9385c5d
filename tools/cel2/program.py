"""Compiles expressions in an environment, and evaluates them."""

import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from types import MappingProxyType
from typing import Any

import msgspec
from msgspec.structs import replace

from cel2.checker import check_types
from cel2.compiler import Code, Compiler, Trace
from cel2.cost import COSTS, HEAVY, MeasuringCompiler
from cel2.faults import (
    CelCompileError,
    CelError,
    CelLimitError,
    CostExceededError,
    Issue,
)
from cel2.functions import Functions
from cel2.library.structs import Structs
from cel2.parser import Macro, MacroKey, deep_recursion, parse_expression
from cel2.state import CALL_LIMIT, State
from cel2.syntax import Node
from cel2.types import TYPE_NAMES, Type
from cel2.validators import validate_tree
from cel2.values import Value

_HEAVY = {name: COSTS[name] for name in HEAVY}


class Environment(msgspec.Struct, frozen=True):
    """Macros, functions, types and variables; `extend` declares more variables.

    `globals` has the values of variables that belong to the environment itself. The rest are ways
    in which versions differ: selectors in backquotes, whether a macro's variable hides declared
    ones with dots in their names, whether lists may be mixed, whether `<` of NaN is false instead
    of an error, whether `.x` is not found where a macro has a variable x (Kyverno 1.19).
    """

    macros: Mapping[MacroKey, Macro]
    functions: Functions
    variables: Mapping[str, Type] = MappingProxyType({})
    types: Mapping[str, Type] = MappingProxyType(TYPE_NAMES)
    structs: Structs = Structs()
    globals: Mapping[str, Any] = MappingProxyType({})
    quoted: bool = True
    inner_first: bool = True
    allows_mixed: bool = False
    has_nan_order: bool = False
    confuses_dots: bool = False

    def extend(self, variables: Mapping[str, Type]) -> "Environment":
        """The same environment with more variables."""
        return replace(self, variables={**self.variables, **variables})

    def parse(self, source: str) -> Node:
        """The tree without types; CelCompileError for what is not in the grammar."""
        return parse_expression(source, self.macros, quoted=self.quoted)

    def check(self, root: Node) -> list[Issue]:
        """Set the types of a tree; the issues found."""
        with deep_recursion(root.depth):
            issues = check_types(root, self)
        return issues or validate_tree(root, is_mixed_allowed=self.allows_mixed)

    def compile(self, source: str) -> "Program":
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
        return Program(source, root.type, code, self)

    def build(self, root: Node, trace: Trace | None = None) -> Code:
        """Closures for a tree that `check` has accepted."""
        compiler = Compiler(
            self.functions, self.structs.make, trace, costs=_HEAVY, has_nan_order=self.has_nan_order
        )
        return compiler.build(root, self.globals)

    def measure(self, root: Node) -> Code:
        """Closures that count the cost as Kubernetes does."""
        return MeasuringCompiler(self.functions, self.structs.make).build(root, self.globals)


class Program:
    """A compiled expression."""

    __slots__ = ("_code", "_environment", "_measured", "result", "source")

    def __init__(self, source: str, result: Type, code: Code, environment: Environment) -> None:
        self.source = source
        self.result = result
        self._code = code
        self._environment = environment
        self._measured: Code | None = None

    @property
    def variables(self) -> tuple[str, ...]:
        """The variables of the host that the expression uses."""
        return self._code.variables

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

    def run(self, state: State) -> Value:
        """As `evaluate`; the expressions of one request can share a state."""
        code = self._code
        state.restart(code.cost)
        frame = code.template.copy()
        frame[0] = state
        try:
            return code.run(frame)
        except CostExceededError:
            return self._run_measured(state)
        except RecursionError:
            raise CelLimitError("the expression or its value is nested too deeply") from None

    def _run_measured(self, state: State) -> Value:
        """The upper bound was exceeded: count what Kubernetes counts."""
        state.restart(0)
        if self._measured is None:
            root = self._environment.parse(self.source)
            self._environment.check(root)
            self._measured = self._environment.measure(root)
        frame = self._measured.template.copy()
        frame[0] = state
        return self._measured.run(frame)

    def explain(self, activation: Mapping[str, Value]) -> list[tuple[Node, Value | CelError]]:
        """Every part of the expression that was evaluated, with its value or its error."""
        seen: list[tuple[Node, Value | CelError]] = []
        root = self._environment.parse(self.source)
        self._environment.check(root)

        def trace(
            node: Node, run: Callable[[list[Value]], Value]
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
