"""Policies that delete, on given resources: which of them would go, and when."""

from collections.abc import Callable, Iterable, Iterator
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, TypeAlias

from lictor.assembly import compile_cleanups
from lictor.compile.cleanup import CleanupProgram
from lictor.errors import CompileError, EvaluationError, LookupFailedError
from lictor.offline.application import ApplyPlan
from lictor.offline.lookups import OfflineLookups
from lictor.offline.programs import describe_world
from lictor.offline.requests import World
from lictor.offline.resources import load_resources
from lictor.ports import Lookups
from lictor.raw import Json, JsonObject
from lictor.report.resource_name import name_resource

if TYPE_CHECKING:
    from lictor.model.cel_policy import CelPolicy
    from lictor.model.cleanup import CleanupPolicy

# The objects that a policy may look through.
FindResources: TypeAlias = Callable[[Json], Iterable[JsonObject]]


def list_cleanups(plan: ApplyPlan, find_resources: FindResources | None = None) -> Iterator[str]:
    """What each policy would delete at its next run, line by line."""
    find = find_resources or _read_given(plan)
    lookups = plan.lookups or OfflineLookups(plan.world.values, plan.given)
    for record, compile_policy in _list_policies(plan, lookups):
        try:
            (program,) = compile_policy()
            when = _next_run(program, lookups.now())
        except CompileError as error:
            yield f"policy {record.metadata.name} cannot be used: {error}"
            continue
        yield f"policy {program.policy.key} would delete at {when}:"
        found = [line for r in find(record) if (line := _judge(program, r, plan.world))]
        yield from found or ["  nothing of what was given"]


def _read_given(plan: ApplyPlan) -> FindResources:
    resources = [r for text in plan.texts for r in load_resources(text.content, text.path)]
    return lambda _: resources


def _list_policies(
    plan: ApplyPlan, lookups: Lookups
) -> "Iterator[tuple[CleanupPolicy | CelPolicy, Callable[[], tuple[CleanupProgram, ...]]]]":
    """Each policy by itself, so that one that cannot be used stops no other."""
    for cleanup in plan.policies.cleanups:
        yield cleanup, partial(compile_cleanups, [cleanup], lookups=lookups)
    documents = describe_world(plan.exceptions, plan.given)
    for policy in plan.policies.cel.deleting:
        documents = {**documents, "cel_policies": (policy,)}
        yield policy, partial(compile_cleanups, (), lookups=lookups, **documents)


def _next_run(program: CleanupProgram, now: datetime) -> str:
    return program.next_run(now).strftime("%Y-%m-%dT%H:%M:%SZ")


def _judge(program: CleanupProgram, resource: JsonObject, world: World) -> str:
    name = name_resource(resource)
    try:
        goes = program.concerns(world.make_request(resource))
    except (EvaluationError, LookupFailedError) as error:
        # What cannot be decided stays, and the reason is told.
        return f"  not {name}: {error}"
    return f"  {name}" if goes else ""
