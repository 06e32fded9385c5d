"""What a CEL policy says of a request, before and after it is known who says it."""

from collections.abc import Mapping

import msgspec

from lictor.model.result import Action, ExceptionRef, PolicyRef, Result, RuleType, Status

_NOTHING: Mapping[str, str] = {}


class Voice(msgspec.Struct, frozen=True):
    """Who speaks, and what follows from a failure."""

    policy: PolicyRef
    type: RuleType
    action: Action

    def say(
        self,
        rule: str,
        status: Status,
        message: str,
        *,
        properties: Mapping[str, str] = _NOTHING,
        exceptions: tuple[ExceptionRef, ...] = (),
    ) -> tuple[Result]:
        """One answer, as a check gives it."""
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
