"""What expressions ask of the outside, bound to the port that answers."""

from collections.abc import Mapping
from urllib.parse import quote

import msgspec

from lictor.errors import LookupFailedError
from lictor.lang.cel.world import HttpCall, World
from lictor.lang.resource_names import ResourceNames
from lictor.ports import ApiCall, Lookups
from lictor.raw import Json, JsonObject


def bind_world(lookups: Lookups, names: ResourceNames, namespace: str = "") -> World:
    """The world of a policy; that of a namespaced one ends at its namespace."""
    reader = _Reader(lookups, names)
    return World(
        get_resource=reader.get,
        list_resources=reader.list,
        post_resource=reader.post,
        find_resource=reader.find,
        global_context=reader.global_context,
        image_data=lookups.image_data,
        http=reader.http,
        now=lookups.now,
        namespace=namespace,
        allows_http=not namespace,
    )


class _Reader(msgspec.Struct, frozen=True):
    lookups: Lookups
    names: ResourceNames

    def get(self, api_version: str, resource: str, namespace: str, name: str) -> JsonObject:
        kind = self._kind(api_version, resource)
        if kind is None:
            path = _path(api_version, resource, namespace)
            found = self.lookups.call_api(ApiCall(f"{path}/{quote(name)}"))
        else:
            found = self.lookups.resource(api_version, kind, namespace, name)
        if not isinstance(found, dict):
            raise LookupFailedError(f'{resource} "{name}" not found')
        return found

    def list(
        self, api_version: str, resource: str, namespace: str, labels: Mapping[str, str]
    ) -> JsonObject:
        kind = self._kind(api_version, resource)
        if kind is None:
            answer = self.lookups.call_api(ApiCall(_path(api_version, resource, namespace)))
            items = answer.get("items") if isinstance(answer, dict) else None
            found = items if isinstance(items, list) else []
        else:
            found = self.lookups.resources(api_version, kind, namespace)
        items = [item for item in found if _has_labels(item, labels)]
        return {"apiVersion": api_version, "kind": f"{kind or ''}List", "items": items}

    def post(self, api_version: str, resource: str, namespace: str, body: JsonObject) -> JsonObject:
        path = _path(api_version, resource, namespace)
        answer = self.lookups.call_api(ApiCall(path, method="POST", data=body))
        if not isinstance(answer, dict):
            raise LookupFailedError(f"no object came back from {path}")
        return answer

    def find(self, api_version: str, kind: str) -> tuple[str, str, str]:
        group, _, version = api_version.rpartition("/")
        found = self.names.of_kind(group, version, kind)
        return found.group, found.version, found.resource

    def global_context(self, name: str, projection: str) -> Json:
        return self.lookups.global_reference(f"{name}.{projection}" if projection else name)

    def http(self, call: HttpCall) -> tuple[int, Json]:
        answer = self.lookups.call_api(
            ApiCall(
                method=call.method,
                data=call.body,
                service_url=call.url,
                headers=call.headers,
                ca_bundle=call.ca_bundle,
            )
        )
        return 200, answer

    def _kind(self, api_version: str, resource: str) -> str | None:
        group, _, version = api_version.rpartition("/")
        found = self.names.of_resource(group, version, resource)
        return None if found is None else found.kind


def _path(api_version: str, resource: str, namespace: str) -> str:
    root = "apis" if "/" in api_version else "api"
    inside = f"namespaces/{quote(namespace)}/" if namespace else ""
    return f"/{root}/{api_version}/{inside}{resource}"


def _has_labels(item: Json, labels: Mapping[str, str]) -> bool:
    if not labels:
        return True
    metadata = item.get("metadata") if isinstance(item, dict) else None
    found = metadata.get("labels") if isinstance(metadata, dict) else None
    own = found if isinstance(found, dict) else {}
    return all(own.get(name) == value for name, value in labels.items())
