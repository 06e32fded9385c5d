"""Keeps the status of every policy true: is it in force, which rules has it, what is missing?"""

import asyncio
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from itertools import product

import msgspec

from lictor.cluster.access import Access, AccessCheck, ask_api_server, remember_answers
from lictor.cluster.client import Client
from lictor.cluster.resource import DELETING_POLICY, NAMESPACED_DELETING_POLICY
from lictor.cluster.store import PolicyStore, StoredPolicy
from lictor.control.context import Workplace
from lictor.control.loop import Loop
from lictor.control.native_policies.state import NativeState
from lictor.control.status.policy_faults import FaultBook
from lictor.control.webhooks.state import WebhookState, identify_policy
from lictor.errors import ConflictError, NotFoundError
from lictor.model.admission import MatchResources
from lictor.model.policy import Policy
from lictor.raw import JsonObject
from lictor.report.policy_status import PolicyFacts, build_policy_status

_INTERVAL = 60.0
# Permissions change without a word: they are asked for again, but not for each policy.
_REMEMBERED = 30.0
_VERBS = ("get", "list", "watch")
_ATTEMPTS = 4
# Their own controller writes when they ran last.
_OTHERS = (DELETING_POLICY, NAMESPACED_DELETING_POLICY)


class StatusFacts(msgspec.Struct, frozen=True):
    """Where the facts about policies come from."""

    webhooks: WebhookState
    native: NativeState
    faults: FaultBook
    allows: AccessCheck
    # Who reads what is reported about; nobody asks for its permissions where there is no name.
    reports_account: str = ""

    async def read(self, policy: StoredPolicy) -> PolicyFacts:
        """What is known of a policy now."""
        is_ready = self.webhooks.is_ready(policy)
        return PolicyFacts(
            webhook=is_ready if policy.admission or not is_ready else None,
            refusal=self.webhooks.refused.get(identify_policy(policy), ""),
            problems=self.faults.find(policy),
            lacking=await self._find_lacking(policy),
            native=self.native.find(policy.uid),
        )

    async def _find_lacking(self, policy: StoredPolicy) -> tuple[str, ...]:
        record = policy.record
        if not self.reports_account or record is None or isinstance(record, Policy):
            return ()
        lacking = []
        for group, version, resource in _list_resources(record.spec.match_constraints):
            for verb in _VERBS:
                asked = Access(self.reports_account, verb, group, resource, version)
                if not await self.allows(asked):
                    lacking.append(f"{verb} {group}/{version}, Resource={resource}: ")
        return tuple(lacking)


def _list_resources(constraints: MatchResources | None) -> Iterable[tuple[str, str, str]]:
    for rule in constraints.resource_rules if constraints is not None else ():
        # A part of an object (`policies/status`) is read with the object.
        resources = dict.fromkeys(resource.partition("/")[0] for resource in rule.resources)
        yield from product(rule.api_groups, rule.api_versions, resources)


class StatusWriter:
    """Writes statuses that differ from what they should be, and only those."""

    def __init__(
        self,
        client: Client,
        store: PolicyStore,
        facts: StatusFacts,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._client = client
        self._store = store
        self._facts = facts
        self._clock = clock
        # By uid: what was wanted, and what the API server made of it. It fills in defaults and
        # drops what it does not know; that must not look like a difference.
        self._written: dict[str, tuple[JsonObject, JsonObject]] = {}
        # By uid: the version and the facts for which the status was found to be right.
        self._settled: dict[str, tuple[str, PolicyFacts]] = {}

    async def reconcile(self) -> None:
        """Look at every policy."""
        live = set()
        for policy in self._store.policies:
            if policy.resource not in _OTHERS:
                live.add(policy.uid)
                await self._look_at(policy)
        self._facts.faults.forget(live)
        for known in (self._written, self._settled):
            for uid in known.keys() - live:
                del known[uid]

    async def _look_at(self, policy: StoredPolicy) -> None:
        facts = await self._facts.read(policy)
        document = policy.document
        if self._settled.get(policy.uid) == (_version_of(document), facts):
            return
        # A status with its rules takes a millisecond: others must have their turn.
        await asyncio.sleep(0)
        for _ in range(_ATTEMPTS):
            wanted = self._build(policy, document, facts)
            if self._is_right(policy.uid, document, wanted):
                self._settled[policy.uid] = (_version_of(document), facts)
                return
            try:
                await self._write(policy, document, wanted)
            except NotFoundError:
                return
            except ConflictError:
                found = await self._client.find(policy.resource, policy.name, policy.namespace)
                if found is None or found["metadata"].get("uid") != policy.uid:
                    return
                if found["metadata"].get("generation") != document["metadata"].get("generation"):
                    return  # Changed in the meantime: the store will tell, and wake us again.
                document = found
            else:
                return

    def _build(self, policy: StoredPolicy, document: JsonObject, facts: PolicyFacts) -> JsonObject:
        old = document.get("status")
        now = self._clock().strftime("%Y-%m-%dT%H:%M:%SZ")
        return build_policy_status(
            policy.record, policy.resource.kind, old if isinstance(old, dict) else {}, facts, now
        )

    def _is_right(self, uid: str, document: JsonObject, wanted: JsonObject) -> bool:
        status = document.get("status") or {}
        known = self._written.get(uid)
        if known is not None and known[0] == wanted and known[1] == status:
            return True
        return bool(status == wanted)

    async def _write(self, policy: StoredPolicy, document: JsonObject, wanted: JsonObject) -> None:
        answer = await self._client.replace(
            policy.resource, {**document, "status": wanted}, subresource="status"
        )
        self._written[policy.uid] = (wanted, answer.get("status") or {})


def _version_of(document: JsonObject) -> str:
    return str(document["metadata"].get("resourceVersion"))


def build_status_loop(workplace: Workplace, webhooks: WebhookState, native: NativeState) -> Loop:
    """The loop that writes statuses; woken by policies, webhooks and native policies."""
    facts = StatusFacts(
        webhooks,
        native,
        FaultBook(workplace.store),
        remember_answers(ask_api_server(workplace.client), _REMEMBERED),
        workplace.flags.reports_service_account_name,
    )
    writer = StatusWriter(workplace.client, workplace.store, facts)
    loop = Loop("policy-status-controller", writer.reconcile, interval=_INTERVAL)
    workplace.store.listen(loop.wake)
    webhooks.listen(loop.wake)
    native.listen(loop.wake)
    return loop
