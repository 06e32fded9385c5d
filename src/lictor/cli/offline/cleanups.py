"""Cleanup policies on given resources: which of them would go, and when."""

from collections.abc import Iterator, Sequence
from datetime import datetime

from lictor.assembly import compile_cleanups
from lictor.cli.offline.lookups import OfflineLookups
from lictor.cli.offline.requests import World
from lictor.cli.offline.resources import load_resources
from lictor.cli.sources import Text
from lictor.compile.cleanup import CleanupProgram
from lictor.errors import CompileError, EvaluationError, LookupFailedError
from lictor.model.cleanup import CleanupPolicy
from lictor.raw import JsonObject
from lictor.report.resource_name import name_resource


def list_cleanups(
    cleanups: Sequence[CleanupPolicy],
    texts: Sequence[Text],
    world: World,
    lookups: OfflineLookups,
) -> Iterator[str]:
    """What each policy would delete at its next run, line by line."""
    resources = [r for text in texts for r in load_resources(text.content, text.path)]
    for cleanup in cleanups:
        try:
            (program,) = compile_cleanups([cleanup], lookups=lookups)
            when = _next_run(program, lookups.now())
        except CompileError as error:
            yield f"policy {cleanup.metadata.name} cannot be used: {error}"
            continue
        yield f"policy {program.policy.key} would delete at {when}:"
        found = [line for resource in resources if (line := _judge(program, resource, world))]
        yield from found or ["  nothing of what was given"]


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
