"""Loops that build lists and maps, rewritten so that their time grows with their length only.

In the engine, `list.map(x, …)` copies what it has so far for each element, so that four thousand
elements take seconds. Cut into pieces, of which each makes a short list, they take milliseconds.
Maps are built by a function of ours, which would copy even more; they become lists of pairs first.
"""

import re
from collections.abc import Callable
from itertools import count

from lictor.lang.cel.surgery import replace_parts
from lictor.lang.cel.wire import (
    bind_name,
    fields,
    make_call,
    make_constant,
    make_ident,
    make_list,
    make_loop,
    make_number,
)

_PIECE = 64
# The start of a loop that builds a list or a map: its result is an empty one.
_BUILDS = re.compile(rb'@result"(?s:.){1,2}(?:\x10(?s:.){1,5})?[:B]\x00')
_INSERT = "cel.@mapInsert"
_CALL, _LIST, _STRUCT, _LOOP = 6, 7, 8, 9
# The fields of a loop.
_FIRST, _RANGE, _NAME, _START, _GOES_ON, _STEP, _RESULT, _SECOND = range(1, 9)

Loop = dict[int, bytes]
Change = Callable[[Loop], bytes | None]


def build_maps_from_pairs(code: bytes) -> bytes:
    """The same expression, with maps made at the end of a loop and not entry by entry."""
    return _change_loops(code, _pair_up) if _INSERT.encode() in code else code


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
