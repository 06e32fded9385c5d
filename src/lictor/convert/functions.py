"""Functions of JMESPath in the words of CEL."""

from collections.abc import Callable
from typing import TypeAlias

from lictor.convert.place import LIST, NUMBER, TEXT, Names, Place
from lictor.convert.scope import Scope
from lictor.convert.truth import Atom, Test, any_of, choose
from lictor.convert.value import (
    Constant,
    Count,
    Either,
    Flag,
    Several,
    Source,
    Stream,
    Value,
    as_place,
    is_equal,
    is_present,
    pick,
    quantify,
    test_each,
)
from lictor.convert.writing import quote, wrap
from lictor.errors import CompileError

Function: TypeAlias = Callable[..., Value]


def _length(_scope: Scope, _names: Names, value: Value) -> Value:
    def measure(one: Value) -> Value:
        match one:
            case Constant() if isinstance(one.value, str | list | dict):
                return Constant(len(one.value))
            case Several():
                return Constant(len(one.items))
            case Stream():
                return Count(_certain_stream(one))
            case Place():
                return one.certain().become("{}.size()", NUMBER)
        raise CompileError("the length of what has none")

    return pick(value, measure)


def _certain_stream(stream: Stream) -> Stream:
    first, *rest = stream.sources
    return Stream((Source(first.place.certain(), first.name, first.keep), *rest), stream.item)


def _keys(_scope: Scope, names: Names, value: Value) -> Value:
    def list_keys(one: Value) -> Value:
        if isinstance(one, Constant) and isinstance(one.value, dict):
            return Constant(list(one.value))
        place = as_place(one).certain()
        name, _ = names.fresh("keys")
        return Stream((Source(place, name),), Place(name, TEXT))

    return pick(value, list_keys)


def _contains(_scope: Scope, _names: Names, hay: Value, needle: Value) -> Value:
    return Flag(test_each(hay, lambda one: _holds(one, needle)))


def _holds(hay: Value, needle: Value) -> Test:
    match hay:
        case Constant() if isinstance(hay.value, list):
            return any_of(is_equal(Constant(item), needle) for item in hay.value)
        case Several():
            return any_of(is_equal(item, needle) for item in hay.items)
        case Stream():
            return quantify(_certain_stream(hay), lambda one: is_equal(one, needle), every=False)
    place = as_place(hay).certain()
    sought = as_place(needle)
    within = Atom(f"{wrap(place.text)}.contains({sought.text})", risky=place.risky)
    member = Atom(f"{sought.text} in {wrap(place.text)}", risky=place.risky)
    if place.type == "string":
        return within
    if place.type == "list":
        return member
    is_text = Atom(f"type({place.text}) == string", f"type({place.text}) != string", place.risky)
    return choose(is_text, within, member)


def _on_text(method: str) -> Function:
    def call(_scope: Scope, _names: Names, *arguments: Value) -> Value:
        subject, *rest = arguments
        given = ", ".join(as_place(one).text for one in rest)

        def apply(one: Value) -> Value:
            return as_place(one).certain().become(f"{{}}.{method}({given})", TEXT)

        return pick(subject, apply)

    return call


def _ask_text(method: str) -> Function:
    def call(_scope: Scope, _names: Names, subject: Value, sought: Value) -> Value:
        def ask(one: Value) -> Test:
            place, other = as_place(one).certain(), as_place(sought).certain()
            text = f"{wrap(place.text)}.{method}({other.text})"
            return Atom(text, risky=place.risky or other.risky)

        return Flag(test_each(subject, ask))

    return call


def _regex_match(_scope: Scope, _names: Names, pattern: Value, subject: Value) -> Value:
    if not isinstance(pattern, Constant) or not isinstance(pattern.value, str):
        raise CompileError("a regular expression that is not a constant")
    expression = quote(pattern.value)

    def ask(one: Value) -> Test:
        place = as_place(one).certain()
        text = wrap(place.text) if place.type in ("string", "") else f"string({place.text})"
        return Atom(f"{text}.matches({expression})", risky=place.risky)

    return Flag(test_each(subject, ask))


def _to_string(_scope: Scope, _names: Names, value: Value) -> Value:
    def write(one: Value) -> Value:
        place = as_place(one)
        if place.type == "string":
            return place
        if place.type in ("number", "boolean"):
            return place.become("string({})", TEXT)
        raise CompileError("to_string of what may be a list or a map")

    return pick(value, write)


def _split(_scope: Scope, _names: Names, subject: Value, separator: Value) -> Value:
    place = as_place(subject).certain()
    return place.become(f"{{}}.split({as_place(separator).text})", LIST)


def _join(_scope: Scope, _names: Names, separator: Value, items: Value) -> Value:
    between = as_place(separator).text
    if isinstance(items, Several):
        texts = f" + {between} + ".join(wrap(as_place(item).text) for item in items.items)
        return Place(texts, TEXT)
    return as_place(items).become(f"{{}}.join({between})", TEXT)


def _to_array(_scope: Scope, _names: Names, value: Value) -> Value:
    def wrap_one(one: Value) -> Value:
        if isinstance(one, Stream):
            return one.or_empty()
        if isinstance(one, Several) or (isinstance(one, Place) and one.type == "list"):
            return one
        return Several((one,))

    return pick(value, wrap_one)


def _not_null(_scope: Scope, _names: Names, *values: Value) -> Value:
    *before, last = values
    made = last
    for value in reversed(before):
        made = Either(is_present(value), value, made)
    return made


FUNCTIONS: dict[str, Function] = {
    "contains": _contains,
    "ends_with": _ask_text("endsWith"),
    "join": _join,
    "keys": _keys,
    "length": _length,
    "not_null": _not_null,
    "regex_match": _regex_match,
    "split": _split,
    "starts_with": _ask_text("startsWith"),
    "to_array": _to_array,
    "to_lower": _on_text("lowerAscii"),
    "to_string": _to_string,
    "to_upper": _on_text("upperAscii"),
}
