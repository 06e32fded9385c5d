"""What a rule's checks are built with: policy, expressions, lookups and messages."""

from collections.abc import Callable, Mapping

import msgspec

from lictor.core.errors import EvaluationError, LookupFailedError
from lictor.core.evaluate.expressions import Expressions
from lictor.core.lang.template import CompiledDocument
from lictor.core.lang.watch import Watch, unwatched
from lictor.core.model.program import Case
from lictor.core.model.request import Request
from lictor.core.model.result import (
    Action,
    ExceptionRef,
    Failure,
    PolicyRef,
    Result,
    RuleType,
    Status,
)
from lictor.core.ports import Lookups


class RuleOutcome(msgspec.Struct, frozen=True):
    """The outcome of a check, before it is attributed to a rule."""

    status: Status
    message: str = ""
    failure: Failure | None = None
    # Additional properties for a report.
    properties: Mapping[str, str] = msgspec.field(default_factory=dict)


class RuleContext(msgspec.Struct, frozen=True):
    """The policy and settings of one rule; built once, when its policy is compiled."""

    policy: PolicyRef
    rule: str
    type: RuleType
    expressions: Expressions
    lookups: Lookups
    properties: CompiledDocument
    # The action on failure, and how namespaces change it; None if they do not.
    action: Action = Action.AUDIT
    override: Callable[[Request], Action | None] | None = None
    watch: Watch = unwatched

    def result(
        self,
        case: Case,
        outcome: RuleOutcome,
        *,
        exceptions: tuple[ExceptionRef, ...] = (),
    ) -> Result:
        """The outcome as a result of this rule."""
        return Result(
            policy=self.policy,
            rule=self.rule,
            type=self.type,
            status=outcome.status,
            message=outcome.message,
            action=self.action_for(case.request),
            failure=outcome.failure,
            properties=self._fill_properties(case, outcome),
            exceptions=exceptions,
        )

    def fixed(self, status: Status, message: str) -> tuple[Result] | None:
        """A result that is the same for all requests, built in advance; None if impossible."""
        if self.override is not None or not self.properties.is_constant:
            return None
        return (
            Result(
                policy=self.policy,
                rule=self.rule,
                type=self.type,
                status=status,
                message=message,
                action=self.action,
                properties=self.properties.constant or {},
            ),
        )

    def action_for(self, request: Request) -> Action:
        changed = self.override(request) if self.override is not None else None
        return changed if changed is not None else self.action

    def _fill_properties(self, case: Case, outcome: RuleOutcome) -> Mapping[str, str]:
        own = self._fill_own(case)
        return {**own, **outcome.properties} if outcome.properties else own

    def _fill_own(self, case: Case) -> Mapping[str, str]:
        if self.properties.is_constant:
            return self.properties.constant or {}
        try:
            filled = self.properties.fill(case.scope)
        except (EvaluationError, LookupFailedError):
            return {}  # additional report properties never change a verdict
        return {str(key): str(value) for key, value in filled.items()}


class Message(msgspec.Struct, frozen=True):
    """A rule's message; rendered only when the rule fails."""

    rule: str
    text: str
    document: CompiledDocument

    def of_path(self, case: Case, path: str) -> str:
        """A pattern that does not match at `path`."""
        failed = f"rule {self.rule} failed at path {path}"
        if not self.text:
            return f"validation error: {failed}"
        text = self._fill(case)
        if text is None:
            return self._unfilled(failed)
        return f"validation error: {_with_stop(text)} {failed}"

    def of_error(self, case: Case, reason: str) -> str:
        """A pattern that failed with an error."""
        failed = f"rule {self.rule} execution error: {reason}"
        if not self.text:
            return f"validation error: {failed}"
        text = self._fill(case)
        return (
            self._unfilled(reason)
            if text is None
            else f"validation error: {_with_stop(text)} {failed}"
        )

    def of_reasons(self, case: Case, reasons: str) -> str:
        """None of several patterns matches."""
        if not self.text:
            return f"validation error: {reasons}"
        text = self._fill(case)
        if text is None:
            return self._unfilled(reasons)
        return f"validation error: {_with_stop(text)} {reasons}"

    def of_denial(self, case: Case, conditions: str, setting: RuleContext) -> str:
        """Conditions that deny; `conditions` are their messages."""
        if not self.text and not conditions:
            return f"validation error: rule {self.rule} failed"
        joined = "; ".join(filter(None, (self.text, conditions)))
        document = self.document if not conditions else setting.expressions.template(joined)
        text = _filled(document, case)
        return conditions if text is None else text

    def _fill(self, case: Case) -> str | None:
        return _filled(self.document, case)

    def _unfilled(self, reason: str) -> str:
        return (
            f"validation error: variables substitution error in rule {self.rule} "
            f"execution error: {reason}"
        )


def compile_message(text: str, setting: RuleContext) -> Message:
    """Compile a rule's message."""
    return Message(setting.rule, text, setting.expressions.document(text))


def _filled(document: CompiledDocument, case: Case) -> str | None:
    if document.is_constant:
        return str(document.constant)
    try:
        made = document.fill(case.scope)
    except (EvaluationError, LookupFailedError):
        return None
    if isinstance(made, str):
        return made
    return "the produced message didn't resolve to a string, check your policy definition."


def _with_stop(text: str) -> str:
    return text if text.endswith(".") else f"{text}."
