"""Policies in CEL that are not compiled become programs all the same: they answer with an error."""

from collections.abc import Iterator

from lictor.compile.cel.autogen import list_floors
from lictor.compile.cel.deferral import make_rule
from lictor.compile.cel.selection import choose_action, select_constrained
from lictor.errors import LictorError
from lictor.evaluate.cel.context import CelContext, refer
from lictor.model.admission import MatchResources
from lictor.model.cel_policy import CelPolicy
from lictor.model.program import Case, Check, Phase, Program
from lictor.model.result import Action, Result

_PHASES = {
    "ValidatingPolicy": Phase.VALIDATE,
    "ImageValidatingPolicy": Phase.VERIFY_IMAGES,
    "MutatingPolicy": Phase.MUTATE,
    "GeneratingPolicy": Phase.GENERATE,
}


def fail_cel_policy(
    policy: CelPolicy, error: LictorError, around: CelContext
) -> tuple[Program, ...]:
    """A program whose only answer is the error; none for kinds that judge no requests."""
    kind = policy.kind.removeprefix("Namespaced")
    if kind not in _PHASES:
        return ()
    ref = refer(policy.api_version, policy.kind, policy.metadata, f"Kyverno{kind}")
    spec = policy.spec
    ignores = getattr(spec, "failure_policy", "") == "Ignore"
    action = choose_action(tuple(getattr(spec, "validation_actions", ())))
    evaluation = getattr(spec, "evaluation", None)
    return (
        Program(
            policy=ref,
            rules=tuple(
                make_rule(
                    "",
                    _PHASES[kind],
                    # What cannot be decided: whoever says "Ignore" wants it to pass.
                    Action.AUDIT if ignores else action,
                    select=lambda each=each: select_constrained(each, ref, around),  # type: ignore[misc]
                    check=lambda: _fail(error),
                )
                for each in _list_constraints(policy)
            ),
            admission=_is_enabled(evaluation, "admission"),
            background=_is_enabled(evaluation, "background"),
        ),
    )


def _list_constraints(policy: CelPolicy) -> Iterator[MatchResources | None]:
    spec = policy.spec
    yield spec.match_constraints
    autogen = getattr(spec, "autogen", None)
    if autogen is not None:
        for floor in list_floors(spec.match_constraints, autogen.pod_controllers):
            yield floor.constraints


def _is_enabled(evaluation: object, when: str) -> bool:
    return bool(getattr(getattr(evaluation, when, None), "enabled", True))


def _fail(error: LictorError) -> Check:
    def check(_: Case) -> tuple[Result, ...]:
        raise error

    return check
