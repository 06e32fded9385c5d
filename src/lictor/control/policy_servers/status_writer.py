"""Writes the statuses and finalizers of policies and of the servers that they name."""

from collections.abc import Callable, Mapping
from datetime import datetime

from lictor.cluster.client import Client
from lictor.cluster.resource import Resource
from lictor.cluster.stored_policy import StoredPolicy
from lictor.control.policy_servers.states import ServedState, StatedCondition, write_conditions
from lictor.errors import ConflictError, NotFoundError
from lictor.families.kubewarden.policy_server import FINALIZER, OLD_FINALIZER
from lictor.raw import JsonObject


class ServerStatusWriter:
    """Writes what differs, and only that."""

    def __init__(self, client: Client, clock: Callable[[], datetime]) -> None:
        self._client = client
        self._clock = clock
        # By uid: what was wanted, and what the API server made of it.
        self._written: dict[str, tuple[JsonObject, JsonObject]] = {}

    async def write_policy(self, policy: StoredPolicy, state: ServedState) -> None:
        """The status of a policy."""
        document = policy.document
        old = _read_status(document)
        wanted = state.write(old, policy.generation, self._now())
        await self._write(policy.resource, document, wanted)

    async def write_server(
        self, resource: Resource, document: JsonObject, statements: Mapping[str, StatedCondition]
    ) -> None:
        """The status of a PolicyServer."""
        generation = int(document["metadata"].get("generation") or 0)
        old = _read_status(document)
        conditions = write_conditions(statements, old, generation, self._now())
        await self._write(resource, document, {"conditions": conditions})

    async def hold(self, resource: Resource, document: JsonObject) -> None:
        """Keep a policy until its webhook has gone, or a server until the API server asks no more.

        With a finalizer.
        """
        finalizers = document["metadata"].get("finalizers") or []
        if FINALIZER not in finalizers:
            await self._set_finalizers(resource, document, [*finalizers, FINALIZER])

    async def release(self, resource: Resource, document: JsonObject) -> None:
        """Take the finalizer away."""
        finalizers = document["metadata"].get("finalizers") or []
        left = [each for each in finalizers if each not in (FINALIZER, OLD_FINALIZER)]
        if left != finalizers:
            await self._set_finalizers(resource, document, left)

    def forget(self, live: set[str]) -> None:
        """Keep what is known of these policies, and of servers."""
        for uid in self._written.keys() - live:
            del self._written[uid]

    def _now(self) -> str:
        return self._clock().strftime("%Y-%m-%dT%H:%M:%SZ")

    async def _write(self, resource: Resource, document: JsonObject, wanted: JsonObject) -> None:
        uid, status = str(document["metadata"].get("uid")), _read_status(document)
        if status == wanted or self._written.get(uid) == (wanted, status):
            return
        metadata = document["metadata"]
        try:
            made = await self._client.patch(
                resource,
                metadata["name"],
                {"status": wanted},
                namespace=str(metadata.get("namespace") or ""),
                subresource="status",
            )
        except NotFoundError:
            return
        self._written[uid] = (wanted, _read_status(made))

    async def _set_finalizers(
        self, resource: Resource, document: JsonObject, finalizers: list[str]
    ) -> None:
        metadata = document["metadata"]
        # With the version that was read: nobody else's finalizer is lost.
        version = {"resourceVersion": metadata["resourceVersion"]}
        try:
            await self._client.patch(
                resource,
                metadata["name"],
                {"metadata": {**version, "finalizers": finalizers}},
                namespace=str(metadata.get("namespace") or ""),
            )
        except (NotFoundError, ConflictError):
            # Gone, or changed meanwhile: the next run sees it as it is.
            return


def _read_status(document: JsonObject) -> JsonObject:
    found = document.get("status")
    return found if isinstance(found, dict) else {}
