"""The body of a validate rule (deny, pattern, anyPattern, foreach) as tests in CEL."""

from msgspec.structs import replace

from lictor.addons.convert.cel_tests import FALSE, Test, all_of, any_of, compare, negate
from lictor.addons.convert.cel_values import CelValue
from lictor.addons.convert.condition import translate_conditions
from lictor.addons.convert.context import bind_context
from lictor.addons.convert.navigation import as_stream, names_inside
from lictor.addons.convert.pattern import (
    FillIn,
    PatternOutcome,
    translate_element,
    translate_pattern,
)
from lictor.addons.convert.query import translate_query, translate_text
from lictor.addons.convert.value import (
    Constant,
    Either,
    ExpressionScope,
    LoopList,
    Value,
    as_cel_value,
    quantify,
    settle,
)
from lictor.addons.convert.writing import wrap
from lictor.core.errors import CompileError
from lictor.core.model.policy import ForEachValidate, Validate
from lictor.core.raw import Json

_NO_EQUIVALENT = {
    "pod_security": "podSecurity: a Pod Security Standard cannot be expressed in CEL",
    "manifests": "manifests: signatures of manifests cannot be verified in CEL",
    "assert_": "assert: assertion trees have no equivalent",
}
# Paths whose values can never be taken for a pattern with wildcards or operators.
_PLAIN_TEXTS = (
    "metadata.name",
    "metadata.namespace",
    "request.namespace",
    "request.name",
    "serviceAccountName",
)


def translate_fails(validate: Validate, scope: ExpressionScope) -> Test:
    """When the body of a rule fails."""
    for field, reason in _NO_EQUIVALENT.items():
        if getattr(validate, field) is not None:
            raise CompileError(reason)
    if validate.deny is not None:
        return translate_conditions(validate.deny.conditions, scope)
    if validate.pattern is not None:
        return _whole(validate.pattern, scope).fails
    if validate.any_pattern is not None:
        return _fail_all([_whole(each, scope) for each in _list(validate.any_pattern)])
    if validate.foreach:
        return any_of(_translate_loop(loop, scope, 0) for loop in validate.foreach)
    raise CompileError("a rule without requirements")


def _list(patterns: Json) -> list[Json]:
    if not isinstance(patterns, list):
        raise CompileError("anyPattern is not a list")
    return patterns


def _fail_all(verdicts: list[PatternOutcome]) -> Test:
    """None matches, and not all are skipped."""
    if all(verdict.skips == FALSE for verdict in verdicts):
        return all_of(verdict.fails for verdict in verdicts)
    none_fits = all_of(negate(verdict.fits) for verdict in verdicts)
    return all_of((none_fits, any_of(verdict.fails for verdict in verdicts)))


def _whole(pattern: Json, scope: ExpressionScope) -> PatternOutcome:
    return translate_pattern(pattern, scope.subject, plain_filler(scope), scope.names)


def plain_filler(scope: ExpressionScope) -> FillIn:
    """Compare with texts that are filled in, if they can be nothing but texts."""

    def fill(text: str, target: CelValue) -> Test:
        inner = text.strip("{} ")
        if not inner.endswith(_PLAIN_TEXTS):
            raise CompileError(f"{text!r} may become any pattern when it is filled in")
        value = as_cel_value(translate_text(text, scope))
        return compare(wrap(target.text), "==", wrap(value.text), risky=value.risky)

    return fill


# --- foreach


def _translate_loop(loop: ForEachValidate, scope: ExpressionScope, nesting: int) -> Test:
    found = translate_query(loop.list, replace(scope, strict=False))
    return _over(settle(found), loop, scope, nesting)


def _over(found: Value, loop: ForEachValidate, scope: ExpressionScope, nesting: int) -> Test:
    if isinstance(found, Either):
        then, other = (_over(settle(v), loop, scope, nesting) for v in (found.then, found.other))
        if other == FALSE:
            return all_of((found.condition, then))
        raise CompileError("foreach over one of two lists")
    if isinstance(found, Constant) and not found.value:
        return FALSE
    stream = as_stream(found, scope.names)
    if not isinstance(stream, LoopList):
        raise CompileError(f"foreach over {loop.list!r}, which is no list")
    inside = replace(scope, names=names_inside(stream, scope.names))
    return quantify(stream, lambda item: _element(loop, item, inside, nesting), every=False)


def _element(loop: ForEachValidate, item: Value, scope: ExpressionScope, nesting: int) -> Test:
    if loop.element_scope is False:
        raise CompileError("elementScope: false")
    inside = scope.bind(**{"element": item, f"element{nesting}": item})
    inside = bind_context(loop.context, inside)
    tested = translate_conditions(loop.preconditions, replace(inside, strict=False))
    return all_of((tested, _fails(loop, item, inside, nesting)))


def _fails(loop: ForEachValidate, item: Value, scope: ExpressionScope, nesting: int) -> Test:
    if loop.deny is not None:
        return translate_conditions(loop.deny.conditions, scope)
    if loop.foreach:
        return any_of(_translate_loop(each, scope, nesting + 1) for each in loop.foreach)
    target = as_cel_value(item)
    fill = plain_filler(scope)
    if loop.pattern is not None:
        return translate_element(loop.pattern, target, fill, scope.names).fails
    patterns = _list(loop.any_pattern)
    return _fail_all([translate_element(p, target, fill, scope.names) for p in patterns])
