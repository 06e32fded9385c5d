"""Do rules fit the schemas of their kinds: values, JMESPath paths, pointers of JSON patches?"""

import re
from collections.abc import Iterable, Iterator
from itertools import product

import msgspec

from lictor.errors import CompileError, SyntaxFaultError
from lictor.kubernetes.field_types import ANYTHING, FieldType
from lictor.kubernetes.resource_names import builtin_names
from lictor.lang.jmespath.parser import parse
from lictor.lang.jmespath.syntax import Node, NodeKind
from lictor.lang.patch import parse_json_patch
from lictor.lint.catalog import flag
from lictor.lint.expressions import KnownVariables, list_expressions, list_rule_fields
from lictor.lint.field import Field
from lictor.lint.rules import check_object_name
from lictor.lint.schema_kinds import NOTHING_KNOWN, FieldTypes, KnownSchemas, RuleSubject, is_known
from lictor.lint.schema_names import check_target_kind
from lictor.lint.schema_values import (
    ValueUse,
    check_amounts,
    check_value,
    describe_types,
    find_field,
    tell_unknown,
)
from lictor.model.finding import FieldPath, Finding, TextOffset
from lictor.raw import Json

_BODIES = ("validate", "mutate", "generate")


class LoopScope(msgspec.Struct, frozen=True):
    """A foreach: what `element` is within it, and what an expression there may ask for."""

    loop: Field
    elements: FieldTypes
    roots: FieldTypes

    def holds(self, path: FieldPath) -> bool:
        """Is the path within the loop? Its list is still asked from outside."""
        inside = path[: len(self.loop.path)] == self.loop.path
        return inside and path != (*self.loop.path, "list")


def list_loop_scopes(rule: Field, subject: RuleSubject) -> list[LoopScope]:
    """Every foreach of a rule, outer ones first."""
    roots = _make_roots(subject.types, NOTHING_KNOWN)
    loops = [loop for body in _BODIES for loop in rule[body]["foreach"].each()]
    return [scope for loop in loops for scope in _open_loop(loop, roots, subject)]


def _open_loop(loop: Field, roots: FieldTypes, subject: RuleSubject) -> Iterator[LoopScope]:
    elements = _list_elements(infer_types(loop["list"].text, roots)) or NOTHING_KNOWN
    scope = LoopScope(loop, elements, _make_roots(subject.types, elements))
    yield scope
    for inner in loop["foreach"].each():
        yield from _open_loop(inner, scope.roots, subject)


def infer_types(text: str, roots: FieldTypes) -> FieldTypes:
    """What an expression answers, asked of these roots; empty where nobody knows."""
    try:
        return _Trace().infer(parse(text), roots) if text and "{{" not in text else ()
    except SyntaxFaultError:
        return ()


def _make_roots(objects: FieldTypes, elements: FieldTypes) -> FieldTypes:
    """What the variables of a rule look like, once for each kind."""
    return tuple(_make_root(each, element) for each, element in product(objects, elements))


def _make_root(each: FieldType, element: FieldType) -> FieldType:
    request, root = FieldType(), FieldType()
    request.fields, request.others = {"object": each, "oldObject": each}, ANYTHING
    root.fields, root.others = {"request": request, "element": element}, ANYTHING
    return root


def find_roots(path: FieldPath, subject: RuleSubject, scopes: Iterable[LoopScope]) -> FieldTypes:
    """What the variables look like that an expression at a path may ask for."""
    inner = [scope.roots for scope in scopes if scope.holds(path)]
    return inner[-1] if inner else _make_roots(subject.types, NOTHING_KNOWN)


def check_paths(
    rule: Field, subject: RuleSubject, scopes: Iterable[LoopScope]
) -> Iterator[Finding]:
    """Expressions that ask for fields which the objects do not have."""
    for field in list_rule_fields(rule, KnownVariables()):
        # Where any name may be known, the root is something else: an answer, an attestation.
        if field.variables.names is None:
            continue
        roots = find_roots(field.part.path, subject, scopes)
        for text, offset in list_expressions(field.part, is_query=field.is_query):
            trace = _Trace(field.part, offset, subject.label)
            try:
                trace.infer(parse(text), roots)
            except SyntaxFaultError:
                continue  # That it does not parse is told where expressions are checked.
            yield from trace.findings


def _list_elements(types: FieldTypes) -> FieldTypes:
    return tuple(each.element for each in types if each.element is not None)


def _list_of(types: FieldTypes) -> FieldTypes:
    return tuple(_make_list(each) for each in types)


def _make_list(each: FieldType) -> FieldType:
    place = FieldType()
    place.element = each
    return place


_PATH = re.compile(r"[\w.\[\]]*$")
_LAST_NAME = re.compile(r"(\w+)\.$")
_STEPS = (NodeKind.SUBEXPRESSION, NodeKind.PIPE)
_SAME = (NodeKind.CURRENT, NodeKind.IDENTITY)


class _Trace(msgspec.Struct):
    """One walk through one expression; no types at all mean that nothing is known."""

    part: Field = Field(None)
    offset: int = 0
    label: str = ""
    findings: list[Finding] = []

    def infer(self, node: Node, types: FieldTypes) -> FieldTypes:
        """What the expression answers, asked of a value of these types."""
        match node.kind:
            case NodeKind.FIELD:
                return self._field(node, types)
            case kind if kind in _STEPS:
                return self.infer(node.children[1], self.infer(node.children[0], types))
            case kind if kind in _SAME:
                return types
            case NodeKind.INDEX_EXPRESSION | NodeKind.FLATTEN:
                return self._unwrap(node, types)
            case NodeKind.PROJECTION | NodeKind.FILTER_PROJECTION | NodeKind.VALUE_PROJECTION:
                return self._project(node, types)
            case NodeKind.OR | NodeKind.MULTI_SELECT_LIST:
                return self._unite(node, types)
            case NodeKind.EXPRESSION_REFERENCE:
                return ()
        for child in node.children:
            self.infer(child, types)
        return ()

    def _unwrap(self, node: Node, types: FieldTypes) -> FieldTypes:
        left = self.infer(node.children[0], types)
        if node.kind is NodeKind.FLATTEN:
            return _flatten(left)
        return _list_elements(left) if node.children[1].kind is NodeKind.INDEX else left

    def _project(self, node: Node, types: FieldTypes) -> FieldTypes:
        left = self.infer(node.children[0], types)
        is_object = node.kind is NodeKind.VALUE_PROJECTION
        elements = _list_values(left) if is_object else _list_elements(left)
        if node.kind is NodeKind.FILTER_PROJECTION:
            self.infer(node.children[2], elements)
        return _list_of(self.infer(node.children[1], elements))

    def _unite(self, node: Node, types: FieldTypes) -> FieldTypes:
        parts = [self.infer(child, types) for child in node.children]
        united = tuple(each for part in parts for each in part) if all(parts) else ()
        return _list_of(united) if node.kind is NodeKind.MULTI_SELECT_LIST else united

    def _list_names(self, node: Node) -> tuple[str, ...]:
        """The path before a field, as it is written."""
        before = _PATH.search(self.part.text[: self.offset + node.position])
        text = before[0].rstrip(".") if before else ""
        for root in ("request.object", "request.oldObject"):
            text = text.removeprefix(root).removeprefix(".")
        # Of a list of several paths, only the end would be told.
        return (text,) if text and not text.startswith("]") and "][" not in text else ()

    def _field(self, node: Node, types: FieldTypes) -> FieldTypes:
        if not is_known(types):
            return ()
        name = str(node.value)
        found = find_field(types, name)
        if found:
            return found
        maps = tuple(each for each in types if each.fields or each.others is not None)
        offset = TextOffset(self.part.text, self.offset + node.position)
        if maps:
            finding = tell_unknown(self.part, name, maps, self.label, self._list_names(node))
            self.findings.append(msgspec.structs.replace(finding, offset=offset))
        else:
            kind = describe_types(types)
            message = f'"{name}" is asked of {kind}, which has no fields: the answer is always null'
            before = _LAST_NAME.search(offset.text[: offset.offset])
            meant = f"{before[1]}[].{name}" if kind == "a list" and before else ""
            self.findings.append(flag("wrong-type", self.part.path, message, meant, offset))
        return ()


def _flatten(types: FieldTypes) -> FieldTypes:
    """Lists within lists become one; a list of other things stays."""
    if not all(each.element is not None for each in types):
        return ()
    inner = _list_elements(types)
    if not is_known(inner):
        return ()
    lists = tuple(each for each in inner if each.element is not None)
    return lists if len(lists) == len(inner) else () if lists else types


def _list_values(types: FieldTypes) -> FieldTypes:
    values = [value for each in types for value in each.fields.values()]
    return tuple([*values, *(each.others for each in types if each.others is not None)])


# --- JSON patches


def check_pointers(patch: Field, subject: RuleSubject) -> Iterator[Finding]:
    """Operations of a JSON patch on fields that the objects do not have."""
    try:
        operations = parse_json_patch(patch.text) if patch.text else ()
    except CompileError:
        return  # Told where patches are checked, or made of variables.
    for operation in operations:
        pointer = operation.get("path") if isinstance(operation, dict) else None
        if isinstance(pointer, str) and pointer.startswith("/"):
            offset = TextOffset(patch.text, max(patch.text.find(pointer), 0))
            for finding in _check_operation(patch, operation, subject):
                yield msgspec.structs.replace(finding, path=patch.path, offset=offset)


def _check_operation(
    patch: Field, operation: dict[str, object], subject: RuleSubject
) -> Iterator[Finding]:
    types, names = subject.types, list[str]()
    for token in str(operation["path"])[1:].split("/"):
        name = token.replace("~1", "/").replace("~0", "~")
        maps = tuple(each for each in types if each.fields or each.others is not None)
        if not is_known(types) or "{{" in name:
            return
        elements = _list_elements(types)
        if elements and not maps:
            types = elements
            continue
        types = find_field(maps, name)
        if not types:
            yield tell_unknown(patch, name, maps or (ANYTHING,), subject.label, tuple(names))
            return
        names.append(name)
    if operation.get("op") in ("add", "replace"):
        label = f"{'.'.join(names)} of {subject.label}"
        value = Field(operation.get("value"), patch.path)
        yield from check_value(value, RuleSubject(label, types), ValueUse.OBJECT)


# --- whole rules


def check_rule_schemas(body: Json, schemas: KnownSchemas) -> Iterator[Finding]:
    """What the objects of a classic policy's rules cannot be."""
    for rule in Field(body)["spec"]["rules"].each():
        subject = schemas.of_match(rule)
        scopes = list_loop_scopes(rule, subject)
        yield from _check_patterns(rule["validate"], subject)
        for scope in scopes:
            element = RuleSubject(f"element of {subject.label}", scope.elements)
            yield from _check_patterns(scope.loop, element)
        yield from check_paths(rule, subject, scopes)
        yield from _check_patches(rule["mutate"], subject, schemas)
        yield from _check_generated(rule["generate"], schemas)


def _check_patterns(body: Field, subject: RuleSubject) -> Iterator[Finding]:
    for pattern in (body["pattern"], *body["anyPattern"].each()):
        found = list(check_value(pattern, subject, ValueUse.PATTERN))
        yield from found
        told = {finding.path for finding in found}
        yield from (each for each in check_amounts(pattern) if each.path not in told)


def _check_patches(mutate: Field, subject: RuleSubject, schemas: KnownSchemas) -> Iterator[Finding]:
    targets = list(mutate["targets"].each())
    for target in targets:
        yield from check_target_kind(target, schemas)
    if targets:
        subject = read_target_subject(targets, schemas)
    for body in (mutate, *list_loops(mutate["foreach"])):
        yield from check_value(body["patchStrategicMerge"], subject, ValueUse.PATCH)
        yield from check_pointers(body["patchesJson6902"], subject)


def read_target_subject(targets: list[Field], schemas: KnownSchemas) -> RuleSubject:
    """What targets with apiVersion and kind are, of mutations and of generate rules."""
    kinds = dict.fromkeys((each["apiVersion"].text, each["kind"].text) for each in targets)
    types = tuple(schemas.of_kind(*kind) for kind in kinds)
    return RuleSubject(" or ".join(dict.fromkeys(kind for _, kind in kinds)), types)


def list_loops(loops: Field) -> Iterator[Field]:
    """Every foreach, those within others too."""
    for loop in loops.each():
        yield loop
        yield from list_loops(loop["foreach"])


def _check_generated(generate: Field, schemas: KnownSchemas) -> Iterator[Finding]:
    for body in (generate, *list_loops(generate["foreach"])):
        subject = read_target_subject([body], schemas)
        yield from check_target_kind(body, schemas)
        yield from _check_object_name(body)
        yield from check_value(body["data"], subject, ValueUse.OBJECT)


# Their names are segments of paths: nearly anything goes.
_FREE_NAMES = "rbac.authorization.k8s.io"


def _check_object_name(target: Field) -> Iterator[Finding]:
    """A name that every API server refuses."""
    group = target["apiVersion"].text.rpartition("/")[0]
    if not builtin_names().knows_group(group) or group == _FREE_NAMES:
        return
    for part in (target["name"], target["namespace"]):
        yield from check_object_name(part)
