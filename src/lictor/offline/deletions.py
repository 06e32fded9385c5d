"""Policies that delete, on single objects: would this one go?"""

from collections.abc import Callable
from typing import TypeAlias

from lictor.assembly import compile_cleanups
from lictor.compile.cleanup import CleanupProgram
from lictor.errors import EvaluationError, LookupFailedError
from lictor.model.request import Request
from lictor.model.result import Result, RuleType, Status
from lictor.offline.lookups import GivenObjects, OfflineLookups
from lictor.offline.policies import GivenExceptions, LoadedPolicies
from lictor.offline.programs import describe_world

# One answer for each policy: pass where the object would go.
JudgeDeletions: TypeAlias = Callable[[Request], tuple[Result, ...]]


def compile_deletions(
    policies: LoadedPolicies,
    exceptions: GivenExceptions,
    lookups: OfflineLookups,
    given: GivenObjects,
) -> JudgeDeletions:
    """All DeletingPolicies as one question."""
    deleting = policies.cel.deleting
    if not deleting:
        return lambda _: ()
    documents = describe_world(exceptions, given)
    documents["cel_policies"] = deleting
    programs = compile_cleanups((), lookups=lookups, **documents)
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
