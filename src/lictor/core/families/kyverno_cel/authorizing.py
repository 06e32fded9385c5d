"""ValidatingPolicies on requests to Envoy and to web servers: they return responses."""

from collections.abc import Callable, Iterator

from lictor.core.compile.deferral import make_rule, put_off
from lictor.core.evaluate.cel.context import CelContext
from lictor.core.evaluate.cel.exceptions import ResultTemplate
from lictor.core.evaluate.cel.expressions import ExpressionCompiler, compile_match_conditions
from lictor.core.evaluate.cel.validate import AuthorizationCheck
from lictor.core.evaluate.cel.views import View
from lictor.core.lang.cel.kyverno import authorization_environment
from lictor.core.lang.cel.library.answers import ENVOY_RESPONSE, HTTP_RESPONSE
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
_HTTP_TEXTS = ("method", "host", "protocol", "scheme", "path", "fragment")
_ENVOY_TEXTS = (
    "id", "method", "path", "host", "scheme", "query", "fragment", "protocol", "body",
)  # fmt: skip
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


def complete_envoy_request(payload: Json) -> JsonObject:
    """A CheckRequest with the fields that it leaves out; they read as empty, as in any protobuf."""
    attributes = _object(_object(payload).get("attributes"))
    request = _object(attributes.get("request"))
    web = _object(request.get("http"))
    texts = dict.fromkeys(_ENVOY_TEXTS, "")
    whole = {"headers": {}, "size": 0, **texts, **_snake(web)}
    return {
        **_object(payload),
        "attributes": {
            "source": {},
            "destination": {},
            "context_extensions": {},
            "metadata_context": {},
            **_snake(attributes),
            "request": {**_snake(request), "http": whole},
        },
    }


def complete_http_request(payload: Json) -> JsonObject:
    """A request to a web server with the fields that it leaves out."""
    attributes = _object(_object(payload).get("attributes"))
    texts = dict.fromkeys(_HTTP_TEXTS, "")
    empty = {"header": {}, "query": {}, "contentLength": 0, "body": ""}
    return {**_object(payload), "attributes": {**empty, **texts, **attributes}}


def _object(value: Json) -> JsonObject:
    return value if isinstance(value, dict) else {}


def _snake(fields: JsonObject) -> JsonObject:
    """Names of fields as protobuf has them; JSON may have either form."""
    return {
        "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in name): value
        for name, value in fields.items()
    }
