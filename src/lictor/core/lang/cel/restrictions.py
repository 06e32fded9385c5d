"""What a checked expression must not do, though the engine's checker accepts it.

The engine is written in C++ and turns each argument of a function of ours into a Python object. It
has none for an optional: the process dies. Types do not tell enough, as most values are dyn. So the
layers of optionals that a value can have are counted along its parts: `optional.of(x)` adds a
layer, `value()` takes one away, and what comes from a request has none.

Kubernetes and Kyverno refuse literals of mixed types (HomogeneousAggregateLiterals of cel-go).
"""

from collections.abc import Callable, Iterable, Iterator, Mapping

import msgspec
from msgspec.structs import replace

from lictor.core.errors import SyntaxFaultError
from lictor.core.lang.cel.rewriting import Rewritten
from lictor.core.lang.cel.tree import CelNode, Tree, read_tree
from lictor.core.lang.cel.types import CelType
from lictor.core.lang.cel.wire import value_or_null
from lictor.core.raw import Json

# Beyond these, nothing is counted any more: value() then never makes a value plain again.
_MOST_LAYERS = 8
# A loop whose result grows is looked at several times, and so are those inside it.
_MOST_VISITS = 50_000
# Functions of the engine whose result is a value of another type, whatever its arguments are.
_SCALARS = frozenset(
    ("bool", "int", "uint", "double", "string", "bytes", "timestamp", "duration", "type")
)
_HELD = "the answer holds an optional: end it with orValue() or value()"
# How authors write what has another name in the tree.
_WRITTEN = {"cel.@mapInsert": "transformMap()", "_Ob": "Object{}", "_Jp": "JSONPatch{}"}
_INSERT = "cel.@mapInsert"


class Optionals(msgspec.Struct, frozen=True):
    """How many optionals a value can have around or inside it, one in the other."""

    layers: int = 0
    # Whether the value itself is an optional for certain.
    is_optional: bool = False
    # Whether a list or a map made on the way can hold an optional.
    is_nested: bool = False

    @property
    def plain(self) -> "Optionals":
        """What value() returns."""
        layers = self.layers if self.layers > _MOST_LAYERS else max(self.layers - 1, 0)
        return Optionals(layers)

    @property
    def wrapped(self) -> "Optionals":
        """What optional.of() returns."""
        return Optionals(min(self.layers, _MOST_LAYERS) + 1, is_optional=True)


NO_OPTIONALS = Optionals()


def check_restrictions(
    checked: bytes,
    rewritten: Rewritten,
    known: Mapping[str, Optionals],
    crossing: Callable[[], frozenset[str]],
) -> Optionals:
    """The optionals of an expression's value; SyntaxFaultError for what must not be run.

    `known` are those of variables; `crossing` names the functions that are written in Python.
    """
    has_optionals = bool(known) or b"optional" in checked or b"?_" in checked
    if not has_optionals and not _may_mix(rewritten.text):
        return NO_OPTIONALS
    try:
        tree = read_tree(checked)
        for node, message in _find_mixed(tree.root, tree, rewritten):
            raise _fault(message, node, tree, rewritten)
        if not has_optionals:
            return NO_OPTIONALS
        count = _Count(tree, rewritten, crossing())
        found = count.count(tree.root, known)
    except RecursionError as error:
        message = "the expression is nested too deeply"
        raise SyntaxFaultError(message, text=rewritten.original) from error
    is_nested = count.is_nested or any(each.is_nested for each in known.values())
    return replace(found, is_nested=is_nested)


def unwrap_optional(code: bytes, kind: CelType, optionals: Optionals) -> tuple[bytes, Optionals]:
    """An optional's value or null: the engine cannot hand out an optional."""
    if optionals.is_optional:
        return value_or_null(code), replace(optionals.plain, is_nested=optionals.is_nested)
    return value_or_null(code) if kind.name == "optional_type" else code, optionals


def refuse_optionals(result: Json) -> None:
    """Raise ValueError for a result of the engine that is an optional or holds one."""
    try:
        inside = result.value()
    except TypeError:
        raise ValueError(_HELD) from None
    items = inside.values() if isinstance(inside, dict) else inside
    if not isinstance(inside, (dict, list)):
        return
    for item in items:
        if not hasattr(item, "type"):
            continue
        # The engine has no name for the type of an optional there.
        if item.type().name() == "ERROR":
            raise ValueError(_HELD)
        refuse_optionals(item)


def _fault(message: str, node: CelNode, tree: Tree, rewritten: Rewritten) -> SyntaxFaultError:
    place = rewritten.original_offset(tree.places.get(node.number, 0))
    return SyntaxFaultError(message, text=rewritten.original, position=place)


class _Count:
    """One walk through one tree."""

    def __init__(self, tree: Tree, rewritten: Rewritten, crossing: frozenset[str]) -> None:
        self._tree = tree
        self._rewritten = rewritten
        self._crossing = crossing
        self.is_nested = False
        self._visits = 0

    def count(self, node: CelNode, scope: Mapping[str, Optionals]) -> Optionals:
        """The optionals of a part's value."""
        self._visits += 1
        if self._visits > _MOST_VISITS:
            raise _fault("loops are nested too deeply", node, self._tree, self._rewritten)
        match node.kind:
            case "ident":
                return scope.get(node.name, NO_OPTIONALS)
            case "select":
                operand = self.count(node.parts[0], scope)
                return NO_OPTIONALS if node.is_test else operand
            case "call":
                return self._count_call(node, [self.count(part, scope) for part in node.parts])
            case "list" | "map":
                return self._count_literal(node, scope)
            case "comprehension":
                return self._count_loop(node, scope)
        return NO_OPTIONALS

    def _count_literal(self, node: CelNode, scope: Mapping[str, Optionals]) -> Optionals:
        # Of an element with a question mark, what is inside is put into the list.
        parts = [self.count(part, scope) for part in node.parts]
        found = _join(
            part.plain if index in node.value else part for index, part in enumerate(parts)
        )
        self.is_nested = self.is_nested or found.layers > 0
        return Optionals(found.layers)

    def _count_call(self, node: CelNode, given: list[Optionals]) -> Optionals:
        name, all_given = node.name, _join(given)
        if all_given.layers and (name in self._crossing or name == _INSERT):
            self._refuse(node, given)
        if name in _CALLS:
            return _CALLS[name](given)
        kind = str(getattr(self._tree.kinds.get(node.number), "name", ""))
        if kind == "optional_type":
            return all_given.wrapped
        is_scalar = kind in _SCALARS and name != "_+_"
        return NO_OPTIONALS if is_scalar else Optionals(all_given.layers)

    def _refuse(self, node: CelNode, given: list[Optionals]) -> None:
        part = next(part for part, each in zip(node.parts, given, strict=True) if each.layers)
        called = _WRITTEN.get(node.name, f"{node.name}()")
        message = f"{called} takes no optional: end it with orValue() or value()"
        raise _fault(message, part, self._tree, self._rewritten)

    def _count_loop(self, node: CelNode, scope: Mapping[str, Optionals]) -> Optionals:
        over, start, condition, step, result = node.parts
        element, second, total = node.names
        begun = self.count(start, scope)
        if over.kind == "list" and not over.parts:
            # Nothing is gone through: a name for a value.
            return self.count(result, {**scope, total: begun})
        inside = Optionals(self.count(over, scope).layers)
        layers, made = -1, begun.layers
        while made > layers:
            # What one turn has made, the next one is given.
            layers = made
            inner = {**scope, element: inside, second: inside, total: Optionals(layers)}
            self.count(condition, inner)
            made = self.count(step, inner).layers
        return self.count(result, {**scope, total: Optionals(layers)})


def _join(parts: Iterable[Optionals]) -> Optionals:
    """Any one of these values."""
    given = tuple(parts)
    return Optionals(
        max((part.layers for part in given), default=0),
        is_optional=bool(given) and all(part.is_optional for part in given),
    )


def _select_optional(given: list[Optionals]) -> Optionals:
    return given[0] if given[0].is_optional else given[0].wrapped


# What is no optional is its own orValue() and or(), see `transforms.forgive`.
_CALLS: dict[str, Callable[[list[Optionals]], Optionals]] = {
    "optional.of": lambda given: given[0].wrapped,
    "optional.ofNonZeroValue": lambda given: given[0].wrapped,
    "optional.none": lambda _: NO_OPTIONALS.wrapped,
    "_?._": _select_optional,
    "_[?_]": _select_optional,
    "_[_]": lambda given: given[0],
    "_?_:_": lambda given: _join(given[1:]),
    "value": lambda given: given[0].plain,
    "orValue": lambda given: _join(
        (given[0].plain if given[0].is_optional else given[0], *given[1:])
    ),
    "or": _join,
    "dyn": _join,
}


def _may_mix(text: str) -> bool:
    return "," in text and ("[" in text or "{" in text)


def _find_mixed(node: CelNode, tree: Tree, rewritten: Rewritten) -> Iterator[tuple[CelNode, str]]:
    """Elements, keys and values of literals whose type is not that of the first one."""
    if node.kind == "call" and node.name == "format":
        return
    for part in node.parts:
        yield from _find_mixed(part, tree, rewritten)
    if node.kind not in {"list", "map"} or not _is_literal(node, tree, rewritten):
        return
    step = 1 if node.kind == "list" else 2
    for first in range(step):
        places = range(first, len(node.parts), step)
        kinds = [_kind_of(node, place, tree) for place in places]
        for place, kind in zip(places, kinds, strict=True):
            if kind != kinds[0]:
                yield node.parts[place], f"expected type '{kinds[0]}' but found '{kind}'"


def _is_literal(node: CelNode, tree: Tree, rewritten: Rewritten) -> bool:
    # What was `Object{…}` or `JSONPatch{…}` has fields of any types.
    place = rewritten.original_offset(tree.places.get(node.number, 0))
    return rewritten.original[place : place + 1] in {"[", "{"}


def _kind_of(node: CelNode, place: int, tree: Tree) -> CelType | None:
    kind = tree.kinds.get(node.parts[place].number)
    if place in node.value and kind is not None and kind.parameters:
        return kind.parameters[0]
    return kind
