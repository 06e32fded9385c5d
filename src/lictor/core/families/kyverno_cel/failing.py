"""Policies in CEL that are not compiled become programs all the same: they answer with an error."""

from collections.abc import Iterator

from lictor.core.compile.context import CompileContext
from lictor.core.compile.deferral import fail_always, make_rule
from lictor.core.compile.selection import choose_action, select_constrained
from lictor.core.errors import LictorError
from lictor.core.families.kyverno_cel.autogen import (
    find_custom_workloads,
    list_requests,
    list_template_paths,
)
from lictor.core.families.kyverno_cel.records import CelPolicy
from lictor.core.families.registry import refer, registry
from lictor.core.model.constraints import MatchResources
from lictor.core.model.program import Phase, Program
from lictor.core.model.result import Action


def fail_cel_policy(policy: CelPolicy, error: LictorError, context: CompileContext) -> Program:
    """A program whose only answer is the error."""
    around = context.cel
    (phase,) = registry().of(policy).phases
    ref = refer(policy)
    spec = policy.spec
    # With "Ignore", what cannot be decided passes; an image that was not verified does not.
    ignores = getattr(spec, "failure_policy", "") == "Ignore" and phase is not Phase.VERIFY_IMAGES
    action = choose_action(tuple(getattr(spec, "validation_actions", ())))
    evaluation = getattr(spec, "evaluation", None)
    changes_existing = getattr(getattr(evaluation, "mutate_existing", None), "enabled", False)
    return Program(
        policy=ref,
        rules=tuple(
            make_rule(
                "",
                phase,
                Action.AUDIT if ignores else action,
                select=lambda each=each: select_constrained(each, ref, around),  # type: ignore[misc]
                check=lambda: fail_always(error),
                applies=(lambda: fail_always(error)) if changes_existing else None,
            )
            for each in _list_constraints(policy)
        ),
        admission=_is_enabled(evaluation, "admission"),
        background=_is_enabled(evaluation, "background"),
    )


def _list_constraints(policy: CelPolicy) -> Iterator[MatchResources | None]:
    spec = policy.spec
    yield list_requests(spec)
    autogen = getattr(spec, "autogen", None)
    if autogen is not None:
        for template_path in list_template_paths(spec.match_constraints, autogen.pod_controllers):
            yield template_path.constraints
        custom = find_custom_workloads(spec.match_constraints, autogen.pod_controllers)
        if custom is not None:
            yield custom


def _is_enabled(evaluation: object, when: str) -> bool:
    return bool(getattr(getattr(evaluation, when, None), "enabled", True))
