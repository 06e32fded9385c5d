"""Checks that the webhooks answer: a Lease is updated through one of them, which stamps it.

The leader writes the Lease at an interval; its webhook (`/verifymutate`, which fails open) adds an
annotation. Writes without a new stamp mean that no webhook answers.
"""

import logging
from collections.abc import Callable
from datetime import UTC, datetime

from lictor.controllers.context import ControllerContext
from lictor.controllers.loop import ReconcileLoop, show_heartbeat
from lictor.core.errors import NotFoundError
from lictor.core.raw import JsonObject
from lictor.kubernetes.cache import Change
from lictor.kubernetes.client import Client
from lictor.kubernetes.names import Names
from lictor.kubernetes.resource import LEASE

log = logging.getLogger(__name__)

STAMP = "kyverno.io/last-request-time"
LABELS = {"app.kubernetes.io/name": "kyverno"}
INTERVAL = 10.0
# Unanswered heartbeats until the webhooks count as broken: 100 seconds. They are counted: different
# clocks, or an API server that is down, are no evidence.
_PATIENCE = 10


class Heartbeat:
    """Counts the heartbeats that no webhook answered, of all replicas."""

    def __init__(self, client: Client, names: Names) -> None:
        self._client = client
        self._names = names
        self._stamp = ""
        self._beat = ""
        self._misses = 0
        self._listeners: list[Callable[[], None]] = []

    def healthy(self) -> bool:
        """False if the webhooks have not answered for a while."""
        return self._misses < _PATIENCE

    @property
    def last_answer(self) -> str:
        """When a webhook answered last, by its own clock; empty if unknown."""
        return self._stamp

    def listen(self, listener: Callable[[], None]) -> None:
        """Call `listener` when health changes."""
        self._listeners.append(listener)

    def hear(self, change: Change) -> None:
        """The Lease was written: check for an answer."""
        self._observe(change.object)

    async def beat(self) -> None:
        """Touch the Lease once."""
        try:
            lease = await self._touch()
        except NotFoundError:
            lease = await self._client.create(LEASE, self._build())
        if STAMP not in (lease["metadata"].get("annotations") or {}):
            # The webhook replaces a value: there must be one.
            await self._touch({STAMP: _format_now()})

    async def _touch(self, annotations: dict[str, str] | None = None) -> JsonObject:
        metadata = {"labels": LABELS, **({"annotations": annotations} if annotations else {})}
        patch = {"metadata": metadata, "spec": {"renewTime": _format_micro_now()}}
        name, namespace = self._names.health_lease, self._names.namespace
        return await self._client.patch(LEASE, name, patch, namespace=namespace)

    def _build(self) -> JsonObject:
        return {
            "apiVersion": LEASE.api_version,
            "kind": LEASE.kind,
            "metadata": {
                "name": self._names.health_lease,
                "namespace": self._names.namespace,
                "labels": LABELS,
                "annotations": {STAMP: _format_now()},
            },
            "spec": {"renewTime": _format_micro_now()},
        }

    def _observe(self, lease: JsonObject) -> None:
        stamp = str((lease["metadata"].get("annotations") or {}).get(STAMP) or "")
        beat = str((lease.get("spec") or {}).get("renewTime") or "")
        was_healthy = self.healthy()
        if stamp != self._stamp:
            self._stamp, self._misses = stamp, 0
        elif beat != self._beat:
            self._misses += 1
        self._beat = beat
        show_heartbeat(stamp, healthy=self.healthy())
        if self.healthy() != was_healthy:
            self._announce()

    def _announce(self) -> None:
        if self.healthy():
            log.info("webhooks answer again", extra={"last": self._stamp})
        else:
            log.error("webhooks do not answer", extra={"last": self._stamp})
        for listener in self._listeners:
            listener()


def build_heartbeat(context: ControllerContext) -> tuple[Heartbeat, ReconcileLoop]:
    """The health of the webhooks as this process sees it, and the leader's loop."""
    heartbeat = Heartbeat(context.client, context.names)
    lease = context.watch(
        LEASE,
        namespace=context.names.namespace,
        fields=f"metadata.name={context.names.health_lease}",
    )
    lease.listen(heartbeat.hear)
    return heartbeat, ReconcileLoop("heartbeat-controller", heartbeat.beat, interval=INTERVAL)


def _format_now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _format_micro_now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
