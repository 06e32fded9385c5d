"""Controllers of a few objects: rules of aggregated ClusterRoles, and the status of policies."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable
from http import HTTPStatus

import msgspec

from lictor.addons.apiserver.access.authorization import GROUP
from lictor.addons.apiserver.field_checks import compile_fit
from lictor.addons.apiserver.json_fields import read_list, read_object, read_text
from lictor.addons.apiserver.kind import ObjectReader
from lictor.addons.apiserver.service_account_tokens import name_controller
from lictor.core.errors import CompileError, RefusedRequestError
from lictor.core.raw import Json, JsonObject

log = logging.getLogger(__name__)
AGGREGATOR = name_controller("clusterrole-aggregation-controller")
STATUS_KEEPER = name_controller("validatingadmissionpolicy-status-controller")
_POLICY_GROUP = "admissionregistration.k8s.io"
# Replaces an object, or its status.
Write = Callable[[JsonObject], Awaitable[object]]


def gather_rules(role: JsonObject, roles: Iterable[JsonObject]) -> list[Json] | None:
    """The rules of all roles that one is made of; None where it is not made of others."""
    if not isinstance(role.get("aggregationRule"), dict):
        return None
    name = read_text(read_object(role, "metadata"), "name")
    known = sorted(roles, key=lambda each: read_text(read_object(each, "metadata"), "name"))
    gathered: dict[bytes, Json] = {}
    for selector in read_list(role["aggregationRule"], "clusterRoleSelectors"):
        fits = compile_fit(selector)
        try:
            found = [other for other in known if fits is None or fits(_read_labels(other))]
        except CompileError:
            # An invalid selector selects nothing; the other ones still do.
            continue
        for other in found:
            if read_text(read_object(other, "metadata"), "name") != name:
                for rule in read_list(other, "rules"):
                    gathered.setdefault(msgspec.json.encode(rule, order="deterministic"), rule)
    return list(gathered.values())


def _read_labels(role: JsonObject) -> JsonObject:
    return read_object(read_object(role, "metadata"), "labels")


class WakingController:
    """Reconciles all objects of a kind when one of them changes."""

    def __init__(self, reader: ObjectReader, group: str, plural: str, write: Write) -> None:
        self._reader = reader
        self._place = (group, plural)
        self._write = write
        self._wake = asyncio.Event()
        self._wake.set()
        reader.on_change(group, plural, self._wake.set)

    async def run(self) -> None:
        """Reconcile until cancelled."""
        while True:
            await self._wake.wait()
            self._wake.clear()
            await self.reconcile()

    async def reconcile(self) -> None:
        """Write the objects that are not as they should be."""
        documents = self._reader.list(*self._place)
        for document in documents:
            changed = self._change(document, documents)
            if changed is None:
                continue
            try:
                await self._write(changed)
            except RefusedRequestError as error:
                # It was changed or deleted meanwhile: that change wakes this controller again.
                if error.code not in (HTTPStatus.CONFLICT, HTTPStatus.NOT_FOUND):
                    name = read_text(read_object(document, "metadata"), "name")
                    log.warning("object not updated", extra={"object": name, "why": error.message})

    def _change(self, document: JsonObject, documents: list[JsonObject]) -> JsonObject | None:
        """The object as it should be; None if it is."""
        raise NotImplementedError


class RoleAggregation(WakingController):
    """Keeps the rules of aggregated ClusterRoles."""

    def __init__(self, reader: ObjectReader, write: Write) -> None:
        super().__init__(reader, GROUP, "clusterroles", write)

    def _change(self, document: JsonObject, documents: list[JsonObject]) -> JsonObject | None:
        rules = gather_rules(document, documents)
        unchanged = rules is None or rules == read_list(document, "rules")
        return None if unchanged else {**document, "rules": rules}


class PolicyStatusController(WakingController):
    """Keeps `observedGeneration` and `typeChecking`."""

    def __init__(self, reader: ObjectReader, write: Write) -> None:
        super().__init__(reader, _POLICY_GROUP, "validatingadmissionpolicies", write)

    def _change(self, document: JsonObject, _: list[JsonObject]) -> JsonObject | None:
        generation = read_object(document, "metadata").get("generation")
        status = read_object(document, "status")
        if status.get("observedGeneration") == generation:
            return None
        # The CEL engine is slow to load, and most clusters have no policies.
        from lictor.addons.apiserver.schemas.type_checking import check_policy_types

        found = check_policy_types(document, self._reader.catalogue)
        checked = {"expressionWarnings": found} if found else {}
        detail = {**status, "observedGeneration": generation, "typeChecking": checked}
        return {**document, "status": detail}
