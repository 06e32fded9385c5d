"""Macros: calls that the parser turns into comprehensions and presence tests."""

from lictor.core.lang.cel.parser import Macro, MacroError, MacroKey
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

ACCUMULATOR = "@result"
_OLD_ACCUMULATOR = "__result__"
UNUSED = "#unused"


def _variable(node: CelNode, message: str = "argument must be a simple name") -> str:
    if not isinstance(node, Ident):
        raise MacroError(node.position, message)
    if node.name in (ACCUMULATOR, _OLD_ACCUMULATOR):
        raise MacroError(node.position, "iteration variable overwrites accumulator variable")
    return node.name


def _two_variables(args: list[CelNode]) -> tuple[str, str]:
    names = []
    for node in args[:2]:
        if not isinstance(node, Ident):
            raise MacroError(node.position, "argument must be a simple name")
        names.append(node.name)
    first, second = names
    if first == second:
        raise MacroError(args[1].position, f"duplicate variable name: {first}")
    return _variable(args[0]), _variable(args[1])


def _accumulated(position: int) -> Ident:
    return Ident(position, ACCUMULATOR)


def _fold(
    position: int, macro: str, target: CelNode | None, variables: tuple[str, str], first: CelNode
) -> Fold:
    accumulated = _accumulated(position)
    always = Literal(position, value=True)
    ranged = target or Literal(position, None)
    return Fold(position, macro, ranged, variables, first, always, accumulated, accumulated)


def _quantify(
    macro: str,
    position: int,
    target: CelNode | None,
    variables: tuple[str, str],
    test: CelNode,
) -> CelNode:
    accumulated = _accumulated(position)
    if macro == "exists_one":
        fold = _fold(position, macro, target, variables, Literal(position, 0))
        added = Call(position, "_+_", [accumulated, Literal(position, 1)])
        fold.step = Call(position, "_?_:_", [test, added, _accumulated(position)])
        fold.result = Call(position, "_==_", [_accumulated(position), Literal(position, 1)])
    else:
        is_all = macro == "all"
        fold = _fold(position, macro, target, variables, Literal(position, is_all))
        tested: CelNode = accumulated if is_all else Call(position, "!_", [accumulated])
        fold.condition = Call(position, "@not_strictly_false", [tested])
        operator = "_&&_" if is_all else "_||_"
        fold.step = Call(position, operator, [_accumulated(position), test])
    fold.body = (test, None)
    return fold


def _quantifier(macro: str) -> Macro:
    def expand(position: int, target: CelNode | None, args: list[CelNode]) -> CelNode:
        if len(args) == 3:
            return _quantify(macro, position, target, _two_variables(args), args[2])
        return _quantify(macro, position, target, (_variable(args[0]), ""), args[1])

    return expand


def _collect(
    macro: str, place: int, target: CelNode | None, variables: tuple[str, str], parts: list[CelNode]
) -> Fold:
    """A fold that adds the last part for each element that the first lets through."""
    transform, accumulated = parts[-1], _accumulated(place)
    is_list = macro in ("map", "filter")
    first: CelNode = ListNode(place, []) if is_list else MapNode(place, [])
    fold = _fold(place, macro, target, variables, first)
    if is_list:
        fold.step = Call(place, "_+_", [accumulated, ListNode(place, [transform])])
    else:
        key = [Ident(place, variables[0])] if macro == "transformMap" else []
        fold.step = Call(place, "cel.@mapInsert", [accumulated, *key, transform])
    if len(parts) == 2:
        fold.step = Call(place, "_?_:_", [parts[0], fold.step, _accumulated(place)])
    fold.body = (parts[0] if len(parts) == 2 else None, transform)
    return fold


def _expand_map(position: int, target: CelNode | None, args: list[CelNode]) -> CelNode:
    variable = _variable(args[0], "argument is not an identifier")
    return _collect("map", position, target, (variable, ""), args[1:])


def _expand_filter(position: int, target: CelNode | None, args: list[CelNode]) -> CelNode:
    variable = _variable(args[0], "argument is not an identifier")
    return _collect("filter", position, target, (variable, ""), [args[1], args[0]])


def _transformer(macro: str) -> Macro:
    def expand(position: int, target: CelNode | None, args: list[CelNode]) -> CelNode:
        return _collect(macro, position, target, _two_variables(args), args[2:])

    return expand


def _expand_has(_: int, __: CelNode | None, args: list[CelNode]) -> CelNode:
    tested = args[0]
    if not isinstance(tested, Select) or tested.is_optional:
        raise MacroError(tested.position, "invalid argument to has() macro")
    return Select(tested.position, tested.operand, tested.field, is_test=True)


def bind(position: int, variable: str, value: CelNode, result: CelNode) -> Fold:
    """`result` with a name for `value`."""
    fold = _fold(position, "bind", ListNode(position, []), (UNUSED, ""), value)
    fold.accumulator = variable
    fold.condition = Literal(position, value=False)
    fold.step = Ident(position, variable)
    fold.result = result
    return fold


def _is_namespace(target: CelNode | None, name: str) -> bool:
    return isinstance(target, Ident) and target.name == name


def _expand_bind(position: int, target: CelNode | None, args: list[CelNode]) -> CelNode | None:
    if not _is_namespace(target, "cel"):
        return None
    if not isinstance(args[0], Ident):
        message = "cel.bind() variable names must be simple identifiers"
        raise MacroError(args[0].position, message)
    return bind(position, args[0].name, args[1], args[2])


def _optional_map(name: str) -> Macro:
    def expand(position: int, target: CelNode | None, args: list[CelNode]) -> CelNode:
        if not isinstance(args[0], Ident) or target is None:
            raise MacroError(
                args[0].position, f"{name}() variable name must be a simple identifier"
            )
        # Both calls share the target: it is checked, and evaluated, once.
        value = Call(position, "value", [], target)
        mapped: CelNode = bind(position, args[0].name, value, args[1])
        if name == "optMap":
            mapped = Call(position, "optional.of", [mapped])
        absent = Call(position, "optional.none", [])
        return Call(position, "_?_:_", [Call(position, "hasValue", [], target), mapped, absent])

    return expand


def _expand_sort_by(position: int, target: CelNode | None, args: list[CelNode]) -> CelNode | None:
    if target is None:
        return None
    if not isinstance(target, ListNode | Select | Ident | Fold | Call):
        raise MacroError(
            target.position,
            "sortBy can only be applied to a list, identifier, comprehension, call or select"
            " expression",
        )
    variable = _variable(args[0])
    name = "@__sortBy_input__"
    keys = _collect("map", position, Ident(position, name), (variable, ""), [args[1]])
    sorting = Call(position, "@sortByAssociatedKeys", [keys], Ident(position, name))
    return bind(position, name, target, sorting)


def _extreme(name: str) -> Macro:
    def expand(position: int, target: CelNode | None, args: list[CelNode]) -> CelNode | None:
        if not _is_namespace(target, "math"):
            return None
        if not args:
            raise MacroError(
                target.position if target else position,
                f"math.{name}() requires at least one argument",
            )
        is_list = isinstance(args[0], ListNode) and bool(args[0].elements)
        numbers = args[0].elements if len(args) == 1 and is_list else args  # type: ignore[attr-defined]
        for number in numbers:
            if not _may_be_number(number):
                words = "simple literal arguments must be numeric"
                words = words if len(args) > 1 else "invalid single argument value"
                raise MacroError(number.position, f"math.{name}() {words}")
        short = "math.@min" if name == "least" else "math.@max"
        if len(args) > 2:
            return Call(position, short, [ListNode(position, args)])
        return Call(position, short, args)

    return expand


def _may_be_number(node: CelNode) -> bool:
    if isinstance(node, Literal):
        return isinstance(node.value, int | float) and not isinstance(node.value, bool)
    return not isinstance(node, ListNode | MapNode | StructNode)


def _or_value(position: int, target: CelNode | None, args: list[CelNode]) -> CelNode:
    parts = args if target is None else [target, *args]
    return Call(position, "__orValueCompat__", parts)


STANDARD: dict[MacroKey, Macro] = {
    ("has", 1, False): _expand_has,
    ("all", 2, True): _quantifier("all"),
    ("exists", 2, True): _quantifier("exists"),
    ("exists_one", 2, True): _quantifier("exists_one"),
    ("existsOne", 2, True): _quantifier("exists_one"),
    ("map", 2, True): _expand_map,
    ("map", 3, True): _expand_map,
    ("filter", 2, True): _expand_filter,
}
TWO_VARIABLES: dict[MacroKey, Macro] = {
    ("all", 3, True): _quantifier("all"),
    ("exists", 3, True): _quantifier("exists"),
    ("existsOne", 3, True): _quantifier("exists_one"),
    ("exists_one", 3, True): _quantifier("exists_one"),
    **{("transformList", count, True): _transformer("map") for count in (3, 4)},
    **{("transformMap", count, True): _transformer("transformMap") for count in (3, 4)},
    **{("transformMapEntry", count, True): _transformer("transformMapEntry") for count in (3, 4)},
}
OPTIONALS: dict[MacroKey, Macro] = {
    ("optMap", 2, True): _optional_map("optMap"),
    ("optFlatMap", 2, True): _optional_map("optFlatMap"),
}
BINDINGS: dict[MacroKey, Macro] = {("bind", 3, True): _expand_bind}
SORTING: dict[MacroKey, Macro] = {("sortBy", 2, True): _expand_sort_by}
MATH: dict[MacroKey, Macro] = {
    ("least", -1, True): _extreme("least"),
    ("greatest", -1, True): _extreme("greatest"),
}
OR_VALUE: dict[MacroKey, Macro] = {("orValue", 1, True): _or_value}
