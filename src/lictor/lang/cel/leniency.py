"""Questions about what is not there, answered as Kubernetes does where the engine gives up.

Of a null, a text or a number, `has(x.f)` is false and `x.?f` is nothing; what is no optional is its
own `orValue`. The engine calls all that an error. Few requests need it, so that it costs nothing
until then: this is the program for a second try.
"""

from itertools import count

from lictor.lang.cel.surgery import replace_parts
from lictor.lang.cel.wire import (
    bind_name,
    field,
    fields,
    make_call,
    make_constant,
    make_ident,
    make_list,
)

_SELECT, _CALL = 5, 6
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
