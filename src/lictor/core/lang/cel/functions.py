"""Functions as tables of overloads, the choice among them, and what is known before a call."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import chain
from typing import TypeAlias

import msgspec

from lictor.core.errors import EvaluationError, LookupFailedError
from lictor.core.lang.cel.faults import CelError, OutsideError, no_overload
from lictor.core.lang.cel.syntax import Call, CelNode, ListNode, Literal, MapNode
from lictor.core.lang.cel.types import CelType, parse_signature
from lictor.core.lang.cel.values import (
    Duration,
    Optional,
    Timestamp,
    TypeValue,
    UInt,
    Value,
    decode_key,
    type_name,
)

Implementation: TypeAlias = Callable[..., Value]
# The cost of a call from its arguments.
Cost: TypeAlias = Callable[[Sequence[Value]], int]


class Overload:
    """One signature of a function and what it does."""

    __slots__ = ("guards", "implementation", "is_member", "name", "params", "result")

    def __init__(self, signature: str, implementation: Implementation) -> None:
        self.is_member, self.name, self.params, self.result = parse_signature(signature)
        self.implementation = implementation
        self.guards = tuple(_make_guard(param) for param in self.params)

    def accepts(self, args: Sequence[Value]) -> bool:
        """Whether the arguments have the types of the signature."""
        return len(args) == len(self.guards) and all(
            guard is None or guard(arg) for guard, arg in zip(self.guards, args, strict=True)
        )


class Function(msgspec.Struct):
    """All overloads of a name; `is_single`: one implementation, which checks types itself."""

    name: str
    overloads: list[Overload]
    is_single: bool = False


class Library:
    """Functions that belong together: `rows` of signature and implementation.

    `single` names the functions whose implementation does its own dispatch.
    """

    __slots__ = ("rows", "single", "types")

    def __init__(
        self,
        *rows: tuple[str, Implementation],
        single: Iterable[str] = (),
        types: Iterable[str] = (),
    ) -> None:
        self.rows = rows
        self.single = frozenset(single)
        self.types = tuple(types)


def build_functions(
    libraries: Sequence[Library], overrides: Sequence[Library] = ()
) -> dict[str, Function]:
    """The functions of several libraries; overloads of one name are joined in order.

    `overrides` have other implementations for some signatures.
    """
    functions: dict[str, Function] = {}
    single = set(chain.from_iterable(library.single for library in libraries))
    replaced = {row[0]: row[1] for library in overrides for row in library.rows}
    seen: set[str] = set()
    for row in chain.from_iterable(library.rows for library in libraries):
        if row[0] in seen:
            continue
        seen.add(row[0])
        overload = Overload(row[0], replaced.get(row[0], row[1]))
        found = functions.get(overload.name)
        if found is None:
            is_single = overload.name in single
            found = functions[overload.name] = Function(overload.name, [], is_single)
        found.overloads.append(overload)
    return functions


def succeeds(parse: Implementation) -> Implementation:
    """Whether a text can be parsed, such as isIP() beside ip()."""

    def run(*args: Value) -> bool:
        try:
            parse(*args)
        except CelError:
            return False
        return True

    return run


def outside(call: Implementation) -> Implementation:
    """A function of the host: what it raises is an error of CEL, which operators may absorb."""

    def run(*args: Value) -> Value:
        try:
            return call(*args)
        except CelError:
            raise
        except (EvaluationError, LookupFailedError) as error:
            raise OutsideError(error) from error

    return run


_CLASSES: dict[str, type] = {
    "bool": bool, "int": int, "uint": UInt, "double": float, "string": str, "bytes": bytes,
    "null": type(None), "timestamp": Timestamp, "duration": Duration, "type": TypeValue,
}  # fmt: skip


def _make_guard(of: CelType) -> Callable[[Value], bool] | None:
    """A test of an argument against a type; None if all values pass."""
    if of.kind in ("dyn", "param", "error"):
        return None
    kind = _CLASSES.get(of.kind)
    if kind is not None:
        return lambda value: type(value) is kind
    if of.kind == "list":
        return _guard_list(_make_guard(of.params[0]))
    if of.kind == "map":
        return _guard_map(_make_guard(of.params[0]), _make_guard(of.params[1]))
    if of.is_optional:
        return lambda value: type(value) is Optional
    name = of.name
    return lambda value: type_name(value) == name


def _guard_list(element: Callable[[Value], bool] | None) -> Callable[[Value], bool]:
    """As cel-go, the first element speaks for all."""
    if element is None:
        return lambda value: type(value) is list
    return lambda value: type(value) is list and (not value or element(value[0]))


def _guard_map(
    key: Callable[[Value], bool] | None, item: Callable[[Value], bool] | None
) -> Callable[[Value], bool]:
    def accepts(value: Value) -> bool:
        if type(value) is not dict:
            return False
        if not value:
            return True
        first = decode_key(next(iter(value)))
        return (key is None or key(first)) and (item is None or item(next(iter(value.values()))))

    return accepts


def bind_call(
    function: Function, chosen: Sequence[Overload], certain: Sequence[CelType | None]
) -> Implementation:
    """What a call runs: the only overload that fits, with guards for types that are not certain.

    `certain` has the types of those arguments that cannot be of another one at run time.
    """
    if function.is_single:
        return chosen[0].implementation
    if len(chosen) == 1:
        return _guarded(chosen[0], certain)
    # Like cel-go, which chooses among all overloads, methods or not.
    return _dispatched(function.name, function.overloads)


def _guarded(overload: Overload, certain: Sequence[CelType | None]) -> Implementation:
    run, name = overload.implementation, overload.name
    known = zip(overload.guards, overload.params, certain, strict=True)
    guards = [None if param is of else guard for guard, param, of in known]
    needed = [guard for guard in guards if guard is not None]
    if not needed:
        return run
    if len(guards) <= 2 and len(needed) == 1 and guards[0] is not None:
        return _guard_first(run, name, needed[0])

    def call(*args: Value) -> Value:
        if not overload.accepts(args):
            raise no_overload(f"{name}({', '.join(map(type_name, args))})")
        return run(*args)

    return call


def _guard_first(run: Implementation, name: str, guard: Callable[[Value], bool]) -> Implementation:
    def call(first: Value, *rest: Value) -> Value:
        if not guard(first):
            raise no_overload(f"{name}({type_name(first)})")
        return run(first, *rest)

    return call


def _dispatched(name: str, overloads: Sequence[Overload]) -> Implementation:
    def call(*args: Value) -> Value:
        for overload in overloads:
            if overload.accepts(args):
                return overload.implementation(*args)
        raise no_overload(f"{name}({', '.join(map(type_name, args))})")

    return call


Functions: TypeAlias = Mapping[str, Function]


_CONVERSIONS = (
    "bool", "bytes", "double", "duration", "dyn", "int", "string", "timestamp", "type", "uint",
)  # fmt: skip


def find_implementation(
    functions: Functions, node: Call, parts: Sequence[CelNode]
) -> Implementation:
    """What a call runs."""
    certain = [_certain_type(part, functions) for part in parts]
    implementation = bind_call(functions[node.function], node.overloads, certain)
    has_pattern = node.function in ("find", "findAll", "matches") and _is_fixed(parts[1])
    return _unwrapping(implementation) if has_pattern else implementation


def _is_fixed(node: CelNode) -> bool:
    return isinstance(node, Literal) or (isinstance(node, Call) and is_converted_literal(node))


def _unwrapping(implementation: Implementation) -> Implementation:
    """With a constant pattern, cel-go takes optionals for what they hold."""

    def run(*args: Value) -> Value:
        return implementation(*[a.value if type(a) is Optional and a.content else a for a in args])

    return run


def _certain_type(node: CelNode, functions: Functions) -> CelType | None:
    """The type that a value is sure to have; what comes from dyn may have another one."""
    if isinstance(node, Literal):
        return node.type
    # A function that does its own dispatch may return other types than its signature has.
    if not isinstance(node, Call) or functions[node.function].is_single or len(node.overloads) > 1:
        return None
    result: CelType = node.overloads[0].result
    return None if result.kind == "dyn" or _has_param(result) else result


def _has_param(of: CelType) -> bool:
    return of.kind == "param" or any(map(_has_param, of.params))


def is_converted_literal(node: Call) -> bool:
    """Whether a call converts a literal, which cel-go does only once."""
    if node.function not in _CONVERSIONS:
        return False
    return _is_fixed(node.args[0])


def read_constant(node: CelNode) -> tuple[bool, Value]:
    """Whether a node is a literal, or a list or a map of them, and its value."""
    if isinstance(node, Literal):
        return True, node.value
    if isinstance(node, ListNode) and not node.optionals:
        parts = [read_constant(element) for element in node.elements]
        return all(known for known, _ in parts), [value for _, value in parts]
    if not isinstance(node, MapNode) or any(entry.is_optional for entry in node.entries):
        return False, None
    pairs = [(read_constant(e.key), read_constant(e.value)) for e in node.entries if e.key]
    known = all(key[0] and value[0] and type(key[1]) is str for key, value in pairs)
    return known, {key[1]: value[1] for key, value in pairs} if known else None
