"""Compiles assertion trees: objects project, lists compare by item, scalars compare."""

import re
from collections.abc import Callable, Sequence
from typing import TypeAlias

import msgspec

from lictor.core.errors import CompileError, EvaluationError
from lictor.core.lang.assertion.operators import Evaluate, Lookup, bind
from lictor.core.lang.assertion.values import fits, show_expected, show_found
from lictor.core.raw import Json, JsonObject

# No DOTALL: an expression in parentheses is on one line, otherwise it is a plain key.
_FOREACH = re.compile(r"~(\w+)?\.(.*)", re.ASCII)
_BLANKS = " \t\n\r\f\v"
_NAME = re.compile(r"\s*(\w+)\Z", re.ASCII)
_ESCAPED = re.compile(r"\\(.+)\\\Z")
_QUERY = re.compile(r"\((?:(\w+):)?(.+)\)\Z", re.ASCII)


class Clause(msgspec.Struct, frozen=True):
    """A key or a value of an assertion tree, parsed."""

    statement: str
    is_query: bool = False
    for_each: bool = False
    index_name: str = ""
    binding: str = ""


def parse_clause(text: str) -> Clause:
    """Parse a key; a text without special characters is the name of a member."""
    whole, for_each, index_name, binding = text, False, "", ""
    if found := _FOREACH.match(text):
        for_each, index_name, text = True, found[1] or "", found[2]
    head, arrow, tail = text.rpartition("->")
    if arrow and (found := _NAME.match(tail)):
        binding, text = found[1], _last_line(head)
    if not text:
        return Clause(whole)
    is_query = False
    if found := _ESCAPED.match(text):
        text = found[1]
    elif found := _QUERY.match(text):
        is_query, text = True, found[2]
    return Clause(text, is_query, for_each, index_name, binding)


def _last_line(text: str) -> str:
    """A binding is on the line of its arrow, or on the last line before that is not blank."""
    *above, last = text.split("\n")
    while above and not last.strip(_BLANKS):
        last = above.pop()
    return last


INVALID = "Invalid value"
REQUIRED = "Required value"

# The path from the root, innermost first; rendered only for a mismatch.
Path: TypeAlias = "tuple[Path, str] | None"


class AssertionMismatch(msgspec.Struct, frozen=True):
    """A value that is not as asserted, and its path."""

    path: str
    problem: str
    detail: str
    found: Json = None

    def __str__(self) -> str:
        shown = "" if self.problem == REQUIRED else f": {show_found(self.found)}"
        return f"{self.path}: {self.problem}{shown}: {self.detail}"


Parse: TypeAlias = Callable[[str], Evaluate]
Mismatches: TypeAlias = list[AssertionMismatch]
Test: TypeAlias = Callable[[Json, Path, Lookup], Mismatches | None]


def show_path(path: Path) -> str:
    """The path in Kubernetes' notation: `spec.containers[0].name`."""
    parts = []
    while path is not None:
        path, step = path
        parts.append(step)
    return "".join(reversed(parts)).removeprefix(".") if parts else "<nil>"


def _refuse(path: Path, found: Json, detail: str) -> Mismatches:
    return [AssertionMismatch(show_path(path), INVALID, detail, found)]


def _fail(path: Path, found: Json, detail: str) -> EvaluationError:
    return EvaluationError(f"{show_path(path)}: {INVALID}: {show_found(found)}: {detail}")


def compile_tree(tree: Json, parse: Parse) -> Test:
    """Compile a tree to a test; `parse` compiles its expressions."""
    if isinstance(tree, dict):
        return _compile_object(tree, parse)
    if isinstance(tree, list):
        return _compile_list([compile_tree(item, parse) for item in tree])
    return _compile_scalar(tree, parse)


def _compile_scalar(expected: Json, parse: Parse) -> Test:
    clause = parse_clause(expected) if isinstance(expected, str) else None
    if clause is not None and clause.is_query:
        return _compile_computed(expected, clause, parse)

    def compare(value: Json, path: Path, lookup: Lookup) -> Mismatches | None:  # noqa: ARG001
        return _compare(expected, value, path)

    return compare


def _compile_computed(text: str, clause: Clause, parse: Parse) -> Test:
    if clause.index_name:
        raise CompileError(f"{text}: foreach is not supported on the right side of an assertion")
    if clause.binding:
        raise CompileError(f"{text}: binding is not supported on the right side of an assertion")
    evaluate = parse(clause.statement)

    def compare(value: Json, path: Path, lookup: Lookup) -> Mismatches | None:
        return _compare(_evaluate(evaluate, value, path, lookup), value, path)

    return compare


def _evaluate(evaluate: Evaluate, value: Json, path: Path, lookup: Lookup) -> Json:
    try:
        return evaluate(value, lookup)
    except EvaluationError as error:
        raise EvaluationError(f"{show_path(path)}: Internal error: {error}") from error


def _compare(expected: Json, value: Json, path: Path) -> Mismatches | None:
    try:
        if fits(expected, value):
            return None
    except EvaluationError as error:
        raise EvaluationError(f"{show_path(path)}: Internal error: {error}") from error
    return _refuse(path, value, f"Expected value: {show_expected(expected)}")


def _compile_list(tests: Sequence[Test]) -> Test:
    def compare(value: Json, path: Path, lookup: Lookup) -> Mismatches | None:
        if value is None:
            return _refuse(path, value, "value is null")
        if not isinstance(value, list):
            raise _fail(path, value, "expected a slice")
        if len(value) != len(tests):
            return _refuse(path, value, "lengths of slices don't match")
        found: Mismatches = []
        for at, test in enumerate(tests):
            found += test(value[at], (path, f"[{at}]"), lookup) or ()
        return found

    return compare


def _compile_object(tree: JsonObject, parse: Parse) -> Test:
    if not tree:
        return _refuse_null
    members = [
        _compile_member(str(key), compile_tree(value, parse), parse) for key, value in tree.items()
    ]

    def compare(value: Json, path: Path, lookup: Lookup) -> Mismatches | None:
        found: Mismatches | None = None
        for member in members:
            # A binding of one member is visible to later ones.
            wrong, lookup = member(value, path, lookup)
            if wrong:
                found = [*found, *wrong] if found else wrong
        return found

    return compare


def _refuse_null(value: Json, path: Path, lookup: Lookup) -> Mismatches | None:  # noqa: ARG001
    return None if value is not None else _refuse(path, value, "invalid value, must not be null")


Member: TypeAlias = Callable[[Json, Path, Lookup], tuple[Mismatches | None, Lookup]]
_ABSENT = object()


def _compile_member(key: str, test: Test, parse: Parse) -> Member:
    clause = parse_clause(key)
    project = _compile_projection(clause, parse)
    binding = clause.binding
    if clause.for_each:
        test = _compile_for_each(test, clause.index_name)
    step = f".{key}" if key else "[]"

    def check(value: Json, path: Path, lookup: Lookup) -> tuple[Mismatches | None, Lookup]:
        inner = (path, step)
        projected = project(value, inner, lookup)
        if projected is _ABSENT:
            detail = "field not found in the input object"
            return [AssertionMismatch(show_path(inner), REQUIRED, detail)], lookup
        if binding:
            lookup = bind(lookup, binding, projected)
        return test(projected, inner, lookup), lookup

    return check


def _compile_projection(clause: Clause, parse: Parse) -> Callable[[Json, Path, Lookup], Json]:
    if clause.is_query:
        evaluate = parse(clause.statement)
        return lambda value, path, lookup: _evaluate(evaluate, value, path, lookup)
    name = clause.statement

    def take(value: Json, path: Path, lookup: Lookup) -> Json:  # noqa: ARG001
        if isinstance(value, dict):
            return value.get(name, _ABSENT)
        if value is None:
            return _ABSENT
        raise EvaluationError(f"{show_path(path)}: Internal error: projection not recognized")

    return take


def _compile_for_each(test: Test, index_name: str) -> Test:
    def check(value: Json, path: Path, lookup: Lookup) -> Mismatches | None:
        if isinstance(value, list):
            items: Sequence[tuple[Json, Json]] = list(enumerate(value))
        elif isinstance(value, dict):
            items = list(value.items())
        else:
            raise _fail(path, value, "expected a slice or a map")
        found: Mismatches = []
        for at, item in items:
            inner = bind(lookup, index_name, at) if index_name else lookup
            found += test(item, (path, f"[{at}]"), inner) or ()
        return found

    return check
