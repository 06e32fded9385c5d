"""Do labels match a label selector, or an entry with wildcards in key and value?"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TypeAlias

import msgspec

from lictor.errors import CompileError
from lictor.lang.wildcard import compile_wildcard, has_wildcard
from lictor.raw import Json

MapTest: TypeAlias = Callable[[Mapping[str, str]], bool]


def compile_entry(key: str, value: str) -> MapTest:
    """A test that passes where a map has an entry whose key and value fit these patterns."""
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
    """Turn a selector into a test of labels; the empty selector takes everything.

    A selector that Kubernetes would refuse is a CompileError: taking nothing in silence would turn
    a policy off.
    """
    fault = find_selector_fault(labels, requirements)
    if fault:
        raise CompileError(fault)
    tests = tuple(_compile_tests(labels, requirements))
    if len(tests) == 1:
        return tests[0]
    return lambda found: all(test(found) for test in tests)


def find_selector_fault(labels: Mapping[str, str], requirements: Iterable[Requirement]) -> str:
    """Why Kubernetes would refuse a selector; empty where it would not."""
    for key, value in labels.items():
        if not _is_valid_entry((key, value)):
            return f'the selector asks for "{key}: {value}", which no label can be'
    for requirement in requirements:
        if not _is_valid_requirement(requirement):
            values = ", ".join(requirement.values)
            return (
                "the selector has a requirement that Kubernetes does not take: "
                f"{requirement.key} {requirement.operator} [{values}]"
            )
    return ""


def read_requirements(expressions: Iterable[Json]) -> tuple[Requirement, ...]:
    """Requirements from plain JSON, as a policy's filled-in text gives them."""
    return tuple(
        Requirement(str(e["key"]), str(e["operator"]), tuple(map(str, e["values"])))
        for e in expressions
    )


_SET = re.compile(r"\s*([^\s,()!=<>]+)\s+(in|notin)\s*\(([^()]*)\)\s*(?:,|$)")
_COMPARISON = re.compile(r"\s*([^\s,()!=<>]+)\s*(==|=|!=)\s*([^,\s()!=<>]*)\s*(?:,|$)")
_PRESENCE = re.compile(r"\s*(!?)\s*([^\s,()!=<>]+)\s*(?:,|$)")


def parse_label_selector(text: str) -> MapTest:
    """Turn a selector as queries write it into a test of labels: `a=b,c!=d,e in (f,g),!h`.

    CompileError for what Kubernetes would refuse; an empty text takes everything.
    """
    return compile_label_selector({}, tuple(_parse_requirements(text)))


def _parse_requirements(text: str) -> Iterator[Requirement]:
    position = 0
    while text[position:].strip():
        if found := _SET.match(text, position):
            values = tuple(value.strip() for value in found[3].split(","))
            yield Requirement(found[1], "In" if found[2] == "in" else "NotIn", values)
        elif found := _COMPARISON.match(text, position):
            yield Requirement(found[1], "NotIn" if found[2] == "!=" else "In", (found[3],))
        elif found := _PRESENCE.match(text, position):
            yield Requirement(found[2], "DoesNotExist" if found[1] else "Exists")
        else:
            raise CompileError(f"the selector cannot be read from {text[position:][:200]!r} on")
        position = found.end()


def _is_valid_entry(entry: tuple[str, str]) -> bool:
    key, value = entry
    if has_wildcard(key) or has_wildcard(value):
        # Not a label of Kubernetes' but a pattern; what it finds is one.
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
        and all(map(_VALUE.fullmatch, requirement.values))
    )


def _compile_tests(
    labels: Mapping[str, str], requirements: Sequence[Requirement]
) -> Iterator[MapTest]:
    for key, value in labels.items():
        yield compile_entry(key, value)
    for requirement in requirements:
        yield _compile_requirement(requirement)


def _compile_requirement(requirement: Requirement) -> MapTest:
    key, values = requirement.key, requirement.values
    match requirement.operator:
        case "In":
            return lambda labels: labels.get(key) in values
        case "NotIn":
            # A label that is not there is not one of the values either.
            return lambda labels: labels.get(key) not in values
        case "Exists":
            return lambda labels: key in labels
        case _:
            return lambda labels: key not in labels
