"""Aggregated ClusterRoles: their rules are those of the roles that they select."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable

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
_CONFLICT = 409
_NOT_FOUND = 404
# Replaces a ClusterRole, as AGGREGATOR.
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


class RoleAggregation:
    """Keeps the rules of aggregated ClusterRoles; wakes up when a ClusterRole changes."""

    def __init__(self, reader: ObjectReader, write: Write) -> None:
        self._reader = reader
        self._write = write
        self._wake = asyncio.Event()
        self._wake.set()
        reader.on_change(GROUP, "clusterroles", self._wake.set)

    async def run(self) -> None:
        """Aggregate until cancelled."""
        while True:
            await self._wake.wait()
            self._wake.clear()
            await self.reconcile()

    async def reconcile(self) -> None:
        """Write the roles whose parts have changed."""
        roles = self._reader.list(GROUP, "clusterroles")
        for role in roles:
            rules = gather_rules(role, roles)
            if rules is None or rules == read_list(role, "rules"):
                continue
            try:
                await self._write({**role, "rules": rules})
            except RefusedRequestError as error:
                # It was changed or deleted meanwhile: that change wakes this controller again.
                if error.code not in (_CONFLICT, _NOT_FOUND):
                    name = read_text(read_object(role, "metadata"), "name")
                    log.warning("role not aggregated", extra={"role": name, "why": error.message})
