"""Previews what cleanup and deleting policies would delete now, and their next run."""

import asyncio
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from contextlib import asynccontextmanager, suppress
from datetime import datetime

import msgspec
import orjson

from lictor.controllers.cleanup.policies import CLEANUP_KINDS, find_targets, read_cleanup
from lictor.controllers.cleanup.run import format_time, read_status, read_time
from lictor.controllers.cleanup.sweep import Page, Sweep, SweepContext
from lictor.core.errors import ApiError, LictorError, NotFoundError, UsageError
from lictor.core.facts.resource_names import ResourceNames, builtin_names
from lictor.core.facts.resource_names import ResourceType as ResourceName
from lictor.core.families.kind_facts import Role
from lictor.core.load.policies import load_documents
from lictor.core.model.metadata import PolicyRecord
from lictor.core.raw import JsonObject
from lictor.kubernetes.cache import drop_managed_fields
from lictor.kubernetes.client import Client
from lictor.kubernetes.discovery import Collection, ServedKinds
from lictor.kubernetes.flags import Flags
from lictor.kubernetes.names import Names
from lictor.kubernetes.request_filter import build_filter
from lictor.kubernetes.resource import CONFIG_MAP, NAMESPACE
from lictor.kubernetes.settings import read_settings
from lictor.kubernetes.work_queue import cancel_all
from lictor.lookups.lookups import ClusterLookups
from lictor.lookups.service_calls import read_http_limits
from lictor.policies.stored_exceptions import list_exception_resources


class CleanupPreview(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """What one policy would do."""

    kind: str
    name: str
    namespace: str = ""
    # When it runs next; empty if it never does, or is unusable.
    next_execution: str = ""
    resources: tuple[JsonObject, ...] = ()
    # Objects and collections that could not be evaluated, and why; they are not deleted.
    undecided: tuple[JsonObject, ...] = ()
    # Why the policy, or a part of it, cannot be used.
    problems: tuple[str, ...] = ()


async def preview_cleanups(
    client: Client, flags: Flags, names: Names, wanted: Sequence[str], given: Sequence[JsonObject]
) -> AsyncIterator[CleanupPreview]:
    """One preview for each policy: those given, or those of the cluster (all, or the wanted)."""
    documents = given or _choose(await _list_policies(client), wanted)
    async with _open_context(client, flags, names) as context:
        served = await context.served()
        for document in documents:
            yield await _preview(document, context, served)


async def _list_policies(client: Client) -> list[JsonObject]:
    found: list[JsonObject] = []
    for kind in CLEANUP_KINDS:
        # A kind that is not installed has no policies.
        with suppress(NotFoundError):
            found += await client.list(kind)
    return found


def _choose(documents: Sequence[JsonObject], wanted: Sequence[str]) -> list[JsonObject]:
    """The policies of these names, given as NAME or NAMESPACE/NAME."""
    if not wanted:
        return list(documents)
    chosen: list[JsonObject] = []
    for name in wanted:
        found = [document for document in documents if name in _list_names(document)]
        if not found:
            raise UsageError(f"there is no cleanup or deleting policy {name!r} in the cluster")
        chosen += [document for document in found if document not in chosen]
    return chosen


def _list_names(document: JsonObject) -> tuple[str, ...]:
    metadata = document["metadata"]
    name, namespace = metadata["name"], metadata.get("namespace")
    return (name, f"{namespace}/{name}") if namespace else (name,)


async def _preview(
    document: JsonObject, context: SweepContext, served: Sequence[Collection]
) -> CleanupPreview:
    metadata = document["metadata"]
    preview = CleanupPreview(document["kind"], metadata["name"], metadata.get("namespace") or "")
    try:
        record = read_cleanup(document)
        sweep = await Sweep.prepare(record, context)
        next_run = sweep.program.next_run(_last_run(document, context))
        pages = [_keep(page) async for page in sweep.pages()]
    except LictorError as error:
        return msgspec.structs.replace(preview, problems=(str(error),))
    return msgspec.structs.replace(
        preview,
        next_execution=format_time(next_run),
        resources=tuple(item for page in pages for item in page.goes),
        undecided=tuple(
            {"what": each.what, "why": each.why} for page in pages for each in page.undecided
        ),
        problems=find_targets(record, served).problems,
    )


def _last_run(document: JsonObject, context: SweepContext) -> datetime:
    created = read_time(document["metadata"].get("creationTimestamp"))
    return read_status(document).last_execution or created or context.lookups.now()


def _keep(page: Page) -> Page:
    """The names of objects only: there may be very many."""
    return msgspec.structs.replace(page, goes=tuple(_name(item) for item in page.goes))


def _name(item: JsonObject) -> JsonObject:
    metadata = item["metadata"]
    named = {
        "apiVersion": item.get("apiVersion"),
        "kind": item.get("kind"),
        "namespace": metadata.get("namespace"),
        "name": metadata["name"],
        "uid": metadata.get("uid"),
    }
    return {name: value for name, value in named.items() if value}


# --- the cluster


@asynccontextmanager
async def _open_context(client: Client, flags: Flags, names: Names) -> AsyncIterator[SweepContext]:
    loop = asyncio.get_running_loop()
    lookups = ClusterLookups(client, loop, flags, namespace=names.namespace)
    following = asyncio.create_task(lookups.run())
    kinds = ServedKinds(client, keep=300.0)
    try:
        await lookups.wait()
        served = await kinds.read()
        resource_names = _name_resources(served)
        exceptions = await _list_exceptions(client, flags)
        yield SweepContext(
            client,
            kinds.read,
            await _Namespaces.read(client),
            lookups,
            is_protected=build_filter(read_settings(await _find_settings(client, names))),
            exceptions=lambda: exceptions,
            names=lambda: resource_names,
            http_limits=read_http_limits(flags),
        )
    finally:
        await cancel_all(following)


class _Namespaces:
    """All namespaces, read once."""

    def __init__(self, items: Iterable[JsonObject]) -> None:
        self._items = {item["metadata"]["name"]: item for item in items}

    @classmethod
    async def read(cls, client: Client) -> "_Namespaces":
        items = await client.list(NAMESPACE)
        return cls(map(drop_managed_fields, items))

    async def ensure(self, name: str) -> JsonObject | None:
        return self._items.get(name)


def _name_resources(served: Iterable[Collection]) -> ResourceNames:
    return builtin_names().with_resources(
        ResourceName(
            each.resource.group,
            each.resource.version,
            each.resource.kind,
            each.resource.plural,
            each.resource.namespaced,
        )
        for each in served
    )


async def _find_settings(client: Client, names: Names) -> JsonObject | None:
    try:
        return await client.find(CONFIG_MAP, names.config_map, names.namespace)
    except ApiError as error:
        raise LictorError(
            f"the settings in {names.namespace}/{names.config_map} cannot be read, and without "
            f"them the protected objects are unknown: {error}"
        ) from error


async def _list_exceptions(client: Client, flags: Flags) -> tuple[PolicyRecord, ...]:
    if not flags.exception_namespace:
        return ()
    namespace = flags.exception_namespace.replace("*", "")
    found: list[PolicyRecord] = []
    for resource in list_exception_resources():
        with suppress(NotFoundError):
            found += _read_exceptions(await client.list(resource, namespace))
    return tuple(found)


def _read_exceptions(documents: Iterable[JsonObject]) -> Iterator[PolicyRecord]:
    for document in documents:
        loaded = load_documents(orjson.dumps(document), "PolicyException")
        yield from (each.record for each in loaded.with_role(Role.EXCEPTION))
