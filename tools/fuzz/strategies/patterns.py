"""Patterns with anchors, conditions, overlays, JSON patches and assertion trees."""

import json

from lictor.core.raw import Json
from strategies.expressions import expression, maybe_template, query, template
from strategies.json_values import key, scalar, spoil, text, value
from strategies.resources import pod
from strategies.source import Source

ANCHORS = ("({})", "=({})", "^({})", "X({})", "+({})", "<({})")
OPERATORS = (
    "Equal", "Equals", "NotEqual", "NotEquals", "In", "AnyIn", "AllIn", "NotIn", "AnyNotIn",
    "AllNotIn", "GreaterThanOrEquals", "GreaterThan", "LessThanOrEquals", "LessThan",
    "DurationGreaterThanOrEquals", "DurationGreaterThan", "DurationLessThanOrEquals",
    "DurationLessThan",
)  # fmt: skip
_KEYS = (
    "metadata", "labels", "annotations", "spec", "containers", "name", "image", "app", "team", "a*",
    "securityContext", "resources", "requests", "limits", "memory", "cpu", "hostNetwork", "volumes",
)  # fmt: skip


def _anchored(source: Source) -> str:
    name = source.pick(_KEYS) if source.chance(85) else key(source)
    return source.pick(ANCHORS).format(name) if source.chance(35) else name


def _leaf(source: Source) -> Json:
    return template(source) if source.chance(4) else scalar(source)


def pattern(source: Source, depth: int = 4) -> Json:
    """A pattern, from chance alone."""
    dice = source.random()
    if depth <= 0 or dice < 0.3:
        return _leaf(source)
    if dice < 0.8:
        return {_anchored(source): pattern(source, depth - 1) for _ in range(source.count(4))}
    return [pattern(source, depth - 1) for _ in range(source.count(3))]


def resource_pattern(source: Source) -> Json:
    """A pattern that is made from a Pod, so that it comes near to fitting."""
    if source.chance(30):
        return pattern(source)
    made = {name: part for name, part in pod(source).items() if source.chance(60)}
    return spoil(source, _anchor_some(source, made), 3)


def _anchor_some(source: Source, node: Json, depth: int = 40) -> Json:
    if isinstance(node, dict) and depth:
        return {
            _anchor(source, name): _anchor_some(source, part, depth - 1)
            for name, part in node.items()
        }
    if isinstance(node, list) and depth:
        return [_anchor_some(source, part, depth - 1) for part in node[:2]]
    return _leaf(source) if source.chance(25) else node


def _anchor(source: Source, name: str) -> str:
    return source.pick(ANCHORS).format(name) if source.chance(12) else name


def condition(source: Source) -> Json:
    """One comparison."""
    made: dict[str, Json] = {
        "key": template(source) if source.chance(60) else value(source, 2),
        "operator": source.pick(OPERATORS) if source.chance(97) else text(source),
        "value": maybe_template(source) if source.chance(60) else value(source, 2),
    }
    if source.chance(15):
        made["message"] = maybe_template(source)
    return spoil(source, made, 1)


def conditions(source: Source) -> Json:
    """`any` and `all`, the older list, or a mess."""
    if source.chance(4):
        return value(source, 2)
    if source.chance(15):
        return source.several(condition, 3)
    return {part: source.several(condition, 2, 1) for part in source.subset(("any", "all"), 60)}


def overlay(source: Source) -> Json:
    """A strategic merge patch with anchors."""
    made = resource_pattern(source)
    if not isinstance(made, dict) and source.chance(95):
        made = {_anchored(source): made}
    if isinstance(made, dict) and source.chance(15):
        made["$patch"] = source.pick(("delete", "replace", "merge", text(source)))
    return made


_POINTERS = (
    "/metadata/labels/a", "/spec/containers/0/image", "/spec/containers/-", "/spec/containers/-1/name",
    "", "/", "/metadata", "/a/b/0", "/a/99999", "/spec/containers/5", "/a~1b/~0", "x", "/-", "/kind",
)  # fmt: skip


def _pointer(source: Source) -> str:
    if source.chance(1):
        return "/9999" * source.randrange(1, 3000)
    return source.pick(_POINTERS) if source.chance(90) else text(source)


def operation(source: Source) -> Json:
    """One operation of a JSON patch."""
    made: dict[str, Json] = {
        "op": source.pick(("add", "remove", "replace", "move", "copy", "test")),
        "path": _pointer(source),
    }
    if made["op"] in ("add", "replace", "test"):
        made["value"] = value(source, 2)
    if made["op"] in ("move", "copy"):
        made["from"] = _pointer(source)
    return spoil(source, made, 1)


def json_patch_text(source: Source) -> str:
    """A JSON patch as people write it: JSON, YAML, with variables."""
    operations = source.several(operation, 3, 1)
    try:
        made = json.dumps(operations, indent=source.pick((None, 1)))
    except (ValueError, RecursionError):
        return "- op: add"
    if source.chance(30):
        lines = [f"- op: {source.pick(('add', 'remove', 'replace'))}"]
        lines.append(f"  path: {source.pick(_POINTERS)!r}")
        lines.append(f"  value: {maybe_template(source, 60)!r}")
        made = "\n".join(lines)
    return made if source.chance(90) else made.replace("a", text(source), 1)


def assertion(source: Source, depth: int = 3) -> Json:
    """An assertion tree."""
    dice = source.random()
    if depth <= 0 or dice < 0.3:
        return f"({expression(source, 1)})" if source.chance(20) else scalar(source)
    if dice < 0.85:
        return {_clause(source): assertion(source, depth - 1) for _ in range(source.count(3))}
    return source.several(lambda s: assertion(s, depth - 1), 2)


def _clause(source: Source) -> str:
    forms = (
        source.pick(_KEYS),
        "object",
        f"({query(source)})",
        "~.(containers)",
        "~index.containers",
        "(containers)->c",
        "(@)->x",
        "($x)",
        "\\containers\\",
        "(join(', ', keys(@)))",
    )
    return source.pick(forms)
