"""Checks of validating CEL policies: objects, and requests to authorize."""

from collections.abc import Mapping

import msgspec
from msgspec.structs import replace

from lictor.core.evaluate.cel.exceptions import (
    Exemption,
    ResultTemplate,
    allow,
    build_exempted,
    find_exceptions,
)
from lictor.core.evaluate.cel.expressions import UNDECIDED, Annotate, Evaluate, Holds
from lictor.core.evaluate.cel.validations import EvaluateActivation, Ruling
from lictor.core.evaluate.cel.views import View
from lictor.core.lang.cel.expression import Activation
from lictor.core.lang.cel.library.answers import ENVOY_RESPONSE, HTTP_RESPONSE
from lictor.core.model.program import Case, Check
from lictor.core.model.result import Action, Result, Status
from lictor.core.raw import Json, JsonObject


class AuthorizationCheck(msgspec.Struct, frozen=True):
    """The compiled parts of a policy."""

    view: View
    template: ResultTemplate
    matches: Holds | None
    expressions: tuple[Evaluate, ...]
    ignores_errors: bool

    def check(self, case: Case) -> tuple[Result, ...]:
        try:
            answer = self._answer(self.view(case))
        except UNDECIDED as error:
            if not self.ignores_errors:
                return self._build_result(Status.ERROR, str(error))
            answer = None
        if answer is None:
            return self._build_result(Status.SKIP, "request does not match")
        if is_allowed(answer):
            return self._build_result(Status.PASS, "request allowed")
        return self._build_result(Status.FAIL, f"request denied{_explain(answer)}")

    def _answer(self, activation: Activation) -> JsonObject | None:
        """The value of the first expression that has one."""
        if self.matches is not None and not self.matches(activation):
            return None
        for evaluate in self.expressions:
            answer = read_answer(evaluate(activation))
            if answer is not None:
                return answer
        return None

    def _build_result(self, status: Status, message: str) -> tuple[Result]:
        return self.template.make(self.template.policy.name, status, message)


def _explain(answer: JsonObject) -> str:
    if "status" in answer:
        denied = answer.get("deniedResponse")
        status = denied.get("status") if isinstance(denied, dict) else None
        code = status.get("code") if isinstance(status, dict) else ""
        return f" with status code {code}"
    denied = answer.get("denied")
    return f", reason: {denied.get('reason', '') if isinstance(denied, dict) else ''}"


_ANSWERS = {
    Ruling.UNMATCHED: (Status.SKIP, "match conditions aren't met"),
    Ruling.ADMITTED: (Status.PASS, ""),
    Ruling.DENIED: (Status.FAIL, ""),
    Ruling.UNDECIDED: (Status.ERROR, ""),
}


class DecisionResults(msgspec.Struct, frozen=True):
    """Converts a decision to a result."""

    template: ResultTemplate
    properties: Mapping[str, str]
    annotate: Annotate | None
    ignores_errors: bool

    def build(self, ruling: Ruling, message: str, case: Case, view: View) -> tuple[Result, ...]:
        status, words = _ANSWERS[ruling]
        template = self.template
        if ruling is Ruling.UNDECIDED and self.ignores_errors:
            template = replace(template, action=Action.AUDIT)
        properties = self.properties
        if self.annotate is not None and ruling in (Ruling.ADMITTED, Ruling.DENIED):
            properties = {**self._annotations(case, view), **properties}
        return template.make(template.policy.name, status, message or words, properties=properties)

    def _annotations(self, case: Case, view: View) -> Mapping[str, str]:
        if self.annotate is None:
            return {}
        try:
            return self.annotate(view(case))
        except UNDECIDED:
            return {}  # additional report properties never change a verdict


def check_exempted(
    view: View,
    exemptions: tuple[Exemption, ...],
    evaluate: EvaluateActivation,
    template: ResultTemplate,
) -> Check:
    """The check of a policy, after its exceptions."""
    if not exemptions:
        return lambda case: evaluate(view(case))

    def evaluate_case(case: Case) -> tuple[Result, ...]:
        activation = view(case)
        found = find_exceptions(exemptions, activation)
        if not found:
            return evaluate(activation)
        allowed = allow(found)
        if any(allowed.values()):
            return evaluate(view.adding(case, exceptions=allowed))
        return build_exempted(found, template)

    return evaluate_case


def report_errors(evaluate: Check, template: ResultTemplate) -> Check:
    """The same check; an evaluation error becomes a result."""

    def check(case: Case) -> tuple[Result, ...]:
        try:
            return evaluate(case)
        except UNDECIDED as error:
            return template.make("evaluation", Status.ERROR, f"failed to load context: {error}")

    return check


def read_answer(answer: Json) -> JsonObject | None:
    """The response of a policy without the name of its type; None if it returned no response."""
    if not isinstance(answer, dict):
        return None
    return _object(answer.get(ENVOY_RESPONSE) or answer.get(HTTP_RESPONSE))


def is_allowed(answer: JsonObject) -> bool:
    """Whether a response allows the request."""
    if "status" in answer:
        return bool(_object(answer["status"]).get("code", 0) == 0)
    return "ok" in answer


def _object(value: Json) -> JsonObject:
    return value if isinstance(value, dict) else {}
