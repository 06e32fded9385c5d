"""Label and field selectors, and entries with wildcards in key and value."""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import TypeAlias

import msgspec

from lictor.core.errors import CompileError
from lictor.core.lang.wildcard import compile_wildcard, has_wildcard
from lictor.core.raw import Json

MapTest: TypeAlias = Callable[[Mapping[str, str]], bool]


def compile_entry(key: str, value: str) -> MapTest:
    """A test that passes if a map has an entry whose key and value match these patterns."""
    fits_value = compile_wildcard(value)
    if has_wildcard(key):
        fits_key = compile_wildcard(key)
        return lambda entries: any(fits_key(k) and fits_value(v) for k, v in entries.items())
    return lambda entries: key in entries and fits_value(entries[key])


_NAME = r"(?:[A-Za-z0-9][-A-Za-z0-9_.]{0,61})?[A-Za-z0-9]"
_DOMAIN = r"(?=.{1,253}/)[a-z0-9](?:[-a-z0-9]*[a-z0-9])?(?:\.[a-z0-9](?:[-a-z0-9]*[a-z0-9])?)*"
_KEY = re.compile(f"(?:{_DOMAIN}/)?{_NAME}")
_VALUE = re.compile(f"(?:{_NAME})?")


class Requirement(msgspec.Struct, frozen=True):
    """One entry of `matchExpressions`."""

    key: str
    operator: str
    values: tuple[str, ...] = ()


def compile_label_selector(
    labels: Mapping[str, str], requirements: Sequence[Requirement]
) -> MapTest:
    """Compile a selector to a test of labels; the empty selector matches everything.

    A selector that Kubernetes rejects is a CompileError: silently matching nothing would disable
    a policy.
    """
    fault = find_selector_fault(labels, requirements)
    if fault:
        raise CompileError(fault)
    tests = tuple(_compile_tests(labels, requirements))
    if len(tests) == 1:
        return tests[0]
    return lambda found: all(test(found) for test in tests)


def find_selector_fault(labels: Mapping[str, str], requirements: Iterable[Requirement]) -> str:
    """Why Kubernetes would reject a selector; empty if it would not."""
    for key, value in labels.items():
        if not _is_valid_entry((key, value)):
            return f'the selector requires "{key}: {value}", which is not a valid label'
    for requirement in requirements:
        if not _is_valid_requirement(requirement):
            values = ", ".join(requirement.values)
            return (
                "the selector has a requirement that Kubernetes rejects: "
                f"{requirement.key} {requirement.operator} [{values}]"
            )
    return ""


def read_requirements(expressions: Iterable[Json]) -> tuple[Requirement, ...]:
    """Requirements from plain JSON, with variables resolved."""
    return tuple(
        Requirement(str(e["key"]), str(e["operator"]), tuple(map(str, e["values"])))
        for e in expressions
    )


def parse_label_selector(text: str) -> MapTest:
    """Compile a selector in query syntax to a test of labels: `a=b,c!=d,e in (f,g),!h,i>3`.

    Raises CompileError for what Kubernetes rejects; an empty text matches everything.
    """
    # Duplicates count once: a selector of 64 KB may repeat one requirement 30,000 times.
    unique: dict[_Parts, MapTest] = {}
    for parts in _parse_requirements(text):
        if parts not in unique:
            unique[parts] = _compile_requirement(_check_requirement(Requirement(*parts)))
    tests = tuple(unique.values())
    if len(tests) == 1:
        return tests[0]
    return lambda found: all(test(found) for test in tests)


# re: linear - it matches at any character other than space, in one way only
_TOKEN = re.compile(r"[ \t\r\n]*(==|!=|[=!(),<>]|[^ \t\r\n=!(),<>]+)")
# No word; the end of a selector is an empty token.
_SYMBOLS = frozenset(("==", "!=", "=", "!", "(", ")", ",", "<", ">", ""))
_ENDS = frozenset((",", ""))
_OPERATORS = {
    "=": "In", "==": "In", "in": "In", "!=": "NotIn", "notin": "NotIn", ">": "Gt", "<": "Lt",
}  # fmt: skip
_INTEGER = re.compile(r"[+-]?[0-9]{1,19}")
# The fields of a Requirement, but faster to hash.
_Parts: TypeAlias = tuple[str, str, tuple[str, ...]]


def _parse_requirements(text: str) -> Iterator[_Parts]:
    tokens: list[str] = _TOKEN.findall(text.rstrip(" \t\r\n"))
    tokens += ("", "")
    at = 0
    parts: _Parts
    while tokens[at]:
        if tokens[at + 1] in _ENDS and tokens[at] not in _SYMBOLS:
            parts, at = (tokens[at], "Exists", ()), at + 1
        else:
            parts, at = _parse_requirement(tokens, at)
        yield parts
        if tokens[at]:
            at = _expect(tokens, at, ",")
            if not tokens[at]:
                raise CompileError("unable to parse requirement: nothing follows the last comma")


def _parse_requirement(tokens: list[str], at: int) -> tuple[_Parts, int]:
    """The requirement that starts at a token, and the position of the next token."""
    if tokens[at] == "!":
        key, at = _take_word(tokens, at + 1)
        return (key, "DoesNotExist", ()), at
    key, at = _take_word(tokens, at)
    sign = tokens[at]
    if sign in _ENDS:
        return (key, "Exists", ()), at
    if sign not in ("in", "notin"):
        value, at = _take_word(tokens, at + 1)
        return (key, _OPERATORS.get(sign, ""), (value,)), at
    value, at = _take_word(tokens, _expect(tokens, at + 1, "("))
    values = [value]
    while tokens[at] == ",":
        value, at = _take_word(tokens, at + 1)
        values.append(value)
    return (key, _OPERATORS[sign], tuple(values)), _expect(tokens, at, ")")


def _take_word(tokens: list[str], at: int) -> tuple[str, int]:
    """A word and the position of the next token; empty if something else is next."""
    return ("", at) if tokens[at] in _SYMBOLS else (tokens[at], at + 1)


def _expect(tokens: list[str], at: int, symbol: str) -> int:
    """The position after this symbol; raises CompileError if another one is next."""
    if tokens[at] != symbol:
        shown = " ".join(tokens[at : at + 11]).rstrip()[:199]
        raise CompileError(f"unable to parse requirement: expected {symbol!r} before {shown!r}")
    return at + 1


def _check_requirement(requirement: Requirement) -> Requirement:
    key, values = requirement.key, requirement.values
    if requirement.operator in ("Gt", "Lt"):
        if not _INTEGER.fullmatch(values[0]):
            reason = 'for ">" and "<" operators, the value must be an integer'
            raise CompileError(f"{reason}: {values[0][:63]!r}")
        is_valid = bool(_KEY.fullmatch(key))
    else:
        is_valid = _is_valid_requirement(requirement)
    if not is_valid:
        shown = f"{key} {requirement.operator} [{', '.join(values)}]"[:200]
        raise CompileError(f"unable to parse requirement: {shown!r} is not valid")
    return requirement


def _is_valid_entry(entry: tuple[str, str]) -> bool:
    key, value = entry
    if has_wildcard(key) or has_wildcard(value):
        # A pattern instead of a label; what it matches is one.
        return True
    return bool(_KEY.fullmatch(key) and _VALUE.fullmatch(value))


def _is_valid_requirement(requirement: Requirement) -> bool:
    match requirement.operator:
        case "In" | "NotIn":
            fits = len(requirement.values) > 0
        case "Exists" | "DoesNotExist":
            fits = len(requirement.values) == 0
        case _:
            return False
    return (
        fits
        and bool(_KEY.fullmatch(requirement.key))
        and all(map(_VALUE.fullmatch, set(requirement.values)))
    )


def _compile_tests(
    labels: Mapping[str, str], requirements: Sequence[Requirement]
) -> Iterator[MapTest]:
    for key, value in labels.items():
        yield compile_entry(key, value)
    for requirement in requirements:
        yield _compile_requirement(requirement)


def _compile_requirement(requirement: Requirement) -> MapTest:
    key, operator = requirement.key, requirement.operator
    if operator == "Exists":
        return lambda labels: key in labels
    if operator in ("Gt", "Lt"):
        return partial(_compare, key, int(requirement.values[0]), operator)
    values = frozenset(requirement.values)
    match operator:
        case "In":
            return lambda labels: labels.get(key) in values
        case "NotIn":
            # A missing label is not one of the values either.
            return lambda labels: labels.get(key) not in values
        case _:
            return lambda labels: key not in labels


def _compare(key: str, bound: int, operator: str, labels: Mapping[str, str]) -> bool:
    found = labels.get(key)
    if not isinstance(found, str) or not _INTEGER.fullmatch(found):
        return False
    return int(found) > bound if operator == "Gt" else int(found) < bound


# --- field selectors, such as `metadata.name=a,spec.nodeName!=b`

_SIGNS = (("!=", False), ("==", True), ("=", True))


class FieldTerm(msgspec.Struct, frozen=True):
    """One field, and the value that it must have or must not have."""

    field: str
    value: str
    is_equal: bool = True


def parse_field_selector(text: str) -> tuple[FieldTerm, ...]:
    """The terms of a selector; raises CompileError for what Kubernetes rejects."""
    return tuple(_parse_term(part) for part in _split(text) if part.strip())


def _split(text: str) -> Iterator[str]:
    """Parts between commas; a backslash escapes the next comma."""
    if "\\" not in text:
        yield from text.split(",")
        return
    start, is_escaped = 0, False
    for index, letter in enumerate(text):
        if letter == "," and not is_escaped:
            yield text[start:index]
            start = index + 1
        is_escaped = letter == "\\" and not is_escaped
    yield text[start:]


def _parse_term(part: str) -> FieldTerm:
    at = part.find("=")
    at -= at > 0 and part[at - 1] == "!"
    for sign, is_equal in _SIGNS:
        if at >= 0 and part.startswith(sign, at):
            value = _unescape(part[at + len(sign) :])
            return FieldTerm(part[:at].strip(), value.strip(), is_equal)
    raise CompileError(f"invalid selector: can't understand {part[:200]!r}")


def _unescape(value: str) -> str:
    pieces, is_escaped = [], False
    for letter in value:
        if is_escaped and letter not in "\\,=":
            raise CompileError(f"invalid field selector: invalid escape sequence: \\{letter}")
        if letter == "\\" and not is_escaped:
            is_escaped = True
            continue
        if letter in ",=" and not is_escaped:
            reason = f"unescaped character in value: {letter}"
            raise CompileError(f"invalid field selector: {reason}")
        is_escaped = False
        pieces.append(letter)
    if is_escaped:
        raise CompileError("invalid field selector: invalid escape sequence: \\")
    return "".join(pieces)
