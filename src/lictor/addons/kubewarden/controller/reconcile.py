"""Keeps the objects of each PolicyServer, binds policies to servers, and writes statuses."""

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from typing import cast

import msgspec

from lictor.addons.kubewarden.controller.certificates import ServerAuthority, ServerCertificates
from lictor.addons.kubewarden.controller.objects import (
    DISRUPTION_BUDGET,
    SERVICE_PORT,
    build_budget,
    build_config_map,
    build_deployment,
    build_service,
    find_version,
    fit_entries,
)
from lictor.addons.kubewarden.controller.rollout import (
    LoadWait,
    OwnServer,
    Workloads,
    read_workloads,
)
from lictor.addons.kubewarden.controller.states import (
    BoundPolicy,
    Placement,
    PolicyStage,
    ServedState,
    ServerRun,
    ServerStatusWriter,
    StatedCondition,
    ask_pods,
    describe_absent,
    describe_active,
    describe_failed,
    describe_pending,
)
from lictor.addons.kubewarden.controller.webhooks import PolicyWebhooks
from lictor.addons.kubewarden.family.bindings import read_binding
from lictor.addons.kubewarden.family.policy_server import PolicyServer, read_server
from lictor.addons.kubewarden.family.records import WasmRecord
from lictor.addons.kubewarden.family.validation import find_reach_fault
from lictor.controllers.context import ControllerContext, EmitEvent
from lictor.controllers.webhook_configuration.draft import WebhookEndpoint
from lictor.core.errors import LictorError
from lictor.core.raw import JsonObject
from lictor.kubernetes.resource import CONFIG_MAP, DEPLOYMENT, SERVICE, Resource

log = logging.getLogger(__name__)

POLICY_SERVER = Resource(
    "policies.kubewarden.io", "v1", "policyservers", "PolicyServer", namespaced=False
)
# API servers apply a changed webhook configuration with a short delay.
_SPREAD = 0.3
_RECONCILED = StatedCondition(holds=True, reason="Reconciled", message="")
_CONFIGURED, _DEPLOYED = "ConfigMapReconciled", "DeploymentReconciled"


class _AppliedObject(msgspec.Struct, frozen=True):
    """What was applied, and how the object was known afterwards."""

    body: JsonObject
    mark: str


class PolicyServerReconciler:
    """One run looks at all servers and all policies that name servers."""

    def __init__(
        self, context: ControllerContext, own: OwnServer, emit: EmitEvent, spread: float = _SPREAD
    ) -> None:
        self.servers = context.watch(POLICY_SERVER)
        self.webhooks = PolicyWebhooks(context)
        self._context = context
        self._namespace = context.names.namespace
        self._own = own
        self._spread = spread
        self._certificates = ServerCertificates(context.client, self._namespace)
        self._statuses = ServerStatusWriter(context.client, emit, lambda: datetime.now(UTC))
        self._applied: dict[tuple[str, str], _AppliedObject] = {}
        self.look_again: Callable[[], None] = lambda: None

    async def reconcile(self) -> None:
        """Servers first, then webhooks, then the statuses of both."""
        policies = self._list_policies()
        servers, broken = self._read_servers()
        failures: list[LictorError] = []
        authority = await self._certificates.keep_authority() if servers else None
        runs = {}
        workloads = Workloads()
        if servers:
            workloads = await read_workloads(self._context.client, self._namespace)
        for server in servers:
            if authority is not None and not server.is_going:
                runs[server.name] = await self._run_server(
                    server, policies, authority, workloads, failures
                )
        runs = await ask_pods(runs, workloads)
        placement = Placement(runs, servers, broken, authority)
        states, changed = await self._place_all(policies, placement, failures)
        changed |= await self._sweep(policies)
        if changed:
            await asyncio.sleep(self._spread)
        await self._write_policy_statuses(policies, states, failures)
        await self._write_server_statuses(servers, broken, runs, policies)
        if any(run.waiting for run in runs.values()) or any(
            state.is_waiting for state in states.values()
        ):
            self.look_again()
        if failures:
            raise failures[0]

    # --- what is there

    def _list_policies(self) -> list[BoundPolicy]:
        found = []
        for stored in self._context.store.policies:
            path = stored.kind.path
            if path is not None and path.per_policy:
                # Records of these kinds are of this family.
                record = cast("WasmRecord | None", stored.record)
                binding = read_binding(stored.kind, stored.document, record)
                going = bool(stored.document["metadata"].get("deletionTimestamp"))
                found.append(BoundPolicy(stored, binding, going))
        return found

    def _read_servers(self) -> tuple[list[PolicyServer], dict[str, str]]:
        """The servers, and those whose documents make no sense, with the reason."""
        servers, broken = [], {}
        for document in self.servers.list():
            try:
                servers.append(read_server(document))
            except msgspec.ValidationError as error:
                broken[str(document["metadata"]["name"])] = str(error)
        return servers, broken

    # --- servers

    async def _run_server(
        self,
        server: PolicyServer,
        policies: list[BoundPolicy],
        authority: ServerAuthority,
        workloads: Workloads,
        failures: list[LictorError],
    ) -> ServerRun:
        granted = server.spec.namespaced_policies_capabilities
        written = {
            each.binding.unique_name: each.binding.write_entry(granted)
            for each in policies
            if self._is_served_by(each, server)
        }
        found = {name: entry for name, entry in written.items() if entry is not None}
        entries = fit_entries(found)
        config = build_config_map(server, self._namespace, entries)
        version = find_version(server, config)
        conditions = await self._keep_objects(server, config, version, authority, failures)
        waiting = "" if server.runs_lictor else workloads.explain_wait(server, version)
        return ServerRun(server, entries, conditions, waiting)

    def _is_served_by(self, policy: BoundPolicy, server: PolicyServer) -> bool:
        """Also while the API server still calls this one: a policy stays until the next has it."""
        return policy.binding.server == server.name or self._is_called(server, policy)

    def _is_called(self, server: PolicyServer, policy: BoundPolicy) -> bool:
        return server.full_name in self.webhooks.list_services(policy.binding.unique_name)

    async def _keep_objects(
        self,
        server: PolicyServer,
        config: JsonObject,
        version: str,
        authority: ServerAuthority,
        failures: list[LictorError],
    ) -> dict[str, StatedCondition]:
        steps = (
            ("CertSecretReconciled", self._certificates.keep_serving(server, authority)),
            (_CONFIGURED, self._apply(CONFIG_MAP, config)),
            ("PodDisruptionBudgetReconciled", self._keep_budget(server)),
            (
                _DEPLOYED,
                self._apply(DEPLOYMENT, build_deployment(server, self._namespace, version)),
            ),
            ("ServiceReconciled", self._apply(SERVICE, build_service(server, self._namespace))),
        )
        # The authority was kept before.
        conditions = {"CARootSecretReconciled": _RECONCILED}
        for name, step in steps:
            if name == _DEPLOYED and not conditions[_CONFIGURED].holds:
                # The status would report objects that do not exist.
                step.close()
                continue
            try:
                await step
                conditions[name] = _RECONCILED
            except LictorError as error:
                conditions[name] = StatedCondition(
                    holds=False, reason="ReconciliationFailed", message=str(error)[:1000]
                )
                failures.append(error)
        return conditions

    async def _keep_budget(self, server: PolicyServer) -> None:
        budget = build_budget(server, self._namespace)
        if budget is not None:
            await self._apply(DISRUPTION_BUDGET, budget)
            return
        client, name = self._context.client, server.full_name
        if await client.find(DISRUPTION_BUDGET, name, self._namespace) is not None:
            await client.delete(DISRUPTION_BUDGET, name, self._namespace)

    async def _apply(self, resource: Resource, body: JsonObject) -> None:
        """Server-side apply, where something is to be changed."""
        client, metadata = self._context.client, body["metadata"]
        key = (resource.plural, metadata["name"])
        found = await client.find(resource, metadata["name"], metadata["namespace"])
        known = self._applied.get(key)
        if found is not None and known == _AppliedObject(body, _mark(found)):
            return
        made = await client.apply(resource, body)
        self._applied[key] = _AppliedObject(body, _mark(made))

    # --- policies

    async def _place_all(
        self,
        policies: Iterable[BoundPolicy],
        placement: Placement,
        failures: list[LictorError],
    ) -> tuple[dict[str, ServedState], bool]:
        """A policy that cannot be written, as other policies refuse that, stops no other policy."""
        states: dict[str, ServedState] = {}
        changed = False
        for policy in policies:
            try:
                state, written = await self._place(policy, placement)
                states[policy.stored.uid] = state
                changed |= written
            except LictorError as error:
                failures.append(error)
        return states, changed

    async def _place(self, policy: BoundPolicy, placement: Placement) -> tuple[ServedState, bool]:
        name, stored = policy.binding.unique_name, policy.stored
        if policy.is_going:
            return await self._release_policy(policy)
        absence = placement.find_absence(policy.binding.server)
        if absence is not None:
            # No server would answer, and all requests would fail.
            removed = await self.webhooks.remove(name)
            await self._statuses.release(stored.resource, stored.document)
            return absence, removed
        record = policy.binding.record
        if record is not None and (fault := find_reach_fault(record)):
            # It was created while no webhook validated policies.
            removed = await self.webhooks.remove(name)
            return describe_pending("unknown", "NotAllowed", fault, is_served=False), removed
        endpoint, wait = self._find_answerer(policy, placement)
        mode = policy.binding.mode.value
        # A server denies the requests of a policy with invalid settings: it must be called, also if
        # the policy is new. Kubewarden does the same.
        refuses = wait is not None and wait.is_final and not self.webhooks.list_services(name)
        if endpoint is None or (wait is not None and not refuses):
            return self._describe_wait(policy, wait or LoadWait(""), endpoint), False
        await self._statuses.hold(stored.resource, stored.document)
        try:
            written = await self.webhooks.write(policy.binding, endpoint)
        except LictorError as error:
            return describe_pending(mode, "WebhookRefused", str(error), is_served=True), False
        if wait is not None:
            return describe_failed(mode, wait, is_asked=True), written
        return describe_active(mode), written

    def _find_answerer(
        self, policy: BoundPolicy, placement: Placement
    ) -> tuple[WebhookEndpoint | None, LoadWait | None]:
        """Where the policy can be called, and why it cannot be yet."""
        run = placement.runs.get(policy.binding.server)
        if policy.stored.record is None:
            return None, LoadWait("the policy cannot be read")
        if run is None:
            return self._own.find_endpoint(policy.stored)
        wait = run.find_wait(policy.binding.unique_name)
        return self._find_endpoint(run, placement), wait

    def _describe_wait(
        self, policy: BoundPolicy, wait: LoadWait, endpoint: WebhookEndpoint | None
    ) -> ServedState:
        """Webhooks stay as they are: requests that were denied before are not allowed meanwhile."""
        asked = self.webhooks.list_services(policy.binding.unique_name)
        mode = policy.binding.mode.value
        is_asked = endpoint is not None and endpoint.service in asked
        if wait.refuses and (is_asked or not asked):
            return describe_failed(mode, wait, is_asked=is_asked)
        if asked:
            return describe_active(mode, wait.reason)
        return describe_pending(mode, "NotServedYet", wait.reason, is_served=False)

    async def _release_policy(self, policy: BoundPolicy) -> tuple[ServedState, bool]:
        """The policy is being deleted: its webhook goes first."""
        removed = await self.webhooks.remove(policy.binding.unique_name)
        if removed:
            # API servers still call for a moment; until then the policy answers.
            await asyncio.sleep(self._spread)
        await self._statuses.release(policy.stored.resource, policy.stored.document)
        why = "the policy is being deleted"
        return describe_absent(PolicyStage.SCHEDULED, "Deleted", why), removed

    def _find_endpoint(self, run: ServerRun, placement: Placement) -> WebhookEndpoint | None:
        if placement.authority is None:
            return None
        name = run.server.full_name
        return WebhookEndpoint(placement.authority.bundle, self._namespace, name, SERVICE_PORT)

    async def _sweep(self, policies: Iterable[BoundPolicy]) -> bool:
        """Remove the webhooks of policies that were deleted while no controller ran."""
        known = {policy.binding.unique_name for policy in policies}
        removed = False
        for orphan in sorted(self.webhooks.list_orphans(known)):
            removed |= await self.webhooks.remove(orphan)
        return removed

    # --- statuses

    async def _write_policy_statuses(
        self,
        policies: Iterable[BoundPolicy],
        states: Mapping[str, ServedState],
        failures: list[LictorError],
    ) -> None:
        live = set()
        for policy in policies:
            live.add(policy.stored.uid)
            state = states.get(policy.stored.uid)
            if state is None or policy.is_going:
                continue
            try:
                await self._statuses.write_policy(policy.stored, state)
            except LictorError as error:
                failures.append(error)
        self._statuses.forget(live)

    async def _write_server_statuses(
        self,
        servers: Iterable[PolicyServer],
        broken: Mapping[str, str],
        runs: Mapping[str, ServerRun],
        policies: Iterable[BoundPolicy],
    ) -> None:
        for server in servers:
            document = self.servers.get(server.name)
            if document is None:
                continue
            if server.is_going:
                if any(self._is_called(server, policy) for policy in policies):
                    self.look_again()
                else:
                    await self._statuses.release(POLICY_SERVER, document)
                continue
            await self._statuses.hold(POLICY_SERVER, document)
            if server.name in runs:
                conditions = runs[server.name].conditions
                await self._statuses.write_server(POLICY_SERVER, document, conditions)
        for name, why in broken.items():
            document = self.servers.get(name)
            if document is not None:
                conditions = {
                    _DEPLOYED: StatedCondition(holds=False, reason="Invalid", message=why)
                }
                await self._statuses.write_server(POLICY_SERVER, document, conditions)


def _mark(item: JsonObject) -> str:
    """Text that changes with every change of the object, except of its status."""
    metadata = item["metadata"]
    return str(metadata.get("generation") or metadata.get("resourceVersion") or "")
