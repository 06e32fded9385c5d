"""Lists small changes of a policy that a good test would notice."""

import re
from collections.abc import Callable, Iterator

import msgspec

from lictor.core.lang.yaml.build import build_yaml
from lictor.core.lang.yaml.plain_json import YamlFault
from lictor.core.model.finding import FieldPath
from lictor.core.raw import Json, JsonObject


class _Removed:
    """Marks a field or item that is removed."""


REMOVED = _Removed()


class PolicyChange(msgspec.Struct, frozen=True):
    """One change: its path, its description, and the new value."""

    path: FieldPath
    words: str
    value: Json | _Removed


PolicyChanges = Iterator[PolicyChange]
Changer = Callable[[Json, FieldPath], PolicyChanges]


def list_changes(body: JsonObject) -> PolicyChanges:
    """Return every change of a policy that could change a result."""
    spec = body.get("spec")
    if spec is not None:
        yield from _walk(spec, ("spec",))


def change_body(node: Json, path: FieldPath, value: Json | _Removed) -> Json:
    """Return a copy with one field changed or removed; the rest is shared."""
    if not path:
        return value
    step, rest = path[0], path[1:]
    copied = node.copy()
    if not rest and isinstance(value, _Removed):
        del copied[step]
    else:
        copied[step] = change_body(node[step], rest, value)
    return copied


def _walk(node: Json, path: FieldPath) -> PolicyChanges:
    if isinstance(node, dict):
        if "operator" in node and ("key" in node or "values" in node):
            yield from _change_condition(node, path)
        for key, value in node.items():
            yield from _CHANGERS.get(key, _walk)(value, (*path, key))
        if _is_filter(path) and len(node) > 1:
            yield from _widen_filter(node, path)
    elif isinstance(node, list):
        for index, item in enumerate(node):
            yield from _walk(item, (*path, index))


# Filters of a match block; without one, more resources match.
_WIDENING = frozenset(
    ("annotations", "names", "namespaces", "namespaceSelector", "operations", "selector")
)


def _widen_filter(node: JsonObject, path: FieldPath) -> PolicyChanges:
    for key in sorted(_WIDENING & node.keys()):
        # With both of these, only deletions would be new, and most rules see nothing in them.
        if key != "operations" or not {"CREATE", "UPDATE"} <= set(node[key]):
            yield PolicyChange((*path, key), f"{key} removed", REMOVED)


def _is_filter(path: FieldPath) -> bool:
    return path[-1] == "resources" and bool({"match", "exclude"} & set(path))


def _skip(node: Json, path: FieldPath) -> PolicyChanges:  # noqa: ARG001  (a Changer)
    return iter(())


def _change_items(node: Json, path: FieldPath) -> PolicyChanges:
    """Remove each name of a list; a single one becomes a name that nothing has."""
    if not isinstance(node, list) or not all(isinstance(item, str) for item in node):
        yield from _walk(node, path)
        return
    for index, item in enumerate(node):
        if len(node) > 1:
            yield PolicyChange((*path, index), f'"{item}" removed', REMOVED)
        else:
            other = _OTHER_NAMES.get(str(path[-1]), "no-such-name")
            yield PolicyChange((*path, index), f'"{item}" became "{other}"', other)


_OTHER_NAMES = {"kinds": "Lease", "resources": "leases", "operations": "CONNECT"}


def _change_parts(node: Json, path: FieldPath) -> PolicyChanges:
    """Remove each part of a list if there are several, and change each of them."""
    if isinstance(node, list) and len(node) > 1:
        for index in range(len(node)):
            yield PolicyChange((*path, index), "removed", REMOVED)
    yield from _walk(node, path)


def _remove_and_walk(node: Json, path: FieldPath) -> PolicyChanges:
    yield PolicyChange(path, f"{path[-1]} removed", REMOVED)
    yield from _walk(node, path)


_NEGATED = {
    "Equals": "NotEquals", "Equal": "NotEqual", "In": "NotIn", "AnyIn": "AnyNotIn",
    "AllIn": "AllNotIn", "GreaterThan": "LessThanOrEquals", "LessThan": "GreaterThanOrEquals",
    "DurationGreaterThan": "DurationLessThanOrEquals",
    "DurationLessThan": "DurationGreaterThanOrEquals", "Exists": "DoesNotExist",
}  # fmt: skip
_OPERATORS = _NEGATED | {other: name for name, other in _NEGATED.items()}
_AT_THE_EDGE = re.compile("^((?:Duration)?(?:Greater|Less)Than)(OrEquals)?$")


def _change_condition(node: JsonObject, path: FieldPath) -> PolicyChanges:
    operator = str(node["operator"])
    others = [_OPERATORS[operator]] if operator in _OPERATORS else []
    edge = _AT_THE_EDGE.match(operator)
    if edge:
        others.append(edge[1] if edge[2] else f"{edge[1]}OrEquals")
    for other in others:
        yield PolicyChange((*path, "operator"), f'"{operator}" became "{other}"', other)
    for name in ("value", "values"):
        if name in node:
            yield from _change_values(node[name], (*path, name))


def _change_values(node: Json, path: FieldPath) -> PolicyChanges:
    """Change each leaf of plain data."""
    if isinstance(node, dict):
        for key, value in node.items():
            yield from _change_values(value, (*path, key))
    elif isinstance(node, list):
        for index, item in enumerate(node):
            yield from _change_values(item, (*path, index))
    elif node is not None:
        other = _change_leaf(node)
        yield PolicyChange(path, f"{_show(node)} became {_show(other)}", other)


def _change_leaf(node: Json) -> Json:
    if isinstance(node, bool):
        return not node
    if isinstance(node, int | float):
        return node + 1
    return {"true": "false", "false": "true"}.get(node, f"{node}-changed")


def _show(value: Json) -> str:
    return msgspec.json.encode(value).decode()


_ANCHOR = re.compile(r"([=+^])\((.+)\)")


def _change_pattern(node: Json, path: FieldPath) -> PolicyChanges:
    """Change or remove each value of a pattern, and each anchor that weakens it."""
    return _walk_pattern(node, path, _change_checked)


def _change_patch(node: Json, path: FieldPath) -> PolicyChanges:
    return _walk_pattern(node, path, _change_values)


def _walk_pattern(node: Json, path: FieldPath, change_leaf: Changer) -> PolicyChanges:
    if isinstance(node, list):
        for index, item in enumerate(node):
            yield from _walk_pattern(item, (*path, index), change_leaf)
    elif not isinstance(node, dict):
        yield from change_leaf(node, path)
    else:
        for key, value in node.items():
            yield from _change_anchor(node, key, path)
            # Items of a list always have a name: this anchor only means "each of them".
            if not isinstance(value, dict | list) and (key, value) != ("(name)", "*"):
                yield PolicyChange((*path, key), f"{key} removed", REMOVED)
            yield from _walk_pattern(value, (*path, key), change_leaf)


def _change_anchor(node: JsonObject, key: str, path: FieldPath) -> PolicyChanges:
    anchor = _ANCHOR.fullmatch(key)
    if anchor and anchor[2] not in node:
        plain = {anchor[2] if name == key else name: value for name, value in node.items()}
        yield PolicyChange(path, f"{key} became {anchor[2]}", plain)


def _change_checked(node: Json, path: FieldPath) -> PolicyChanges:
    if isinstance(node, str):
        for other in change_pattern_text(node):
            yield PolicyChange(path, f"{_show(node)} became {_show(other)}", other)
    else:
        yield from _change_values(node, path)


def _change_any_pattern(node: Json, path: FieldPath) -> PolicyChanges:
    if isinstance(node, list) and len(node) > 1:
        for index in range(len(node)):
            yield PolicyChange((*path, index), "removed", REMOVED)
    yield from _change_pattern(node, path)


def _change_json_patch(node: Json, path: FieldPath) -> PolicyChanges:
    """Remove each operation of a JSON patch, and change each value."""
    operations = _read_patch(node)
    for index, operation in enumerate(operations):
        words = f"operation {index + 1} ({operation.get('op')} {operation.get('path')})"
        rest = [*operations[:index], *operations[index + 1 :]]
        yield PolicyChange(path, f"{words} removed", _show(rest))
        for change in _change_values(operation.get("value"), (index, "value")):
            changed = change_body(operations, change.path, change.value)
            yield PolicyChange(path, f"{words}: {change.words}", _show(changed))


def _read_patch(node: Json) -> list[JsonObject]:
    try:
        built = build_yaml(str(node))
    except YamlFault:
        return []
    read = None if built is None else built.body
    return read if isinstance(read, list) and all(isinstance(each, dict) for each in read) else []


def _change_generated(node: Json, path: FieldPath) -> PolicyChanges:
    if isinstance(node, dict):
        for key in ("name", "namespace", "data"):
            yield from _change_values(node.get(key), (*path, key))
        named = {key: value for key, value in node.items() if key not in ("name", "namespace")}
        yield from _walk({key: value for key, value in named.items() if key != "data"}, path)


def _change_cel(node: Json, path: FieldPath) -> PolicyChanges:
    if isinstance(node, str):
        for words, changed in change_expression(node):
            yield PolicyChange(path, words, changed)


def _choose(**others: str) -> Changer:
    """Return a changer for a field with few possible values."""

    def change(node: Json, path: FieldPath) -> PolicyChanges:
        if isinstance(node, list):
            for index, item in enumerate(node):
                yield from change(item, (*path, index))
        elif (other := others.get(str(node).capitalize())) is not None:
            yield PolicyChange(path, f'"{node}" became "{other}"', other)

    return change


def _change_loop(node: Json, path: FieldPath) -> PolicyChanges:
    if isinstance(node, str):
        yield PolicyChange(path, "the list became empty", "`[]`")


# By the name of the field, in any kind of policy; other fields are only searched.
_CHANGERS: dict[str, Changer] = {
    "all": _change_parts,
    "annotations": _change_values,
    "any": _change_parts,
    "anyPattern": _change_any_pattern,
    "auditAnnotations": _skip,
    "clone": _change_values,
    "clusterRoles": _change_items,
    "exclude": _remove_and_walk,
    "excludeResourceRules": _remove_and_walk,
    "expression": _change_cel,
    "failureAction": _choose(Enforce="Audit", Audit="Enforce"),
    "foreach": _change_parts,
    "generate": _change_generated,
    "imageReferences": _change_items,
    "kinds": _change_items,
    "level": _choose(Restricted="baseline", Baseline="privileged"),
    "list": _change_loop,
    "matchConditions": _change_parts,
    "matchLabels": _change_values,
    "message": _skip,
    "names": _change_items,
    "namespaces": _change_items,
    "operations": _change_items,
    "patchStrategicMerge": _change_patch,
    "patchesJson6902": _change_json_patch,
    "pattern": _change_pattern,
    "resources": _change_items,
    "roles": _change_items,
    "settings": _change_values,
    "subjects": _change_parts,
    "validationActions": _choose(Deny="Audit", Audit="Deny"),
    "validationFailureAction": _choose(Enforce="Audit", Audit="Enforce"),
    "validations": _change_parts,
    "webhookConfiguration": _skip,
}


# --- expressions, and texts of patterns

# A CEL token that a change can be made to; texts come first, so that nothing inside them counts.
# re: linear - a text that is not closed goes on to the end
_CEL_TOKEN = re.compile(
    r"""(?P<text>[rRbB]{0,2}(?:'''.*?'''|\"\"\".*?\"\"\"|'(?:\\.|[^'\\])*'|"(?:\\.|[^"\\])*"))"""
    r"|(?P<open>['\"].*)"
    r"|(?P<comment>//[^\n]*)"
    r"|(?P<operator>==|!=|<=|>=|&&|\|\||<|>|!has\(|\bhas\(|!|\.all\(|\.exists\()"
    r"|(?P<word>\b(?:true|false)\b)"
    r"|(?P<number>(?<![\w.])\d+(?![\w.]))",
    re.DOTALL,
)
_OPPOSITES = {
    "==": ("!=",), "!=": ("==",), "<": ("<=", ">="), "<=": ("<", ">"), ">": (">=", "<="),
    ">=": (">", "<"), "&&": ("||",), "||": ("&&",), "!has(": ("has(",), "has(": ("!has(",),
    "!": ("",), ".all(": (".exists(",), ".exists(": (".all(",), "true": ("false",),
    "false": ("true",),
}  # fmt: skip
_COMPARISONS = {">=": ">", "<=": "<", ">": ">=", "<": "<=", "!": ""}
# re: linear - the last part takes all that is left
_COMPARED = re.compile(r"\s*(>=|<=|>|<|!)\s*(.+)", re.DOTALL)
_FLIPPED = {"true": "false", "false": "true", "?*": "*"}


def change_expression(expression: str) -> Iterator[tuple[str, str]]:
    """Return each change of one token of a CEL expression, with its description."""
    for found in _CEL_TOKEN.finditer(expression):
        token = found.group()
        for other in _change_token(found):
            changed = expression[: found.start()] + other + expression[found.end() :]
            shown = f'"{other}"' if other else "nothing"
            yield f'"{token}" became {shown}', changed


def _change_token(found: re.Match[str]) -> tuple[str, ...]:
    token = found.group()
    match found.lastgroup:
        case "number":
            return (str(int(token) + 1),)
        case "text":
            quotes = 3 if token.endswith(("'''", '"""')) else 1
            return (f"{token[:-quotes]}~{token[-quotes:]}",)
        case "comment" | "open":
            return ()
        case _:
            return _OPPOSITES[token]


def change_pattern_text(value: str) -> Iterator[str]:
    """Return each change of a pattern string: alternatives, comparisons."""
    for mark in ("|", "&"):
        parts = value.split(mark)
        if len(parts) > 1 and "{{" not in value:
            for index in range(len(parts)):
                yield mark.join(parts[:index] + parts[index + 1 :]).strip()
            return
    compared = _COMPARED.fullmatch(value)
    if compared:
        yield f"{_COMPARISONS[compared[1]]}{compared[2]}"
    elif value in _FLIPPED:
        yield _FLIPPED[value]
    elif value != "*":
        yield f"!{value}"
