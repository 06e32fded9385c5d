"""Admission policies of Kubernetes that we made: found, kept as they should be, and deleted."""

from collections.abc import Iterable

from lictor.cluster.client import Client
from lictor.cluster.resource import Resource
from lictor.convert.native_objects import GROUP, MANAGED_BY, MANAGED_LABEL
from lictor.errors import ConflictError
from lictor.families.registry import registry
from lictor.raw import JsonObject

MANAGED = f"{MANAGED_LABEL}={MANAGED_BY}"
# Someone else has an object of the name that ours should have.
NOT_OURS = "NotOurs"
# The newest that is served is used.
MUTATING_VERSIONS = ("v1", "v1beta1", "v1alpha1")


def mutating_policy(version: str) -> Resource:
    """MutatingAdmissionPolicies in a version that the API server serves."""
    kind = "MutatingAdmissionPolicy"
    return Resource(GROUP, version, "mutatingadmissionpolicies", kind, namespaced=False)


def mutating_binding(version: str) -> Resource:
    """The bindings of those."""
    kind = "MutatingAdmissionPolicyBinding"
    return Resource(GROUP, version, "mutatingadmissionpolicybindings", kind, namespaced=False)


class NativeObjectWriter:
    """Writes objects that differ from what they should be, and only those."""

    def __init__(self, client: Client) -> None:
        self._client = client
        # By kind and name: what was wanted, and what the API server made of it. It fills in
        # defaults; those must not look like someone's edits.
        self._written: dict[tuple[str, str], tuple[JsonObject, JsonObject]] = {}

    async def keep(self, resource: Resource, wanted: JsonObject, found: JsonObject | None) -> bool:
        """Create or correct an object; was there anything to do?"""
        name = wanted["metadata"]["name"]
        if found is not None and self._is_right(resource, wanted, found):
            return False
        if found is None:
            try:
                made = await self._client.create(resource, wanted)
            except ConflictError:
                # It has lost the label by which we look for ours, or it is not ours.
                found = await self._client.get(resource, name)
            else:
                self._remember(resource, wanted, made)
                return True
        if not is_ours(found):
            message = f"{resource.kind} {name} exists and was not made by us"
            raise ConflictError(message, status=409, reason=NOT_OURS)
        made = await self._client.replace(resource, _merge(wanted, found))
        self._remember(resource, wanted, made)
        return True

    async def remove(self, resource: Resource, found: JsonObject) -> None:
        """Delete an object of ours."""
        name = found["metadata"]["name"]
        self._written.pop((resource.kind, name), None)
        await self._client.delete(
            resource, name, preconditions={"uid": str(found["metadata"].get("uid"))}
        )

    def _is_right(self, resource: Resource, wanted: JsonObject, found: JsonObject) -> bool:
        known = self._written.get((resource.kind, wanted["metadata"]["name"]))
        return known is not None and known[0] == wanted and known[1] == _essence(found)

    def _remember(self, resource: Resource, wanted: JsonObject, made: JsonObject) -> None:
        self._written[resource.kind, wanted["metadata"]["name"]] = (wanted, _essence(made))


def _essence(found: JsonObject) -> JsonObject:
    metadata = found["metadata"]
    return {
        "labels": metadata.get("labels"),
        "owners": metadata.get("ownerReferences"),
        "spec": found.get("spec"),
    }


def _merge(wanted: JsonObject, found: JsonObject) -> JsonObject:
    """What is wanted, with the labels and annotations that others have added."""
    metadata = {
        **found["metadata"],
        "labels": {**(found["metadata"].get("labels") or {}), **wanted["metadata"]["labels"]},
        "ownerReferences": wanted["metadata"]["ownerReferences"],
    }
    metadata.pop("managedFields", None)
    return {**wanted, "metadata": metadata}


def is_ours(found: JsonObject) -> bool:
    """Was it made from a policy of ours?"""
    owners = {(kind.kind, kind.group) for kind in registry().kinds if kind.build_native}
    return any(
        (reference.get("kind"), str(reference.get("apiVersion")).partition("/")[0]) in owners
        for reference in found["metadata"].get("ownerReferences") or ()
    )


def by_name(objects: Iterable[JsonObject]) -> dict[str, JsonObject]:
    """Those objects that are ours, by their names."""
    return {each["metadata"]["name"]: each for each in objects if is_ours(each)}
