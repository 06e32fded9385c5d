"""Type checking: resolves names and overloads, and reports what cannot be right."""

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import ClassVar

import msgspec

from lictor.core.lang.cel import types
from lictor.core.lang.cel.faults import Issue
from lictor.core.lang.cel.functions import Function, Functions, Overload
from lictor.core.lang.cel.library.structs import Structs
from lictor.core.lang.cel.syntax import (
    Call,
    CelNode,
    Entry,
    Fold,
    Ident,
    ListNode,
    Literal,
    MapNode,
    Select,
    StructNode,
)
from lictor.core.lang.cel.types import (
    BOOL,
    DYN,
    ERROR,
    INT,
    CelType,
    Substitutions,
    most_general,
    optional_type,
    rebuild,
)
from lictor.core.lang.cel.values import TypeValue, UInt


class Declarations(msgspec.Struct, frozen=True, eq=False, kw_only=True):
    """What an expression may use; the last two are ways in which versions differ.

    `inner_first`: a macro's variable hides declared ones with dots in their names.
    `confuses_dots`: `.x` is not found where a macro has a variable x (Kyverno 1.19).
    """

    functions: Functions
    variables: Mapping[str, CelType] = MappingProxyType({})
    types: Mapping[str, CelType] = MappingProxyType(types.TYPE_NAMES)
    structs: Structs = Structs()
    inner_first: bool = True
    confuses_dots: bool = False


_LITERALS: dict[type, CelType] = {
    bool: BOOL, int: INT, UInt: types.UINT, float: types.DOUBLE, str: types.STRING,
    bytes: types.BYTES, type(None): types.NULL,
}  # fmt: skip


def check_types(root: CelNode, declarations: Declarations) -> list[Issue]:
    """Set the type of every node; the issues that were found, none if the expression is sound."""
    return _Checker(declarations).check_all(root)


class _Checker:
    def __init__(self, declarations: Declarations) -> None:
        self._declared = declarations
        self._types = Substitutions()
        self._scopes: list[dict[str, CelType]] = []
        self._issues: list[Issue] = []
        self._nodes: dict[int, CelNode] = {}
        self._variables = 0

    def check_all(self, root: CelNode) -> list[Issue]:
        self._check(root)
        for node in self._nodes.values():
            if node.type.params or node.type.kind == "param":
                node.type = self._types.substitute(node.type, free_is_dyn=True)
        return self._issues

    def _check(self, node: CelNode) -> CelType:
        # The target of optMap() occurs twice.
        if id(node) in self._nodes:
            return node.type
        self._nodes[id(node)] = node
        node.type = self._checks[type(node)](self, node)
        return node.type

    def _report(self, node: CelNode, message: str) -> CelType:
        self._issues.append(Issue(node.position, message))
        return ERROR

    def _undeclared(self, node: CelNode, name: str) -> CelType:
        return self._report(node, f"undeclared reference to '{name}' (in container '')")

    def _mismatch(self, node: CelNode, wanted: CelType, found: CelType) -> CelType:
        return self._report(node, f"expected type '{wanted}' but found '{found}'")

    def _fresh(self) -> CelType:
        self._variables += 1
        return types.param_type(f"_var{self._variables - 1}")

    # -- names

    def _find_local(self, name: str) -> CelType | None:
        for scope in reversed(self._scopes):
            if name in scope:
                return scope[name]
        return None

    def _find_global(self, name: str) -> tuple[CelType, TypeValue | None] | None:
        found = self._declared.variables.get(name)
        if found is not None:
            return found, None
        found = self._declared.types.get(name)
        if found is not None:
            return types.type_type(found), TypeValue(found.runtime_name)
        found = self._declared.structs.find(name)
        return None if found is None else (types.type_type(found), TypeValue(name))

    def _check_literal(self, node: Literal) -> CelType:
        return _LITERALS[type(node.value)]

    def _check_ident(self, node: Ident) -> CelType:
        name = node.name
        if not self._declared.inner_first:
            # In older versions a leading dot finds the variables of macros as well.
            name = name.removeprefix(".")
        if not name.startswith("."):
            local = self._find_local(name)
            if local is not None:
                node.is_local, node.name = True, name
                return local
        found = self._find_global(name.removeprefix("."))
        if found is None:
            return self._undeclared(node, name)
        node.name = name.removeprefix(".")
        if self._declared.confuses_dots and self._find_local(node.name) is not None:
            node.name = f".{node.name}"
        node.constant = found[1]
        return found[0]

    def _check_select(self, node: Select) -> CelType:
        resolved = None if node.is_test or node.is_optional else self._resolve_dotted(node)
        if resolved is not None:
            node.resolved, found = resolved
            return found
        result = self._check_field(node, node.operand, node.field, is_optional=node.is_optional)
        return BOOL if node.is_test else self._types.substitute(result)

    def _resolve_dotted(self, node: Select) -> tuple[Ident, CelType] | None:
        """A variable or type with dots in its name, such as `google.protobuf.Timestamp`."""
        name = _dotted_name(node)
        if name is None:
            return None
        is_absolute = name.startswith(".")
        name = name.removeprefix(".")
        is_hidden = self._find_local(name.partition(".")[0]) is not None
        if is_hidden and self._declared.inner_first and not is_absolute:
            return None
        found = self._find_global(name)
        if found is None:
            return None
        is_lost = is_hidden and self._declared.confuses_dots
        ident = Ident(node.position, f".{name}" if is_lost else name)
        ident.type, ident.constant = found
        return ident, found[0]

    def _check_field(
        self, node: CelNode, operand: CelNode, field: str, *, is_optional: bool
    ) -> CelType:
        target = self._types.substitute(self._check(operand))
        inner, was_optional = _unwrap(target)
        structs = self._declared.structs
        result = DYN
        if inner.kind == "map":
            result = inner.params[1]
        elif inner.kind == "struct":
            known = structs.find_field(inner.name, field)
            result = known or self._report(node, f"undefined field '{field}'")
        elif inner.kind == "param":
            self._types.is_assignable(DYN, inner)
        elif inner.kind == "opaque" and (found := structs.find_field(inner.name, field)):
            result = found
        elif inner.kind not in ("dyn", "error"):
            self._report(node, f"type '{inner}' does not support field selection")
        return optional_type(result) if was_optional or is_optional else result

    # -- calls

    def _check_call(self, node: Call) -> CelType:
        for arg in node.args:
            self._check(arg)
        name = node.function
        functions = self._declared.functions
        if node.target is None:
            function = functions.get(name.removeprefix("."))
        else:
            # A method of a name with dots, unless a function has that whole name.
            dotted = _dotted_name(node.target)
            function = functions.get(f"{dotted}.{name}".removeprefix(".")) if dotted else None
            if function:
                node.target = None
            else:
                self._check(node.target)
                function = functions.get(name)
        return self._resolve(node, function) if function else self._undeclared(node, name)

    def _resolve(self, node: Call, function: Function) -> CelType:
        node.function = function.name
        if function.name in ("_&&_", "_||_"):
            return self._check_logic(node, function)
        parts = node.args if node.target is None else [node.target, *node.args]
        args = [part.type for part in parts]
        is_member = node.target is not None
        result: CelType | None = None
        for overload in function.overloads:
            if overload.is_member is not is_member or len(overload.params) != len(args):
                continue
            params, made = self._instantiate(overload)
            if not self._types.are_assignable(args, params):
                continue
            node.overloads.append(overload)
            made = self._types.substitute(made)
            if result is None:
                result = made
            elif result is not DYN and result is not made:
                result = DYN
        if result is None:
            return self._no_overload(node, function.name, args)
        return result

    def _check_logic(self, node: Call, function: Function) -> CelType:
        node.overloads = function.overloads[:1]
        wrong = [arg for arg in node.args if not self._types.is_assignable(arg.type, BOOL)]
        for arg in wrong:
            self._mismatch(arg, BOOL, arg.type)
        return ERROR if wrong else BOOL

    def _no_overload(self, node: Call, name: str, args: Sequence[CelType]) -> CelType:
        shown = [str(self._types.substitute(arg, free_is_dyn=True)) for arg in args]
        receiver = f"{shown.pop(0)}." if node.target is not None else ""
        applied = f"{receiver}({', '.join(shown)})"
        return self._report(node, f"found no matching overload for '{name}' applied to '{applied}'")

    def _instantiate(self, overload: Overload) -> tuple[Sequence[CelType], CelType]:
        """The signature with fresh variables for its type parameters."""
        fresh: dict[CelType, CelType] = {}

        def replace(of: CelType) -> CelType:
            if of.kind == "param":
                if of not in fresh:
                    fresh[of] = self._fresh()
                return fresh[of]
            return rebuild(of, [replace(param) for param in of.params]) if of.params else of

        return [replace(param) for param in overload.params], replace(overload.result)

    # -- aggregates

    def _check_list(self, node: ListNode) -> CelType:
        joined: CelType | None = None
        for index, element in enumerate(node.elements):
            found = self._check(element)
            if index in node.optionals:
                found = self._unwrap_entry(element, found)
            joined = self._join(joined, found)
        return types.list_type(joined if joined is not None else self._fresh())

    def _check_map(self, node: MapNode) -> CelType:
        keys: CelType | None = None
        values: CelType | None = None
        for entry in node.entries:
            if entry.key is not None:
                keys = self._join(keys, self._check(entry.key))
            values = self._join(values, self._check_value(entry))
        if keys is None or values is None:
            return types.map_type(self._fresh(), self._fresh())
        return types.map_type(keys, values)

    def _check_value(self, entry: Entry) -> CelType:
        found = self._check(entry.value)
        return self._unwrap_entry(entry.value, found) if entry.is_optional else found

    def _unwrap_entry(self, node: CelNode, found: CelType) -> CelType:
        inner, is_optional = _unwrap(found)
        if not is_optional and inner is not DYN:
            self._mismatch(node, optional_type(inner), inner)
        return inner

    def _join(self, previous: CelType | None, current: CelType) -> CelType:
        if previous is None:
            return current
        if self._types.is_assignable(previous, current):
            return most_general(previous, current)
        return DYN

    def _check_struct(self, node: StructNode) -> CelType:
        name = node.name.removeprefix(".")
        found = self._declared.structs.find(name)
        if found is None:
            return self._undeclared(node, node.name)
        node.name = name
        for entry in node.entries:
            given = self._check_value(entry)
            wanted = self._declared.structs.find_field(name, entry.name)
            if wanted is None:
                self._report(entry, f"undefined field '{entry.name}'")
            elif not self._types.is_assignable(wanted, given):
                message = (
                    f"expected type of field '{entry.name}' is '{wanted}'"
                    f" but provided type is '{given}'"
                )
                self._report(entry, message)
        return found

    # -- comprehensions

    def _check_fold(self, node: Fold) -> CelType:
        self._check(node.range)
        initial = self._check(node.initial)
        ranged = self._types.substitute(node.range.type)
        self._scopes.append({node.accumulator: initial})
        self._scopes.append(self._iteration_scope(node, ranged))
        self._check(node.condition)
        self._assert_type(node.condition, BOOL)
        self._check(node.step)
        self._assert_type(node.step, initial)
        self._scopes.pop()
        self._check(node.result)
        self._scopes.pop()
        return self._types.substitute(node.result.type)

    def _iteration_scope(self, node: Fold, ranged: CelType) -> dict[str, CelType]:
        first = second = DYN
        if ranged.kind == "list":
            first = second = ranged.params[0]
            first = INT if node.variables[1] else first
        elif ranged.kind == "map":
            first, second = ranged.params
        elif ranged.kind in ("dyn", "error", "param"):
            self._types.is_assignable(DYN, ranged)
        else:
            message = (
                f"expression of type '{ranged}' cannot be range of a comprehension"
                " (must be list, map, or dynamic)"
            )
            first = second = self._report(node.range, message)
        return {node.variables[1]: second, node.variables[0]: first}

    def _assert_type(self, node: CelNode, wanted: CelType) -> None:
        if not self._types.is_assignable(wanted, node.type):
            self._mismatch(node, wanted, node.type)

    _checks: ClassVar[dict[type, Callable[..., CelType]]] = {
        Literal: _check_literal, Ident: _check_ident, Select: _check_select, Call: _check_call,
        ListNode: _check_list, MapNode: _check_map, StructNode: _check_struct, Fold: _check_fold,
    }  # fmt: skip


def _unwrap(of: CelType) -> tuple[CelType, bool]:
    return (of.params[0], True) if of.is_optional else (of, False)


def _dotted_name(node: CelNode) -> str | None:
    """`a.b.c` for selections on a name, None for all else."""
    parts = []
    while isinstance(node, Select):
        if node.is_test or node.is_optional:
            return None
        parts.append(node.field)
        node = node.operand
    if not isinstance(node, Ident):
        return None
    return ".".join([node.name, *reversed(parts)])
