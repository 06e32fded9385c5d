"""Cleanup and deleting policies on given resources: which would be deleted, and when?"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import datetime
from functools import partial
from typing import TypeAlias

from lictor.cli.apply_run import ApplyPlan
from lictor.cli.inputs.lookups import GivenObjects, OfflineLookups
from lictor.cli.inputs.policies import LoadedPolicies
from lictor.cli.inputs.programs import choose_options
from lictor.cli.inputs.requests import RequestFactory
from lictor.core.assembly import compile_cleanups
from lictor.core.errors import CompileError, EvaluationError, LookupFailedError
from lictor.core.model.metadata import PolicyRecord
from lictor.core.model.program import CleanupProgram
from lictor.core.model.request import Request
from lictor.core.model.result import Result, RuleType, Status
from lictor.core.ports import Lookups
from lictor.core.raw import Json, JsonObject
from lictor.core.report.resource_name import name_resource

# One answer for each policy: pass where the object would go.
JudgeDeletions: TypeAlias = Callable[[Request], tuple[Result, ...]]


def compile_deletions(
    policies: LoadedPolicies,
    exceptions: Sequence[PolicyRecord],
    lookups: Lookups,
    given: GivenObjects,
) -> JudgeDeletions:
    """All policies that delete as one question."""
    deleting = policies.listed_deletions
    if not deleting:
        return lambda _: ()
    options = choose_options(given, lookups)
    programs = compile_cleanups((*deleting, *exceptions), **options)
    return lambda request: tuple(judge_deletion(program, request) for program in programs)


def judge_deletion(program: CleanupProgram, request: Request) -> Result:
    """Pass where the object would go, fail where it would stay."""
    try:
        goes = program.concerns(request)
    except (EvaluationError, LookupFailedError) as error:
        return _say(program, Status.ERROR, str(error))
    if goes:
        return _say(program, Status.PASS, "resource matched")
    return _say(program, Status.FAIL, "resource did not match")


def _say(program: CleanupProgram, status: Status, message: str) -> Result:
    policy = program.policy
    return Result(policy, policy.name, RuleType.CLEANUP, status, message)


# The objects that a policy may look through.
FindResources: TypeAlias = Callable[[Json], Iterable[JsonObject]]


def list_cleanups(plan: ApplyPlan, find_resources: FindResources | None = None) -> Iterator[str]:
    """What each policy would delete at its next run, line by line."""
    find = find_resources or _read_given(plan)
    lookups = plan.lookups or OfflineLookups(plan.requests.values, plan.given)
    for record, compile_policy in _list_policies(plan, lookups):
        try:
            (program,) = compile_policy()
            when = _next_run(program, lookups.now())
        except CompileError as error:
            yield f"policy {record.metadata.name} cannot be used: {error}"
            continue
        yield f"policy {program.policy.key} would delete at {when}:"
        found = [
            line for r in find(record) if (line := _describe_deletion(program, r, plan.requests))
        ]
        yield from found or ["  nothing of what was given"]


def _read_given(plan: ApplyPlan) -> FindResources:
    """Read again for each policy: they are not held, as there may be many."""
    return lambda _: plan.inputs.list_resources()


def _list_policies(
    plan: ApplyPlan, lookups: Lookups
) -> Iterator[tuple[PolicyRecord, Callable[[], tuple[CleanupProgram, ...]]]]:
    """Each policy by itself, so that one that cannot be used stops no other."""
    options = choose_options(plan.given, lookups)
    for policy in plan.policies.deletions:
        yield policy, partial(compile_cleanups, (policy, *plan.exceptions), **options)


def _next_run(program: CleanupProgram, now: datetime) -> str:
    return program.next_run(now).strftime("%Y-%m-%dT%H:%M:%SZ")


def _describe_deletion(
    program: CleanupProgram, resource: JsonObject, requests: RequestFactory
) -> str:
    name = name_resource(resource)
    try:
        goes = program.concerns(requests.make_request(resource))
    except (EvaluationError, LookupFailedError) as error:
        # What cannot be decided stays, and the reason is told.
        return f"  not {name}: {error}"
    return f"  {name}" if goes else ""
