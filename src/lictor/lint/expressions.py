"""Checks of JMESPath expressions in a policy: syntax and variables."""

import re
from collections.abc import Iterator

import msgspec
from msgspec.structs import replace

from lictor.core.errors import SyntaxFaultError
from lictor.core.lang.jmespath import FUNCTIONS
from lictor.core.lang.jmespath.parser import parse
from lictor.core.lang.jmespath.syntax import Node, NodeKind
from lictor.core.load.fields import suggest
from lictor.core.model.finding import Finding, TextOffset
from lictor.lint.catalog import flag
from lictor.lint.field import Field

# The innermost braces, which are resolved first. A single pair within belongs to the expression.
_VARIABLE = re.compile(r"(?<!\\)\{\{((?:\{[^{}]*\}|[^{}])*)\}\}")
_OPENING = re.compile(r"(?<!\\)\{\{")
_ELEMENT = re.compile(r"element(Index)?[0-9]*")
# Replaces a checked expression, so that offsets stay the same.
_SEEN = "\0"

_ALWAYS = frozenset(["request", "images", "serviceAccountName", "serviceAccountNamespace"])
_REQUEST_FIELDS = frozenset(
    [
        *("uid", "kind", "resource", "subResource", "requestKind", "requestResource"),
        *("requestSubResource", "name", "namespace", "operation", "userInfo", "object"),
        *("oldObject", "dryRun", "options", "roles", "clusterRoles"),
    ]
)
_CALLER_FIELDS = frozenset(["userInfo", "roles", "clusterRoles"])
# Common misspellings of literals.
_LITERALS = {"": "''", "null": "`null`", "true": "`true`", "false": "`false`"}
_CALLER_ROOTS = frozenset(["serviceAccountName", "serviceAccountNamespace"])


class KnownVariables(msgspec.Struct, frozen=True):
    """The variables of an expression at some field."""

    # Context entries; None if they cannot be known.
    names: frozenset[str] | None = frozenset()
    has_element: bool = False
    has_target: bool = False
    # A scan has no caller.
    has_caller: bool = True

    def with_names(self, names: frozenset[str]) -> "KnownVariables":
        return self if self.names is None else replace(self, names=self.names | names)

    def with_element(self) -> "KnownVariables":
        return replace(self, has_element=True)

    def with_target(self) -> "KnownVariables":
        return replace(self, has_target=True)


ANY_VARIABLE = KnownVariables(names=None, has_element=True, has_target=True)


class _Reference(msgspec.Struct, frozen=True):
    """A root name in an expression, and the field below it, if it is literal."""

    root: str
    field: str
    position: int


def check_text(part: Field, variables: KnownVariables) -> Iterator[Finding]:
    """Check every expression within `{{ }}`."""
    text = part.text
    if "{{" not in text and "}}" not in text:
        return
    found = True
    while found:
        found = False
        for match in _VARIABLE.finditer(text):
            found = True
            if _SEEN not in match[1]:
                yield from _check_variable(part, match, variables)
        text = _VARIABLE.sub(lambda match: _SEEN * len(match[0]), text)
    yield from _check_braces(part, text)


def check_query(part: Field, variables: KnownVariables) -> Iterator[Finding]:
    """Check a text that is an expression, or contains some within `{{ }}`."""
    if "{{" in part.text:
        yield from check_text(part, variables)
    elif part.text:
        # A scan may load such an entry only on use.
        yield from _check_expression(part, part.text, 0, replace(variables, has_caller=True))


def list_expressions(part: Field, *, is_query: bool) -> Iterator[tuple[str, int]]:
    """The expressions of a text and their offsets; not those with nested ones."""
    if is_query and "{{" not in part.text:
        yield part.text, 0
        return
    for match in _VARIABLE.finditer(part.text):
        yield _cut_expression(match)


def _cut_expression(match: re.Match[str]) -> tuple[str, int]:
    """The expression within braces without whitespace and the default mark, and its offset."""
    inner = match[1].lstrip()
    inner = inner[1:].lstrip() if inner.startswith("-") else inner
    return inner.rstrip(), match.end(1) - len(inner)


def _check_variable(
    part: Field, match: re.Match[str], variables: KnownVariables
) -> Iterator[Finding]:
    expression, offset = _cut_expression(match)
    if not expression:
        yield _fault("bad-expression", part, match.start(), "the expression is empty")
        return
    yield from _check_expression(part, expression, offset, variables)


def _check_braces(part: Field, left: str) -> Iterator[Finding]:
    opening = _OPENING.search(left)
    if opening is not None:
        closing = left.find("}}", opening.end())
        message = (
            '"{{" without "}}": this stays text and is never filled in'
            if closing < 0
            else "braces within braces within an expression: this stays text, never filled in"
        )
        yield _fault("unbalanced-braces", part, opening.start(), message)
    elif "}}" in left and left.count("{") < left.count("}"):
        message = '"}}" without "{{": this stays text and is never filled in'
        yield _fault("unbalanced-braces", part, left.index("}}"), message)


def _check_expression(
    part: Field, text: str, offset: int, variables: KnownVariables
) -> Iterator[Finding]:
    try:
        tree = parse(text)
    except SyntaxFaultError as error:
        message = error.message.removeprefix("SyntaxError: ")
        yield _fault("bad-expression", part, offset + error.position, _lower(message))
        return
    for node in _walk(tree):
        if node.kind is NodeKind.FUNCTION:
            yield from _check_call(part, node, offset)
    for reference in _list_references(tree):
        yield from _check_reference(part, reference, offset, variables)


def _lower(message: str) -> str:
    return f"does not parse: {message[:1].lower()}{message[1:]}"


def _fault(check: str, part: Field, offset: int, message: str, suggestion: str = "") -> Finding:
    return flag(check, part.path, message, suggestion, TextOffset(part.text, offset))


def _walk(tree: Node) -> Iterator[Node]:
    waiting = [tree]
    while waiting:
        node = waiting.pop()
        yield node
        waiting.extend(node.children)


def _check_call(part: Field, node: Node, offset: int) -> Iterator[Finding]:
    name = str(node.value)
    spec = FUNCTIONS.get(name)
    at = offset + node.position
    if spec is None:
        message = f'there is no function "{name}"'
        yield _fault("unknown-function", part, at, message, suggest(name, FUNCTIONS))
    elif not spec.accepts_count(len(node.children)):
        few = "at least " if spec.variadic else ""
        message = (
            f"{name} takes {few}{_count(len(spec.arguments))}, not {len(node.children)}: "
            f"{spec.signature}"
        )
        yield _fault("wrong-arguments", part, at, message)


def _count(number: int) -> str:
    return "1 argument" if number == 1 else f"{number} arguments"


# Nodes whose first child has the same input, and whose other children have another.
_NARROWING = frozenset(
    (
        NodeKind.SUBEXPRESSION,
        NodeKind.PIPE,
        NodeKind.PROJECTION,
        NodeKind.VALUE_PROJECTION,
        NodeKind.FILTER_PROJECTION,
        NodeKind.INDEX_EXPRESSION,
    )
)


def _list_references(tree: Node) -> Iterator[_Reference]:
    """The root names of an expression."""
    waiting: list[tuple[Node, str]] = [(tree, "")]
    while waiting:
        node, field = waiting.pop()
        if node.kind is NodeKind.FIELD:
            yield _Reference(str(node.value), field, node.position)
        elif node.kind in _NARROWING:
            below = node.children[1] if node.kind is NodeKind.SUBEXPRESSION else None
            plain = below is not None and below.kind is NodeKind.FIELD
            waiting.append((node.children[0], str(below.value) if below and plain else ""))
        elif node.kind is not NodeKind.EXPRESSION_REFERENCE:
            waiting.extend((child, "") for child in node.children)


def _check_reference(
    part: Field, reference: _Reference, offset: int, variables: KnownVariables
) -> Iterator[Finding]:
    root, at = reference.root, offset + reference.position
    if variables.names is None or root in variables.names:
        return
    if root == "request":
        yield from _check_request(part, reference.field, at, variables)
    elif root in _CALLER_ROOTS and not variables.has_caller:
        yield _refuse_caller(part, root, at)
    elif _ELEMENT.fullmatch(root) and not variables.has_element:
        yield _fault("misplaced-variable", part, at, f"{root} exists only within a foreach")
    elif root == "target" and not variables.has_target:
        message = "target exists only in a mutate rule with targets, and only for its patches"
        yield _fault("misplaced-variable", part, at, message)
    elif root not in _ALWAYS and root != "target" and not _ELEMENT.fullmatch(root):
        yield _refuse_unknown(part, root, at, variables.names)


def _refuse_unknown(part: Field, root: str, at: int, names: frozenset[str]) -> Finding:
    if root in _LITERALS:
        message = f'"{root}" is the name of a variable here, not a value'
        return _fault("unknown-variable", part, at, message, _LITERALS[root])
    message = f'nothing defines the variable "{root}"'
    return _fault("unknown-variable", part, at, message, suggest(root, names | _ALWAYS))


def _check_request(
    part: Field, field: str, at: int, variables: KnownVariables
) -> Iterator[Finding]:
    if field in _CALLER_FIELDS and not variables.has_caller:
        yield _refuse_caller(part, f"request.{field}", at)
    elif field and field not in _REQUEST_FIELDS:
        message = f'a request has no field "{field}"'
        known = suggest(field, _REQUEST_FIELDS)
        yield _fault("unknown-variable", part, at, message, f"request.{known}" if known else "")


def _refuse_caller(part: Field, name: str, at: int) -> Finding:
    message = f"{name} is unknown in background scans: set spec.background to false"
    return _fault("background", part, at, message).with_code("variable-unknown", name)


_ATTESTED = ("name", "attestors", "type", "predicateType")
_LOOPED = (
    *("preconditions", "pattern", "anyPattern", "deny", "patchStrategicMerge", "patchesJson6902"),
    *("apiVersion", "kind", "name", "namespace", "data", "clone", "cloneList"),
)


class TemplateField(msgspec.Struct, frozen=True):
    """A text that may contain expressions (`{{ }}`), or is one (`is_query`)."""

    part: Field
    variables: KnownVariables
    is_query: bool = False


def check_expressions(fields: Iterator[TemplateField]) -> Iterator[Finding]:
    """The findings of the expressions at these fields."""
    for field in fields:
        check = check_query if field.is_query else check_text
        yield from check(field.part, field.variables)


def list_rule_fields(rule: Field, variables: KnownVariables) -> Iterator[TemplateField]:
    """Every field of a rule."""
    variables = variables.with_names(entry_names(rule["context"]))
    yield from _list_context(rule["context"], variables)
    for name in ("preconditions", "reportProperties"):
        yield from _list_templates(rule[name], variables)
    yield from _list_validate(rule["validate"], variables)
    yield from _list_mutate(rule["mutate"], variables)
    yield from _list_generate(rule["generate"], variables)
    for verification in rule["verifyImages"].each():
        yield from _list_verification(verification, variables)
    for _, extractors in rule["imageExtractors"].entries():
        for extractor in extractors.each():
            yield TemplateField(extractor["jmesPath"], ANY_VARIABLE, is_query=True)


def list_cleanup_fields(spec: Field) -> Iterator[TemplateField]:
    """Every field of a cleanup policy: its target is the object to delete."""
    variables = KnownVariables(entry_names(spec["context"])).with_target()
    yield from _list_context(spec["context"], variables)
    yield from _list_templates(spec["conditions"], variables)


def list_exception_fields(spec: Field) -> Iterator[TemplateField]:
    """Every field of an exception."""
    yield from _list_templates(spec["conditions"], KnownVariables())


def entry_names(context: Field) -> frozenset[str]:
    """The variables of context entries: `a` for an entry named `a.b`."""
    return frozenset(entry["name"].text.partition(".")[0] for entry in context.each())


def _list_templates(part: Field, variables: KnownVariables) -> Iterator[TemplateField]:
    for leaf in part.leaves():
        if "{{" in leaf.text or "}}" in leaf.text:
            yield TemplateField(leaf, variables)


def _list_context(context: Field, variables: KnownVariables) -> Iterator[TemplateField]:
    for entry in context.each():
        for kind, source in entry.entries():
            for name, field in source.entries():
                if name == "jmesPath":
                    asks_scope = kind == "variable" and not source["value"]
                    yield TemplateField(
                        field, variables if asks_scope else ANY_VARIABLE, is_query=True
                    )
                else:
                    yield from _list_templates(field, variables)


def _list_validate(validate: Field, variables: KnownVariables) -> Iterator[TemplateField]:
    for name, field in validate.entries():
        if name == "foreach":
            yield from _list_loops(field, variables)
        # Other languages.
        elif name not in ("cel", "assert"):
            yield from _list_templates(field, variables)


def _list_loops(loops: Field, variables: KnownVariables) -> Iterator[TemplateField]:
    for loop in loops.each():
        yield TemplateField(loop["list"], variables, is_query=True)
        inner = variables.with_names(entry_names(loop["context"])).with_element()
        yield from _list_context(loop["context"], inner)
        for name in _LOOPED:
            yield from _list_templates(loop[name], inner)
        yield from _list_loops(loop["foreach"], inner)


def _list_mutate(mutate: Field, variables: KnownVariables) -> Iterator[TemplateField]:
    inner = variables
    for target in mutate["targets"].each():
        inner = inner.with_names(entry_names(target["context"])).with_target()
        own = variables.with_names(entry_names(target["context"])).with_target()
        for name, field in target.entries():
            if name == "context":
                yield from _list_context(field, own)
            else:
                yield from _list_templates(field, own if name == "preconditions" else variables)
    yield from _list_templates(mutate["patchStrategicMerge"], inner)
    yield from _list_templates(mutate["patchesJson6902"], inner)
    yield from _list_loops(mutate["foreach"], inner)


def _list_generate(generate: Field, variables: KnownVariables) -> Iterator[TemplateField]:
    for name, field in generate.entries():
        if name == "foreach":
            yield from _list_loops(field, variables)
        else:
            yield from _list_templates(field, variables)


def _list_verification(verification: Field, variables: KnownVariables) -> Iterator[TemplateField]:
    attested = frozenset(a["name"].text for a in verification["attestations"].each())
    inner = variables.with_names(attested | {"image"})
    for name, field in verification.entries():
        if name != "attestations":
            yield from _list_templates(field, inner)
    for attestation in verification["attestations"].each():
        for name in _ATTESTED:
            yield from _list_templates(attestation[name], inner)
        # These read the attestation, whose content is unknown.
        yield from _list_templates(attestation["conditions"], ANY_VARIABLE)
