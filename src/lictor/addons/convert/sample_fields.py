"""Which fields does a rule look at, and which values there would distinguish two forms of it?"""

from collections.abc import Iterable, Iterator
from typing import TypeAlias

import msgspec

from lictor.core.errors import CompileError
from lictor.core.lang.jmespath.parser import parse
from lictor.core.lang.jmespath.syntax import Node, NodeKind
from lictor.core.lang.pattern.anchor import Modifier, parse_anchor, strip_anchor
from lictor.core.lang.template import find_expressions, has_variables
from lictor.core.model.matching import Match, ResourceDescription
from lictor.core.model.metadata import LabelSelector
from lictor.core.model.policy import ForEachValidate, Rule, Validate
from lictor.core.raw import Json

# Steps into a resource; ALL stands for the elements of a list, KEYS for the keys of a map.
Path: TypeAlias = tuple[str, ...]
ALL = "[]"
KEYS = "keys()"

_CONTAINERS = ("containers", "initContainers", "ephemeralContainers")
_STEPS = (
    NodeKind.SUBEXPRESSION,
    NodeKind.INDEX_EXPRESSION,
    NodeKind.PIPE,
    NodeKind.VALUE_PROJECTION,
)
_PROJECTIONS = (NodeKind.FLATTEN, NodeKind.PROJECTION, NodeKind.FILTER_PROJECTION)


class ComparedField(msgspec.Struct, frozen=True):
    """A field, and texts or values from the policy that it is compared with."""

    path: Path
    values: tuple[Json, ...] = ()


def list_compared_fields(rule: Rule) -> list[ComparedField]:
    """The fields that a rule names, each once."""
    merged: dict[Path, list[Json]] = {}
    for point in _find_points(rule):
        known = merged.setdefault(point.path, [])
        known += [value for value in point.values if value not in known]
    return [ComparedField(path, tuple(values)) for path, values in merged.items() if path]


def _find_points(rule: Rule) -> Iterator[ComparedField]:
    for match in (rule.match, rule.exclude):
        if match is not None:
            yield from _match_points(match)
    yield from _condition_points(rule.preconditions, {})
    if rule.validate is not None:
        yield from _body_points(rule.validate, (), {})
    if rule.mutate is not None and rule.mutate.patch_strategic_merge is not None:
        yield from _pattern_points(rule.mutate.patch_strategic_merge, ())


# --- match


def _match_points(match: Match) -> Iterator[ComparedField]:
    for wanted in (match.resources, *(each.resources for each in (*match.any, *match.all))):
        yield from _description_points(wanted)


def _description_points(wanted: ResourceDescription) -> Iterator[ComparedField]:
    names = (*wanted.names, *((wanted.name,) if wanted.name else ()))
    if names:
        yield ComparedField(("metadata", "name"), names)
    if wanted.namespaces:
        yield ComparedField(("metadata", "namespace"), wanted.namespaces)
    for key, value in wanted.annotations.items():
        yield ComparedField(("metadata", "annotations", key), (value,))
    if wanted.selector is not None:
        yield from _selector_points(wanted.selector)


def _selector_points(selector: LabelSelector) -> Iterator[ComparedField]:
    for key, value in selector.match_labels.items():
        yield ComparedField(("metadata", "labels", key), (value,))
    for each in selector.match_expressions:
        yield ComparedField(("metadata", "labels", each.key), each.values)


# --- validate


def _body_points(
    body: Validate | ForEachValidate, path: Path, bound: dict[str, Path]
) -> Iterator[ComparedField]:
    for pattern in _patterns(body):
        yield from _pattern_points(pattern, path)
    if body.deny is not None:
        yield from _condition_points(body.deny.conditions, bound)
    yield from _loop_points(body.foreach, bound)


def _patterns(body: Validate | ForEachValidate) -> list[Json]:
    several = body.any_pattern if isinstance(body.any_pattern, list) else []
    return [pattern for pattern in (body.pattern, *several) if isinstance(pattern, dict)]


def _loop_points(
    loops: Iterable[ForEachValidate], bound: dict[str, Path]
) -> Iterator[ComparedField]:
    for loop in loops:
        given, seen = list_paths(loop.list, bound)
        for path in seen:
            yield ComparedField(path, tuple(_literals(loop.list)))
        for path in given:
            # What a projection gives is a list already.
            element = path if ALL in path else (*path, ALL)
            inner = {**bound, "element": element}
            yield ComparedField(element)
            yield from _condition_points(loop.preconditions, inner)
            yield from _body_points(loop, element, inner)


def _pattern_points(pattern: Json, path: Path) -> Iterator[ComparedField]:
    if isinstance(pattern, dict):
        for key, value in pattern.items():
            anchor = parse_anchor(key)
            inner = (*path, strip_anchor(key).replace("*", "x").replace("?", "a"))
            if anchor is not None and anchor.modifier is Modifier.NEGATION:
                yield ComparedField(inner)
            else:
                yield from _pattern_points(value, inner)
    elif isinstance(pattern, list):
        yield ComparedField((*path, ALL))
        for value in pattern:
            yield from _pattern_points(value, (*path, ALL))
    else:
        is_variable = isinstance(pattern, str) and has_variables(pattern)
        yield ComparedField(path, () if is_variable else (pattern,))


# --- conditions


def _condition_points(conditions: Json, bound: dict[str, Path]) -> Iterator[ComparedField]:
    if isinstance(conditions, dict):
        for name in ("any", "all"):
            yield from _condition_points(conditions.get(name), bound)
        if "key" in conditions or "operator" in conditions:
            yield from _comparison_points(conditions, bound)
    elif isinstance(conditions, list):
        for condition in conditions:
            yield from _condition_points(condition, bound)


def _comparison_points(condition: Json, bound: dict[str, Path]) -> Iterator[ComparedField]:
    texts = [condition.get("key"), condition.get("value")]
    constants = tuple(_flatten([t for t in texts if not _is_variable(t)]))
    for text in texts:
        if not _is_variable(text):
            continue
        for expression in find_expressions(text):
            for path in (path for paths in list_paths(expression, bound) for path in paths):
                yield ComparedField(path, constants + tuple(_literals(expression)))


def _is_variable(value: Json) -> bool:
    return isinstance(value, str) and has_variables(value)


def _flatten(values: Json) -> Iterator[Json]:
    for value in values:
        if isinstance(value, list):
            yield from _flatten(value)
        elif not isinstance(value, dict):
            yield value


# --- JMESPath


def list_paths(text: str, bound: dict[str, Path]) -> tuple[list[Path], list[Path]]:
    """The fields of the resource that an expression gives, and those it only looks at."""
    try:
        node = parse(text.strip())
    except CompileError:
        return [], []
    found: list[Path] = []
    ends = _walk(node, [None], bound, found)
    return list(dict.fromkeys(end for end in ends if end)), list(dict.fromkeys(found))


def _walk(
    node: Node, current: list[Path | None], bound: dict[str, Path], found: list[Path]
) -> list[Path | None]:
    """The path of a node's value; None is the root, and () a path that does not exist."""
    if node.kind is NodeKind.FIELD:
        return [_step(at, node.value, bound) for at in current]
    if node.kind in _STEPS:
        left, right = node.children
        return _walk(right, _walk(left, current, bound, found), bound, found)
    if node.kind in _PROJECTIONS:
        return _project(node, current, bound, found)
    if node.kind in (NodeKind.CURRENT, NodeKind.IDENTITY):
        return current
    if node.kind is NodeKind.INDEX:
        return [_element(at) for at in current]
    if node.kind is NodeKind.FUNCTION and node.value == "keys":
        inner = _walk(node.children[0], current, bound, found)
        return [(*at, KEYS) if at else () for at in inner]
    return [end for child in node.children for end in _walk(child, current, bound, found)]


def _project(
    node: Node, current: list[Path | None], bound: dict[str, Path], found: list[Path]
) -> list[Path | None]:
    left, *rest = node.children
    ends = [_element(at) for at in _walk(left, current, bound, found)]
    for condition in rest[1:]:
        found += [end for end in _walk(condition, ends, bound, found) if end]
    return _walk(rest[0], ends, bound, found) if rest else ends


def _element(at: Path | None) -> Path | None:
    if not at or at[-1] in (ALL, KEYS):
        return at
    return (*at, ALL)


def _step(at: Path | None, name: str, bound: dict[str, Path]) -> Path | None:
    if at is None:
        return (name,) if name in ("request", "images") else bound.get(name, ())
    if not at:
        return ()
    if at == ("request",):
        return ("object",) if name == "object" else ()
    if at == ("images",):
        return ("spec", name, ALL, "image") if name in _CONTAINERS else ()
    if at[-1] == "image":
        return at
    return (name,) if at == ("object",) else (*at, name)


def _literals(text: str) -> Iterator[Json]:
    try:
        pending = [parse(text.strip())]
    except CompileError:
        return
    while pending:
        node = pending.pop()
        if node.kind is NodeKind.LITERAL and isinstance(node.value, str | int | float):
            yield node.value
        pending += node.children
