"""Static types of expressions: interned, so that equal types are the same object."""

import re
from collections.abc import Iterable, Iterator, Sequence

_SIMPLE = (
    "bool", "int", "uint", "double", "string", "bytes", "null", "dyn", "error", "timestamp",
    "duration",
)  # fmt: skip
_NAMES = {"error": "!error!"}
# The names that values of these types have at run time.
RUNTIME_NAMES = {
    "null": "null_type",
    "timestamp": "google.protobuf.Timestamp",
    "duration": "google.protobuf.Duration",
}


class Type:
    """A type by its kind, its name and its parameters; made by the functions below only."""

    __slots__ = ("kind", "name", "params")

    def __init__(self, kind: str, name: str, params: tuple["Type", ...]) -> None:
        self.kind = kind
        self.name = name
        self.params = params

    @property
    def is_optional(self) -> bool:
        return self.name == "optional_type"

    @property
    def runtime_name(self) -> str:
        """The name that `type()` shows."""
        return RUNTIME_NAMES.get(self.kind, self.name)

    def __str__(self) -> str:
        if not self.params:
            return _NAMES.get(self.kind, self.name)
        return f"{self.name}({', '.join(map(str, self.params))})"


_KNOWN: dict[tuple[str, str, tuple[Type, ...]], Type] = {}


def _intern(kind: str, name: str, params: tuple[Type, ...] = ()) -> Type:
    key = (kind, name, params)
    found = _KNOWN.get(key)
    if found is None:
        found = _KNOWN[key] = Type(kind, name, params)
    return found


def rebuild(of: Type, params: Sequence[Type]) -> Type:
    """The same type with other parameters."""
    return _intern(of.kind, of.name, tuple(params))


BOOL, INT, UINT, DOUBLE, STRING, BYTES, NULL, DYN, ERROR, TIMESTAMP, DURATION = (
    _intern(kind, kind) for kind in _SIMPLE
)
TYPE = _intern("type", "type")


def wrapper_type(of: Type) -> Type:
    """A simple type that may also be null, as protobuf's wrappers."""
    return _intern(of.kind, f"wrapper({of.kind})")


def list_type(element: Type) -> Type:
    """The type of lists with elements of one type."""
    return _intern("list", "list", (element,))


def map_type(key: Type, value: Type) -> Type:
    """The type of maps with keys and values of one type each."""
    return _intern("map", "map", (key, value))


def type_type(of: Type) -> Type:
    """The type of a type itself."""
    return _intern("type", "type", (of,))


def optional_type(of: Type) -> Type:
    """The type of optional values."""
    return _intern("opaque", "optional_type", (of,))


def param_type(name: str) -> Type:
    """A type parameter of a signature, or a variable of the checker."""
    return _intern("param", name)


def opaque_type(name: str, params: tuple[Type, ...] = ()) -> Type:
    """A type without structure, such as `kubernetes.Quantity`."""
    return _intern("opaque", name, params)


def struct_type(name: str) -> Type:
    """A type with declared fields; the environment has them."""
    return _intern("struct", name)


_BY_WORD = {
    **{kind: _intern(kind, kind) for kind in _SIMPLE},
    "type": TYPE,
}
# The types that an expression can name.
TYPE_NAMES = {
    **{
        kind: _BY_WORD[kind]
        for kind in ("bool", "bytes", "double", "int", "string", "type", "uint")
    },
    **{RUNTIME_NAMES[kind]: _BY_WORD[kind] for kind in ("null", "timestamp", "duration")},
    "list": list_type(param_type("A")),
    "map": map_type(param_type("A"), param_type("B")),
}


def name_types(names: Iterable[str]) -> dict[str, Type]:
    """The types that an expression can name, with those of libraries."""
    made = {name: opaque_type(name) for name in names}
    if "optional_type" in made:
        made["optional_type"] = optional_type(param_type("V"))
    return {**TYPE_NAMES, **made}


_WORD = re.compile(r"\s*([\w.@]+|->|[(),])")


def parse_type(text: str) -> Type:
    """Read a type such as `map(string, list(A))`; capital letters are type parameters."""
    return _read_type(iter([*_WORD.findall(text), ""]))[0]


def parse_signature(text: str) -> tuple[bool, str, tuple[Type, ...], Type]:
    """Read `string.indexOf(string, int) -> int`: is a member, name, arguments, result.

    A member function has its receiver before `::` where that type has parameters or dots:
    `list(A)::last() -> optional(A)`.
    """
    receiver, mark, rest = text.partition("::")
    name, _, tail = (rest if mark else text).partition("(")
    words = iter([*_WORD.findall(tail), ""])
    params = [parse_type(receiver)] if mark else []
    word = next(words)
    while word != ")":
        read, word = _read_type(words, word)
        params.append(read)
        word = next(words) if word == "," else word
    next(words)
    return bool(mark), name, tuple(params), _read_type(words)[0]


def _read_type(words: Iterator[str], word: str | None = None) -> tuple[Type, str]:
    name = next(words) if word is None else word
    after = next(words)
    params = []
    if after == "(":
        after = ","
        while after == ",":
            read, after = _read_type(words)
            params.append(read)
        after = next(words)
    return _make(name, tuple(params)), after


def _make(name: str, params: tuple[Type, ...]) -> Type:
    if name in _BY_WORD and not params:
        return _BY_WORD[name]
    if name == "optional":
        return optional_type(*params)
    if name in ("list", "map", "type"):
        return _intern(name, name, params)
    if len(name) == 1:
        return param_type(name)
    return opaque_type(name, params)
