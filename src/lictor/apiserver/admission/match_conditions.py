"""`matchConditions` of webhooks: CEL that says whether a webhook is asked at all."""

from collections.abc import Callable, Sequence
from typing import TypeAlias

from lictor.apiserver.admission.submission import Submission
from lictor.apiserver.kind import ServedKind
from lictor.ports import Lookups
from lictor.raw import Json

# Do all hold? Raises EvaluationError where that cannot be decided.
Conditions: TypeAlias = Callable[[Submission, ServedKind | None], bool]


def compile_conditions(
    conditions: Sequence[Json], lookups: Lookups, *, ignore_errors: bool
) -> Conditions | None:
    """None where there is nothing to ask. With `ignore_errors`, what is undecided does not hold."""
    if not conditions:
        return None
    # The engine of that language is heavy, and most webhooks have no conditions.
    from lictor.apiserver.admission.cel_conditions import compile_cel_conditions

    return compile_cel_conditions(conditions, lookups, ignore_errors=ignore_errors)
