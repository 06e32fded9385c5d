"""The request that an update stands for: its trigger as it is now, and who asked."""

from collections.abc import Callable, Mapping
from typing import Protocol

import msgspec
from msgspec.structs import replace

from lictor.cluster.client import Client
from lictor.cluster.resource import Resource
from lictor.cluster.update_requests import Update, UpdateTrigger
from lictor.errors import LoadError, NotFoundError, NotYetError
from lictor.lang.resource_names import ResourceNames
from lictor.load.review import build_review
from lictor.model.request import Caller, Operation, Request
from lictor.raw import JsonObject

# We hear of a request before the API server has stored what it asked for. So long is a new object
# waited for: another webhook may take its time, or refuse it in the end.
_UNTIL_CREATED = 15.0
# An update that changes nothing leaves the version as it was: nobody can tell it from one that is
# not stored yet.
_UNTIL_UPDATED = 1.5


class NamespaceSource(Protocol):
    """Who knows the labels of namespaces."""

    def labels(self, name: str) -> Mapping[str, str]: ...

    async def ensure(self, name: str) -> JsonObject | None: ...


class TriggerReader(msgspec.Struct, frozen=True):
    """Reads triggers from the cluster."""

    client: Client
    names: Callable[[], ResourceNames]
    namespaces: NamespaceSource

    def locate(self, api_version: str, kind: str, *, namespaced: bool) -> Resource:
        """Where the API server has a kind."""
        group, _, version = api_version.rpartition("/")
        found = self.names().of_kind(group, version, kind)
        scope = found.namespaced if found.namespaced is not None else namespaced
        return Resource(group, version, found.resource, kind, scope)

    async def read(self, trigger: UpdateTrigger) -> JsonObject | None:
        """The trigger as it is now; None where it, or the one of that UID, is gone."""
        resource = self.locate(
            trigger.api_version, trigger.kind, namespaced=bool(trigger.namespace)
        )
        if not trigger.name:
            return await self._search(resource, trigger)
        try:
            found = await self.client.get(resource, trigger.name, trigger.namespace)
        except NotFoundError:
            return None
        uid = str(found["metadata"].get("uid") or "")
        return found if not trigger.uid or uid == trigger.uid else None

    async def _search(self, resource: Resource, trigger: UpdateTrigger) -> JsonObject | None:
        """By UID alone: what Kyverno has made does not tell the name of its trigger."""
        try:
            async for page in self.client.list_pages(resource, trigger.namespace):
                for item in page.get("items") or ():
                    if trigger.uid and item["metadata"].get("uid") == trigger.uid:
                        return {"apiVersion": trigger.api_version, "kind": trigger.kind, **item}
        except NotFoundError:
            pass
        return None

    async def build_request(self, update: Update, *, is_late: bool = False) -> Request | None:
        """The request to judge; None where the trigger is gone.

        What is stored now counts, not what a review said: a forged one changes nothing. Only what
        is never stored (a subresource such as `exec`) or no longer is (DELETE) comes from it.
        Raises NotYetError where the trigger is not stored yet, unless it is too late to wait.
        """
        asked = read_admission(update)
        labels = await self.find_labels(update.trigger)
        if asked is not None and (asked.operation is Operation.DELETE or asked.subresource):
            return replace(asked, namespace_labels=labels)
        found = await self.read(update.trigger)
        if asked is not None and not is_late:
            _check_stored(asked, found, update.trigger)
        if found is None:
            return None
        if asked is None:
            return Request.of(found, namespace_labels=labels)
        return replace(asked, object=found, namespace_labels=labels)

    async def find_labels(self, trigger: UpdateTrigger) -> Mapping[str, str]:
        """The labels of the namespace that a trigger is in."""
        if not trigger.namespace:
            return {}
        await self.namespaces.ensure(trigger.namespace)
        return self.namespaces.labels(trigger.namespace)

    async def is_ending(self, namespace: str) -> bool:
        """Is a namespace on its way out, or gone?"""
        if not namespace:
            return False
        found = await self.namespaces.ensure(namespace)
        return found is None or "deletionTimestamp" in found["metadata"]


def _check_stored(asked: Request, found: JsonObject | None, trigger: UpdateTrigger) -> None:
    name = f"{trigger.kind} {trigger.namespace}/{trigger.name}"
    if asked.operation is Operation.CREATE and found is None:
        raise NotYetError(f"{name} is not there yet", patience=_UNTIL_CREATED)
    if asked.operation is Operation.UPDATE and found is not None:
        before = ((asked.old_object or {}).get("metadata") or {}).get("resourceVersion")
        if before and found["metadata"].get("resourceVersion") == before:
            raise NotYetError(f"{name} has not changed yet", patience=_UNTIL_UPDATED)


def read_admission(update: Update) -> Request | None:
    """The request that was the reason of an update; None where there was none."""
    if update.admission is None:
        return None
    try:
        request = build_review({"request": update.admission}).request
    except LoadError:
        return None
    roles = update.caller or {}
    caller = request.caller or Caller()
    known = replace(
        caller,
        roles=tuple(str(role) for role in roles.get("roles") or ()),
        cluster_roles=tuple(str(role) for role in roles.get("clusterRoles") or ()),
    )
    return replace(request, caller=known)
