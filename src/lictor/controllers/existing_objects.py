"""Evaluates policies for the existing objects of a cluster. Nothing is written."""

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence

import msgspec

from lictor.core.engine import Engine
from lictor.core.errors import ApiError
from lictor.core.model.program import Phase, Program
from lictor.core.model.request import GroupVersionKind, Operation, Request
from lictor.core.model.result import Status, Verdict
from lictor.core.raw import JsonObject
from lictor.kubernetes.client import Client
from lictor.kubernetes.discovery import Discovery
from lictor.kubernetes.request_filter import RequestFilter
from lictor.kubernetes.resource import Resource
from lictor.lookups.lookups import begin_request

# No caller waits, but a policy that never ends must not block the others.
_SECONDS = 60.0
_PAGE = 100
_CHECKING = (Phase.VALIDATE, Phase.VERIFY_IMAGES)


def evaluate_now(engine: Engine, request: Request) -> Verdict:
    """The results, in this thread: not the event loop's, which lookups wait for."""
    deadline = time.monotonic() + _SECONDS
    begin_request(deadline)
    return engine.evaluate(request, deadline=deadline)


def concerns(program: Program, kind: GroupVersionKind) -> bool:
    """Whether any rule of the program may match this kind."""
    return any(rule.select(kind, "", Operation.CREATE) is not None for rule in program.rules)


class PreviewFinding(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """What a rule would do to one object, or why it cannot be evaluated."""

    policy: str
    rule: str
    api_version: str
    kind: str
    name: str
    namespace: str = ""
    message: str = ""


class PolicyPreview(msgspec.Struct, rename="camel"):
    """The preview. The lists have the first findings only; the counts include all."""

    policies: list[str]
    kinds: int = 0
    judged: int = 0
    refused: int = 0
    changed: int = 0
    undecided: int = 0
    # Could not be deleted any more.
    undeletable: int = 0
    refusals: list[PreviewFinding] = msgspec.field(default_factory=list)
    changes: list[PreviewFinding] = msgspec.field(default_factory=list)
    doubts: list[PreviewFinding] = msgspec.field(default_factory=list)
    deletions: list[PreviewFinding] = msgspec.field(default_factory=list)
    # Kinds that could not be read, and why.
    problems: list[str] = msgspec.field(default_factory=list)


class PreviewScope(msgspec.Struct, frozen=True):
    """Which objects are evaluated, and their namespaces' labels."""

    client: Client
    namespace_labels: Callable[[str], Mapping[str, str]]
    is_filtered: RequestFilter
    # How many findings of each type are listed.
    limit: int = 1000


class _Engines(msgspec.Struct, frozen=True):
    storing: Engine
    deleting: Engine


async def preview_programs(programs: Sequence[Program], scope: PreviewScope) -> PolicyPreview:
    """Evaluate all objects that the programs may match, as if they were created now."""
    preview = PolicyPreview(sorted({program.policy.key for program in programs}))
    discovery = Discovery(scope.client)
    await discovery.ensure()
    for resource in discovery.list_kinds():
        await _preview_kind(resource, programs, scope, preview)
    return preview


async def _preview_kind(
    resource: Resource,
    programs: Sequence[Program],
    scope: PreviewScope,
    preview: PolicyPreview,
) -> None:
    kind = GroupVersionKind(resource.group, resource.version, resource.kind)
    concerned = [_keep_rules(program) for program in programs if concerns(program, kind)]
    concerned = [program for program in concerned if program.rules]
    if not concerned:
        return
    engines = _Engines(Engine(concerned), Engine(_keep_checks(each) for each in concerned))
    preview.kinds += 1
    try:
        async for page in scope.client.list_pages(resource, "", page=_PAGE):
            await asyncio.to_thread(_evaluate, page.get("items") or (), engines, scope, preview)
    except ApiError as error:
        preview.problems.append(f"{resource.plural}: {error}")


def _keep_rules(program: Program) -> Program:
    """Only rules that deny or change the request."""
    rules = tuple(r for r in program.rules if r.phase in (*_CHECKING, Phase.MUTATE))
    return msgspec.structs.replace(program, rules=rules)


def _keep_checks(program: Program) -> Program:
    """The rules for a deletion."""
    rules = tuple(r for r in program.rules if r.phase is Phase.VALIDATE)
    return msgspec.structs.replace(program, rules=rules)


def _evaluate(
    items: Sequence[JsonObject],
    engines: _Engines,
    scope: PreviewScope,
    preview: PolicyPreview,
) -> None:
    for item in items:
        namespace = str(item["metadata"].get("namespace") or "")
        labels = scope.namespace_labels(namespace) if namespace else {}
        request = Request.of(item, namespace_labels=labels)
        if scope.is_filtered(request):
            continue
        preview.judged += 1
        _note(request, engines.storing, preview, scope.limit)
        deletion = Request.of(item, operation=Operation.DELETE, namespace_labels=labels)
        _note_deletion(deletion, engines.deleting, preview, scope.limit)


def _note(request: Request, engine: Engine, preview: PolicyPreview, limit: int) -> None:
    verdict = evaluate_now(engine, request)
    failed = [result for result in verdict.results if result.status is Status.FAIL]
    errors = [result for result in verdict.results if result.status is Status.ERROR]
    changing = [result for result in verdict.results if result.patched is not None]
    if verdict.patched == request.object:
        changing = []
    for results, findings, count in (
        (failed, preview.refusals, "refused"),
        (changing, preview.changes, "changed"),
        (errors, preview.doubts, "undecided"),
    ):
        if results:
            setattr(preview, count, getattr(preview, count) + 1)
        for result in results[: max(limit - len(findings), 0)]:
            findings.append(_describe(request, result.policy.key, result.rule, result.message))


def _note_deletion(request: Request, engine: Engine, preview: PolicyPreview, limit: int) -> None:
    results = evaluate_now(engine, request).results
    wrong = [each for each in results if each.status in (Status.FAIL, Status.ERROR)]
    preview.undeletable += bool(wrong)
    for result in wrong[: max(limit - len(preview.deletions), 0)]:
        told = _describe(request, result.policy.key, result.rule, result.message)
        preview.deletions.append(told)


def _describe(request: Request, policy: str, rule: str, message: str) -> PreviewFinding:
    metadata = request.resource["metadata"]
    return PreviewFinding(
        policy,
        rule,
        request.kind.api_version,
        request.kind.kind,
        metadata["name"],
        metadata.get("namespace") or "",
        message,
    )
