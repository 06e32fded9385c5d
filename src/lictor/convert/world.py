"""A made-up cluster, so that both forms of a policy can be asked what they would do in one."""

from collections.abc import Iterable

from lictor.lang.resource_names import ResourceNames
from lictor.ports import ApiCall, NoLookups
from lictor.raw import Json, JsonObject


class SampleWorld(NoLookups):
    """Has the objects that are given, every namespace, and one of whatever else is asked for."""

    def __init__(self, names: ResourceNames, given: Iterable[JsonObject] = ()) -> None:
        self._names = names
        self._given = [each for each in given if isinstance(each.get("metadata"), dict)]

    def config_map(self, namespace: str, name: str) -> JsonObject:
        found = self.resource("v1", "ConfigMap", namespace, name)
        return found if found is not None else {}

    def call_api(self, call: ApiCall) -> Json:
        version, steps = _read_path(call.url_path)
        if call.method != "GET" or not steps:
            return super().call_api(call)
        namespace, (resource, *name) = "", steps
        if resource == "namespaces" and len(name) > 1:
            namespace, resource, *name = name
        group, _, plain = version.rpartition("/")
        known = self._names.of_resource(group, plain, resource)
        if known is None:
            return super().call_api(call)
        if name:
            return self.resource(version, known.kind, namespace, name[0])
        items = self.resources(version, known.kind, namespace)
        return {"apiVersion": version, "kind": f"{known.kind}List", "items": items}

    def resource(self, api_version: str, kind: str, namespace: str, name: str) -> JsonObject | None:
        for each in self._alike(api_version, kind, namespace):
            if each["metadata"].get("name") == name:
                return each
        metadata: JsonObject = {"name": name}
        if namespace:
            metadata["namespace"] = namespace
        if kind == "Namespace":
            metadata["labels"] = {"kubernetes.io/metadata.name": name}
        return {"apiVersion": api_version, "kind": kind, "metadata": metadata}

    def resources(self, api_version: str, kind: str, namespace: str) -> list[JsonObject]:
        found = list(self._alike(api_version, kind, namespace))
        if found:
            return found
        one = self.resource(api_version, kind, namespace or "default", "sample")
        return [one] if one is not None else []

    def _alike(self, api_version: str, kind: str, namespace: str) -> Iterable[JsonObject]:
        for each in self._given:
            is_kind = each.get("apiVersion") == api_version and each.get("kind") == kind
            if is_kind and namespace in ("", each["metadata"].get("namespace", "")):
                yield each


def _read_path(url: str) -> tuple[str, list[str]]:
    parts = url.partition("?")[0].strip("/").split("/")
    if parts[:1] == ["api"]:
        return "".join(parts[1:2]), parts[2:]
    return "/".join(parts[1:3]), parts[3:]
