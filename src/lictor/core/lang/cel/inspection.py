"""What is doubtful in an expression that compiles: unknown fields, bad constants.

Kubernetes refuses such expressions, or warns of them, while the engine takes them as they are.
"""

from collections.abc import Callable, Mapping
from functools import cache

import msgspec

from lictor.core.errors import SyntaxFaultError
from lictor.core.facts.schemas import Form, MapForm, find_form
from lictor.core.lang.cel.environment import Environment, slot_name
from lictor.core.lang.cel.expression import NO_VARIABLES, Variables, serialize_expression
from lictor.core.lang.cel.object_literals import (
    TYPE_WORDS,
    FormSource,
    LiteralCheck,
    find_lookup_form,
    find_object_form,
)
from lictor.core.lang.cel.rewriting import Rewritten
from lictor.core.lang.cel.tree import CelNode, Tree, read_tree
from lictor.core.lang.duration import parse_duration
from lictor.core.lang.gotime import parse_rfc3339
from lictor.core.lang.regex import compile_regex


def _parse_bool(text: str) -> bool:
    if text not in {
        "1",
        "t",
        "T",
        "true",
        "True",
        "TRUE",
        "0",
        "f",
        "F",
        "false",
        "False",
        "FALSE",
    }:
        raise ValueError(text)
    return text[0] in "1tT"


_TEXT = Form(scalar="string")
_ANYTHING = Form()
_CONSTANT_CHECKS: dict[str, tuple[Callable[[str], object], str]] = {
    "matches": (compile_regex, "invalid matches argument"),
    "find": (compile_regex, "invalid find argument"),
    "findAll": (compile_regex, "invalid findAll argument"),
    "timestamp": (parse_rfc3339, "invalid timestamp argument"),
    "duration": (parse_duration, "invalid duration argument"),
    "int": (int, "type conversion error from 'string' to 'int'"),
    "double": (float, "type conversion error from 'string' to 'double'"),
    "bool": (_parse_bool, "type conversion error from 'string' to 'bool'"),
}
_SAME_FORM = frozenset({"orValue", "_?_:_", "_+_", "dyn", "optional.of", "or", "value"})
_SELECTIONS = frozenset({"_[_]", "_[?_]", "_?._"})


# What `Object{...}` and `JSONPatch{...}` become.
_PATCH = "_Jp"
_OBJECTS = frozenset({"_Ob", _PATCH})
_COMPARISONS = frozenset({"_==_", "_!=_", "_<_", "_<=_", "_>_", "_>=_"})


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

    `forms` tells what `object`, `params` and so on look like, and `variables.x` too; `source` what
    objects do that are looked up or written out.
    """
    rewritten, serialized = serialize_expression(text, environment, variables)
    scope: dict[str, Form | None] = {"request": _request_form(), **(forms or {})}
    scope.setdefault("namespaceObject", find_form("v1", "Namespace"))
    for variable in variables.used_by(rewritten):
        scope[slot_name(variable.slot)] = scope.get(f"variables.{variable.name}")
    inspector = _Inspector(read_tree(serialized), rewritten, source)
    form = inspector.visit(inspector.tree.root, scope)
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

    tree: Tree
    rewritten: Rewritten
    source: FormSource | None = None
    findings: list[ExpressionIssue] = []

    def visit(self, node: CelNode, scope: Mapping[str, Form | None]) -> Form | None:
        """Walk through a part; answers the form of its value, where it is known."""
        match node.kind:
            case "ident":
                return scope.get(node.name)
            case "select":
                return self._select(node, self.visit(node.parts[0], scope), node.name)
            case "call":
                return self._call(node, scope)
            case "comprehension":
                return self._comprehend(node, scope)
        if node.kind == "map" and self.source is not None:
            self._check_object(node, find_object_form(node, self.source))
        for part in node.parts:
            self.visit(part, scope)
        return None

    def _report(
        self, node: CelNode, message: str, name: str = "", known: tuple[str, ...] = ()
    ) -> None:
        place = self.rewritten.original_offset(self.tree.places.get(node.number, 0))
        self.findings.append(ExpressionIssue(message, place, name, known))

    def _check_object(self, node: CelNode, form: Form | None, *, is_patch: bool = False) -> None:
        check = LiteralCheck(self.tree.kinds)
        for issue in (check.check_patch if is_patch else check.check)(node, form):
            if issue.name:
                self._report(issue.node, issue.message, issue.name, issue.known)
            else:
                self._report_type(issue.node, issue.message)

    def _select(self, node: CelNode, form: Form | None, name: str) -> Form | None:
        if form is None or form.map is None:
            if form is not None and form.list is not None and not form.scalar:
                self._report_type(node, f"a list has no field '{name}'")
            return None
        found = form.map.fields.get(name, form.map.others)
        if found is None:
            self._report(node, f"undefined field '{name}'", name, tuple(form.map.fields))
        return found

    def _call(self, node: CelNode, scope: Mapping[str, Form | None]) -> Form | None:
        forms = [self.visit(part, scope) for part in node.parts]
        self._check_constant(node)
        if node.name in _COMPARISONS and len(forms) == 2:
            self._compare(node.parts[1], forms[0])
            self._compare(node.parts[0], forms[1])
            self._compare_forms(node.parts[1], *forms)
        if node.name in _OBJECTS:
            patched = scope.get("object")
            self._check_object(node.parts[0], patched, is_patch=node.name == _PATCH)
        if self.source is not None and node.name.startswith("resource."):
            return find_lookup_form(node, self.source)
        if node.name in _SELECTIONS:
            return self._index(node, forms[0])
        if node.name in _SAME_FORM:
            return next((form for form in forms if form is not None), None)
        return None

    def _compare(self, constant: CelNode, form: Form | None) -> None:
        """A field of one type and a constant of another: never equal, and never in order."""
        self._tell_pair(
            constant, _name_scalar(form), LiteralCheck(self.tree.kinds).name_constant(constant)
        )

    def _compare_forms(self, right: CelNode, first: Form | None, second: Form | None) -> None:
        """Two fields of different types."""
        self._tell_pair(right, _name_scalar(first), _name_scalar(second))

    def _tell_pair(self, node: CelNode, first: str, second: str) -> None:
        if first in TYPE_WORDS and second in TYPE_WORDS and first != second:
            message = f"compares {TYPE_WORDS[first]} with {TYPE_WORDS[second]}, which never fits"
            self._report_type(node, message)

    def _report_type(self, node: CelNode, message: str) -> None:
        place = self.rewritten.original_offset(self.tree.places.get(node.number, 0))
        self.findings.append(ExpressionIssue(message, place, is_type=True))

    def _index(self, node: CelNode, form: Form | None) -> Form | None:
        key = node.parts[1]
        if form is None:
            return None
        if form.list is not None and form.map is None:
            return form.list.element
        if key.kind == "constant" and isinstance(key.value, str):
            return self._select(node, form, key.value)
        return form.map.others if form.map is not None else None

    def _comprehend(self, node: CelNode, scope: Mapping[str, Form | None]) -> Form | None:
        around, start, condition, step, result = node.parts
        form = self.visit(around, scope)
        element, second, accumulator = node.names
        inner = dict(scope)
        inner[accumulator] = self.visit(start, scope)
        if element != "#unused":
            inner.update(_elements(form, element, second))
        self.visit(condition, inner)
        self.visit(step, inner)
        return self.visit(result, {**scope, accumulator: inner[accumulator]})

    def _check_constant(self, node: CelNode) -> None:
        check = _CONSTANT_CHECKS.get(node.name)
        argument = node.parts[-1] if node.parts else None
        if check is None or argument is None or not isinstance(argument.value, str):
            return
        parse, told = check
        try:
            parse(argument.value)
        except (ValueError, SyntaxFaultError):
            self._report(argument, told)


def _name_scalar(form: Form | None) -> str:
    return form.scalar if form is not None and not form.list and not form.map else ""


def _elements(form: Form | None, first: str, second: str) -> dict[str, Form | None]:
    """What the variables of a comprehension stand for: elements, or keys and values."""
    listed = form.list.element if form is not None and form.list is not None else None
    valued = form.map.others if form is not None and form.map is not None else None
    if second:
        return {first: None, second: listed or valued}
    return {first: listed}
