"""Patches as CEL: as a part of an object that is merged, or as operations of a JSON patch."""

import msgspec

from lictor.addons.convert.cel_tests import TRUE, negate, render
from lictor.addons.convert.cel_values import CelValue
from lictor.addons.convert.overlay import (
    Node,
    PatchField,
    PatchFields,
    PatchItems,
    PatchLeaf,
    descend,
)
from lictor.addons.convert.query import translate_text, write_text
from lictor.addons.convert.value import Constant, Either, ExpressionScope, as_cel_value, settle
from lictor.addons.convert.writing import is_name, literal, quote, wrap
from lictor.core.errors import CompileError
from lictor.core.facts.merge_keys import MergedList, MergeShape
from lictor.core.lang.template import has_variables
from lictor.core.raw import Json


def write_json(value: Json, scope: ExpressionScope) -> str:
    """The expression that makes a document.

    CEL requires the values of a map, and the elements of a list, to be of one type, unless each is
    marked with `dyn`.
    """
    if isinstance(value, dict):
        return _write_map(value, scope)
    if isinstance(value, list):
        texts = [write_json(item, scope) for item in value]
        alike = {type(item) for item in value} <= {str} or len(value) == 1
        return f"[{', '.join(texts if alike else map(_any, texts))}]"
    return write_leaf(value, scope)


def _write_map(value: dict[str, Json], scope: ExpressionScope) -> str:
    if any(has_variables(str(key)) for key in value):
        raise CompileError("a key with variables")
    texts = {key: write_json(item, scope) for key, item in value.items()}
    alike = all(isinstance(item, str) for item in value.values())
    pairs = [f"{quote(k)}: {text if alike else _any(text)}" for k, text in texts.items()]
    return f"{{{', '.join(pairs)}}}"


def _any(text: str) -> str:
    return f"dyn({text})"


def write_leaf(value: Json, scope: ExpressionScope) -> str:
    """A scalar, whose text may hold variables."""
    if not isinstance(value, str):
        return literal(value)
    found = settle(translate_text(value, scope))
    if isinstance(found, Constant):
        return literal(found.value)
    if isinstance(found, Either):
        return write_text(found)
    return as_cel_value(found).text


# The merge table's entry for a field: how a map's fields or a list's elements are merged.
Merging = MergeShape | MergedList | None


# --- merged as a whole


def can_merge(node: PatchFields, target: CelValue) -> bool:
    """Whether a merge of maps is exact: it would not keep the order of lists."""
    for form in target.shape.forms:
        if form.map is not None and form.map.is_atomic:
            return False
    return all(_can_merge_field(field, target) for field in node.fields)


def _can_merge_field(field: PatchField, target: CelValue) -> bool:
    node = field.node
    if isinstance(node, PatchLeaf):
        return node.value is not None
    return isinstance(node, PatchFields) and can_merge(node, descend(target, field.key))


def write_merge(node: PatchFields, target: CelValue, path: str, scope: ExpressionScope) -> str:
    """The part of the object as it shall be."""
    typed = all(is_name(field.key) for field in node.fields)
    pairs = []
    for field in node.fields:
        inner = f"{path}.{field.key}"
        value = _write_field(field, descend(target, field.key), inner, scope)
        key = field.key if typed else quote(field.key)
        pairs.append(f"{key}: {value}")
    return f"{path if typed else ''}{{{', '.join(pairs)}}}"


def _write_field(field: PatchField, target: CelValue, path: str, scope: ExpressionScope) -> str:
    node = field.node
    if isinstance(node, PatchFields):
        made = write_merge(node, target, path, scope)
    elif isinstance(node, PatchLeaf):
        made = _write_value(node.value, target, scope)
    else:
        raise CompileError("a list in a merge")
    if not field.addition:
        return made
    return f"{wrap(target.chain or target.text)}.orValue({made})"


def _write_value(value: Json, target: CelValue, scope: ExpressionScope) -> str:
    text = write_leaf(value, scope)
    if target.type == "string" and not isinstance(value, str):
        return f"string({text})"
    return text


# --- operation by operation


class PatchOperation(msgspec.Struct, frozen=True):
    """One operation of a JSON patch, and when it is made."""

    text: str
    when: tuple[str, ...] = ()
    # What stands for the elements of a list, one operation for each: a name, and the list.
    loop: tuple[str, str] | None = None

    def only(self, condition: str) -> "PatchOperation":
        """The same, where this holds as well."""
        if not condition:
            return self
        return msgspec.structs.replace(self, when=(condition, *self.when))

    def render(self) -> str:
        """The list that the operation is, or is not, in."""
        condition = " && ".join(self.when)
        if self.loop is None:
            return f"({condition} ? [{self.text}] : [])" if condition else f"[{self.text}]"
        name, source = self.loop
        numbers = f"lists.range({source}.size())"
        inner = [each for each in self.when if f"[{name}]" in each]
        outer = " && ".join(each for each in self.when if f"[{name}]" not in each)
        if inner:
            numbers += f".filter({name}, {' && '.join(inner)})"
        made = f"{numbers}.map({name}, {self.text})"
        return f"({outer} ? {made} : [])" if outer else made


def render_operations(operations: list[PatchOperation]) -> str:
    """All operations in one list."""
    return " + ".join(operation.render() for operation in operations)


class PatchWriter(msgspec.Struct, frozen=True):
    """Writes the operations that a merge comes down to."""

    scope: ExpressionScope

    def fields(
        self, node: PatchFields, target: CelValue, path: str, merging: Merging
    ) -> list[PatchOperation]:
        """The operations for the fields of a map that is there."""
        return [
            operation
            for field in node.fields
            for operation in self._field(field, target, path, merging)
        ]

    def _field(
        self, field: PatchField, target: CelValue, path: str, merging: Merging
    ) -> list[PatchOperation]:
        child = descend(CelValue(target.text, target.shape), field.key)
        at = join_path(path, quote(f"/{escape(field.key)}"))
        there, missing = _presence(child)
        inside = CelValue(child.text, child.shape, label=field.key)
        inner = merging.get(field.key) if isinstance(merging, dict) else None
        node = field.node
        if field.addition:
            return [self._add(at, node).only(missing)]
        if isinstance(node, PatchLeaf):
            if node.value is None:
                return [PatchOperation(f'JSONPatch{{op: "remove", path: {at}}}').only(there)]
            return [self._add(at, node)]
        if isinstance(node, PatchFields):
            nested = [each.only(there) for each in self.fields(node, inside, at, inner)]
            made = build(node)
            if not made or not missing:
                return nested
            return [*nested, self._add(at, PatchLeaf(made)).only(missing)]
        return self._items(node, inside, (at, there, missing), inner)

    def _add(self, path: str, node: Node) -> PatchOperation:
        value = write_json(build(node), self.scope)
        return PatchOperation(f'JSONPatch{{op: "add", path: {path}, value: {value}}}')

    # --- lists

    def _items(
        self, node: PatchItems, target: CelValue, where: tuple[str, str, str], merging: Merging
    ) -> list[PatchOperation]:
        path, there, missing = where
        if node.each is not None:
            return [each.only(there) for each in self._each(node.each, target, path, merging)]
        if not isinstance(merging, MergedList):
            return [self._add(path, PatchLeaf(list(node.constants)))]
        if len(merging.keys) != 1 or len(node.constants) != 1:
            raise CompileError("a list that is merged by several keys, or with several elements")
        element, key = node.constants[0], merging.keys[0]
        name = element.get(key) if isinstance(element, dict) else None
        if not isinstance(name, str):
            raise CompileError("an element of a merged list without its name")
        changed = self._merge_one(element, key, target, path, merging.element)
        added = self._add(path, PatchLeaf([element])).only(missing)
        return [*(each.only(there) for each in changed), added]

    def _merge_one(
        self, element: dict[str, Json], key: str, target: CelValue, path: str, shape: MergeShape
    ) -> list[PatchOperation]:
        """What the patch names comes first, whether it was there or not."""
        name = write_leaf(element[key], self.scope)
        same = f"item.{key} == {name}"
        found = f"{target.text}.exists(item, {same})"
        index = f'{target.text}.map(item, item.?{key}.orValue("")).indexOf({name})'
        at = join_path(path, f'"/" + string({index})')
        first = join_path(path, quote("/0"))
        current = CelValue(f"{target.text}.filter(item, {same})[0]", target.shape.element)
        node = to_node({k: v for k, v in element.items() if k != key})
        merged = self.fields(node, current, at, shape) if isinstance(node, PatchFields) else []
        move = PatchOperation(f'JSONPatch{{op: "move", from: {at}, path: {first}}}')
        added = self._add(first, PatchLeaf(element)).only(f"!{found}")
        return [*(each.only(found) for each in (*merged, move)), added]

    def _each(
        self, node: PatchFields, target: CelValue, path: str, merging: Merging
    ) -> list[PatchOperation]:
        shape = merging.element if isinstance(merging, MergedList) else None
        at = join_path(path, '"/" + string(index)')
        element = CelValue(f"{target.text}[index]", target.shape.element)
        changes = self.fields(node, element, at, shape)
        if any(change.loop is not None for change in changes):
            raise CompileError("patches for the elements of lists within lists")
        return [msgspec.structs.replace(each, loop=("index", target.text)) for each in changes]


def _presence(target: CelValue) -> tuple[str, str]:
    """Whether a value is there, and whether it is not; empty where that is certain."""
    if target.present == TRUE:
        return "", ""
    return render(target.present), render(negate(target.present))


def build(node: Node) -> Json:
    """What a patch makes where nothing is yet."""
    if isinstance(node, PatchLeaf):
        return node.value
    if isinstance(node, PatchItems):
        return None if node.each is not None else list(node.constants)
    made = {field.key: build(field.node) for field in node.fields}
    return {key: value for key, value in made.items() if value is not None} or None


def to_node(value: Json) -> Node:
    """A value without anchors as a patch."""
    if isinstance(value, dict):
        return PatchFields(tuple(PatchField(key, to_node(item)) for key, item in value.items()))
    return PatchItems(tuple(value)) if isinstance(value, list) else PatchLeaf(value)


def join_path(path: str, more: str) -> str:
    """One path behind another; both are expressions."""
    if path.endswith('"') and more.startswith('"') and not path.endswith('\\"'):
        return f"{path[:-1]}{more[1:]}"
    return f"{path} + {more}" if path != '""' else more


def escape(step: str) -> str:
    """A key as a step of a JSON pointer."""
    return step.replace("~", "~0").replace("/", "~1")


# --- JSON patches as they are written


def write_operation(operation: Json, root: CelValue, scope: ExpressionScope) -> str:
    """One operation of `patchesJson6902`, as lenient as Kyverno is about it."""
    if not isinstance(operation, dict) or not isinstance(operation.get("path"), str):
        raise CompileError("an operation without a path")
    path = operation["path"]
    steps = [step.replace("~1", "/").replace("~0", "~") for step in path.split("/")[1:]]
    if not steps or any(step.lstrip("-").isdigit() or "{{" in step for step in steps):
        raise CompileError(f"the path {path!r} counts elements of a list, or is filled in")
    match operation.get("op"):
        case "add":
            return _add_steps(steps, root, '""', operation.get("value"), scope)
        case "remove":
            return _remove_steps(steps, root)
        case "replace":
            value = write_json(operation.get("value"), scope)
            # What is not there can be neither replaced nor removed; in these words it is an error.
            at = quote(path)
            removed = f'JSONPatch{{op: "remove", path: {at}}}'
            return f'[{removed}, JSONPatch{{op: "add", path: {at}, value: {value}}}]'
    raise CompileError(f"the operation {operation.get('op')} has no equivalent")


def _add_steps(
    steps: list[str], target: CelValue, path: str, value: Json, scope: ExpressionScope
) -> str:
    step, *rest = steps
    at = join_path(path, quote(f"/{escape(step)}"))
    if not rest:
        return f'[JSONPatch{{op: "add", path: {at}, value: {write_json(value, scope)}}}]'
    child = descend(target, step)
    present = all_present(child)
    deeper = _add_steps(rest, CelValue(child.text, child.shape), at, value, scope)
    made = write_json(_nest(rest, value), scope)
    otherwise = f'[JSONPatch{{op: "add", path: {at}, value: {made}}}]'
    return deeper if present == "true" else f"({present} ? {deeper} : {otherwise})"


def all_present(target: CelValue) -> str:
    """Whether a value is there, as an expression."""
    return render(target.present) if target.present != TRUE else "true"


def _nest(steps: list[str], value: Json) -> Json:
    for step in reversed(steps):
        value = [value] if step == "-" else {step: value}
    return value


def _remove_steps(steps: list[str], root: CelValue) -> str:
    target = root
    for step in steps:
        target = descend(target, step)
    path = quote("".join(f"/{escape(step)}" for step in steps))
    return f'({all_present(target)} ? [JSONPatch{{op: "remove", path: {path}}}] : [])'
