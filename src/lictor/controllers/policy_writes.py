"""All writes for policies go through here: nothing out of bounds is written.

Every object that a policy or a label causes to be generated, changed or deleted passes here, after
all variables were resolved and right before the call.
"""

from collections.abc import Mapping

from lictor.core.errors import OutOfBoundsError
from lictor.core.raw import JsonObject
from lictor.kubernetes.client import Client
from lictor.kubernetes.names import Names, is_own_object
from lictor.kubernetes.resource import Resource


class PolicyWrites:
    """Writes on behalf of policies. `own` is a policy's namespace; empty where it has none."""

    def __init__(self, client: Client, names: Names) -> None:
        self._client = client
        self._names = names

    @property
    def field_manager(self) -> str:
        """The field manager of our changes."""
        return self._client.field_manager

    async def create(self, resource: Resource, body: JsonObject, *, own: str) -> JsonObject:
        """Create an object; ConflictError where one of its name exists."""
        self._check_body(resource, body, own)
        return await self._client.create(resource, body)

    async def apply(self, resource: Resource, body: JsonObject, *, own: str) -> JsonObject:
        """Server-side apply."""
        self._check_body(resource, body, own)
        return await self._client.apply(resource, body)

    async def replace(
        self, resource: Resource, body: JsonObject, *, own: str, subresource: str = ""
    ) -> JsonObject:
        """Put a whole object; ConflictError where it has changed since it was read."""
        self._check_body(resource, body, own)
        return await self._client.replace(resource, body, subresource=subresource)

    async def delete(
        self,
        resource: Resource,
        name: str,
        namespace: str,
        *,
        own: str,
        propagation: str = "",
        preconditions: Mapping[str, str] | None = None,
    ) -> bool:
        """Delete an object; False where it was gone."""
        self._check(resource, namespace, name, own)
        return await self._client.delete(
            resource, name, namespace, propagation=propagation, preconditions=preconditions
        )

    def _check_body(self, resource: Resource, body: JsonObject, own: str) -> None:
        metadata = body["metadata"]
        namespace = str(metadata.get("namespace") or "")
        self._check(resource, namespace, str(metadata.get("name") or ""), own)

    def _check(self, resource: Resource, namespace: str, name: str, own: str) -> None:
        place = f"{namespace}/{name}" if namespace else name
        if own and (not resource.namespaced or namespace != own):
            raise OutOfBoundsError(
                f"{resource.kind} {place} is out of bounds: "
                f"a policy of namespace {own} works in namespace {own} only"
            )
        if resource.namespaced and not namespace:
            raise OutOfBoundsError(f"{resource.kind} {name} has no namespace")
        if is_own_object(self._names, resource, namespace, name):
            raise OutOfBoundsError(
                f"{resource.kind} {place} is out of bounds: "
                "policies must not change lictor's own objects"
            )
