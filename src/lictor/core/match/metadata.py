"""Reads metadata from any JSON, and compiles tests of labels and texts."""

from collections.abc import Callable, Iterable, Mapping
from typing import TypeAlias

from lictor.core.lang.label_selector import MapTest, Requirement, compile_label_selector
from lictor.core.lang.wildcard import compile_wildcard, has_wildcard
from lictor.core.model.metadata import LabelSelector
from lictor.core.raw import Json, JsonObject

TextTest: TypeAlias = Callable[[str], bool]


def compile_any_wildcard(patterns: Iterable[str]) -> TextTest:
    """A test that passes if one of the patterns matches."""
    given = tuple(dict.fromkeys(patterns))
    exact = frozenset(pattern for pattern in given if not has_wildcard(pattern))
    tests = tuple(compile_wildcard(pattern) for pattern in given if has_wildcard(pattern))
    if not tests:
        return exact.__contains__
    if not exact and len(tests) == 1:
        return tests[0]

    def fits(text: str) -> bool:
        if text in exact:
            return True
        for test in tests:  # noqa: SIM110  (a generator would cost more than the tests)
            if test(text):
                return True
        return False

    return fits


def compile_selector(selector: LabelSelector) -> MapTest:
    """Compile a selector to a test of labels; the empty selector matches everything."""
    requirements = tuple(
        Requirement(each.key, each.operator, each.values) for each in selector.match_expressions
    )
    return compile_label_selector(selector.match_labels, requirements)


_NONE: Mapping[str, str] = {}


def read_text(resource: JsonObject, field: str) -> str:
    """A field of `metadata`, or the empty text."""
    metadata = resource.get("metadata")
    if not isinstance(metadata, dict):
        return ""
    value = metadata.get(field)
    return value if isinstance(value, str) else ""


def read_name(resource: JsonObject) -> str:
    """The name, or `generateName` if the API server has not chosen one yet."""
    return read_text(resource, "name") or read_text(resource, "generateName")


def read_map(resource: JsonObject, field: str) -> Mapping[str, str]:
    """The labels or the annotations."""
    metadata = resource.get("metadata")
    return clean_map(metadata.get(field)) if isinstance(metadata, dict) else _NONE


def clean_map(value: Json) -> Mapping[str, str]:
    """The mapping if all values are strings; null counts as the empty string.

    With one value of another type, Kubernetes' reader sees no entries at all; so does this.
    """
    if not isinstance(value, Mapping):
        return _NONE
    for entry in value.values():
        if entry.__class__ is not str:
            return _clean_odd_map(value)
    return value


def _clean_odd_map(value: Mapping[str, Json]) -> Mapping[str, str]:
    cleaned = {key: "" if entry is None else entry for key, entry in value.items()}
    return cleaned if all(isinstance(entry, str) for entry in cleaned.values()) else _NONE
