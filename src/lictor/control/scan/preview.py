"""What in the cluster would a policy refuse or change if it were enforced now? Writes nothing."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import msgspec

from lictor.assembly import compile_documents
from lictor.cluster.client import Client
from lictor.cluster.discovery import Discovery
from lictor.cluster.flags import Flags
from lictor.cluster.lookups import ClusterLookups
from lictor.cluster.names import Names
from lictor.cluster.namespaces import NamespaceCache
from lictor.cluster.request_filter import RequestFilter, build_filter
from lictor.cluster.resource import CONFIG_MAP, Resource
from lictor.cluster.settings import read_settings
from lictor.cluster.store import PolicyStore
from lictor.control.context import evaluate_now
from lictor.control.scan.plan import concerns
from lictor.engine import Engine
from lictor.errors import ApiError, LictorError, UsageError
from lictor.model.metadata import PolicyRecord
from lictor.model.program import Phase, Program
from lictor.model.request import GroupVersionKind, Operation, Request
from lictor.model.result import Status
from lictor.raw import JsonObject

_PAGE = 100
_CHECKING = (Phase.VALIDATE, Phase.VERIFY_IMAGES)


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
    """What would happen. The lists hold the first findings only; the counts are of all."""

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


class _Cluster(msgspec.Struct, frozen=True):
    client: Client
    store: PolicyStore
    namespaces: NamespaceCache
    lookups: ClusterLookups
    is_filtered: RequestFilter


class _Engines(msgspec.Struct, frozen=True):
    storing: Engine
    deleting: Engine


async def preview_policies(
    client: Client,
    flags: Flags,
    names: Names,
    given: Sequence[PolicyRecord] | str,
    *,
    limit: int = 1000,
) -> PolicyPreview:
    """Evaluate everything in the cluster with the given policies, or with the one of this name."""
    async with _open_cluster(client, flags, names) as cluster:
        programs = _compile(cluster, given) if not isinstance(given, str) else _find(cluster, given)
        preview = PolicyPreview(sorted({program.policy.key for program in programs}))
        discovery = Discovery(client)
        await discovery.ensure()
        for resource in discovery.list_kinds():
            await _preview_kind(resource, programs, cluster, preview, limit)
        return preview


def _find(cluster: _Cluster, name: str) -> tuple[Program, ...]:
    found = [policy for policy in cluster.store.policies if name in (policy.key, policy.name)]
    if not found:
        raise UsageError(f"there is no file and no policy in the cluster that is called {name!r}")
    programs = tuple(p for policy in found for p in cluster.store.programs(policy))
    if not programs:
        why = "; ".join(str(problem) for policy in found for problem in policy.problems)
        raise LictorError(f"the policy {name!r} cannot be used: {why}")
    return programs


def _compile(cluster: _Cluster, records: Sequence[PolicyRecord]) -> tuple[Program, ...]:
    return compile_documents(
        (*records, *cluster.store.exceptions),
        lookups=cluster.lookups,
        resource_names=cluster.store.names,
    )


async def _preview_kind(
    resource: Resource,
    programs: Sequence[Program],
    cluster: _Cluster,
    preview: PolicyPreview,
    limit: int,
) -> None:
    kind = GroupVersionKind(resource.group, resource.version, resource.kind)
    concerned = [_keep_rules(program) for program in programs if concerns(program, kind)]
    concerned = [program for program in concerned if program.rules]
    if not concerned:
        return
    engines = _Engines(Engine(concerned), Engine(_keep_checks(each) for each in concerned))
    preview.kinds += 1
    try:
        async for page in cluster.client.list_pages(resource, page=_PAGE):
            items = page.get("items") or ()
            await asyncio.to_thread(_evaluate, items, engines, cluster, preview, limit)
    except ApiError as error:
        preview.problems.append(f"{resource.plural}: {error}")


def _keep_rules(program: Program) -> Program:
    """Only rules that refuse or change what is asked for."""
    rules = tuple(r for r in program.rules if r.phase in (*_CHECKING, Phase.MUTATE))
    return msgspec.structs.replace(program, rules=rules)


def _keep_checks(program: Program) -> Program:
    """What is asked about a deletion."""
    rules = tuple(r for r in program.rules if r.phase is Phase.VALIDATE)
    return msgspec.structs.replace(program, rules=rules)


def _evaluate(
    items: Sequence[JsonObject],
    engines: _Engines,
    cluster: _Cluster,
    preview: PolicyPreview,
    limit: int,
) -> None:
    for item in items:
        namespace = str(item["metadata"].get("namespace") or "")
        labels = cluster.namespaces.labels(namespace) if namespace else {}
        request = Request.of(item, namespace_labels=labels)
        if cluster.is_filtered(request):
            continue
        preview.judged += 1
        _note(request, engines.storing, preview, limit)
        deletion = Request.of(item, operation=Operation.DELETE, namespace_labels=labels)
        _note_deletion(deletion, engines.deleting, preview, limit)


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


@asynccontextmanager
async def _open_cluster(client: Client, flags: Flags, names: Names) -> AsyncIterator[_Cluster]:
    loop = asyncio.get_running_loop()
    lookups = ClusterLookups(client, loop, flags, namespace=names.namespace)
    store, namespaces = PolicyStore(client, flags, lookups), NamespaceCache(client)
    parts = (lookups, store, namespaces)
    running = [asyncio.create_task(part.run()) for part in parts]
    try:
        for part in parts:
            await part.wait()
        config = await client.find(CONFIG_MAP, names.config_map, names.namespace)
        yield _Cluster(client, store, namespaces, lookups, build_filter(read_settings(config)))
    finally:
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)
