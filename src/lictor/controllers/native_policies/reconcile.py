"""Keeps Kubernetes' admission policies in sync with the policies they are generated from."""

import asyncio
import time
from collections.abc import Iterable, Mapping
from typing import TypeAlias

from lictor.controllers.context import ControllerContext, EmitEvent
from lictor.controllers.loop import ReconcileLoop
from lictor.controllers.native_policies.native_cel import build_native_cel
from lictor.controllers.native_policies.native_classic import build_native_classic
from lictor.controllers.native_policies.objects import (
    GROUP,
    MANAGED,
    MUTATING_VERSIONS,
    NOT_OURS,
    UNREPORTED_LABEL,
    AdmissionPolicyPair,
    AdmittedResource,
    NativeObjectWriter,
    NativeRequest,
    PolicyOwner,
    by_name,
    mutating_binding,
    mutating_policy,
)
from lictor.controllers.status.policies import NativePolicyOutcomes, WebhookReadiness
from lictor.core.errors import ApiError, CompileError
from lictor.core.families.policy_status import GeneratedPolicyState
from lictor.core.model.policy import Policy
from lictor.core.model.program import Phase
from lictor.core.raw import JsonObject
from lictor.core.report.events import Event, EventAction, EventReason, EventSource, ObjectReference
from lictor.kubernetes.discovery import Discovery
from lictor.kubernetes.resource import (
    CUSTOM_RESOURCE_DEFINITION,
    VALIDATING_ADMISSION_BINDING,
    VALIDATING_ADMISSION_POLICY,
    Resource,
)
from lictor.kubernetes.stored_policy import StoredPolicy


def build_generated_events(policy: StoredPolicy, pair: AdmissionPolicyPair) -> tuple[Event, Event]:
    """One event for the admission policy, one for its binding; both about the policy."""
    about = ObjectReference(
        policy.resource.api_version,
        policy.resource.kind,
        policy.name,
        policy.namespace,
        policy.uid,
    )
    family = "mutating" if pair.policy["kind"].startswith("Mutating") else "validating"
    words = f"successfully generated {family} admission policy"

    def build(what: str, made: dict[str, str], name: str) -> Event:
        related = ObjectReference(made["apiVersion"], made["kind"], name)
        message = f"{what} {name} from policy {policy.name}"
        return Event(
            EventReason.APPLIED,
            EventAction.GENERATED,
            message,
            about,
            related,
            EventSource.GENERATE,
        )

    return (
        build(words, pair.policy, pair.name),
        build(f"{words} binding", pair.binding, f"{pair.name}-binding"),
    )


_Made: TypeAlias = AdmissionPolicyPair | GeneratedPolicyState

_INTERVAL = 15.0
# API servers apply a new admission policy after about a second.
_SPREAD = 1.5
# How long an unwanted admission policy is kept while no webhook has taken over.
_PATIENCE = 60.0


class NativePolicyReconciler:
    """Creates, updates and deletes the admission policies that policies request."""

    def __init__(
        self,
        context: ControllerContext,
        webhooks: WebhookReadiness,
        emit: EmitEvent,
    ) -> None:
        self.state = NativePolicyOutcomes()
        self.discovery = Discovery(context.client)
        self.discovery.follow(context.watch(CUSTOM_RESOURCE_DEFINITION))
        self.caches = (
            context.watch(VALIDATING_ADMISSION_POLICY, labels=MANAGED),
            context.watch(VALIDATING_ADMISSION_BINDING, labels=MANAGED),
        )
        self._client = context.client
        self._flags = context.flags
        self._store = context.store
        self._webhooks = webhooks
        self._emit = emit
        self._objects = NativeObjectWriter(context.client)
        self._unwanted_since: dict[str, float] = {}
        self._around: tuple[object, ...] = ()
        self._built: dict[str, tuple[int, _Made]] = {}

    async def reconcile(self) -> None:
        """Create, update and delete; then publish the outcome of each policy."""
        await self.discovery.ensure()
        version = self._find_mutating_version()
        outcomes: dict[str, GeneratedPolicyState] = {}
        pairs: dict[str, tuple[StoredPolicy, AdmissionPolicyPair]] = {}
        for policy, made in self._build_all(version):
            if isinstance(made, GeneratedPolicyState):
                outcomes[policy.uid] = made
            else:
                pairs[made.name] = (policy, made)
        outcomes |= await self._keep_all(pairs, version)
        self.state.show(outcomes)
        await self._remove_unwanted(pairs, version)

    def _build_all(self, version: str) -> Iterable[tuple[StoredPolicy, _Made]]:
        """What each policy becomes; built again only where its inputs have changed."""
        around = (version, self._store.exceptions.revision, self.discovery.resources)
        if self._around != around:
            self._around = around
            self._built.clear()
        found: dict[str, tuple[int, _Made]] = {}
        for policy in self._store.policies:
            known = self._built.get(policy.uid)
            if known is None or known[0] != policy.generation:
                known = (policy.generation, self._try(policy, version))
            found[policy.uid] = known
            yield policy, known[1]
        self._built = found

    def _try(self, policy: StoredPolicy, version: str) -> _Made:
        try:
            return self._build(policy, version) or GeneratedPolicyState()
        except CompileError as error:
            return GeneratedPolicyState(generated=False, message=error.message)

    def _find_mutating_version(self) -> str:
        served = {
            each.version
            for each in self.discovery.resources
            if each.group == GROUP and each.path == "mutatingadmissionpolicies"
        }
        return next((each for each in MUTATING_VERSIONS if each in served), "")

    def _build(self, policy: StoredPolicy, version: str) -> AdmissionPolicyPair | None:
        """Both objects of a policy; None where it is of a kind that is never made native."""
        is_mutating = policy.kind.phases == (Phase.MUTATE,)
        flags = self._flags
        is_wanted = (
            flags.generate_mutating_admission_policy
            if is_mutating
            else flags.generate_validating_admission_policy
        )
        if policy.record is None or not policy.kind.has_native_form or not is_wanted:
            return None
        exceptions = self._store.exceptions.find_named(policy)
        request = NativeRequest(_own(policy), exceptions, self._find, version)
        if isinstance(policy.record, Policy):
            return build_native_classic(policy.record, request)
        return build_native_cel(policy.record, request)

    def _find(self, kind: str) -> list[AdmittedResource]:
        return [
            AdmittedResource(each.group, each.version, each.path)
            for each in self.discovery.find(kind)
        ]

    async def _keep_all(
        self, pairs: Mapping[str, tuple[StoredPolicy, AdmissionPolicyPair]], version: str
    ) -> dict[str, GeneratedPolicyState]:
        outcomes: dict[str, GeneratedPolicyState] = {}
        is_fresh = False
        there = await self._list_objects(version)
        for policy, pair in pairs.values():
            try:
                is_fresh |= await self._keep(policy, pair, there)
            except ApiError as error:
                outcomes[policy.uid] = GeneratedPolicyState(
                    generated=False, message=_describe_refusal(pair, error)
                )
            else:
                outcomes[policy.uid] = GeneratedPolicyState(generated=True)
        if is_fresh:
            # Only then may the webhook, which has done the work so far, be taken away.
            await asyncio.sleep(_SPREAD)
        return outcomes

    async def _keep(
        self,
        policy: StoredPolicy,
        pair: AdmissionPolicyPair,
        there: Mapping[Resource, Mapping[str, JsonObject]],
    ) -> bool:
        is_fresh = False
        for resource, wanted in zip(_resources_of(pair), (pair.policy, pair.binding), strict=True):
            found = there[resource].get(wanted["metadata"]["name"])
            if await self._objects.keep(resource, wanted, found):
                is_fresh |= found is None
        if is_fresh:
            for event in build_generated_events(policy, pair):
                self._emit(event)
        return is_fresh

    async def _list_objects(self, version: str) -> dict[Resource, dict[str, JsonObject]]:
        """The generated objects that exist."""
        there = {cache.resource: by_name(cache.list()) for cache in self.caches}
        if version:
            for resource in (mutating_policy(version), mutating_binding(version)):
                found = await self._client.list(resource, labels=MANAGED)
                there[resource] = by_name(found)
        return there

    async def _remove_unwanted(
        self, pairs: Mapping[str, tuple[StoredPolicy, AdmissionPolicyPair]], version: str
    ) -> None:
        owners = {policy.uid: policy for policy in self._store.policies}
        wanted = {
            (resource, body["metadata"]["name"])
            for _, pair in pairs.values()
            for resource, body in zip(_resources_of(pair), (pair.policy, pair.binding), strict=True)
        }
        unwanted: set[str] = set()
        for resource, objects in (await self._list_objects(version)).items():
            for name, found in objects.items():
                if (resource, name) in wanted:
                    continue
                unwanted.add(f"{resource.kind}/{name}")
                if self._may_go(f"{resource.kind}/{name}", found, owners):
                    await self._objects.remove(resource, found)
        for name in self._unwanted_since.keys() - unwanted:
            del self._unwanted_since[name]

    def _may_go(self, name: str, found: JsonObject, owners: Mapping[str, StoredPolicy]) -> bool:
        """Has the webhook taken over? The policy must be enforced all the time."""
        references = found["metadata"].get("ownerReferences") or ()
        policy = next((owners[r["uid"]] for r in references if r.get("uid") in owners), None)
        if policy is None:
            return True
        since = self._unwanted_since.setdefault(name, time.monotonic())
        if time.monotonic() - since > _PATIENCE:
            return True
        return not policy.is_native and self._webhooks.is_ready(policy)


def _own(policy: StoredPolicy) -> PolicyOwner:
    labels = policy.document["metadata"].get("labels") or {}
    return PolicyOwner(
        policy.resource.api_version,
        policy.resource.kind,
        policy.name,
        policy.uid,
        policy.failure_policy,
        is_reported=UNREPORTED_LABEL not in labels,
    )


def _resources_of(pair: AdmissionPolicyPair) -> Iterable[Resource]:
    if pair.policy["kind"].startswith("Validating"):
        return VALIDATING_ADMISSION_POLICY, VALIDATING_ADMISSION_BINDING
    version = pair.policy["apiVersion"].rpartition("/")[2]
    return mutating_policy(version), mutating_binding(version)


def _describe_refusal(pair: AdmissionPolicyPair, error: ApiError) -> str:
    kind = pair.policy["kind"]
    if error.reason == NOT_OURS:
        return f"skip generating {kind}: {error}"
    if error.status == 403:
        return f"insufficient permissions to generate {kind.removesuffix('y')}ies"
    if error.status == 422:
        return f"skip generating {kind}: {str(error)[:500]}"
    raise error


def build_native_loop(
    context: ControllerContext,
    webhooks: WebhookReadiness,
    emit: EmitEvent = lambda _: None,
) -> tuple[ReconcileLoop, NativePolicyOutcomes]:
    """The loop, and the outcomes it publishes."""
    reconciler = NativePolicyReconciler(context, webhooks, emit)
    loop = ReconcileLoop(
        "admission-policy-generator",
        reconciler.reconcile,
        interval=_INTERVAL,
        caches=reconciler.caches,
    )
    context.store.listen(loop.wake)
    webhooks.listen(loop.wake)
    reconciler.discovery.listen(loop.wake)
    return loop, reconciler.state
