"""One webhook configuration for each policy, with Kubewarden's names."""

import logging
import time
from collections.abc import Iterator

import msgspec

from lictor.addons.kubewarden.family.bindings import PolicyBinding
from lictor.addons.kubewarden.family.policy_server import KUBEWARDEN, PART_OF
from lictor.controllers.context import ControllerContext
from lictor.controllers.webhook_configuration.draft import WebhookEndpoint
from lictor.controllers.webhook_configuration.writer import build_owner_reference, replace_parts
from lictor.core.errors import ApiError
from lictor.core.raw import JsonObject
from lictor.install.removing import release_policies
from lictor.kubernetes.cache import Cache
from lictor.kubernetes.client import Client
from lictor.kubernetes.names import Names
from lictor.kubernetes.resource import CLUSTER_ROLE, MUTATING_WEBHOOK, VALIDATING_WEBHOOK, Resource

log = logging.getLogger(__name__)

_NAME = "kubewardenPolicyName"
_NAMESPACE = "kubewardenPolicyNamespace"
_GROUP = "kubewardenPolicyGroup"
_SCOPE = "kubewardenPolicyScope"
KINDS = (VALIDATING_WEBHOOK, MUTATING_WEBHOOK)
# So long after an API server refused a configuration, it is not shown the same one again.
_REFUSED_SECONDS = 60.0
# Statuses that mean an invalid configuration, rather than a fault of the API server.
_FOR_GOOD = (400, 403, 422)


class _RefusedWebhook(msgspec.Struct, frozen=True):
    """A configuration that the API server did not take, and until when that counts."""

    body: JsonObject
    error: ApiError
    until: float


class PolicyWebhooks:
    """The configurations of all policies, compared with what the cluster has."""

    def __init__(self, context: ControllerContext) -> None:
        self._client: Client = context.client
        self._names: Names = context.names
        own = f"metadata.name={self._names.owner_role}"
        self._owner = context.watch(CLUSTER_ROLE, fields=own)
        self._observed: dict[Resource, Cache] = {kind: context.watch(kind) for kind in KINDS}
        # By unique name.
        self._refused: dict[str, _RefusedWebhook] = {}

    @property
    def caches(self) -> tuple[Cache, ...]:
        return (self._owner, *self._observed.values())

    def find(self, unique_name: str) -> list[JsonObject]:
        """The configurations of a policy: one, or two while it changes its kind."""
        found = (cache.get(unique_name) for cache in self._observed.values())
        return [each for each in found if each is not None and is_of_policy(each)]

    def list_services(self, unique_name: str) -> set[str]:
        """The Services, or addresses, that the API server calls for a policy now."""
        return set(_list_services(self.find(unique_name)))

    async def write(self, binding: PolicyBinding, endpoint: WebhookEndpoint) -> bool:
        """Have the API server call an endpoint for a policy; True if that had to be written."""
        resource = MUTATING_WEBHOOK if binding.is_mutating else VALIDATING_WEBHOOK
        wanted = self._render(binding, endpoint)
        changed = await self._try(resource, wanted)
        # Only now: in between both are called.
        other = VALIDATING_WEBHOOK if binding.is_mutating else MUTATING_WEBHOOK
        return await self._remove(other, binding.unique_name) or changed

    async def remove(self, unique_name: str) -> bool:
        """Have the API server stop calling for a policy; True if it did call."""
        removed = [await self._remove(kind, unique_name) for kind in KINDS]
        return any(removed)

    def list_orphans(self, known: set[str]) -> set[str]:
        """Configurations whose policies are not there any more."""
        for name in self._refused.keys() - known:
            del self._refused[name]
        return {
            str(each["metadata"]["name"])
            for cache in self._observed.values()
            for each in cache.list()
            if is_of_policy(each) and each["metadata"]["name"] not in known
        }

    async def _try(self, resource: Resource, wanted: JsonObject) -> bool:
        """As `_write`; many that are refused for good must not hold up others each time."""
        name, now = wanted["metadata"]["name"], time.monotonic()
        refused = self._refused.get(name)
        if refused is not None and refused.body == wanted and now < refused.until:
            raise refused.error
        self._refused.pop(name, None)
        try:
            return await self._write(resource, wanted)
        except ApiError as error:
            if error.status in _FOR_GOOD:
                self._refused[name] = _RefusedWebhook(wanted, error, now + _REFUSED_SECONDS)
            raise

    async def _write(self, resource: Resource, wanted: JsonObject) -> bool:
        name = wanted["metadata"]["name"]
        # The cache may be a moment late.
        observed = self._observed[resource].get(name) or await self._client.find(resource, name)
        if observed is None:
            await self._client.create(resource, wanted)
            log.info("webhook of a policy created", extra={"configuration": name})
            return True
        merged = replace_parts(observed, wanted)
        if merged == observed:
            return False
        await self._client.replace(resource, merged)
        log.info("webhook of a policy updated", extra={"configuration": name})
        return True

    async def _remove(self, resource: Resource, name: str) -> bool:
        found = self._observed[resource].get(name)
        if found is None or not is_of_policy(found):
            return False
        return await self._client.delete(resource, name)

    def _render(self, binding: PolicyBinding, endpoint: WebhookEndpoint) -> JsonObject:
        resource = MUTATING_WEBHOOK if binding.is_mutating else VALIDATING_WEBHOOK
        annotations = {_NAME: binding.name, _NAMESPACE: binding.namespace}
        if binding.is_group:
            annotations[_GROUP] = "true"
        role = self._owner.get(self._names.owner_role)
        owners = [] if role is None else [_own(role)]
        scope = "namespace" if binding.namespace else "cluster"
        config = endpoint.connect(f"/validate/{binding.unique_name}")
        return {
            "apiVersion": resource.api_version,
            "kind": resource.kind,
            "metadata": {
                "name": binding.unique_name,
                "labels": {PART_OF: KUBEWARDEN, _SCOPE: scope},
                "annotations": annotations,
                "ownerReferences": owners,
            },
            "webhooks": [binding.write_webhook(config, self._names.namespace)],
        }


def _own(role: JsonObject) -> JsonObject:
    return build_owner_reference(CLUSTER_ROLE.api_version, CLUSTER_ROLE.kind, role)


def is_of_policy(configuration: JsonObject) -> bool:
    """Was it made for a policy of Kubewarden?"""
    metadata = configuration["metadata"]
    labels, annotations = metadata.get("labels") or {}, metadata.get("annotations") or {}
    return labels.get(PART_OF) == KUBEWARDEN and _NAME in annotations


def _list_services(configurations: list[JsonObject]) -> Iterator[str]:
    for configuration in configurations:
        for webhook in configuration.get("webhooks") or ():
            config = webhook.get("clientConfig") or {}
            yield str((config.get("service") or {}).get("name") or config.get("url") or "")


async def release_all_policies(client: Client, names: Names) -> None:
    """Remove the webhooks of policies, and the finalizers of policies and servers.

    For an uninstall: no controller would be left to do it.
    """
    for resource in KINDS:
        for found in await client.list(resource, labels=f"{PART_OF}={KUBEWARDEN}"):
            owners = found["metadata"].get("ownerReferences") or ()
            if is_of_policy(found) and any(each["name"] == names.owner_role for each in owners):
                await client.delete(resource, found["metadata"]["name"])
    async for _ in release_policies(client):
        pass
