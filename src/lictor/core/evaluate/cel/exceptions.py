"""Results of a CEL policy, and the PolicyExceptions that exempt a request from it."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime

import msgspec

from lictor.core.evaluate.cel.expressions import (
    UNDECIDED,
    ExpressionCompiler,
    Holds,
    compile_match_conditions,
)
from lictor.core.lang.cel.expression import Activation
from lictor.core.model.cel_policy import CelException
from lictor.core.model.result import Action, ExceptionRef, PolicyRef, Result, RuleType, Status
from lictor.core.raw import JsonObject

_NOTHING: Mapping[str, str] = {}


class ResultTemplate(msgspec.Struct, frozen=True):
    """What the results of one policy have in common."""

    policy: PolicyRef
    type: RuleType
    action: Action

    def make(
        self,
        rule: str,
        status: Status,
        message: str,
        *,
        properties: Mapping[str, str] = _NOTHING,
        exceptions: tuple[ExceptionRef, ...] = (),
    ) -> tuple[Result]:
        """One result, as a check returns it."""
        return (
            Result(
                policy=self.policy,
                rule=rule,
                type=self.type,
                status=status,
                message=message,
                action=self.action,
                properties=properties,
                exceptions=exceptions,
            ),
        )


_PRIORITY = "polex.kyverno.io/priority"


class Exemption(msgspec.Struct, frozen=True):
    """An exception that names the policy, and its condition; None: it always applies."""

    exception: CelException
    holds: Holds | None
    now: Callable[[], datetime]

    def is_in_force(self, activation: Activation) -> bool:
        """Whether it is not expired and its conditions hold."""
        spec = self.exception.spec
        if spec.expires_at and spec.is_expired(self.now()):
            return False
        return self.holds is None or self.holds(activation)


def compile_exemptions(
    exceptions: Iterable[CelException],
    policy: PolicyRef,
    language: ExpressionCompiler,
    *,
    ignore_errors: bool = False,
) -> tuple[Exemption, ...]:
    """The exceptions that name this policy."""
    return tuple(
        Exemption(
            exception,
            compile_match_conditions(
                exception.spec.match_conditions,
                language,
                ignore_errors=ignore_errors,
                where=f"exception {exception.metadata.name}: matchConditions",
            ),
            language.host.now,
        )
        for exception in exceptions
        if any(
            (ref.kind, ref.name) == (policy.kind, policy.name) for ref in exception.spec.policy_refs
        )
    )


def find_exceptions(
    exemptions: Sequence[Exemption], activation: Activation
) -> tuple[CelException, ...]:
    """Those in force; if one exempts fully, only those that do."""
    found: list[CelException] = []
    full: list[CelException] = []
    for exemption in exemptions:
        try:
            if exemption.is_in_force(activation):
                is_partial = exemption.exception.spec.is_partial
                (found if is_partial else full).append(exemption.exception)
        except UNDECIDED:
            # The request is exempt anyway.
            if not full:
                raise
    return tuple(full or found)


def allow(found: Sequence[CelException]) -> JsonObject:
    """The variable `exceptions`: images and values that are allowed."""
    return {
        "allowedImages": [image for each in found for image in each.spec.images],
        "allowedValues": [value for each in found for value in each.spec.allowed_values],
    }


def build_exempted(found: Sequence[CelException], template: ResultTemplate) -> tuple[Result]:
    """The result of a policy from which the request is exempt; the strongest exception decides."""
    refs = tuple(ExceptionRef(e.metadata.name, e.metadata.namespace) for e in found)
    keys = ", ".join(ref.key for ref in refs)
    passes = max(found, key=_priority).spec.report_result == "pass"
    return template.make(
        "exception",
        Status.PASS if passes else Status.SKIP,
        f"rule is {'passed' if passes else 'skipped'} due to policy exception: {keys}",
        exceptions=refs,
    )


def _priority(exception: CelException) -> int:
    try:
        return max(int(exception.metadata.labels.get(_PRIORITY, "")), 0)
    except ValueError:
        return 0
