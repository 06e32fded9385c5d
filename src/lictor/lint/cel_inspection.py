"""What is doubtful in an expression that compiles: fields and types that no object has."""

from collections.abc import Iterator, Mapping
from functools import cache
from typing import Protocol

import msgspec

from lictor.core.facts.schemas import DEDUCED, Form, ListForm, MapForm, find_form
from lictor.core.lang.cel.advice import find_name
from lictor.core.lang.cel.expression import NO_VARIABLES, Variables, check_tree
from lictor.core.lang.cel.program import Environment
from lictor.core.lang.cel.syntax import (
    Call,
    CelNode,
    Entry,
    Fold,
    Ident,
    ListNode,
    Literal,
    MapNode,
    Select,
    StructNode,
    list_children,
)
from lictor.core.lang.cel.values import UInt

TYPE_WORDS = {"string": "text", "number": "a number", "boolean": "true or false"}
_CONSTANT_TYPES: dict[type, str] = {
    str: "string", bool: "boolean", int: "number", UInt: "number", float: "number",
}  # fmt: skip


class FormSource(Protocol):
    """Knows what objects look like, by kind and by resource; None for unknown ones."""

    def find_form(self, api_version: str, kind: str) -> Form | None: ...

    def find_resource_form(self, api_version: str, resource: str) -> Form | None: ...


class LiteralIssue(msgspec.Struct, frozen=True):
    """What does not fit, and which part of the expression it is."""

    node: CelNode
    message: str
    # Of a field that is not there: its name, and those that are.
    name: str = ""
    known: tuple[str, ...] = ()


def check_literal(node: CelNode, form: Form | None) -> Iterator[LiteralIssue]:
    """What does not fit in a value that is written at a place of this form."""
    if form is None:
        return
    match node:
        case MapNode() | StructNode() if form.map is not None:
            yield from _check_entries(node.entries, form.map)
        case ListNode() if form.list is not None:
            for part in node.elements:
                yield from check_literal(part, form.list.element)
        case Literal():
            yield from _check_constant(node, form)
        case Call(function="dyn" | "optional.of"):
            yield from check_literal(node.args[0], form)
        case Call(function="_?_:_" | "_+_"):
            for part in node.args[-2:]:
                yield from check_literal(part, form)
        case Fold(macro="map" | "filter") if form.list is not None and node.body[1] is not None:
            yield from check_literal(node.body[1], form.list.element)


def _check_entries(entries: list[Entry], form: MapForm) -> Iterator[LiteralIssue]:
    for entry in entries:
        name = _read_name(entry)
        if name is None:
            continue
        found = form.fields.get(name, form.others)
        if found is None:
            at = entry if entry.key is None else entry.key
            yield LiteralIssue(at, f"undefined field '{name}'", name, tuple(form.fields))
        yield from check_literal(entry.value, found)


def _check_constant(node: Literal, form: Form) -> Iterator[LiteralIssue]:
    word = form.scalar if form.list is None and form.map is None else ""
    found = name_constant(node)
    if word in TYPE_WORDS and found and found != word:
        message = f"is {TYPE_WORDS[found]}, where the field takes {TYPE_WORDS[word]}"
        yield LiteralIssue(node, message)


def name_constant(node: CelNode) -> str:
    """The type of a constant as forms name it; empty where it is none."""
    return _CONSTANT_TYPES.get(type(node.value), "") if isinstance(node, Literal) else ""


def check_patch(node: StructNode, form: Form | None) -> Iterator[LiteralIssue]:
    """A `JSONPatch{...}` of objects of a form: its path, and the value that it puts there."""
    entries = read_entries(node)
    operation, path, value = (entries.get(name) for name in ("op", "path", "value"))
    pointer = read_text(path)
    if path is None or not pointer.startswith("/"):
        return
    for token in pointer[1:].split("/"):
        name = token.replace("~1", "/").replace("~0", "~")
        if form is None or (form.list is None and form.map is None):
            return
        if form.list is not None:
            form = form.list.element
            continue
        known: Mapping[str, Form] = form.map.fields if form.map is not None else {}
        form = known.get(name, form.map.others if form.map is not None else None)
        if form is None:
            yield LiteralIssue(path, f"undefined field '{name}'", name, tuple(known))
    if value is not None and read_text(operation) in ("add", "replace"):
        yield from check_literal(value, form)


def find_object_form(node: MapNode, source: FormSource) -> Form | None:
    """The form of a map that says itself which kind it is."""
    entries = read_entries(node)
    api_version, kind = (read_text(entries.get(name)) for name in ("apiVersion", "kind"))
    return source.find_form(api_version, kind) if api_version and kind else None


def list_form(element: Form) -> Form:
    """The form of a List of objects; what else it has is not known."""
    return Form(map=MapForm({"items": Form(list=ListForm(element))}, DEDUCED))


def read_entries(node: MapNode | StructNode) -> dict[str, CelNode]:
    """The values of entries with constant names."""
    pairs = ((_read_name(entry), entry.value) for entry in node.entries)
    return {name: value for name, value in pairs if name is not None}


def _read_name(entry: Entry) -> str | None:
    if entry.key is None:
        return entry.name
    is_text = isinstance(entry.key, Literal) and isinstance(entry.key.value, str)
    return read_text(entry.key) if is_text else None


def read_text(node: CelNode | None) -> str:
    """A constant text, also within `dyn`; empty for anything else."""
    while isinstance(node, Call) and node.function == "dyn":
        node = node.args[0]
    is_text = isinstance(node, Literal) and isinstance(node.value, str)
    return str(node.value) if isinstance(node, Literal) and is_text else ""


_TEXT = Form(scalar="string")
_ANYTHING = Form()
_SAME_FORM = frozenset({
    "orValue", "__orValueCompat__", "_?_:_", "_+_", "dyn", "optional.of", "or", "value",
})  # fmt: skip
_INDEXES = frozenset({"_[_]", "_[?_]"})
_COMPARISONS = frozenset({"_==_", "_!=_", "_<_", "_<=_", "_>_", "_>=_"})
_Scope = Mapping[str, Form | None]


class ExpressionIssue(msgspec.Struct, frozen=True):
    """What is doubtful, and where in the expression."""

    message: str
    position: int
    # Of a field that is not there: its name, and those that are.
    name: str = ""
    known: tuple[str, ...] = ()
    # Whether types are compared that never fit each other.
    is_type: bool = False


class Inspection(msgspec.Struct, frozen=True):
    """The findings, and the form of what the expression answers, where it is known."""

    findings: tuple[ExpressionIssue, ...]
    form: Form | None = None


def inspect_expression(
    text: str,
    environment: Environment,
    variables: Variables = NO_VARIABLES,
    forms: Mapping[str, Form] | None = None,
    source: FormSource | None = None,
) -> Inspection:
    """Look into an expression; SyntaxFaultError where it does not compile.

    `forms` has what `object`, `params` and so on look like, and `variables.x` too; `source` what
    objects do that are looked up or written out.
    """
    root = check_tree(text, environment, variables)
    scope: dict[str, Form | None] = {"request": _request_form(), **(forms or {})}
    scope.setdefault("namespaceObject", find_form("v1", "Namespace"))
    inspector = _Inspector(text, source)
    form = inspector.visit(root, scope)
    return Inspection(tuple(inspector.findings), form)


@cache
def _request_form() -> Form:
    kind = _object(group=_TEXT, version=_TEXT, kind=_TEXT)
    resource = _object(group=_TEXT, version=_TEXT, resource=_TEXT)
    user = _object(username=_TEXT, uid=_TEXT, groups=_ANYTHING, extra=_ANYTHING)
    return _object(
        kind=kind, resource=resource, requestKind=kind, requestResource=resource, userInfo=user,
        subResource=_TEXT, requestSubResource=_TEXT, name=_TEXT, namespace=_TEXT, operation=_TEXT,
        uid=_TEXT, dryRun=_ANYTHING, options=_ANYTHING, object=_ANYTHING, oldObject=_ANYTHING,
    )  # fmt: skip


def _object(**fields: Form) -> Form:
    return Form(map=MapForm(fields))


class _Inspector(msgspec.Struct):
    """One walk through one tree."""

    text: str
    source: FormSource | None = None
    findings: list[ExpressionIssue] = []

    def visit(self, node: CelNode, scope: _Scope) -> Form | None:
        """Walk through a part; answers the form of its value, where it is known."""
        match node:
            case Ident():
                return scope.get(node.name)
            case Select():
                return self._visit_select(node, scope)
            case Call():
                return self._call(node, scope)
            case Fold():
                return self._visit_fold(node, scope)
        if isinstance(node, MapNode) and self.source is not None:
            self._report_literal(check_literal(node, find_object_form(node, self.source)))
        if isinstance(node, StructNode):
            is_patch = node.name == "JSONPatch"
            form = _find_inside(scope.get("object"), node.name)
            self._report_literal((check_patch if is_patch else check_literal)(node, form))
        for part in list_children(node):
            self.visit(part, scope)
        return None

    def _report(
        self, node: CelNode, message: str, name: str = "", known: tuple[str, ...] = ()
    ) -> None:
        place = node.position
        if isinstance(node, Entry):
            place = find_name(self.text, name, place)
        issue = ExpressionIssue(message, place, name, known)
        if issue not in self.findings:
            self.findings.append(issue)

    def _report_type(self, node: CelNode, message: str) -> None:
        self.findings.append(ExpressionIssue(message, node.position, is_type=True))

    def _report_literal(self, issues: Iterator[LiteralIssue]) -> None:
        for issue in issues:
            if issue.name:
                self._report(issue.node, issue.message, issue.name, issue.known)
            else:
                self._report_type(issue.node, issue.message)

    def _visit_select(self, node: Select, scope: _Scope) -> Form | None:
        if isinstance(node.operand, Ident) and node.operand.name == "variables":
            return scope.get(f"variables.{node.field}")
        return self._select(node, self.visit(node.operand, scope), node.field)

    def _select(self, node: CelNode, form: Form | None, name: str) -> Form | None:
        if form is None or form.map is None:
            if form is not None and form.list is not None and not form.scalar:
                self._report_type(node, f"a list has no field '{name}'")
            return None
        found = form.map.fields.get(name, form.map.others)
        if found is None:
            self._report(node, f"undefined field '{name}'", name, tuple(form.map.fields))
        return found

    def _call(self, node: Call, scope: _Scope) -> Form | None:
        parts = list_children(node)
        forms = [self.visit(part, scope) for part in parts]
        if node.function in _COMPARISONS and len(forms) == 2:
            self._compare(parts[1], _name_scalar(forms[0]), name_constant(parts[1]))
            self._compare(parts[0], _name_scalar(forms[1]), name_constant(parts[0]))
            self._compare(parts[1], *map(_name_scalar, forms))
        if isinstance(node.target, Ident) and node.target.name == "resource":
            return self._find_lookup(node)
        if node.function in _INDEXES:
            return self._index(node, forms[0])
        if node.function in _SAME_FORM:
            return next((form for form in forms if form is not None), None)
        return None

    def _find_lookup(self, node: Call) -> Form | None:
        """What `resource.get` and `resource.list` answer where their arguments are constants."""
        name = node.function.lower()
        if self.source is None or name not in ("get", "list") or len(node.args) < 2:
            return None
        api_version, resource = map(read_text, node.args[:2])
        if not api_version or not resource:
            return None
        found = self.source.find_resource_form(api_version, resource)
        return found if name == "get" or found is None else list_form(found)

    def _compare(self, node: CelNode, first: str, second: str) -> None:
        """Values of two types: never equal, and never in order."""
        if first in TYPE_WORDS and second in TYPE_WORDS and first != second:
            message = f"compares {TYPE_WORDS[first]} with {TYPE_WORDS[second]}, which never fits"
            self._report_type(node, message)

    def _index(self, node: Call, form: Form | None) -> Form | None:
        key = node.args[1]
        if form is None:
            return None
        if form.list is not None and form.map is None:
            return form.list.element
        if isinstance(key, Literal) and isinstance(key.value, str):
            return self._select(node, form, key.value)
        return form.map.others if form.map is not None else None

    def _visit_fold(self, node: Fold, scope: _Scope) -> Form | None:
        if node.macro == "bind":
            bound = self.visit(node.initial, scope)
            return self.visit(node.result, {**scope, node.accumulator: bound})
        form = self.visit(node.range, scope)
        inner = {**scope, **_elements(form, *node.variables)}
        for part in node.body:
            if part is not None:
                self.visit(part, inner)
        return form if node.macro == "filter" else None


def _find_inside(form: Form | None, name: str) -> Form | None:
    """The form of `Object.spec` in an object of a form."""
    for field in name.split(".")[1:]:
        if form is None or form.map is None:
            return None
        form = form.map.fields.get(field, form.map.others)
        if form is not None and form.list is not None:
            form = form.list.element
    return form


def _name_scalar(form: Form | None) -> str:
    return form.scalar if form is not None and not form.list and not form.map else ""


def _elements(form: Form | None, first: str, second: str) -> dict[str, Form | None]:
    """What the variables of a comprehension stand for: elements, or keys and values."""
    listed = form.list.element if form is not None and form.list is not None else None
    valued = form.map.others if form is not None and form.map is not None else None
    if second:
        return {first: None, second: listed or valued}
    return {first: listed}
