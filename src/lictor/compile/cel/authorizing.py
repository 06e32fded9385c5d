"""ValidatingPolicies on requests to Envoy and to web servers: they answer instead of judging."""

from collections.abc import Callable, Iterator

import msgspec

from lictor.compile.cel.answers import Voice
from lictor.compile.cel.conditions import (
    UNDECIDED,
    Evaluate,
    Holds,
    Language,
    compile_match_conditions,
)
from lictor.compile.cel.deferral import make_rule
from lictor.compile.cel.surroundings import CelSurroundings
from lictor.evaluate.cel import View
from lictor.lang.cel.activation import Activation
from lictor.lang.cel.authorization import (
    ENVOY_RESPONSE,
    HTTP_RESPONSE,
    complete_envoy_request,
    complete_http_request,
    is_allowed,
    read_answer,
)
from lictor.lang.cel.environment import authorization_environment
from lictor.model.cel_policy import ValidatingSpec
from lictor.model.program import Case, CompiledRule, Matcher, Phase, Select
from lictor.model.request import GroupVersionKind, Operation, Request
from lictor.model.result import Action, PolicyRef, Result, RuleType, Status
from lictor.raw import Json, JsonObject

# What such policies judge, by their mode: no resources, and kinds of their own.
REQUEST_KINDS = {
    "Envoy": GroupVersionKind("envoy.service.auth.v3", "", "CheckRequest"),
    "HTTP": GroupVersionKind("http", "", "CheckRequest"),
}
_RESPONSES = {"Envoy": ENVOY_RESPONSE, "HTTP": HTTP_RESPONSE}


def compile_authorizing(
    spec: ValidatingSpec, ref: PolicyRef, around: CelSurroundings
) -> Iterator[CompiledRule]:
    """The one rule of such a policy."""
    yield make_rule(
        ref.name,
        Phase.VALIDATE,
        Action.ENFORCE,
        select=lambda: _select_kind(REQUEST_KINDS[spec.evaluation.mode]),
        check=lambda: _compile_parts(spec, ref, around).check,
    )


class _Parts(msgspec.Struct, frozen=True):
    """A policy's compiled parts."""

    view: View
    voice: Voice
    matches: Holds | None
    expressions: tuple[Evaluate, ...]
    ignores_errors: bool

    def check(self, case: Case) -> tuple[Result, ...]:
        try:
            answer = self._answer(self.view(case))
        except UNDECIDED as error:
            if not self.ignores_errors:
                return self._say(Status.ERROR, str(error))
            answer = None
        if answer is None:
            return self._say(Status.SKIP, "request does not match")
        if is_allowed(answer):
            return self._say(Status.PASS, "request allowed")
        return self._say(Status.FAIL, f"request denied{_explain(answer)}")

    def _answer(self, activation: Activation) -> JsonObject | None:
        """That of the first expression that has one."""
        if self.matches is not None and not self.matches(activation):
            return None
        for evaluate in self.expressions:
            answer = read_answer(evaluate(activation))
            if answer is not None:
                return answer
        return None

    def _say(self, status: Status, message: str) -> tuple[Result]:
        return self.voice.say(self.voice.policy.name, status, message)


def _compile_parts(spec: ValidatingSpec, ref: PolicyRef, around: CelSurroundings) -> _Parts:
    mode = spec.evaluation.mode
    plain = Language(
        authorization_environment(mode),
        around.world(ref.namespace),
        watch=around.watch_rule(ref.name),
    )
    language = plain.declare(spec.variables)
    ignores_errors = spec.failure_policy == "Ignore"
    types = (_RESPONSES[mode], "null_type", "dyn")
    return _Parts(
        view=View(
            mode, _show(complete_envoy_request if mode == "Envoy" else complete_http_request)
        ),
        voice=Voice(ref, RuleType.VALIDATION, Action.ENFORCE),
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


def _explain(answer: JsonObject) -> str:
    if "status" in answer:
        denied = answer.get("deniedResponse")
        status = denied.get("status") if isinstance(denied, dict) else None
        code = status.get("code") if isinstance(status, dict) else ""
        return f" with status code {code}"
    denied = answer.get("denied")
    return f", reason: {denied.get('reason', '') if isinstance(denied, dict) else ''}"
