"""ValidatingPolicies on requests to Envoy and to web servers: they return responses."""

from collections.abc import Callable, Iterator

from lictor.core.compile.deferral import make_rule, put_off
from lictor.core.evaluate.cel.context import CelContext
from lictor.core.evaluate.cel.exceptions import ResultTemplate
from lictor.core.evaluate.cel.expressions import ExpressionCompiler, compile_match_conditions
from lictor.core.evaluate.cel.validate import AuthorizationCheck
from lictor.core.evaluate.cel.views import View
from lictor.core.lang.cel.environment import authorization_environment
from lictor.core.lang.cel.library.answers import (
    ENVOY_RESPONSE,
    HTTP_RESPONSE,
    complete_envoy_request,
    complete_http_request,
)
from lictor.core.model.cel_policy import ValidatingSpec
from lictor.core.model.program import CompiledRule, Matcher, Phase, Select
from lictor.core.model.request import GroupVersionKind, Operation, Request
from lictor.core.model.result import Action, PolicyRef, RuleType
from lictor.core.raw import Json, JsonObject

# What such policies evaluate, by their mode: special kinds instead of resources.
REQUEST_KINDS = {
    "Envoy": GroupVersionKind("envoy.service.auth.v3", "", "CheckRequest"),
    "HTTP": GroupVersionKind("http", "", "CheckRequest"),
}
_RESPONSES = {"Envoy": ENVOY_RESPONSE, "HTTP": HTTP_RESPONSE}


def compile_authorizing(
    spec: ValidatingSpec, ref: PolicyRef, around: CelContext
) -> Iterator[CompiledRule]:
    """The one rule of such a policy."""
    yield make_rule(
        ref.name,
        Phase.VALIDATE,
        Action.ENFORCE,
        select=lambda: _select_kind(REQUEST_KINDS[spec.evaluation.mode]),
        check=put_off(lambda: _compile_parts(spec, ref, around).check, around),
    )


def _compile_parts(spec: ValidatingSpec, ref: PolicyRef, around: CelContext) -> AuthorizationCheck:
    mode = spec.evaluation.mode
    plain = ExpressionCompiler(
        authorization_environment(mode),
        around.host_functions(ref.namespace),
        watch=around.watch_rule(ref.name),
    )
    language = plain.declare(spec.variables)
    ignores_errors = spec.failure_policy == "Ignore"
    types = (_RESPONSES[mode], "null_type", "dyn")
    return AuthorizationCheck(
        view=View(
            mode, _show(complete_envoy_request if mode == "Envoy" else complete_http_request)
        ),
        template=ResultTemplate(ref, RuleType.VALIDATION, Action.ENFORCE),
        matches=compile_match_conditions(spec.match_conditions, plain),
        expressions=tuple(
            language.evaluator(validation.expression, types, f"validations[{index}].expression")
            for index, validation in enumerate(spec.validations)
        ),
        ignores_errors=ignores_errors,
    )


def _show(complete: Callable[[Json], JsonObject]) -> Callable[[Request], JsonObject]:
    return lambda request: {"object": complete(request.object)}


def _select_kind(wanted: GroupVersionKind) -> Select:
    def select(
        kind: GroupVersionKind,
        subresource: str,  # noqa: ARG001
        operation: Operation,  # noqa: ARG001
    ) -> Matcher | None:
        return (lambda _: True) if kind == wanted else None

    return select
