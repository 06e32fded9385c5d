"""How large can the answer of an expression be, compared to what it is asked about?

`v + v`, `[v, v]` and the like, thirty times inside each other, make values that the engine cannot
hold, compare or hand out; and while it tries, nobody can interrupt it. The texts alone tell.
"""

from collections.abc import Callable, Mapping
from typing import Final

import msgspec
from msgspec.structs import replace

from lictor.errors import SyntaxFaultError
from lictor.lang.cel.native_work import Growth, measure_work
from lictor.lang.cel.tree import CelNode, read_expression

MAX_FACTOR: Final = 1000
# A loop that answers with all of a list for each of its elements makes the square of it, and so on.
MAX_DEGREE: Final = 3
# The same for requests with long lists.
MAX_LARGE_DEGREE: Final = 2

_SMALL = frozenset(
    (
        *("_==_", "_!=_", "_<_", "_<=_", "_>_", "_>=_", "_&&_", "_||_", "!_", "@in", "_in_"),
        *("size", "type", "matches", "contains", "startsWith", "endsWith", "indexOf"),
        *("lastIndexOf", "int", "uint", "double", "bool", "has", "isSorted", "sum"),
    )
)


_NONE = Growth(0)
_ONE = NO_GROWTH = Growth()
# So many copies of a request in one value cost no time worth mentioning.
FEW_COPIES: Final = 8
# Whatever the request brings.
_GIVEN = Growth(1, 1)


def measure_growth(code: bytes, known: Mapping[str, Growth], text: str) -> Growth:
    """The growth of an expression that uses variables with theirs; SyntaxFaultError beyond all."""
    try:
        root = read_expression(code)
        growth = _Measure(text).measure(root, dict(known))
        powers = {name: each.degree for name, each in known.items()}
        return replace(growth, work=measure_work(root, powers))
    except RecursionError as error:
        raise SyntaxFaultError("the expression is nested too deeply", text=text) from error


class _Measure(msgspec.Struct, frozen=True):
    text: str

    def measure(self, node: CelNode, known: dict[str, Growth]) -> Growth:
        growth = self._choose(node)(node, known)
        if growth.factor > MAX_FACTOR or growth.degree > MAX_DEGREE:
            told = f"its value can be more than {MAX_FACTOR} times as large as what it is made from"
            raise SyntaxFaultError(told, text=self.text)
        return growth

    def _choose(self, node: CelNode) -> Callable[[CelNode, dict[str, Growth]], Growth]:
        match node.kind:
            case "ident":
                return lambda found, known: known.get(found.name, _GIVEN)
            case "comprehension":
                return self._measure_loop
            case "call":
                return self._measure_call
            case _:
                return self._add_up

    def _add_up(self, node: CelNode, known: dict[str, Growth]) -> Growth:
        return _add(*(self.measure(part, known) for part in node.parts))

    def _measure_call(self, node: CelNode, known: dict[str, Growth]) -> Growth:
        parts = [self.measure(part, known) for part in node.parts]
        if node.name in _SMALL:
            return _ONE
        if node.name == "_?_:_":
            return _larger(*parts[1:])
        added = _add(*parts)
        if node.name in ("replace", "join"):
            # Each place that is found gets as long as what is written there.
            texts = [len(part.value) for part in node.parts[1:] if isinstance(part.value, str)]
            return Growth(added.factor * max((*texts, 1)), added.degree)
        return added

    def _measure_loop(self, node: CelNode, known: dict[str, Growth]) -> Growth:
        over, start, condition, step, result = node.parts
        element, second, total = node.names
        if over.kind == "list" and not over.parts:
            # Nothing is gone through: a name for a value.
            return self.measure(result, {**known, total: self.measure(start, known)})
        range_ = self.measure(over, known)
        # All elements together are no larger than what they are elements of.
        inner = {**known, element: _ONE, second: _ONE, total: _NONE}
        self.measure(condition, inner)
        made = self.measure(step, inner)
        grown = Growth(max(range_.factor, 1) * max(made.factor, 1), range_.degree + made.degree)
        return self.measure(result, {**known, total: _ONE if _is_small(step) else grown})


def _is_small(step: CelNode) -> bool:
    """Whether a loop answers yes or no, or counts."""
    return step.kind == "call" and (
        step.name in _SMALL or (step.name == "_?_:_" and all(map(_is_count, step.parts[1:])))
    )


def _is_count(node: CelNode) -> bool:
    if node.kind == "ident":
        return True
    return node.kind == "call" and node.name == "_+_" and isinstance(node.parts[1].value, int)


def _add(*parts: Growth) -> Growth:
    factor = sum(part.factor for part in parts)
    return Growth(max(factor, 1), max((part.degree for part in parts), default=0))


def _larger(*parts: Growth) -> Growth:
    return Growth(
        max((part.factor for part in parts), default=1),
        max((part.degree for part in parts), default=0),
    )
