"""Tells in a ValidatingAdmissionPolicy's status that it was seen, as Kubernetes does."""

import asyncio
import logging
from collections.abc import Awaitable, Callable

from lictor.apiserver.access.service_tokens import ACCOUNT_PREFIX, account_groups
from lictor.apiserver.admission.native_policies import GROUP, VALIDATING
from lictor.apiserver.attributes import ApiUser
from lictor.apiserver.reading import ObjectReader, read_object, read_text
from lictor.errors import RefusedRequestError
from lictor.raw import JsonObject

log = logging.getLogger(__name__)

STATUS_KEEPER = ApiUser(
    f"{ACCOUNT_PREFIX}kube-system:validatingadmissionpolicy-status-controller",
    account_groups("kube-system"),
)
_PASSING = (404, 409)

# Replaces the status of a policy, as STATUS_KEEPER.
WriteStatus = Callable[[JsonObject], Awaitable[object]]


class PolicyStatus:
    """Keeps `observedGeneration`; types of expressions are checked when they are written."""

    def __init__(self, reader: ObjectReader, write: WriteStatus) -> None:
        self._reader = reader
        self._write = write
        self._wake = asyncio.Event()
        self._wake.set()
        reader.on_change(GROUP, VALIDATING, self._wake.set)

    async def run(self) -> None:
        """Keep it until cancelled."""
        while True:
            await self._wake.wait()
            self._wake.clear()
            await self.reconcile()

    async def reconcile(self) -> None:
        """Write what is not up to date."""
        for policy in self._reader.list(GROUP, VALIDATING):
            generation = read_object(policy, "metadata").get("generation")
            status = read_object(policy, "status")
            if status.get("observedGeneration") == generation:
                continue
            told = {**status, "observedGeneration": generation, "typeChecking": {}}
            try:
                await self._write({**policy, "status": told})
            except RefusedRequestError as error:
                # Gone, or changed meanwhile: that wakes us up again.
                if error.code not in _PASSING:
                    name = read_text(read_object(policy, "metadata"), "name")
                    log.warning("status not written", extra={"policy": name, "why": error.message})
