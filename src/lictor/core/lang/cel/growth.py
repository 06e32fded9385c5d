"""How large can the answer of an expression be, and how much work is it for the engine?

`v + v`, `[v, v]` and the like, thirty times inside each other, make values that the engine cannot
hold, compare or hand out; and while it tries, nobody can interrupt it. The texts alone tell.

The engine loops and compares in native code. A loop over a long list that handles all of the object
for each element, or another long list, costs the square of what the request brings. The text tells
which power it is, the request how much that comes to; where only little time may be taken, it is
not begun.
"""

from collections.abc import Callable, Mapping
from contextvars import ContextVar
from typing import Final

import msgspec
from msgspec.structs import replace

from lictor.core.errors import SlowRequestError, SyntaxFaultError, TooLargeError
from lictor.core.lang.cel.tree import CelNode, read_expression

# Is whoever takes long to be judged elsewhere? Then what would take long is not begun here.
is_brief: ContextVar[bool] = ContextVar("is_brief", default=False)
# Bytes that the engine handles in some milliseconds.
MAX_BRIEF_WORK: Final = 4 * 1024 * 1024
# Bytes of a value that is made of many copies of the request: here, and at all.
MAX_BRIEF_COPIED: Final = 6 * 1024 * 1024
MAX_COPIED: Final = 64 * 1024 * 1024
# What the engine handles in seconds: more is not begun at all.
MAX_WORK: Final = 1024 * 1024 * 1024
# A list that functions make may have so many elements, however small the request is.
MADE_ELEMENTS: Final = 2000
_MOST_POWER = 4
# They hand on what they are given, and handle none of it.
_FREE = frozenset(("_&&_", "_||_", "!_", "_?_:_", "_[_]", "_[?_]", "@not_strictly_false", "dyn"))
# They answer yes or no, or with a number.
_SMALL_ANSWERS = frozenset(
    (
        *("_==_", "_!=_", "_<_", "_<=_", "_>_", "_>=_", "_&&_", "_||_", "!_", "@in", "_in_"),
        *("size", "matches", "contains", "startsWith", "endsWith", "indexOf", "lastIndexOf"),
        *("int", "uint", "double", "bool", "type", "@not_strictly_false"),
    )
)
# They answer with long lists, however short what they are given is.
_MAKING = ("Range", "range", "List")


class Growth(msgspec.Struct, frozen=True):
    """So many times as large as this power of the request's size."""

    factor: int = 1
    degree: int = 0
    # The power that the engine's work grows with, loops included.
    work: int = 0


def measure_work(root: CelNode, known: Mapping[str, int]) -> int:
    """The power of the request's size that the engine's work for an expression grows with.

    `known` are the powers that values of variables grow with.
    """
    measure = _Work()
    measure.look(root, dict(known), 0)
    return min(measure.most, _MOST_POWER)


def check_work(growth: Growth, count: int, size: int) -> None:
    """Refuse what is too much for a request of so many elements and bytes.

    TooLargeError where it is too much for anybody, SlowRequestError where it takes long.
    """
    if growth.factor * size > MAX_COPIED:
        raise TooLargeError("a value holds too many copies of a large object")
    work = count ** (growth.work - 1) * size if growth.work > 1 else 0
    if work > MAX_WORK:
        raise TooLargeError("loops over all of so large an object would take too long")
    if is_brief.get() and (work > MAX_BRIEF_WORK or growth.factor * size > MAX_BRIEF_COPIED):
        raise SlowRequestError("loops over all of a large object, or copies of it, take long")


class _Work:
    def __init__(self) -> None:
        self.most = 0

    def look(self, node: CelNode, known: dict[str, int], around: int) -> int:
        """The power that the value of a part grows with, in loops of this power."""
        match node.kind:
            case "constant":
                return 0
            case "ident":
                return known.get(node.name, 1)
            case "comprehension":
                return self._look_at_loop(node, known, around)
            case "call":
                return self._look_at_call(node, known, around)
            case _:
                return max((self.look(part, known, around) for part in node.parts), default=0)

    def _look_at_call(self, node: CelNode, known: dict[str, int], around: int) -> int:
        powers = [self.look(part, known, around) for part in node.parts]
        power = max(powers, default=0)
        if node.name in ("_[_]", "_[?_]") and node.parts[-1].kind != "constant":
            # One element for each turn of a loop: all of them together are the whole.
            return 0
        if node.name not in _FREE:
            self.most = max(self.most, around + power)
        if node.name in _SMALL_ANSWERS:
            return 0
        return max(power, 1) if node.name.endswith(_MAKING) else power

    def _look_at_loop(self, node: CelNode, known: dict[str, int], around: int) -> int:
        over, start, condition, step, result = node.parts
        element, second, total = node.names
        begun = self.look(start, known, around)
        if over.kind == "list" and not over.parts:
            # Nothing is gone through: a name for a value.
            return self.look(result, {**known, total: begun}, around)
        turns = self.look(over, known, around)
        each = 0
        if over.kind == "list":
            # As often as is written there, with each of these values.
            turns, each = 0, turns
        self.most = max(self.most, around + turns)
        inner = {**known, element: each, second: 0, total: 0}
        self.look(condition, inner, around + turns)
        made = self.look(step, inner, around + turns)
        return self.look(result, {**known, total: turns + made if made else turns}, around)


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
            message = (
                f"its value can be more than {MAX_FACTOR} times as large as what it is made from"
            )
            raise SyntaxFaultError(message, text=self.text)
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
