"""What is wrong with a value, by the schema of its place?

An update is validated by what it changes: parts that stay as they were are not looked at.
"""

import base64
import binascii
import ipaddress
import re
from collections.abc import Callable
from datetime import date
from urllib.parse import urlsplit

from lictor.addons.apiserver.field_errors import (
    AddCause,
    Cause,
    duplicate,
    invalid,
    name_type,
    nowhere,
    required,
    show,
    too_long,
    too_many,
    unsupported,
    wrong_type,
)
from lictor.addons.apiserver.schemas.structural_schema import StructuralSchema
from lictor.core.errors import SyntaxFaultError
from lictor.core.lang.duration import parse_duration
from lictor.core.lang.regex import compile_regex
from lictor.core.raw import Json, JsonObject

_DATE_TIME = re.compile(
    r"\d{4}-(0[1-9]|1[0-2])-(0[1-9]|[12]\d|3[01])[Tt ]([01]\d|2[0-3]):[0-5]\d:([0-5]\d|60)"
    r"(\.\d+)?([Zz]|[+-]\d\d:\d\d)"
)
_EMAIL = re.compile(r"[^@\s]+@[^@\s.][^@\s]*")
_MAC = re.compile(r"([0-9a-fA-F]{2}[:-]){5}[0-9a-fA-F]{2}")
_UUID = re.compile(r"(?i)[0-9a-f]{8}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{12}")
_HOST = re.compile(
    r"(?=.{1,253}$)[a-zA-Z0-9_]([-a-zA-Z0-9_]{0,61}[a-zA-Z0-9_])?"
    r"(\.[a-zA-Z0-9_]([-a-zA-Z0-9_]{0,61}[a-zA-Z0-9_])?)*\.?"
)
_HEX_COLOR = re.compile(r"#?([0-9a-fA-F]{3}|[0-9a-fA-F]{6})")


def has_format(text: str, name: str) -> bool:
    """Does the text fit the format of this name?"""
    check = _FORMATS.get(name)
    if check is None:
        return True
    try:
        return check(text)
    except (ValueError, TypeError):
        return False


def _fits(fullmatch: Callable[[str], object]) -> Callable[[str], bool]:
    return lambda text: fullmatch(text) is not None


def _is_bytes(text: str) -> bool:
    try:
        base64.b64decode(text, validate=True)
    except binascii.Error:
        return False
    return True


def _is_uri(text: str) -> bool:
    return bool(urlsplit(text).scheme) or text.startswith("/")


def _parses(parse: Callable[[str], object]) -> Callable[[str], bool]:
    """What cannot be read raises ValueError."""

    def check(text: str) -> bool:
        parse(text)
        return True

    return check


_FORMATS: dict[str, Callable[[str], bool]] = {
    "date-time": _fits(_DATE_TIME.fullmatch),
    "datetime": _fits(_DATE_TIME.fullmatch),
    "date": _parses(date.fromisoformat),
    "duration": _parses(parse_duration),
    "byte": _is_bytes,
    "uri": _is_uri,
    "email": _fits(_EMAIL.fullmatch),
    "ipv4": _parses(ipaddress.IPv4Address),
    "ipv6": _parses(ipaddress.IPv6Address),
    "cidr": _parses(lambda text: ipaddress.ip_network(text, strict=False)),
    "mac": _fits(_MAC.fullmatch),
    "uuid": _fits(_UUID.fullmatch),
    "uuid3": _fits(_UUID.fullmatch),
    "uuid4": _fits(_UUID.fullmatch),
    "uuid5": _fits(_UUID.fullmatch),
    "hostname": _fits(_HOST.fullmatch),
    "hexcolor": _fits(_HEX_COLOR.fullmatch),
}
# Stands for a value that is not there; null is a value.
ABSENT: Json = object()


def check_value(schema: StructuralSchema, value: Json, old: Json, path: str, add: AddCause) -> None:
    """Add all errors; `old` is ABSENT for a new value."""
    if (old is not ABSENT and value == old) or (value is None and schema.is_nullable):
        return
    if not _fits_type(schema, value):
        expected = "integer,string" if schema.is_int_or_string else schema.type
        add(wrong_type(path, name_type(value), expected))
    if schema.raw.keys() & _COMPOSITES:
        _check_composites(schema, value, path, add)
    if isinstance(value, str):
        _check_text(schema, value, path, add)
    elif isinstance(value, (int, float)) and not isinstance(value, bool):
        _check_number(schema.raw, value, path, add)
    elif isinstance(value, list):
        _check_list(schema, value, old, path, add)
    allowed = schema.raw.get("enum")
    if allowed is not None and not any(_same(value, each) for each in allowed):
        add(unsupported(path, value, allowed))
    if isinstance(value, dict):
        _check_map(schema, value, old, path, add)


_COMPOSITES = frozenset(("allOf", "anyOf", "oneOf", "not"))


def _same(one: Json, other: Json) -> bool:
    """In Python, True is 1."""
    return bool(one == other) and isinstance(one, bool) == isinstance(other, bool)


def _fits_type(schema: StructuralSchema, value: Json) -> bool:
    found = name_type(value)
    if schema.is_int_or_string:
        return found in ("integer", "string")
    return not schema.type or found == schema.type or (schema.type, found) == ("number", "integer")


def _check_text(schema: StructuralSchema, value: str, path: str, add: AddCause) -> None:
    """The first fault only, as the API server does."""
    raw = schema.raw
    most, least = raw.get("maxLength"), raw.get("minLength")
    pattern, name = raw.get("pattern"), raw.get("format") or ""
    if most is not None and len(value) > most:
        add(too_long(path, most))
    elif least is not None and len(value) < least:
        add(invalid(path, value, f"{path} in body should be at least {least} chars long"))
    elif pattern and not _matches(pattern, value):
        add(invalid(path, value, f"{path} in body should match '{pattern}'"))
    if name and schema.type == "string" and not has_format(value, name):
        add(wrong_type(path, value, name))


def _matches(pattern: str, value: str) -> bool:
    try:
        return compile_regex(pattern).search(value) is not None
    except SyntaxFaultError:
        # A definition with such a pattern is refused; this one is older than the check.
        return False


def _check_number(raw: JsonObject, value: float, path: str, add: AddCause) -> None:
    step = raw.get("multipleOf")
    if step and value / step % 1:
        add(invalid(path, value, f"{path} in body should be a multiple of {show(step)}"))
    for word, sign, phrase in (("maximum", 1, "less"), ("minimum", -1, "greater")):
        limit = raw.get(word)
        if limit is None:
            continue
        is_strict = raw.get(f"exclusive{word.capitalize()}") is True
        over = sign * (value - limit)
        if over > 0 or (is_strict and over == 0):
            detail = f"{phrase} than" if is_strict else f"{phrase} than or equal to"
            add(invalid(path, value, f"{path} in body should be {detail} {show(limit)}"))


def _check_list(
    schema: StructuralSchema, value: list[Json], old: Json, path: str, add: AddCause
) -> None:
    most, least = schema.raw.get("maxItems"), schema.raw.get("minItems")
    if schema.items is not None:
        partners = _index(schema, old)
        for index, item in enumerate(value):
            partner = partners.get(_key(schema, item), ABSENT) if partners else ABSENT
            check_value(schema.items, item, partner, f"{path}[{index}]", add)
    if least is not None and len(value) < least:
        count = len(value)
        add(invalid(path, count, f"{path} in body should have at least {least} items"))
    if most is not None and len(value) > most:
        add(too_many(path, len(value), most))


def _check_map(
    schema: StructuralSchema, value: JsonObject, old: Json, path: str, add: AddCause
) -> None:
    most, least = schema.raw.get("maxProperties"), schema.raw.get("minProperties")
    if least is not None and len(value) < least:
        count = len(value)
        add(invalid(path, count, f"{path} in body should have at least {least} properties"))
    if most is not None and len(value) > most:
        add(too_many(path, len(value), most))
    for name in _list_required(schema):
        if name not in value:
            add(required(f"{path}.{name}" if path else name))
    before = old if isinstance(old, dict) else {}
    for key in sorted(value):
        known = schema.find(key)
        if known is not None:
            place = f"{path}.{key}" if path else key
            check_value(known, value[key], before.get(key, ABSENT), place, add)


def _list_required(schema: StructuralSchema) -> list[str]:
    names = [*(schema.raw.get("required") or ())]
    if schema.is_embedded:
        names += [name for name in ("apiVersion", "kind") if name not in names]
    return names


# --- items of lists and their partners in the older version


def _key(schema: StructuralSchema, item: Json) -> str:
    if schema.list_type == "map" and isinstance(item, dict):
        return show([item.get(key) for key in schema.list_keys])
    return show(item)


def _index(schema: StructuralSchema, items: Json) -> dict[str, Json]:
    """Items of the older version by their keys; a list that is replaced as a whole has none."""
    if schema.list_type != "map" or not isinstance(items, list):
        return {}
    return {_key(schema, item): item for item in items}


def find_partners(schema: StructuralSchema, value: list[Json], old: Json) -> list[Json]:
    """The earlier version of each item; ABSENT for new items and those without keys."""
    if value == old:
        return value
    partners = _index(schema, old)
    return [partners.get(_key(schema, item), ABSENT) for item in value]


# --- several schemas for one value


def _check_composites(schema: StructuralSchema, value: Json, path: str, add: AddCause) -> None:
    if schema.forbidden is not None and not _collect(schema.forbidden, value, path):
        add(nowhere(f'"{path}" must not validate the schema (not)'))
    _check_all(schema, value, path, add)
    for word in ("anyOf", "oneOf"):
        parts = schema.subschemas(word)
        if not parts:
            continue
        faults = [_collect(part, value, path) for part in parts]
        valid = sum(not each for each in faults)
        if word == "anyOf" and not valid:
            add(nowhere(f'"{path}" must validate at least one schema (anyOf)'))
        elif word == "oneOf" and valid != 1:
            found = f"Found {valid} valid alternatives" if valid else "Found none valid"
            add(nowhere(f'"{path}" must validate one and only one schema (oneOf). {found}'))
        if not valid:
            # The first stands for all.
            for fault in faults[0]:
                add(fault)


def _check_all(schema: StructuralSchema, value: Json, path: str, add: AddCause) -> None:
    faults = [_collect(part, value, path) for part in schema.subschemas("allOf")]
    for each in faults:
        for fault in each:
            add(fault)
    if any(faults):
        end = ". None validated" if all(faults) else ""
        add(nowhere(f'"{path}" must validate all the schemas (allOf){end}'))


def _collect(schema: StructuralSchema, value: Json, path: str) -> list[Cause]:
    found: list[Cause] = []
    check_value(schema, value, ABSENT, path, found.append)
    return found


# --- lists in which each item stands once


def check_lists(schema: StructuralSchema, value: Json, old: Json, path: str, add: AddCause) -> None:
    """Add an error for each duplicate item of a set or map list."""
    if old is not ABSENT and value == old:
        return
    if isinstance(value, dict):
        for key in sorted(value):
            known = schema.find(key)
            if known is not None and isinstance(value[key], (dict, list)):
                place = f"{path}.{key}" if path else key
                before = old.get(key, ABSENT) if isinstance(old, dict) else ABSENT
                check_lists(known, value[key], before, place, add)
    elif isinstance(value, list):
        _check_items(schema, value, path, add)
        if schema.items is not None:
            for index, item in enumerate(value):
                check_lists(schema.items, item, ABSENT, f"{path}[{index}]", add)


def _check_items(schema: StructuralSchema, value: list[Json], path: str, add: AddCause) -> None:
    if schema.list_type == "atomic":
        return
    seen: set[str] = set()
    for index, item in enumerate(value):
        key = _key(schema, item)
        if key in seen:
            detail = item
            if schema.list_type == "map" and isinstance(item, dict):
                detail = {name: item[name] for name in sorted(schema.list_keys) if name in item}
            add(duplicate(f"{path}[{index}]", detail))
        seen.add(key)
