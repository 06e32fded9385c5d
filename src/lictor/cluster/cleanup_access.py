"""May the controller that deletes really list and delete what a policy names?"""

import asyncio
from collections.abc import Iterator, Sequence

import msgspec

from lictor.cluster.access import Access, AccessCheck
from lictor.cluster.cleanup_kinds import CleanupRecord, Target, find_targets, list_kinds
from lictor.cluster.client import Client
from lictor.cluster.discovery import Collection
from lictor.cluster.resource import Resource
from lictor.lang.wildcard import has_wildcard
from lictor.model.cleanup import CleanupPolicy

SELF_SUBJECT_ACCESS_REVIEW = Resource(
    "authorization.k8s.io",
    "v1",
    "selfsubjectaccessreviews",
    "SelfSubjectAccessReview",
    namespaced=False,
)
_AT_ONCE = 8


def ask_for_myself(client: Client) -> AccessCheck:
    """The API server's answer for whoever this client is, whatever user is named."""

    async def allows(access: Access) -> bool:
        attributes = {
            name: value
            for name, value in msgspec.structs.asdict(access).items()
            if value and name != "user"
        }
        body = {"spec": {"resourceAttributes": attributes}}
        answer = await client.create(SELF_SUBJECT_ACCESS_REVIEW, body)
        return (answer.get("status") or {}).get("allowed") is True

    return allows


async def check_permissions(
    record: CleanupRecord, served: Sequence[Collection], allows: AccessCheck, user: str = ""
) -> tuple[str, ...]:
    """What the controller, which is this user, may not do but must; nothing where all is well."""
    gate = asyncio.Semaphore(_AT_ONCE)

    async def ask(target: Target, verb: str, name: str) -> str:
        resource = target.resource
        access = Access(
            user,
            verb,
            resource.group,
            resource.plural,
            resource.version,
            namespace=target.namespace,
            name=name,
        )
        async with gate:
            if await allows(access):
                return ""
        what = f"{resource.kind} {name}" if name else resource.kind
        where = f" in namespace {target.namespace}" if target.namespace else ""
        return f"cleanup controller has no permission to {verb} kind {what}{where}"

    wanted = dict.fromkeys(_list_wanted(record, served))
    answers = await asyncio.gather(*(ask(*each) for each in wanted))
    return tuple(answer for answer in answers if answer)


def _list_wanted(
    record: CleanupRecord, served: Sequence[Collection]
) -> Iterator[tuple[Target, str, str]]:
    for target in find_targets(record, served).found:
        yield target, "list", ""
        for name in _list_names(record, target.resource):
            yield target, "delete", name


def _list_names(record: CleanupRecord, resource: Resource) -> tuple[str, ...]:
    """The names of objects that a policy is about: a role may be for these alone."""
    if not isinstance(record, CleanupPolicy):
        return ("",)
    names: list[str] = []
    for kind, given in list_kinds(record):
        if kind.rpartition("/")[2] != resource.kind:
            continue
        if not given or any(has_wildcard(name) for name in given):
            return ("",)
        names += given
    return tuple(names) or ("",)
