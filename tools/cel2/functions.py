"""Functions as tables of overloads, and the choice among them by the arguments at run time."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import chain
from typing import TypeAlias

import msgspec

from cel2.faults import CelError, no_overload
from cel2.types import Type, parse_signature
from cel2.values import (
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


_CLASSES: dict[str, type] = {
    "bool": bool, "int": int, "uint": UInt, "double": float, "string": str, "bytes": bytes,
    "null": type(None), "timestamp": Timestamp, "duration": Duration, "type": TypeValue,
}  # fmt: skip


def _make_guard(of: Type) -> Callable[[Value], bool] | None:
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
    function: Function, chosen: Sequence[Overload], certain: Sequence[Type | None]
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


def _guarded(overload: Overload, certain: Sequence[Type | None]) -> Implementation:
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
