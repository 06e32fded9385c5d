"""Writes the status of every policy: whether it is ready, its rules, its warnings."""

import asyncio
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from itertools import product

import msgspec

from lictor.controllers.context import ControllerContext, EmitEvent
from lictor.controllers.loop import ReconcileLoop
from lictor.controllers.quarantine import emit_quarantine
from lictor.core.errors import ConflictError, NotFoundError
from lictor.core.facts.resource_names import ResourceNames
from lictor.core.families.kind_facts import Role
from lictor.core.families.policy_status import GeneratedPolicyState, PolicyFacts
from lictor.core.model.constraints import MatchResources
from lictor.core.model.finding import Finding, Severity, write_path
from lictor.core.raw import JsonObject
from lictor.kubernetes.client import Client
from lictor.kubernetes.metrics import POLICY_CHANGES, label_policy, open_counter
from lictor.kubernetes.rbac import Access, AccessCheck, ask_api_server, remember_answers
from lictor.kubernetes.stored_policy import StoredPolicy, condense_status, keep_policy
from lictor.lint.documents_by_kind import LintContext, lint_document
from lictor.policies.routes import is_served
from lictor.policies.store import PolicyStore


class NativePolicyOutcomes:
    """The outcome of generating native policies, by the UID of the policy."""

    def __init__(self) -> None:
        self._outcomes: dict[str, GeneratedPolicyState] = {}
        self._listeners: list[Callable[[], None]] = []

    def find(self, uid: str) -> GeneratedPolicyState | None:
        """The outcome for a policy; None before the first run."""
        return self._outcomes.get(uid)

    def listen(self, listener: Callable[[], None]) -> None:
        """Call `listener` after each change; it must not block."""
        self._listeners.append(listener)

    def show(self, outcomes: Mapping[str, GeneratedPolicyState]) -> None:
        """Publish the outcomes."""
        if self._outcomes == outcomes:
            return
        self._outcomes = dict(outcomes)
        for listener in self._listeners:
            listener()


def identify_policy(policy: StoredPolicy) -> str:
    """A policy's key among all kinds, such as `Policy/namespace/name`."""
    return f"{policy.resource.kind}/{policy.key}"


class WebhookReadiness:
    """Which policies the current webhook configurations serve."""

    def __init__(self) -> None:
        # Key -> uid: a policy that was deleted and made anew is another one.
        self._ready: dict[str, str] = {}
        self._refused: dict[str, str] = {}
        self._listeners: list[Callable[[], None]] = []

    @property
    def ready_keys(self) -> frozenset[str]:
        """The policies (see `identify_policy`) whose webhooks are in place."""
        return frozenset(self._ready)

    @property
    def refused(self) -> Mapping[str, str]:
        """Policies that the API server will not take a webhook for, and why."""
        return self._refused

    def is_ready(self, policy: StoredPolicy) -> bool:
        """Is a policy enforced? One that needs no webhook is, as soon as it can be read."""
        if policy.record is None:
            return False
        if not is_served(policy):
            return True
        return self._ready.get(identify_policy(policy)) == policy.uid

    def listen(self, listener: Callable[[], None]) -> None:
        """Call `listener` after each change; it must not block."""
        self._listeners.append(listener)

    def show(self, ready: Mapping[str, str], refused: Mapping[str, str]) -> None:
        """Publish which policies the configurations serve."""
        if self._ready == ready and self._refused == refused:
            return
        self._ready, self._refused = dict(ready), dict(refused)
        for listener in self._listeners:
            listener()


# What prevents a rule from compiling; other mistakes only change its behaviour.
_FATAL = frozenset(
    [
        *("bad-expression", "bad-selector", "bad-condition", "bad-pattern", "bad-pod-security"),
        *("unknown-function", "wrong-arguments", "bad-images"),
    ]
)


class PolicyFaults:
    """The faults of policies, found once for each generation of each."""

    def __init__(self, store: PolicyStore) -> None:
        self._store = store
        self._known: dict[str, tuple[int, tuple[str, ...]]] = {}

    async def find(self, policy: StoredPolicy) -> tuple[str, ...]:
        """The faults of a policy; nothing if there are none."""
        reason = self._store.find_reason(policy)
        if reason:
            return (reason,)
        known = self._known.get(policy.uid)
        if known is not None and known[0] == policy.generation:
            return known[1]
        # The store compiles a policy only after this was tried in the helper process; it may still
        # take seconds.
        found = await self._look(policy)
        self._known[policy.uid] = (policy.generation, found)
        return found

    async def _look(self, policy: StoredPolicy) -> tuple[str, ...]:
        return await asyncio.to_thread(_find_faults, policy, self._store.names)

    def forget(self, live: set[str]) -> None:
        """Keep only what is known of policies that are still there, by uid."""
        for uid in self._known.keys() - live:
            del self._known[uid]


def _find_faults(policy: StoredPolicy, names: ResourceNames) -> tuple[str, ...]:
    if policy.record is None:
        return tuple(
            f"{problem.field}: {problem.message}" if problem.path else problem.message
            for problem in policy.problems
            if problem.severity is Severity.ERROR
        )
    faults = [(each.path, each.message) for each in _lint(policy, names) if each.check in _FATAL]
    return tuple(f"{write_path(path)}: {message}" for path, message in faults)


def _lint(policy: StoredPolicy, names: ResourceNames) -> Iterable[Finding]:
    return lint_document(policy.kind, policy.document, LintContext(lambda: names))


_INTERVAL = 60.0
# Permissions change without notice: answers are kept for this long.
_REMEMBERED = 30.0
_VERBS = ("get", "list", "watch")
_ATTEMPTS = 4


class StatusFacts(msgspec.Struct, frozen=True):
    """Where the facts about policies come from."""

    webhooks: WebhookReadiness
    native: NativePolicyOutcomes
    faults: PolicyFaults
    allows: AccessCheck
    # The user whose read permissions are checked; empty: no check.
    reports_account: str = ""

    async def read(self, policy: StoredPolicy) -> PolicyFacts:
        """What is known of a policy now."""
        is_ready = self.webhooks.is_ready(policy)
        return PolicyFacts(
            webhook=is_ready if policy.admission or not is_ready else None,
            refusal=self.webhooks.refused.get(identify_policy(policy), ""),
            problems=await self.faults.find(policy),
            lacking=await self._find_lacking(policy),
            native=self.native.find(policy.uid),
        )

    async def _find_lacking(self, policy: StoredPolicy) -> tuple[str, ...]:
        if not self.reports_account or policy.record is None:
            return ()
        match = policy.kind.family.describe_webhook(policy.record)
        lacking = []
        for group, version, resource in _list_resources(
            None if match is None else match.constraints
        ):
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
    """Writes statuses that differ from the desired state, and only those."""

    def __init__(
        self,
        client: Client,
        store: PolicyStore,
        facts: StatusFacts,
        emit: EmitEvent,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._client = client
        self._store = store
        self._facts = facts
        self._emit = emit
        self._clock = clock
        # By uid: the desired status, and the stored one, both condensed. The API server fills in
        # defaults and drops unknown fields; that must not count as a difference.
        self._written: dict[str, tuple[JsonObject, JsonObject]] = {}
        # By uid: the version and the facts for which the status was found to be right.
        self._settled: dict[str, tuple[str, PolicyFacts]] = {}

    async def reconcile(self) -> None:
        """Check every policy."""
        live = set()
        for policy in self._store.policies:
            # Other controllers write the last run of deleting policies, and the state of those with
            # separate servers.
            path = policy.kind.path
            is_bound = path is not None and path.per_policy
            if policy.kind.role is Role.POLICY and not is_bound:
                live.add(policy.uid)
                await self._check(policy)
        self._facts.faults.forget(live)
        for known in (self._written, self._settled):
            for uid in known.keys() - live:
                del known[uid]

    async def _check(self, policy: StoredPolicy) -> None:
        facts = await self._facts.read(policy)
        document = policy.document
        if self._settled.get(policy.uid) == (_version_of(document), facts):
            return
        # A status with its rules takes a millisecond: other tasks must run.
        await asyncio.sleep(0)
        for _ in range(_ATTEMPTS):
            wanted = self._build(policy, document, facts)
            if self._is_right(policy.uid, document, condense_status(wanted)):
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
                    return  # Changed in the meantime: the store wakes us again.
                document = keep_policy(found)
            else:
                return

    def _build(self, policy: StoredPolicy, document: JsonObject, facts: PolicyFacts) -> JsonObject:
        old = document.get("status")
        now = self._clock().strftime("%Y-%m-%dT%H:%M:%SZ")
        before = old if isinstance(old, dict) else {}
        return policy.kind.family.build_status(policy.kind, policy.record, before, facts, now)

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
        stored = condense_status(answer.get("status") or {})
        self._written[policy.uid] = (condense_status(wanted), stored)
        emit_quarantine(self._emit, policy, document.get("status"), wanted)


def _version_of(document: JsonObject) -> str:
    return str(document["metadata"].get("resourceVersion"))


def build_status_loop(
    context: ControllerContext,
    webhooks: WebhookReadiness,
    native: NativePolicyOutcomes,
    emit: EmitEvent,
) -> ReconcileLoop:
    """The loop that writes statuses; woken by policies, webhooks and native policies."""
    facts = StatusFacts(
        webhooks,
        native,
        PolicyFaults(context.store),
        remember_answers(ask_api_server(context.client), _REMEMBERED),
        context.flags.reports_service_account_name,
    )
    writer = StatusWriter(context.client, context.store, facts, emit)
    loop = ReconcileLoop("policy-status-controller", writer.reconcile, interval=_INTERVAL)
    context.store.listen(loop.wake)
    webhooks.listen(loop.wake)
    native.listen(loop.wake)
    return loop


# By uid: the generation of a policy, and its labels.
_Known = Mapping[str, tuple[int, tuple[str, ...]]]


class PolicyChanges:
    """Compares the policies of now with those of the time before."""

    def __init__(self) -> None:
        # Those that are there from the beginning are no change.
        self._known: _Known | None = None

    def note(self, policies: Iterable[StoredPolicy]) -> None:
        """Count what differs from what was there when this was called last."""
        now = {each.uid: (each.generation, label_policy(each)) for each in policies}
        before, self._known = self._known, now
        if before is None:
            return
        for uid, (generation, labels) in now.items():
            if uid not in before:
                _count(labels, "created")
            elif before[uid][0] != generation:
                # A status is written without another generation.
                _count(labels, "updated")
        for uid in before.keys() - now.keys():
            _count(before[uid][1], "deleted")


def follow_changes(store: PolicyStore) -> None:
    """Count the changes of all policies from now on."""
    changes = PolicyChanges()

    def note() -> None:
        if store.is_synced:
            changes.note(store.policies)

    store.listen(note)


def _count(labels: tuple[str, ...], what: str) -> None:
    open_counter(POLICY_CHANGES).labels(*labels, what).inc()
