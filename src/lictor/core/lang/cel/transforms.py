"""Compiled expressions changed: loops that take linear time, and a lenient second try.

In the engine, `list.map(x, …)` copies what it has so far for each element, so that four thousand
elements take seconds. Cut into pieces, of which each makes a short list, they take milliseconds.
Maps are built by a function of ours, which would copy even more; they become lists of pairs first.

Of a null, a text or a number, `has(x.f)` is false and `x.?f` is nothing in Kubernetes; what is no
optional is its own `orValue`. The engine calls all that an error. Few requests need it: `forgive`
makes the program for a second try.
"""

import re
from collections.abc import Callable
from itertools import count

from lictor.core.lang.cel.wire import (
    bind_name,
    field,
    fields,
    make_call,
    make_constant,
    make_ident,
    make_list,
    make_loop,
    make_number,
    varint_field,
)

# Field numbers of cel.expr.Expr.
_SELECT, _CALL, _LIST, _STRUCT, _LOOP = 5, 6, 7, 8, 9
_ENTRY, _KEY_AND_VALUE = 2, (3, 4)
_OPTIONAL_SIGNS = (b"_?._", b"_[?_]")
_NONE = make_call("optional.none")
_FALSE = make_constant(b"\x10\x00")


def forgive(code: bytes) -> bytes:
    """The same expression, which forgives questions about fields of what has none."""
    numbers = count()

    def replace(kind: int, message: bytes) -> bytes | None:
        if kind == _SELECT:
            return _forgive_selection(message, f"@asked{next(numbers)}")
        if kind == _CALL:
            return _forgive_call(message, f"@asked{next(numbers)}")
        return None

    return replace_parts(code, replace)


def _forgive_selection(message: bytes, name: str) -> bytes | None:
    parts = dict(fields(message))
    operand = parts[1]
    if not isinstance(operand, bytes):
        return None
    again = field(_SELECT, b"".join((field(1, make_ident(name)), _rest(message))))
    if parts.get(3):
        return bind_name(name, operand, _choose(_is_plain(make_ident(name)), _FALSE, again))
    if any(sign in operand for sign in _OPTIONAL_SIGNS):
        return bind_name(name, operand, _choose(_holds_plain(name), _NONE, again))
    return None


def _rest(message: bytes) -> bytes:
    return b"".join(
        field(key, value) if isinstance(value, bytes) else b"\x18\x01"
        for key, value in fields(message)
        if key != 1
    )


def _forgive_call(message: bytes, name: str) -> bytes | None:
    called = dict(fields(message)).get(2)
    target = next((part for key, part in fields(message) if key == 1), None)
    given = [part for key, part in fields(message) if key == 3 and isinstance(part, bytes)]
    asked = make_ident(name)
    if called in _OPTIONAL_SIGNS and len(given) == 2 and isinstance(called, bytes):
        again = make_call(called.decode(), asked, given[1])
        lacks = make_call("_||_", _is_plain(asked), _holds_plain(name))
        return bind_name(name, given[0], _choose(lacks, _NONE, again))
    if called in {b"orValue", b"or"} and isinstance(target, bytes) and isinstance(called, bytes):
        again = make_call(called.decode(), *given, target=asked)
        return bind_name(name, target, _choose(_is_optional(asked), again, asked))
    return None


def _choose(condition: bytes, one: bytes, other: bytes) -> bytes:
    return make_call("_?_:_", condition, one, other)


def _is_optional(value: bytes) -> bytes:
    return make_call("_==_", make_call("type", value), make_ident("optional_type"))


def _is_plain(value: bytes) -> bytes:
    """Whether it is neither a map nor a list nor an optional: nothing can be inside."""
    holders = make_list(*(make_ident(kind) for kind in ("map", "list", "optional_type")))
    return make_call("!_", make_call("@in", make_call("type", value), holders))


def _holds_plain(name: str) -> bytes:
    """Whether it is an optional of such a thing."""
    asked = make_ident(name)
    inside = make_call("value", target=asked)
    full = make_call("_&&_", _is_optional(asked), make_call("hasValue", target=asked))
    return _choose(full, _is_plain(inside), _FALSE)


# Where expressions hold expressions: field of Expr -> fields of the message inside.
_INNER = {5: (1,), 6: (1, 3), 7: (1,), 9: (2, 4, 5, 6, 7)}

# A part whose own parts are done: its field in Expr and the message there. None leaves it as it is.
Replace = Callable[[int, bytes], bytes | None]


def replace_parts(expression: bytes, replace: Replace) -> bytes:
    """The expression with each part replaced, the innermost first."""
    whole = _map_fields(expression, lambda number, value: _inside(number, value, replace))
    for number, value in fields(whole):
        if isinstance(value, bytes):
            return replace(number, value) or whole
    return whole


def _inside(number: int, message: bytes, replace: Replace) -> bytes:
    if number == _STRUCT:
        return _map_fields(
            message,
            lambda key, value: _below(value, _KEY_AND_VALUE, replace) if key == _ENTRY else value,
        )
    return _below(message, _INNER[number], replace) if number in _INNER else message


def _below(message: bytes, expressions: tuple[int, ...], replace: Replace) -> bytes:
    return _map_fields(
        message, lambda key, value: replace_parts(value, replace) if key in expressions else value
    )


def _map_fields(message: bytes, change: Callable[[int, bytes], bytes]) -> bytes:
    return b"".join(
        varint_field(number, value)
        if isinstance(value, int)
        else field(number, change(number, value))
        for number, value in fields(message)
    )


_PIECE = 64
# The start of a loop that builds a list or a map: its result is an empty one.
_BUILDS = re.compile(rb'@result"(?s:.){1,2}(?:\x10(?s:.){1,5})?[:B]\x00')
_INSERT = "cel.@mapInsert"
_FORMAT = b"format"
# The fields of a loop.
_FIRST, _RANGE, _NAME, _START, _GOES_ON, _STEP, _RESULT, _SECOND = range(1, 9)

Loop = dict[int, bytes]
Change = Callable[[Loop], bytes | None]


def prepare_code(code: bytes) -> bytes:
    """The same expression, with maps made at the end of a loop and not entry by entry.

    In it format() of bytes that are no UTF-8 is an error. The engine makes a text of them, of which
    it cannot make a Python object: the process dies.
    """
    if _INSERT.encode() in code:
        code = _change_loops(code, _pair_up)
    return replace_parts(code, _check_format) if _FORMAT in code else code


def _check_format(kind: int, message: bytes) -> bytes | None:
    if kind != _CALL or dict(fields(message)).get(2) != _FORMAT:
        return None
    return make_call("string", make_call("bytes", field(_CALL, message)))


def cut_loops(code: bytes) -> bytes:
    """The same expression for long lists: loops that build lists go piece by piece."""
    if not _BUILDS.search(code):
        return code
    numbers = count()
    return _change_loops(code, lambda loop: _cut(loop, next(numbers)))


def _change_loops(code: bytes, change: Change) -> bytes:
    def replace(kind: int, message: bytes) -> bytes | None:
        if kind != _LOOP:
            return None
        loop = {key: part for key, part in fields(message) if isinstance(part, bytes)}
        return change(loop) if loop.get(_FIRST) != b"#unused" else None

    return replace_parts(code, replace)


def _starts_with(loop: Loop, kind: int) -> bool:
    """Whether the result of a loop starts as an empty list, or an empty map."""
    return [part for part in fields(loop[_START]) if part[0] != 2] == [(kind, b"")]


def _pair_up(loop: Loop) -> bytes | None:
    """A loop that builds a map as one that builds a list, and a call that makes a map of it."""
    if not _starts_with(loop, _STRUCT):
        return None
    listed = {**loop, _START: make_list(), _STEP: _append_entries(loop[_STEP])}
    return make_call("cel.@mapOfEntries", make_loop(listed))


def _append_entries(step: bytes) -> bytes:
    """`insert(result, key, value)` becomes `result + [[key, value]]`, wherever it stands."""
    for number, value in fields(step):
        if number != _CALL or not isinstance(value, bytes):
            continue
        name = next((part for key, part in fields(value) if key == 2), b"")
        given = [part for key, part in fields(value) if key == 3 and isinstance(part, bytes)]
        if name == _INSERT.encode():
            entry = make_list(*given[1:]) if len(given) == 3 else given[1]
            return make_call("_+_", given[0], make_list(entry))
        if name == b"_?_:_":
            return make_call("_?_:_", given[0], *map(_append_entries, given[1:]))
    return step


def _cut(loop: Loop, number: int) -> bytes | None:
    """A loop over pieces of the list, each with the old loop inside, and their lists joined."""
    if not _starts_with(loop, _LIST):
        return None
    whole, items, index, lists = (f"@{word}{number}" for word in ("whole", "items", "at", "lists"))
    start = make_call("_*_", make_ident(index), make_number(_PIECE))
    end = make_call("_+_", start, make_number(_PIECE))
    size = make_call("size", make_ident(items))
    last = make_call("_?_:_", make_call("_<_", end, size), end, size)
    inner = {key: part for key, part in loop.items() if key != _SECOND}
    inner[_RANGE] = make_call("slice", start, last, target=make_ident(items))
    if _SECOND in loop:
        value = make_call("_[_]", make_ident(whole), make_ident(loop[_FIRST].decode()))
        inner[_STEP] = bind_name(loop[_SECOND].decode(), value, loop[_STEP])
    pieces = make_call("_/_", make_call("_+_", size, make_number(_PIECE - 1)), make_number(_PIECE))
    outer = {
        _FIRST: index.encode(),
        _RANGE: make_call("lists.range", pieces),
        _NAME: lists.encode(),
        _START: make_list(),
        _GOES_ON: make_constant(b"\x10\x01"),
        _STEP: make_call("_+_", make_ident(lists), make_list(make_loop(inner))),
        _RESULT: make_ident(lists),
    }
    joined = make_call("flatten", target=make_loop(outer))
    found = _find_items(make_ident(whole), has_second=_SECOND in loop)
    return bind_name(whole, loop[_RANGE], bind_name(items, found, joined))


def _find_items(whole: bytes, *, has_second: bool) -> bytes:
    """What the first variable of a loop stands for: elements or indices, or the keys of a map."""
    indices = make_call("lists.range", make_call("size", whole))
    is_map = make_call("_==_", make_call("type", whole), make_ident("map"))
    return make_call(
        "_?_:_", is_map, make_call("cel.@keys", whole), indices if has_second else whole
    )
