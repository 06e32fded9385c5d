"""The tree of an expression, still as bytes, with some of its parts replaced from the leaves up."""

from collections.abc import Callable

from lictor.lang.cel.wire import field, fields, varint_field

# Where expressions hold expressions: field of Expr -> fields of the message inside.
_INNER = {5: (1,), 6: (1, 3), 7: (1,), 9: (2, 4, 5, 6, 7)}
_STRUCT, _ENTRY, _KEY_AND_VALUE = 8, 2, (3, 4)

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
