"""What a Rego policy finds in `data` and `input`: settings, the request, objects of the cluster."""

from collections.abc import Sequence

import orjson

from lictor.core.errors import GuestError, HostCallError
from lictor.core.lang.wasm_records import ContextResource, HostCalls
from lictor.core.raw import Json, JsonObject


class PreparedData:
    """The JSON of `data`; the same one as long as nothing changes, so that it is parsed once."""

    __slots__ = ("content",)

    def __init__(self, content: bytes) -> None:
        self.content = content


class RegoData:
    """Writes both; keeps what was the same the last time."""

    def __init__(self, host: HostCalls, *, is_gatekeeper: bool) -> None:
        self._host = host
        self._is_gatekeeper = is_gatekeeper
        # In one tuple each, so that another thread never sees half of a change.
        self._settings: tuple[JsonObject | None, bytes] = (None, b"{}")
        self._last: tuple[JsonObject | None, Sequence[ContextResource], PreparedData] = (
            None,
            (),
            PreparedData(b"{}"),
        )

    def read_settings(self, settings: JsonObject) -> bytes:
        """The JSON of the settings."""
        known, content = self._settings
        if known is not settings:
            content = _dump(settings, "its settings are")
            self._settings = (settings, content)
        return content

    def write_input(self, request: Json, settings: JsonObject) -> bytes:
        """The JSON of `input`."""
        if not self._is_gatekeeper:
            return _dump({"request": request}, "the request is")
        if not isinstance(request, dict):
            raise GuestError("a policy of Gatekeeper takes requests of Kubernetes only")
        parameters = orjson.Fragment(self.read_settings(settings))
        return _dump({"parameters": parameters, "review": request}, "the request is")

    def prepare(self, settings: JsonObject) -> PreparedData:
        """What `data` is now: settings in opa mode, and what the policy may read of the cluster."""
        try:
            resources = self._host.context()
        except HostCallError as error:
            raise GuestError(str(error)) from error
        known, seen, prepared = self._last
        same_settings = self._is_gatekeeper or known is settings
        if same_settings and _is_same(resources, seen):
            return prepared
        content = self._write_data(settings, resources)
        if content != prepared.content:
            prepared = PreparedData(content)
        self._last = (settings, resources, prepared)
        return prepared

    def _write_data(self, settings: JsonObject, resources: Sequence[ContextResource]) -> bytes:
        if self._is_gatekeeper:
            data = {"inventory": build_inventory(resources)} if resources else {}
        else:
            data = {**settings, "kubernetes": _build_tree(resources)} if resources else settings
        return _dump(data, "its data is")


def _is_same(left: Sequence[ContextResource], right: Sequence[ContextResource]) -> bool:
    if left is right:
        return True
    # Objects are compared by identity: a changed object is in a new list.
    return len(left) == len(right) and all(
        a.objects is b.objects and (a.api_version, a.kind) == (b.api_version, b.kind)
        for a, b in zip(left, right, strict=True)
    )


def build_inventory(resources: Sequence[ContextResource]) -> JsonObject:
    """Gatekeeper's inventory: cluster.VERSION.KIND.NAME, namespace.NAMESPACE.VERSION.KIND.NAME."""
    cluster: JsonObject = {}
    namespaces: JsonObject = {}
    for resource in resources:
        for each in resource.objects:
            name, namespace = _name(each)
            place = cluster if namespace is None else namespaces.setdefault(namespace, {})
            kinds = place.setdefault(resource.api_version, {})
            kinds.setdefault(resource.kind, {})[name] = each
    return {"cluster": cluster, "namespace": namespaces}


def _build_tree(resources: Sequence[ContextResource]) -> JsonObject:
    """PLURAL.NAME, and PLURAL.NAMESPACE.NAME for what is in a namespace."""
    tree: JsonObject = {}
    for resource in resources:
        place = tree.setdefault(resource.plural, {})
        for each in resource.objects:
            name, namespace = _name(each)
            target = place if namespace is None else place.setdefault(namespace, {})
            target[name] = each
    return tree


def _name(item: JsonObject) -> tuple[str, str | None]:
    metadata = item.get("metadata") or {}
    return str(metadata.get("name", "")), metadata.get("namespace") or None


def _dump(value: Json, what: str) -> bytes:
    try:
        return orjson.dumps(value)
    except TypeError as error:
        raise GuestError(f"the policy cannot be evaluated: {what} no JSON: {error}") from error
