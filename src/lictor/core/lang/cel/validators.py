"""Checks of a typed tree that need no evaluation: literals of times, regexes, lists and formats."""

from collections.abc import Iterator

from lictor.core.errors import SyntaxFaultError
from lictor.core.lang.cel.faults import CelError, Issue
from lictor.core.lang.cel.library.formatting import check_format
from lictor.core.lang.cel.syntax import Call, CelNode, ListNode, Literal, MapNode, list_children
from lictor.core.lang.cel.types import CelType
from lictor.core.lang.regex import compile_regex

_TIMES = ("duration", "timestamp")
# Functions with the index of the argument that is a regular expression.
_PATTERNS = {"find": 1, "findAll": 1, "matches": 1}


def validate_tree(root: CelNode, *, is_mixed_allowed: bool = False) -> list[Issue]:
    """What Kubernetes refuses in an expression whose types are right."""
    issues: list[Issue] = []
    for node, is_formatted in _walk(root):
        if isinstance(node, Call):
            issues += _check_literals(node)
        elif isinstance(node, ListNode | MapNode) and not is_formatted and not is_mixed_allowed:
            issues += _check_mixed(node)
    return issues


def _walk(root: CelNode) -> Iterator[tuple[CelNode, bool]]:
    """All nodes, and whether they stand inside a call of format(), where lists may be mixed."""
    pending = [(root, False)]
    # The target of optMap() occurs twice.
    seen: set[int] = set()
    while pending:
        node, is_formatted = pending.pop()
        if id(node) in seen:
            continue
        seen.add(id(node))
        yield node, is_formatted
        inside = is_formatted or (isinstance(node, Call) and node.function == "format")
        pending += [(child, inside) for child in list_children(node)]


def _check_literals(call: Call) -> Iterator[Issue]:
    name = call.function
    first = call.args[0] if call.args else None
    if name in _TIMES and isinstance(first, Literal) and call.overloads:
        try:
            call.overloads[0].implementation(first.value)
        except CelError:
            yield Issue(first.position, f"invalid {name} argument")
    elif name == "matches" and isinstance(first, Literal):
        yield from _check_pattern(first, "invalid matches argument")
    if name in _PATTERNS:
        parts = call.args if call.target is None else [call.target, *call.args]
        pattern = parts[_PATTERNS[name]]
        if (isinstance(pattern, Literal) and pattern is not first) or name != "matches":
            yield from _check_pattern(pattern, "")
    if name == "format" and call.target is not None and len(call.args) == 1:
        issue = check_format(call)
        if issue is not None:
            yield issue


def _check_pattern(node: CelNode, message: str) -> Iterator[Issue]:
    if isinstance(node, Literal) and isinstance(node.value, str):
        try:
            compile_regex(node.value)
        except SyntaxFaultError as error:
            yield Issue(node.position, message or str(error))


def _check_mixed(node: ListNode | MapNode) -> Iterator[Issue]:
    if isinstance(node, ListNode):
        elements = [(e, i in node.optionals) for i, e in enumerate(node.elements)]
        yield from _find_other(elements)
        return
    yield from _find_other([(e.key, False) for e in node.entries if e.key is not None])
    yield from _find_other([(e.value, e.is_optional) for e in node.entries])


def _find_other(parts: list[tuple[CelNode, bool]]) -> Iterator[Issue]:
    first: CelType | None = None
    for node, is_optional in parts:
        found = node.type
        if is_optional and found.params:
            found = found.params[0]
        if first is None:
            first = found
        elif found is not first:
            yield Issue(node.position, f"expected type '{first}' but found '{found}'")
            return
