"""Functions that match text or labels with an expression, a wildcard or a range."""

from collections.abc import Callable
from functools import lru_cache

from lictor.core.lang.go_number import format_single
from lictor.core.lang.jmespath.functions.spec import FunctionSpec, define, equals
from lictor.core.lang.regex import compile_regex, compile_template, replace_matches
from lictor.core.lang.semver import parse_range, parse_version_or_zero
from lictor.core.lang.wildcard import compile_wildcard
from lictor.core.raw import Json, JsonObject

_wildcard: Callable[[str], Callable[[str], bool]] = lru_cache(maxsize=1024)(compile_wildcard)


def _text(value: str | float) -> str:
    return value if isinstance(value, str) else format_single(value)


def _label_match(wanted: JsonObject, labels: JsonObject) -> bool:
    return all(key in labels and equals(labels[key], value) for key, value in wanted.items())


def _regex_match(expression: str, subject: str | float) -> bool:
    return compile_regex(expression).search(_text(subject)) is not None


def _regex_replace_all(expression: str, subject: str | float, template: str | float) -> str:
    return replace_matches(expression, _text(subject), compile_template(_text(template)))


def _regex_replace_literal(expression: str, subject: str | float, text: str | float) -> str:
    return replace_matches(expression, _text(subject), (_text(text),))


def _semver_compare(version: str, wanted: str) -> bool:
    return parse_range(wanted)(parse_version_or_zero(version))


def _to_boolean(text: str) -> Json:
    lowered = text.lower()
    if lowered not in ("true", "false"):
        raise ValueError(f"lowercase argument must be 'true' or 'false' (provided: '{text}')")
    return lowered == "true"


MATCHING: tuple[FunctionSpec, ...] = (
    define(
        "label_match(object, object) bool",
        _label_match,
        "returns whether the second object has every label of the first",
    ),
    define(
        "pattern_match(string, string|number) bool",
        lambda pattern, subject: _wildcard(pattern)(_text(subject)),
        "returns whether a value matches a pattern: `*` is any text, `?` one character",
    ),
    define(
        "regex_match(string, string|number) bool",
        _regex_match,
        "returns whether a regular expression matches a part of a value",
    ),
    define(
        "regex_replace_all(string, string|number, string|number) string",
        _regex_replace_all,
        "replaces the matches of an expression; `${1}` is the match of its first group",
    ),
    define(
        "regex_replace_all_literal(string, string|number, string|number) string",
        _regex_replace_literal,
        "replaces the matches of an expression with a literal text",
    ),
    define(
        "semver_compare(string, string) bool",
        _semver_compare,
        "returns whether a version is in a range such as `>=1.2.0 <2.0.0`",
    ),
    define("to_boolean(string) bool", _to_boolean, "parses true or false, in any case"),
)
