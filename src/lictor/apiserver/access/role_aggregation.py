"""ClusterRoles that are made of others: their rules, and who keeps them up to date."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable

import msgspec

from lictor.apiserver.access.service_account_tokens import ACCOUNT_PREFIX, account_groups
from lictor.apiserver.admission.webhooks import compile_fit
from lictor.apiserver.json_fields import read_list, read_object, read_text
from lictor.apiserver.object_reader import ObjectReader
from lictor.apiserver.request import ApiUser
from lictor.errors import CompileError, RefusedRequestError
from lictor.raw import Json, JsonObject

log = logging.getLogger(__name__)
AGGREGATOR = ApiUser(
    f"{ACCOUNT_PREFIX}kube-system:clusterrole-aggregation-controller",
    account_groups("kube-system"),
)
_GROUP = "rbac.authorization.k8s.io"
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
        try:
            fits = compile_fit(selector)
        except CompileError:
            # A selector that cannot be read selects nothing; the other ones still do.
            continue
        for other in known:
            metadata = read_object(other, "metadata")
            if read_text(metadata, "name") == name:
                continue
            if fits is None or fits(read_object(metadata, "labels")):
                for rule in read_list(other, "rules"):
                    gathered.setdefault(msgspec.json.encode(rule, order="deterministic"), rule)
    return list(gathered.values())


class RoleAggregation:
    """Keeps the rules of aggregated ClusterRoles; wakes up when a ClusterRole changes."""

    def __init__(self, reader: ObjectReader, write: Write) -> None:
        self._reader = reader
        self._write = write
        self._wake = asyncio.Event()
        self._wake.set()
        reader.on_change(_GROUP, "clusterroles", self._wake.set)

    async def run(self) -> None:
        """Keep them until cancelled."""
        while True:
            await self._wake.wait()
            self._wake.clear()
            await self.reconcile()

    async def reconcile(self) -> None:
        """Write the roles whose parts have changed."""
        roles = self._reader.list(_GROUP, "clusterroles")
        for role in roles:
            rules = gather_rules(role, roles)
            if rules is None or rules == read_list(role, "rules"):
                continue
            try:
                await self._write({**role, "rules": rules})
            except RefusedRequestError as error:
                # Someone else was first: their change wakes us up again.
                if error.code not in (_CONFLICT, _NOT_FOUND):
                    name = read_text(read_object(role, "metadata"), "name")
                    log.warning("role not aggregated", extra={"role": name, "why": error.message})
