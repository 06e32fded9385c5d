"""Compiled expressions as bytes: taking one apart just enough to bind variables around it.

The engine hands out a checked expression as protobuf bytes and takes them back. Policies name parts
of expressions (`variables.x`); a part becomes a lazy binding around the expression that uses it, by
putting bytes around bytes. Nothing is decoded, so this costs microseconds.
"""

from collections.abc import Iterator, Mapping

# Field numbers of cel.expr.Expr, Expr.Comprehension, CheckedExpr and ParsedExpr.
_CONSTANT, _IDENT, _CALL, _LIST, _COMPREHENSION = 3, 4, 6, 7, 9
_CHECKED_EXPR, _PARSED_EXPR = 4 << 3 | 2, 2
# Functions of the checker that only give a map another type; at run time nothing is left of them.
OBJECT_MARK, PATCH_MARK = "_Ob", "_Jp"
_NO_MARK = b"\x12\x03dyn"
_PARSED_URL = b"type.googleapis.com/cel.expr.ParsedExpr"


def extract_expression(checked: bytes) -> bytes:
    """The expression inside a serialized checked expression, without types and positions."""
    # Types and references come first, hundreds of short fields; this loop is most of a compilation.
    message = _payload(checked)
    index, size = 0, len(message)
    while index < size:
        tag = message[index]
        length = message[index + 1]
        index += 2
        if length > 127:
            length, index = _read_varint(message, index - 1)
        if tag == _CHECKED_EXPR:
            return _drop_marks(message[index : index + length])
        index += length
    raise ValueError("no expression in what the engine serialized")


def _drop_marks(expression: bytes) -> bytes:
    # The name of a function is field 2 of a call; `dyn` is as long as the marks and does nothing.
    for mark in (OBJECT_MARK, PATCH_MARK):
        expression = expression.replace(b"\x12\x03" + mark.encode(), _NO_MARK)
    return expression


def pack_expression(expression: bytes) -> bytes:
    """The bytes that the engine turns back into something it can run."""
    return field(1, _PARSED_URL) + field(2, field(_PARSED_EXPR, expression))


def bind_name(name: str, value: bytes, body: bytes) -> bytes:
    """`body` with `name` standing for `value`, which is computed when first used, and only once."""
    # This is what the macro cel.bind() expands to; the engine recognises the shape and is lazy.
    parts = {1: b"#unused", 2: make_list(), 3: name.encode(), 4: value}
    return make_loop({**parts, 5: make_constant(b"\x10\x00"), 6: make_ident(name), 7: body})


def value_or_null(optional: bytes) -> bytes:
    """What is inside an optional, or null: the engine cannot hand out an optional."""
    return make_call("orValue", make_constant(b"\x08\x00"), target=optional)


def make_loop(parts: Mapping[int, bytes]) -> bytes:
    """A comprehension of these fields."""
    return field(_COMPREHENSION, b"".join(field(*part) for part in parts.items()))


def make_call(name: str, *arguments: bytes, target: bytes = b"") -> bytes:
    """A call of a function, or of a method of `target`."""
    before = field(1, target) if target else b""
    given = b"".join(field(3, argument) for argument in arguments)
    return field(_CALL, before + field(2, name.encode()) + given)


def make_list(*items: bytes) -> bytes:
    """A list of expressions."""
    return field(_LIST, b"".join(field(1, item) for item in items))


def make_ident(name: str) -> bytes:
    """A name."""
    return field(_IDENT, field(1, name.encode()))


def make_constant(value: bytes) -> bytes:
    """A constant, given as the bytes of its message."""
    return field(_CONSTANT, value)


def make_number(number: int) -> bytes:
    """A whole number that is not negative."""
    return make_constant(varint_field(3, number))


def fields(message: bytes) -> Iterator[tuple[int, bytes | int]]:
    """The fields of a protobuf message, in order."""
    index, size = 0, len(message)
    while index < size:
        tag, index = _read_varint(message, index)
        number, wire_type = tag >> 3, tag & 7
        if wire_type == 0:
            value, index = _read_varint(message, index)
            yield number, value
            continue
        length, index = _length(message, index, wire_type)
        yield number, message[index : index + length]
        index += length


def read_varints(packed: bytes) -> Iterator[int]:
    """The numbers of a packed field."""
    index = 0
    while index < len(packed):
        number, index = _read_varint(packed, index)
        yield number


def _payload(packed: bytes) -> bytes:
    for number, value in fields(packed):
        if number == 2 and isinstance(value, bytes):
            return value
    raise ValueError("an empty expression")


def _length(message: bytes, index: int, wire_type: int) -> tuple[int, int]:
    if wire_type == 2:
        return _read_varint(message, index)
    return (8 if wire_type == 1 else 4), index


def _read_varint(message: bytes, index: int) -> tuple[int, int]:
    byte = message[index]
    index += 1
    if byte < 128:
        return byte, index
    number, shift = byte & 127, 7
    while True:
        byte = message[index]
        index += 1
        number |= (byte & 127) << shift
        if byte < 128:
            return number, index
        shift += 7


def varint_field(number: int, value: int) -> bytes:
    """A field that holds a number."""
    return _varint(number << 3) + _varint(value)


def field(number: int, value: bytes) -> bytes:
    """A field that holds bytes: a text or a message."""
    return _varint(number << 3 | 2) + _varint(len(value)) + value


def _varint(number: int) -> bytes:
    if number < 128:
        return bytes((number,))
    parts = bytearray()
    while number > 127:
        parts.append(number & 127 | 128)
        number >>= 7
    parts.append(number)
    return bytes(parts)
