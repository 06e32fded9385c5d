"""A world to ask: it answers the same question always in the same way, and not always well."""

from collections.abc import Mapping
from datetime import UTC, datetime
from zlib import crc32

from lictor.errors import LookupFailedError, NotProvidedError
from lictor.ports import DEFAULT_ACCESS, ApiCall, RegistryAccess
from lictor.raw import Json, JsonObject

NOW = datetime(2024, 2, 29, 12, 30, tzinfo=UTC)
_ANSWERS: tuple[Json, ...] = (
    {"items": [{"metadata": {"name": "a"}}], "data": {"a": "b"}},
    {"data": None},
    {"metadata": []},
    [1, 2, 3],
    "text",
    None,
    {"data": {"k": "{{ request.object }}"}},
)
_OBJECTS: tuple[JsonObject, ...] = (
    {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a", "labels": {"app": "web"}}},
    {"apiVersion": "v1", "kind": "ConfigMap", "metadata": None, "data": {"a": "1"}},
    {"kind": "ConfigMap", "metadata": {"name": 5, "namespace": "ns", "uid": "u"}},
)


class OddWorld:
    """Every port of the core, without a cluster behind it."""

    def __init__(self, given: Mapping[str, Json]) -> None:
        self._given = given

    def config_map(self, namespace: str, name: str) -> JsonObject:
        answer = _answer(f"map {namespace}/{name}")
        return answer if isinstance(answer, dict) else {}

    def call_api(self, call: ApiCall) -> Json:
        return _answer(f"api {call.url_path} {call.service_url}")

    def global_reference(self, name: str, namespace: str) -> Json:
        return _answer(f"global {name}")

    def image_data(self, reference: str, access: RegistryAccess = DEFAULT_ACCESS) -> JsonObject:
        return {"registry": "docker.io", "configData": _answer(f"image {reference}")}

    def resource(self, api_version: str, kind: str, namespace: str, name: str) -> JsonObject | None:
        number = _number(f"{api_version} {kind} {namespace} {name}")
        return None if number % 3 == 0 else _OBJECTS[number % len(_OBJECTS)]

    def resources(self, api_version: str, kind: str, namespace: str) -> list[JsonObject]:
        return list(_OBJECTS[: 1 + _number(f"{api_version} {kind} {namespace}") % len(_OBJECTS)])

    def rule_values(self, policy: str, rule: str) -> Mapping[str, Json]:
        return self._given

    def foreach_values(self, policy: str, rule: str, index: int) -> Mapping[str, Json]:
        return {}

    def now(self) -> datetime:
        return NOW


def _number(question: str) -> int:
    return crc32(question.encode("utf-8", "replace"))


def _answer(question: str) -> Json:
    number = _number(question)
    if number % 7 == 0:
        raise LookupFailedError("the world is away")
    if number % 7 == 1:
        raise NotProvidedError("there is no world")
    return _ANSWERS[number % len(_ANSWERS)]
