"""Leader election with a Lease, compatible with client-go."""

import asyncio
import logging
import math
import os
import random
import socket
import time
import uuid
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime

from lictor.core.errors import ApiError, ConflictError
from lictor.core.raw import JsonObject
from lictor.kubernetes.client import Client
from lictor.kubernetes.resource import LEASE
from lictor.kubernetes.work_queue import cancel_all

log = logging.getLogger(__name__)

_LEASE_PERIODS = 6
_RENEW_PERIODS = 5
_ATTEMPT_PERIODS = 2
# Followers check more often than the leader renews, so that an expired lease is noticed soon: both
# delays together stay well under a takeover time of 15 seconds.
_LOOK = (0.6, 0.8)


def choose_identity() -> str:
    """The identity: the Pod (its container may restart and keep leading), or a unique text."""
    pod = os.environ.get("POD_NAME") or os.environ.get("KYVERNO_POD_NAME")
    return pod or f"{socket.gethostname()}_{uuid.uuid4().hex[:12]}"


class Leadership:
    """Takes part in one election. Leases are timed by the local clock, from the last observed
    change; other clocks do not matter.
    """

    def __init__(
        self, client: Client, name: str, namespace: str, identity: str, retry_period: float = 2.0
    ) -> None:
        self.name = name
        self.identity = identity
        # Without a successor, the lease is left to expire.
        self.release_at_end = True
        self._client = client
        self._namespace = namespace
        self._retry = retry_period
        self._duration = retry_period * _LEASE_PERIODS
        self._lease: JsonObject | None = None
        self._changed_at = 0.0
        self._renewed_at: float | None = None
        self._told = ""

    @property
    def is_leader(self) -> bool:
        """True while the lease cannot have expired, even if this process was frozen."""
        return self._renewed_at is not None and time.monotonic() < self._renewed_at + self._duration

    @property
    def leader(self) -> str:
        """The last observed leader; empty if there was none."""
        return str(_spec(self._lease).get("holderIdentity") or "")

    async def run(self, lead: Callable[[], Awaitable[None]]) -> None:
        """Run `lead` while this process is the leader, and cancel it afterwards.

        Ends when `lead` does, or when cancelled; then the lease is released, and another replica
        leads at once.
        """
        try:
            while True:
                await self._acquire()
                log.info("started leading", extra={"lease": self.name, "identity": self.identity})
                if await self._hold(lead):
                    return
                self._renewed_at = None
                log.warning("leadership lost", extra={"lease": self.name, "leader": self.leader})
        finally:
            await self._release()

    async def _acquire(self) -> None:
        while not await self._attempt():
            pause = self._retry * random.uniform(*_LOOK)  # noqa: S311
            left = self._expires_at() - time.monotonic()
            await asyncio.sleep(min(pause, left) if left > 0 else pause)

    async def _hold(self, lead: Callable[[], Awaitable[None]]) -> bool:
        """Lead until the lease is lost (False) or the work is done (True)."""
        work = asyncio.ensure_future(lead())
        keep = asyncio.create_task(self._keep())
        try:
            await asyncio.wait((work, keep), return_when=asyncio.FIRST_COMPLETED)
            if work.done():
                work.result()
            return work.done()
        finally:
            await cancel_all(work, keep)

    async def _keep(self) -> None:
        """Renew periodically; returns when that has failed for too long."""
        while self._renewed_at is not None:
            deadline = self._renewed_at + self._retry * _RENEW_PERIODS
            await asyncio.sleep(self._retry)
            if await self._attempt():
                continue
            if self._is_taken() or time.monotonic() >= deadline:
                return

    async def _attempt(self) -> bool:
        """Acquire or renew the lease; False if that failed."""
        started = time.monotonic()
        try:
            async with asyncio.timeout(self._retry * _ATTEMPT_PERIODS):
                won = await self._renew() or await self._claim()
        except ConflictError:
            return False
        except (ApiError, TimeoutError) as error:
            self._log_failure(error)
            return False
        if won:
            # From before the request: others may have seen the change that early.
            self._renewed_at = started
            self._told = ""
        return won

    async def _renew(self) -> bool:
        """The usual case in one request: the lease is as last written."""
        if self._renewed_at is None or self._lease is None or self.leader != self.identity:
            return False
        try:
            self._see(await self._client.replace(LEASE, self._build(self._lease)))
        except ApiError as error:
            # Deleted or changed: read it again.
            if error.status in (404, 409):
                return False
            raise
        return True

    async def _claim(self) -> bool:
        lease = await self._client.find(LEASE, self.name, self._namespace)
        if lease is None:
            body = self._build({"metadata": {"name": self.name, "namespace": self._namespace}})
            self._see(await self._client.create(LEASE, body))
            return True
        self._see(lease)
        if self._is_taken():
            return False
        self._see(await self._client.replace(LEASE, self._build(lease)))
        return True

    def _is_taken(self) -> bool:
        return self.leader not in ("", self.identity) and time.monotonic() < self._expires_at()

    def _expires_at(self) -> float:
        # The holder's duration counts: it may be configured differently.
        duration = _spec(self._lease).get("leaseDurationSeconds")
        return self._changed_at + (duration if isinstance(duration, int) else self._duration)

    def _see(self, lease: JsonObject) -> None:
        if self._lease is None or _spec(lease) != _spec(self._lease):
            self._changed_at = time.monotonic()
        self._lease = lease

    def _build(self, lease: JsonObject) -> JsonObject:
        before = _spec(lease)
        now = _format_micro_time()
        ours = before.get("holderIdentity") == self.identity
        spec = {
            **before,
            "holderIdentity": self.identity,
            "leaseDurationSeconds": math.ceil(self._duration),
            "acquireTime": (before.get("acquireTime") if ours else None) or now,
            "renewTime": now,
            "leaseTransitions": _count_transitions(before, ours=ours),
        }
        return {
            **lease,
            "apiVersion": LEASE.api_version,
            "kind": LEASE.kind,
            "spec": spec,
        }

    async def _release(self) -> None:
        """Release the lease, so that no replica waits for it to expire."""
        if self._renewed_at is None or self._lease is None or self.leader != self.identity:
            return
        self._renewed_at = None
        if not self.release_at_end:
            return
        now = _format_micro_time()
        freed = {"holderIdentity": "", "leaseDurationSeconds": 1, "renewTime": now}
        lease = {**self._lease, "spec": {**_spec(self._lease), **freed, "acquireTime": now}}
        try:
            async with asyncio.timeout(self._retry * _ATTEMPT_PERIODS):
                self._see(await self._client.replace(LEASE, lease))
        except (ApiError, TimeoutError) as error:
            log.info("lease not released", extra={"lease": self.name, "why": str(error)[:200]})

    def _log_failure(self, error: Exception) -> None:
        reason = f"{type(error).__name__}: {str(error)[:200]}"
        if reason != self._told:
            self._told = reason
            log.warning("election disturbed", extra={"lease": self.name, "why": reason})


def _spec(lease: JsonObject | None) -> JsonObject:
    spec = (lease or {}).get("spec")
    return spec if isinstance(spec, dict) else {}


def _count_transitions(before: JsonObject, *, ours: bool) -> int:
    count = before.get("leaseTransitions") or 0
    is_new = "renewTime" not in before
    return int(count) + (0 if ours or is_new else 1)


def _format_micro_time() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
