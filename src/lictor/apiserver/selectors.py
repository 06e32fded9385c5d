"""Label and field selectors of a query, as tests of objects."""

import re
from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import TypeAlias

from lictor.apiserver.kind import ServedKind
from lictor.apiserver.resources.registry import SelectableField, select_by
from lictor.apiserver.status_errors import bad_request
from lictor.raw import Json, JsonObject

ObjectTest: TypeAlias = Callable[[JsonObject], bool]
_LabelTest: TypeAlias = Callable[[JsonObject], bool]

_NAME = r"(?:[A-Za-z0-9][-A-Za-z0-9_.]{0,61})?[A-Za-z0-9]"
_LABEL = rf"(?:[a-z0-9](?:[-a-z0-9.]*[a-z0-9])?/)?{_NAME}"
_VALUE = re.compile(f"(?:{_NAME})?")
_SET = re.compile(rf"\s*({_LABEL})\s+(in|notin)\s*\(([^()]*)\)\s*(?:,|$)")
_COMPARISON = re.compile(rf"\s*({_LABEL})\s*(==|=|!=|>|<)\s*([^,\s()!=<>]*)\s*(?:,|$)")
_PRESENCE = re.compile(rf"\s*(!?)\s*({_LABEL})\s*(?:,|$)")

_EVERYWHERE = select_by("metadata.name", "metadata.namespace")


def compile_selectors(kind: ServedKind, labels: str, fields: str) -> ObjectTest | None:
    """One test for both selectors of a query; None where everything is wanted."""
    tests: list[ObjectTest] = []
    if labels.strip():
        wanted = _read_labels(labels)
        tests.append(lambda document: wanted(document["metadata"].get("labels") or {}))
    if fields.strip():
        tests.append(_compile_fields(kind, fields))
    if len(tests) == 2:
        first, second = tests
        return lambda document: first(document) and second(document)
    return tests[0] if tests else None


def find_single_name(fields: str) -> str:
    """The one name that a field selector asks for; empty where it asks for more."""
    for part in fields.split(","):
        key, operator, value = _split(part)
        if key == "metadata.name" and operator == "=":
            return value
    return ""


# --- labels


@lru_cache(maxsize=256)
def _read_labels(text: str) -> _LabelTest:
    tests = tuple(_parse_labels(text))
    if len(tests) == 1:
        return tests[0]
    return lambda labels: all([test(labels) for test in tests])


def _parse_labels(text: str) -> Iterator[_LabelTest]:
    position = 0
    while position < len(text):
        if found := _SET.match(text, position):
            yield _build_set(*found.groups())
        elif found := _COMPARISON.match(text, position):
            yield _build_comparison(*found.groups())
        elif found := _PRESENCE.match(text, position):
            yield _build_presence(*found.groups())
        else:
            raise bad_request(f"unable to parse requirement: {text[position:].strip()[:200]!r}")
        position = found.end()


def _build_set(key: str, operator: str, values: str) -> _LabelTest:
    wanted = frozenset(_check_value(value.strip()) for value in values.split(","))
    if operator == "in":
        return lambda labels: key in labels and labels[key] in wanted
    return lambda labels: labels.get(key) not in wanted


def _build_comparison(key: str, operator: str, value: str) -> _LabelTest:
    if operator in "<>":
        return _build_order(key, operator, value)
    _check_value(value)
    if operator == "!=":
        return lambda labels: labels.get(key) != value
    return lambda labels: labels.get(key) == value


def _build_order(key: str, operator: str, value: str) -> _LabelTest:
    if not re.fullmatch(r"[+-]?[0-9]{1,19}", value):
        raise bad_request(
            f'for ">" and "<" operators, the value must be an integer: {value[:63]!r}'
        )
    bound = int(value)

    def compare(labels: JsonObject) -> bool:
        found = labels.get(key)
        if not isinstance(found, str) or not re.fullmatch(r"[+-]?[0-9]{1,19}", found):
            return False
        return int(found) > bound if operator == ">" else int(found) < bound

    return compare


def _build_presence(negation: str, key: str) -> _LabelTest:
    if negation:
        return lambda labels: key not in labels
    return lambda labels: key in labels


def _check_value(value: str) -> str:
    if not _VALUE.fullmatch(value):
        raise bad_request(f"unable to parse requirement: values: Invalid value: {value[:80]!r}")
    return value


# --- fields


def _compile_fields(kind: ServedKind, text: str) -> ObjectTest:
    tests = [_compile_field(kind, part) for part in text.split(",") if part]
    return lambda document: all([test(document) for test in tests])


def _compile_field(kind: ServedKind, part: str) -> ObjectTest:
    key, operator, value = _split(part)
    if not operator:
        raise bad_request(f"invalid selector: {part[:200]!r}; can't understand {part[:200]!r}")
    field = _EVERYWHERE.get(key) or kind.traits.selectable_fields.get(key)
    if field is None:
        if kind.is_custom or kind.traits.selectable_fields:
            raise bad_request(f"field label not supported: {key[:200]}")
        listed = ", ".join(f'"{each}"' for each in sorted(_EVERYWHERE))
        raise bad_request(f'"{key[:200]}" is not a known field selector: only {listed}')
    wanted = operator == "="
    return lambda document: (_read_text(document, field) == value) is wanted


def _split(part: str) -> tuple[str, str, str]:
    for sign, operator in (("!=", "!"), ("==", "="), ("=", "=")):
        key, found, value = part.partition(sign)
        if found:
            return key.strip(), operator, _unescape(value)
    return part, "", ""


def _unescape(value: str) -> str:
    return re.sub(r"\\([\\,=])", r"\1", value)


def _read_text(document: Json, field: SelectableField) -> str:
    value = document
    for step in field.path:
        value = value.get(step) if isinstance(value, dict) else None
    if value is None or value == "":
        return field.missing
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)
