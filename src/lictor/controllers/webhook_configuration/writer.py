"""Writes webhook configurations that differ, after a dry run of each webhook; removes them.

The Namespace owns a ClusterRole, and that owns the configurations: so the garbage collector removes
them when the namespace is deleted, even when no process of lictor runs any more.
"""

import asyncio
import logging
from collections.abc import Iterable

import msgspec

from lictor.controllers.context import ControllerContext
from lictor.controllers.loop import ReconcileLoop
from lictor.controllers.webhook_configuration.draft import (
    CONFIGURATIONS,
    ConfigurationDraft,
    WebhookDraft,
    WebhookEndpoint,
    render_webhook,
)
from lictor.core.errors import ApiError, LookupFailedError
from lictor.core.raw import Json, JsonObject
from lictor.kubernetes.cache import Cache
from lictor.kubernetes.client import Client
from lictor.kubernetes.flags import Flags
from lictor.kubernetes.names import Names
from lictor.kubernetes.resource import (
    CLUSTER_ROLE,
    MUTATING_WEBHOOK,
    NAMESPACE,
    SECRET,
    VALIDATING_WEBHOOK,
    Resource,
)
from lictor.kubernetes.settings import Settings

_INTERVAL = 300.0


def build_ownership_loop(context: ControllerContext) -> ReconcileLoop:
    """The loop that keeps the ClusterRole owned by the Namespace."""
    client, names = context.client, context.names
    role = context.watch(CLUSTER_ROLE, fields=f"metadata.name={names.owner_role}")
    namespace = context.watch(NAMESPACE, fields=f"metadata.name={names.namespace}")

    async def reconcile() -> None:
        await own_role(client, role.get(names.owner_role), namespace.get(names.namespace))

    return ReconcileLoop(
        "ownership-controller", reconcile, interval=_INTERVAL, caches=(role, namespace)
    )


async def own_role(client: Client, role: JsonObject | None, namespace: JsonObject | None) -> None:
    """Make the Namespace the owner of the ClusterRole; other owners stay."""
    if role is None or namespace is None:
        return
    owner = build_owner_reference("v1", "Namespace", namespace)
    owners = role["metadata"].get("ownerReferences") or []
    if owner in owners:
        return
    # An owner of the same name but with another uid is gone, and would have the role deleted.
    others = [item for item in owners if not _is_same_thing(item, owner)]
    patch = {
        "metadata": {
            "ownerReferences": [*others, owner],
            "resourceVersion": role["metadata"]["resourceVersion"],
        }
    }
    await client.patch(CLUSTER_ROLE, role["metadata"]["name"], patch)


def build_owner_reference(api_version: str, kind: str, owner: JsonObject) -> JsonObject:
    """How an object names its owner."""
    return {
        "apiVersion": api_version,
        "kind": kind,
        "name": owner["metadata"]["name"],
        "uid": owner["metadata"]["uid"],
    }


def _is_same_thing(left: JsonObject, right: JsonObject) -> bool:
    return all(left.get(part) == right.get(part) for part in ("apiVersion", "kind", "name"))


_AT_ONCE = 4
_REFUSALS = (400, 422)
# Only the rules of policies are checked: an error in our own address must not count.
_SOMEWHERE = WebhookEndpoint(ca_bundle="", namespace="default", service="webhook")


class WebhookDryRun:
    """Dry-runs webhooks to learn whether the API server accepts them; assumes so before."""

    def __init__(self, client: Client, prefix: str) -> None:
        self._client = client
        self._prefix = prefix
        # Content -> why it is refused, or nothing.
        self._known: dict[bytes, str] = {}
        self._asked: dict[bytes, WebhookDraft] = {}

    def begin(self) -> None:
        """Start a new computation; unused answers are dropped."""
        self._asked = {}

    def explain(self, draft: WebhookDraft) -> str:
        """Why the API server refuses a webhook; nothing if it accepts it."""
        content = _identify(draft)
        self._asked[content] = draft
        return self._known.get(content, "")

    async def learn(self) -> bool:
        """Dry-run new webhooks; False where all answers were known."""
        self._known = {key: why for key, why in self._known.items() if key in self._asked}
        new = [key for key in self._asked if key not in self._known]
        gate = asyncio.Semaphore(_AT_ONCE)
        answers = await asyncio.gather(*(self._ask(self._asked[key], gate) for key in new))
        self._known.update(zip(new, answers, strict=True))
        return bool(new)

    async def _ask(self, draft: WebhookDraft, gate: asyncio.Semaphore) -> str:
        webhook = render_webhook(draft, _SOMEWHERE, mutating=False)
        del webhook["clientConfig"]["caBundle"]
        body: JsonObject = {
            "apiVersion": VALIDATING_WEBHOOK.api_version,
            "kind": VALIDATING_WEBHOOK.kind,
            "metadata": {"name": f"{self._prefix}-check"},
            "webhooks": [webhook],
        }
        async with gate:
            try:
                path = VALIDATING_WEBHOOK.path()
                await self._client.request("POST", path, body=body, params={"dryRun": "All"})
            except ApiError as error:
                if error.status in _REFUSALS:
                    return str(error)
                raise
        return ""


def _identify(draft: WebhookDraft) -> bytes:
    parts = (
        draft.name,
        draft.path,
        draft.rules,
        draft.conditions,
        draft.namespace_selector,
        draft.object_selector,
        draft.timeout,
    )
    return msgspec.json.encode(parts, order="deterministic")


async def remove_webhooks(client: Client, names: Names) -> list[str]:
    """Delete all configurations of an installation; gives the names of those that were there."""
    removed = []
    for name, mutating in CONFIGURATIONS:
        resource = MUTATING_WEBHOOK if mutating else VALIDATING_WEBHOOK
        if await client.delete(resource, names.webhook(name)):
            removed.append(names.webhook(name))
    return removed


log = logging.getLogger(__name__)

MANAGED_LABELS = {"webhook.kyverno.io/managed-by": "kyverno"}
_CERTIFICATE = "tls.crt"


class ConfigurationWriter:
    """The configurations of the admission server, compared with what the cluster has."""

    def __init__(self, context: ControllerContext) -> None:
        self._client: Client = context.client
        self._names: Names = context.names
        self._flags: Flags = context.flags
        own = f"metadata.name={self._names.owner_role}"
        self._owner = context.watch(CLUSTER_ROLE, fields=own)
        # All of them, not just those with our label: one that has lost its label is still ours.
        self._observed: dict[Resource, Cache] = {
            resource: context.watch(resource) for resource in (VALIDATING_WEBHOOK, MUTATING_WEBHOOK)
        }
        self._secret_name = self._flags.ca_secret_name or self._names.authority_secret()
        self._secret = context.watch(
            SECRET,
            namespace=self._names.namespace,
            fields=f"metadata.name={self._secret_name}",
        )

    @property
    def caches(self) -> tuple[Cache, ...]:
        return (self._owner, self._secret, *self._observed.values())

    def find_address(self) -> WebhookEndpoint:
        """Where the API server finds us; LookupFailedError as long as there is no authority."""
        secret = self._secret.get(self._secret_name, self._names.namespace) or {}
        authority = (secret.get("data") or {}).get(_CERTIFICATE)
        if not authority:
            raise LookupFailedError(f"no certificate authority yet in Secret {self._secret_name}")
        return WebhookEndpoint(
            authority,
            self._names.namespace,
            self._names.service,
            self._flags.service_port,
            self._flags.server_ip,
        )

    async def write(
        self,
        configurations: Iterable[ConfigurationDraft],
        address: WebhookEndpoint,
        settings: Settings,
        *,
        only_authority: frozenset[str] = frozenset(),
    ) -> bool:
        """Write all configurations; True if something had to be written.

        The rules of those in `only_authority` are managed externally: if they exist, only the
        authority of the certificate is updated.
        """
        changed = False
        for configuration in configurations:
            wanted = self._render(configuration, address, settings)
            resource = MUTATING_WEBHOOK if configuration.mutating else VALIDATING_WEBHOOK
            keep = configuration.name in only_authority
            changed |= await self._write_one(resource, wanted, keep_rules=keep)
        return changed

    async def _write_one(self, resource: Resource, wanted: JsonObject, *, keep_rules: bool) -> bool:
        name = wanted["metadata"]["name"]
        observed = self._observed[resource].get(name)
        if observed is None:
            # The cache may be a moment late.
            observed = await self._client.find(resource, name)
        if observed is None:
            await self._client.create(resource, wanted)
            log.info("webhook configuration created", extra={"configuration": name})
            return True
        merged = _keep_rules(observed, wanted) if keep_rules else replace_parts(observed, wanted)
        if merged == observed:
            return False
        await self._client.replace(resource, merged)
        log.info("webhook configuration updated", extra={"configuration": name})
        return True

    def _render(
        self, configuration: ConfigurationDraft, address: WebhookEndpoint, settings: Settings
    ) -> JsonObject:
        resource = MUTATING_WEBHOOK if configuration.mutating else VALIDATING_WEBHOOK
        drafts = sorted(configuration.drafts, key=lambda draft: draft.name)
        metadata: JsonObject = {
            "name": self._names.webhook(configuration.name),
            "labels": {**settings.webhook_labels, **MANAGED_LABELS},
            "annotations": dict(settings.webhook_annotations),
            "ownerReferences": self._list_owners(),
        }
        return {
            "apiVersion": resource.api_version,
            "kind": resource.kind,
            "metadata": metadata,
            "webhooks": [
                render_webhook(draft, address, mutating=configuration.mutating) for draft in drafts
            ],
        }

    def _list_owners(self) -> list[Json]:
        role = self._owner.get(self._names.owner_role)
        if role is None:
            return []
        return [build_owner_reference(CLUSTER_ROLE.api_version, CLUSTER_ROLE.kind, role)]


def replace_parts(observed: JsonObject, wanted: JsonObject) -> JsonObject:
    """The existing object with lictor's fields corrected."""
    metadata = dict(observed["metadata"])
    for part in ("labels", "annotations", "ownerReferences"):
        metadata = _put(metadata, part, wanted["metadata"][part])
    return _put({**observed, "metadata": metadata}, "webhooks", wanted["webhooks"])


def _put(fields: JsonObject, name: str, value: Json) -> JsonObject:
    """The fields with this value; the API server omits empty ones."""
    if value:
        return {**fields, name: value}
    return {key: kept for key, kept in fields.items() if key != name}


def _keep_rules(observed: JsonObject, wanted: JsonObject) -> JsonObject:
    authority = next((webhook["clientConfig"]["caBundle"] for webhook in wanted["webhooks"]), None)
    webhooks = [
        {**webhook, "clientConfig": {**webhook["clientConfig"], "caBundle": authority}}
        for webhook in observed.get("webhooks") or ()
    ]
    return _put(observed, "webhooks", webhooks) if authority else observed
