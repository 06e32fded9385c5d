"""What every rule's check is built with: who speaks, and how to say it."""

from collections.abc import Callable, Mapping

import msgspec

from lictor.errors import EvaluationError, LookupFailedError
from lictor.evaluate.expressions import Expressions
from lictor.lang.template import CompiledDocument
from lictor.lang.watch import Watch, unwatched
from lictor.model.program import Case
from lictor.model.request import Request
from lictor.model.result import (
    Action,
    ExceptionRef,
    Failure,
    PolicyRef,
    Result,
    RuleType,
    Status,
)
from lictor.ports import Lookups


class Outcome(msgspec.Struct, frozen=True):
    """A check's answer before it is known who gives it."""

    status: Status
    message: str = ""
    failure: Failure | None = None
    # What a report tells beside the message.
    properties: Mapping[str, str] = msgspec.field(default_factory=dict)


class Setting(msgspec.Struct, frozen=True):
    """One rule's surroundings; made once, when its policy is compiled."""

    policy: PolicyRef
    rule: str
    type: RuleType
    expressions: Expressions
    lookups: Lookups
    properties: CompiledDocument
    # What follows from a failure, and how namespaces change that; None where they do not.
    action: Action = Action.AUDIT
    override: Callable[[Request], Action | None] | None = None
    watch: Watch = unwatched

    def result(
        self,
        case: Case,
        outcome: Outcome,
        *,
        exceptions: tuple[ExceptionRef, ...] = (),
    ) -> Result:
        """The outcome as this rule's answer."""
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
        """An answer that is the same for all requests, made beforehand; None where none can be."""
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

    def _fill_properties(self, case: Case, outcome: Outcome) -> Mapping[str, str]:
        own = self._fill_own(case)
        return {**own, **outcome.properties} if outcome.properties else own

    def _fill_own(self, case: Case) -> Mapping[str, str]:
        if self.properties.is_constant:
            return self.properties.constant or {}
        try:
            filled = self.properties.fill(case.scope)
        except (EvaluationError, LookupFailedError):
            return {}  # a report's extra columns never change a verdict
        return {str(key): str(value) for key, value in filled.items()}
