"""Static types of expressions, interned, so that equal types are the same object; unification."""

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


class CelType:
    """A type by its kind, its name and its parameters; made by the functions below only."""

    __slots__ = ("kind", "name", "params")

    def __init__(self, kind: str, name: str, params: tuple["CelType", ...]) -> None:
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


_KNOWN: dict[tuple[str, str, tuple[CelType, ...]], CelType] = {}


def _intern(kind: str, name: str, params: tuple[CelType, ...] = ()) -> CelType:
    key = (kind, name, params)
    found = _KNOWN.get(key)
    if found is None:
        found = _KNOWN[key] = CelType(kind, name, params)
    return found


def rebuild(of: CelType, params: Sequence[CelType]) -> CelType:
    """The same type with other parameters."""
    return _intern(of.kind, of.name, tuple(params))


BOOL, INT, UINT, DOUBLE, STRING, BYTES, NULL, DYN, ERROR, _, DURATION = (
    _intern(kind, kind) for kind in _SIMPLE
)
TYPE = _intern("type", "type")


def wrapper_type(of: CelType) -> CelType:
    """A simple type that may also be null, as protobuf's wrappers."""
    return _intern(of.kind, f"wrapper({of.kind})")


def list_type(element: CelType) -> CelType:
    """The type of lists with elements of one type."""
    return _intern("list", "list", (element,))


def map_type(key: CelType, value: CelType) -> CelType:
    """The type of maps with keys and values of one type each."""
    return _intern("map", "map", (key, value))


def type_type(of: CelType) -> CelType:
    """The type of a type itself."""
    return _intern("type", "type", (of,))


def optional_type(of: CelType) -> CelType:
    """The type of optional values."""
    return _intern("opaque", "optional_type", (of,))


def param_type(name: str) -> CelType:
    """A type parameter of a signature, or a variable of the checker."""
    return _intern("param", name)


def opaque_type(name: str, params: tuple[CelType, ...] = ()) -> CelType:
    """A type without structure, such as `kubernetes.Quantity`."""
    return _intern("opaque", name, params)


def struct_type(name: str) -> CelType:
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


def name_types(names: Iterable[str]) -> dict[str, CelType]:
    """The types that an expression can name, with those of libraries."""
    made = {name: opaque_type(name) for name in names}
    if "optional_type" in made:
        made["optional_type"] = optional_type(param_type("V"))
    return {**TYPE_NAMES, **made}


# re: trusted - signatures of the library tables
_WORD = re.compile(r"\s*([\w.@]+|->|[(),])")


def parse_type(text: str) -> CelType:
    """Read a type such as `map(string, list(A))`; capital letters are type parameters."""
    return _read_type(iter([*_WORD.findall(text), ""]))[0]


def parse_signature(text: str) -> tuple[bool, str, tuple[CelType, ...], CelType]:
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


def _read_type(words: Iterator[str], word: str | None = None) -> tuple[CelType, str]:
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


def _make(name: str, params: tuple[CelType, ...]) -> CelType:
    if name in _BY_WORD and not params:
        return _BY_WORD[name]
    if name == "optional":
        return optional_type(*params)
    if name in ("list", "map", "type"):
        return _intern(name, name, params)
    if len(name) == 1:
        return param_type(name)
    return opaque_type(name, params)


_NULLABLE = frozenset(("opaque", "struct", "duration", "timestamp"))
_STRUCTURED = frozenset(("opaque", "list", "map"))
_FREE = frozenset(("dyn", "error"))


class Substitutions:
    """What the type variables of one expression stand for so far."""

    def __init__(self) -> None:
        self._bound: dict[CelType, CelType] = {}
        self._trail: list[tuple[CelType, CelType | None]] = []

    def is_assignable(self, left: CelType, right: CelType) -> bool:
        """Whether the types agree; binds variables only if they do."""
        if left is right and left.kind != "param":
            return True
        mark = len(self._trail)
        if self._agree(left, right):
            return True
        self._undo(mark)
        return False

    def are_assignable(self, left: Sequence[CelType], right: Sequence[CelType]) -> bool:
        """As for two types, for lists of them."""
        mark = len(self._trail)
        if self._agree_all(left, right):
            return True
        self._undo(mark)
        return False

    def substitute(self, of: CelType, *, free_is_dyn: bool = False) -> CelType:
        """Replace variables by what they stand for; unbound ones by dyn on request."""
        while of.kind == "param":
            bound = self._bound.get(of)
            if bound is None:
                return DYN if free_is_dyn else of
            of = bound
        if not of.params:
            return of
        return rebuild(of, [self.substitute(p, free_is_dyn=free_is_dyn) for p in of.params])

    def _undo(self, mark: int) -> None:
        while len(self._trail) > mark:
            variable, old = self._trail.pop()
            if old is None:
                del self._bound[variable]
            else:
                self._bound[variable] = old

    def _bind(self, variable: CelType, to: CelType) -> None:
        self._trail.append((variable, self._bound.get(variable)))
        self._bound[variable] = to

    def _agree_all(self, left: Sequence[CelType], right: Sequence[CelType]) -> bool:
        return len(left) == len(right) and all(map(self._agree, left, right))

    def _agree(self, left: CelType, right: CelType) -> bool:
        if right.kind == "param":
            valid, has_bound = self._fits(left, right)
            if valid or has_bound:
                return valid
        if left.kind == "param":
            return self._fits(right, left)[0]
        if left.kind in _FREE or right.kind in _FREE:
            return True
        if left.kind == "null" or right.kind == "null":
            other = right if left.kind == "null" else left
            return other.kind in _NULLABLE or other.name.startswith(("null", "wrapper("))
        if left.kind != right.kind:
            return False
        if left.kind in _STRUCTURED:
            return left.name == right.name and self._agree_all(left.params, right.params)
        return left.name == right.name or left.kind != "struct"

    def _fits(self, candidate: CelType, variable: CelType) -> tuple[bool, bool]:
        """Whether `candidate` can stand for the variable, and whether it has a binding."""
        if candidate is variable:
            return True, True
        bound = self._bound.get(variable)
        if bound is not None:
            if candidate is bound:
                return True, True
            if not self._agree(candidate, bound):
                return False, True
            general = most_general(candidate, bound)
            if not self._occurs(variable, general):
                self._bind(variable, general)
            return True, True
        if self._occurs(variable, candidate):
            return False, False
        self._bind(variable, candidate)
        return True, False

    def _occurs(self, variable: CelType, within: CelType) -> bool:
        if variable is within:
            return True
        if within.kind == "param":
            bound = self._bound.get(within)
            return bound is not None and self._occurs(variable, bound)
        return any(self._occurs(variable, param) for param in within.params)


def most_general(left: CelType, right: CelType) -> CelType:
    """Which of two types that agree is the less specific one."""
    return left if _is_less_specific(left, right) else right


def _is_less_specific(left: CelType, right: CelType) -> bool:
    if left.kind in ("dyn", "param"):
        return True
    if right.kind in ("dyn", "param") or left.kind != right.kind:
        return False
    if left.kind in _STRUCTURED:
        same = left.name == right.name and len(left.params) == len(right.params)
        return same and all(map(_is_less_specific, left.params, right.params))
    return left.kind == "type" or left is right
