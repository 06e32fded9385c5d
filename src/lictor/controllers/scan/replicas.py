"""Distributes the UIDs of objects over the replicas with live Leases."""

import asyncio
import contextlib
import logging
import time
from bisect import bisect
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from hashlib import blake2b

from lictor.core.errors import ApiError
from lictor.core.raw import JsonObject
from lictor.kubernetes.cache import Cache, Change, ChangeType
from lictor.kubernetes.client import Client
from lictor.kubernetes.names import Names
from lictor.kubernetes.resource import LEASE

log = logging.getLogger(__name__)

MEMBER_LABEL = "lictor.io/member-of"
_PERIOD = 3.0
_SETTLE = 1.0
# A member that was silent for this long is gone.
_LIFETIME = 12.0
_DEAD_SECONDS = 120.0
# Points per member on the ring: enough that two members share the work nearly evenly.
_POINTS = 2048


class Membership:
    """Renews this replica's Lease, watches the others', and distributes the work."""

    def __init__(
        self,
        client: Client,
        names: Names,
        group: str,
        identity: str,
        describe: Callable[[], Mapping[str, str]] = dict,
    ) -> None:
        self._client = client
        # Additional annotations of this replica's Lease.
        self._describe = describe
        self._names = names
        self._group = group
        self._identity = identity
        self._name = f"{names.prefix}-{group}-{_point(identity):016x}"
        labels = f"{MEMBER_LABEL}={group}"
        self._leases = Cache(client, LEASE, namespace=names.namespace, labels=labels)
        # Lease -> its last content, and when that was observed, by the local clock.
        self._heard: dict[str, tuple[str, float]] = {}
        self._ring: list[tuple[int, str]] = _build_ring((self._name,))
        self._members: tuple[str, ...] = (self._name,)
        self._listeners: list[Callable[[], None]] = []
        self._settled = asyncio.Event()
        self._changed = asyncio.Event()
        self._leases.listen(self._hear)

    @property
    def members(self) -> tuple[str, ...]:
        return self._members

    def owns(self, uid: str) -> bool:
        """Is the object scanned by this replica?"""
        if len(self._members) == 1:
            return True
        place = bisect(self._ring, (_point(uid), "")) % len(self._ring)
        return self._ring[place][1] == self._name

    def listen(self, listener: Callable[[], None]) -> None:
        """Call `listener` when replicas come or go."""
        self._listeners.append(listener)

    async def run(self) -> None:
        """Renew our Lease and watch the others' until cancelled; then delete it."""
        watching = asyncio.create_task(self._leases.run())
        try:
            await self._renew()
            await self._leases.wait()
            # Replicas that start together should see each other before they begin.
            await asyncio.sleep(_SETTLE)
            renew_at = time.monotonic() + _PERIOD
            while True:
                self._count(time.monotonic())
                self._settled.set()
                await self._delete_dead(time.monotonic())
                await self._pause(renew_at - time.monotonic())
                if time.monotonic() >= renew_at:
                    renew_at = time.monotonic() + _PERIOD
                    await self._renew()
        finally:
            watching.cancel()
            await asyncio.shield(self._leave())

    def _hear(self, change: Change) -> None:
        # Renewals are processed periodically; joins and leaves at once.
        if change.type is not ChangeType.MODIFIED:
            self._changed.set()

    async def _pause(self, seconds: float) -> None:
        # Not wait_for(): in Python 3.11 it loses a cancellation that comes together with the event.
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(max(seconds, 0)):
                await self._changed.wait()
        self._changed.clear()

    async def wait(self) -> None:
        """Until the other replicas are known."""
        await self._settled.wait()

    async def _renew(self) -> None:
        stamp = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        body: JsonObject = {
            "metadata": {
                "name": self._name,
                "namespace": self._names.namespace,
                "labels": {MEMBER_LABEL: self._group},
                "annotations": dict(self._describe()),
            },
            "spec": {
                "holderIdentity": self._identity,
                "leaseDurationSeconds": int(_LIFETIME),
                "renewTime": stamp,
            },
        }
        try:
            await self._client.apply(LEASE, body)
        except ApiError as error:
            log.warning("membership not renewed", extra={"why": str(error)[:200]})

    async def _leave(self) -> None:
        try:
            await self._client.delete(LEASE, self._name, self._names.namespace)
        except ApiError as error:
            log.info("membership not given back", extra={"why": str(error)[:200]})

    def _count(self, now: float) -> None:
        leases = {lease["metadata"]["name"]: lease for lease in self._leases.list()}
        for name, lease in leases.items():
            said = str((lease.get("spec") or {}).get("renewTime"))
            # The last content of a dead member is kept, or it would count as renewed.
            if self._heard.get(name, ("", 0.0))[0] != said:
                self._heard[name] = (said, now)
        self._heard = {name: heard for name, heard in self._heard.items() if name in leases}
        live = {name for name, heard in self._heard.items() if now - heard[1] < _LIFETIME}
        members = tuple(sorted({self._name, *live}))
        if members != self._members:
            self._members = members
            self._ring = _build_ring(members)
            log.info("members changed", extra={"group": self._group, "count": len(members)})
            for listener in self._listeners:
                listener()

    async def _delete_dead(self, now: float) -> None:
        """Delete Leases of replicas that died long ago."""
        for name, (_, heard) in list(self._heard.items()):
            if name != self._name and now - heard > _DEAD_SECONDS:
                try:
                    await self._client.delete(LEASE, name, self._names.namespace)
                except ApiError as error:
                    log.info("dead member not removed", extra={"why": str(error)[:200]})


def _point(text: str) -> int:
    return int.from_bytes(blake2b(text.encode(), digest_size=8).digest(), "big")


def _build_ring(members: tuple[str, ...]) -> list[tuple[int, str]]:
    return sorted((_point(f"{member}/{i}"), member) for member in members for i in range(_POINTS))
