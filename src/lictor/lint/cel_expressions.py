"""Checks of single CEL expressions: whether they compile, and their names exist."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise

import msgspec
from msgspec.structs import replace

from lictor.core.errors import SyntaxFaultError
from lictor.core.facts.schemas import Form
from lictor.core.lang.cel.expression import (
    NO_VARIABLES,
    Variables,
    compile_expression,
    declare_variable,
)
from lictor.core.lang.cel.lexer import CelToken, read_tokens
from lictor.core.lang.cel.program import Environment
from lictor.core.load.fields import suggest
from lictor.core.model.finding import Finding, TextOffset
from lictor.lint.catalog import flag
from lictor.lint.cel_inspection import ExpressionIssue, FormSource, inspect_expression
from lictor.lint.field import Field
from lictor.lint.schema_values import list_near

_CHECK = "bad-expression"
_WORDS = {"null_type": "null", "list(JSONPatch)": "a list of JSONPatch", "Object": "an Object"}


class ExpressionContext(msgspec.Struct, frozen=True):
    """What the expressions of a policy may use."""

    environment: Environment
    variables: Variables = NO_VARIABLES
    # All declared variables, and those that do not compile.
    names: frozenset[str] = frozenset()
    broken: frozenset[str] = frozenset()
    # The forms of `object` and others: one mapping for each kind that the policy matches.
    forms: tuple[Mapping[str, Form], ...] = ()
    # The forms of objects that are looked up or written as literals.
    source: FormSource | None = None
    # Functions that API servers refuse in new expressions.
    newer: frozenset[str] = frozenset()

    def declare(self, variables: Field) -> tuple["ExpressionContext", list[Finding]]:
        """The same with these variables, and their findings."""
        context, findings = self, list[Finding]()
        for variable in variables.each():
            name, expression = variable["name"], variable["expression"]
            if name.text in context.names:
                message = f'there are two variables "{name.text}"'
                findings.append(flag("duplicate-name", name.path, message))
            found = check_expression(expression, (), context)
            findings += found
            used = {token.text for token in list_used_variables(expression.text)}
            is_broken = _is_fatal(found) or bool(used & context.broken)
            context = context._with(name.text, expression.text, is_broken=is_broken)
        return context, findings

    def _with(self, name: str, text: str, *, is_broken: bool) -> "ExpressionContext":
        known = replace(self, names=self.names | {name})
        if not name or not text.strip() or is_broken:
            return replace(known, broken=self.broken | {name})
        forms = tuple(self._add_form(form, name, text) for form in self.forms or ({},))
        variables = declare_variable(self.variables, name, text, self.environment)
        return replace(known, variables=variables, forms=forms)

    def _add_form(self, forms: Mapping[str, Form], name: str, text: str) -> Mapping[str, Form]:
        found = inspect_expression(text, self.environment, self.variables, forms, self.source)
        form = found.form
        return forms if form is None else {**forms, f"variables.{name}": form}


def check_expression(
    part: Field, types: Sequence[str], context: ExpressionContext
) -> list[Finding]:
    """The findings of one expression; without `types`, it may be of any type."""
    text = part.text
    if not text.strip():
        return [flag(_CHECK, part.path, "the expression is empty")] if part else []
    used = list(list_used_variables(text))
    unknown = [token for token in used if token.text not in context.names]
    if unknown:
        return [_blame(part, token, context) for token in unknown]
    if any(token.text in context.broken for token in used):
        return []  # Reported at the variable.
    try:
        found = compile_expression(text, context.environment, context.variables).result_type
    except SyntaxFaultError as error:
        offset = TextOffset(text, error.position)
        finding = flag(_CHECK, part.path, error.message, offset=offset)
        return [finding.with_code(error.code, *error.arguments)]
    if types and found not in types:
        wanted = " or ".join(_WORDS.get(each, each) for each in types if each != "dyn")
        return [flag(_CHECK, part.path, f"must answer {wanted}, not {_WORDS.get(found, found)}")]
    return [*_inspect(part, context), *_find_newer(part, context.newer)]


def _find_newer(part: Field, newer: frozenset[str]) -> Iterator[Finding]:
    tokens = read_tokens(part.text) if any(name in part.text for name in newer) else []
    for token, after in pairwise(tokens):
        if token.text in newer and after.text == "(":
            message = (
                f"{token.text}() is newer than the functions that API servers of this release "
                "accept in new expressions; they accept it from the next release on"
            )
            offset = TextOffset(part.text, token.start)
            yield flag("newer-function", part.path, message, offset=offset)


def list_used_variables(text: str) -> Iterator[CelToken]:
    """Each `x` of `variables.x`."""
    if "variables" not in text:
        return
    tokens = [token for token in read_tokens(text) if token.text != "?"]
    for before, token, dot, name in zip(
        (None, *tokens), tokens, tokens[1:], tokens[2:], strict=False
    ):
        is_field = before is not None and before.text == "."
        if token.text == "variables" and dot.text == "." and name.kind == "name" and not is_field:
            yield name


def check_unused(variables: Field, texts: Iterable[str]) -> Iterator[Finding]:
    """Variables that no expression uses."""
    used = {token.text for text in texts for token in list_used_variables(text)}
    for variable in variables.each():
        name = variable["name"].text
        if name and name not in used:
            yield flag("unused-variable", variable.path, f'nothing uses the variable "{name}"')


def _is_fatal(findings: Iterable[Finding]) -> bool:
    return any(finding.check == _CHECK for finding in findings)


def _blame(part: Field, token: CelToken, context: ExpressionContext) -> Finding:
    message = f'there is no variable "{token.text}"'
    if not context.names:
        message += " (nor any other here)"
    meant = suggest(token.text, context.names)
    return flag(_CHECK, part.path, message, meant, TextOffset(part.text, token.start))


def _inspect(part: Field, context: ExpressionContext) -> Iterator[Finding]:
    def look(
        forms: Mapping[str, Form], source: FormSource | None = None
    ) -> tuple[ExpressionIssue, ...]:
        variables = context.variables
        return inspect_expression(part.text, context.environment, variables, forms, source).findings

    always = look({})
    for issue in always:
        yield _flag_issue(_CHECK, part, issue)
    # A field that only one of the kinds has may be meant for that one.
    looks = [look(forms, context.source) for forms in context.forms or ({},)]
    for issue in looks[0] if looks else ():
        if issue not in always and all(_has(others, issue) for others in looks):
            yield _flag_issue("wrong-type" if issue.is_type else "unknown-property", part, issue)


def _has(issues: Iterable[ExpressionIssue], wanted: ExpressionIssue) -> bool:
    return any((f.message, f.position) == (wanted.message, wanted.position) for f in issues)


def _flag_issue(check: str, part: Field, issue: ExpressionIssue) -> Finding:
    meant = suggest(issue.name, issue.known) if issue.name else ""
    offset = TextOffset(part.text, issue.position)
    finding = flag(check, part.path, issue.message, meant, offset)
    if not issue.name:
        return finding
    near = list_near(issue.name, issue.known)
    return finding.with_code("undefined-field", issue.name, *near)
