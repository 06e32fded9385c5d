"""Cleanup and deleting policies on given resources: which would be deleted, and when?"""

from collections.abc import Callable, Iterator, Sequence
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
from lictor.core.raw import JsonObject
from lictor.core.report.resource_name import name_resource

# One result for each policy: pass if the object would be deleted.
EvaluateDeletions: TypeAlias = Callable[[Request], tuple[Result, ...]]


def compile_deletions(
    policies: LoadedPolicies,
    exceptions: Sequence[PolicyRecord],
    lookups: Lookups,
    given: GivenObjects,
) -> EvaluateDeletions:
    """Compile all deletion policies into one function."""
    deleting = policies.listed_deletions
    if not deleting:
        return lambda _: ()
    options = choose_options(given, lookups)
    programs = compile_cleanups((*deleting, *exceptions), **options)
    return lambda request: tuple(evaluate_deletion(program, request) for program in programs)


def evaluate_deletion(program: CleanupProgram, request: Request) -> Result:
    """Return pass if the object would be deleted, fail if it would stay."""
    try:
        goes = program.concerns(request)
    except (EvaluationError, LookupFailedError) as error:
        return _make_result(program, Status.ERROR, str(error))
    if goes:
        return _make_result(program, Status.PASS, "resource matched")
    return _make_result(program, Status.FAIL, "resource did not match")


def _make_result(program: CleanupProgram, status: Status, message: str) -> Result:
    policy = program.policy
    return Result(policy, policy.name, RuleType.CLEANUP, status, message)


def list_cleanups(plan: ApplyPlan) -> Iterator[str]:
    """Return what each policy would delete at its next run, as lines."""
    # Resources are read again for each policy: there may be too many to keep.
    find = plan.find_deletable or (lambda _: plan.inputs.list_resources())
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


def _list_policies(
    plan: ApplyPlan, lookups: Lookups
) -> Iterator[tuple[PolicyRecord, Callable[[], tuple[CleanupProgram, ...]]]]:
    """Return each policy separately, so that an invalid one does not stop the others."""
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
        # An object stays if its policy cannot be evaluated; the reason is printed.
        return f"  not {name}: {error}"
    return f"  {name}" if goes else ""
