"""A world to ask: it answers the same question always in the same way, and not always well."""

from collections.abc import Mapping
from datetime import UTC, datetime
from hashlib import sha256
from zlib import crc32

from lictor.core.errors import ImageNotFoundError, LookupFailedError, NotProvidedError
from lictor.core.ports import (
    DEFAULT_ACCESS,
    ApiCall,
    Descriptor,
    GuestLogLine,
    ImageManifest,
    ObjectQuery,
    Registries,
    RegistryAccess,
    ResourceFacts,
)
from lictor.core.raw import Json, JsonObject

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


_CONTENTS = (
    b"{}",
    b"[]",
    b"not JSON",
    b'{"schemaVersion": 2, "config": {"mediaType": "c", "digest": 5}, "layers": [{"size": -1}]}',
    b'{"schemaVersion": 2, "layers": [{"mediaType": "m", "digest": "sha256:00", "size": 1}]}',
    b'{"payloadType": "t", "payload": "e30=", "signatures": [{"sig": "AAAA"}]}',
    b'{"mediaType": "application/vnd.dev.sigstore.bundle.v0.3+json", "dsseEnvelope": 1}',
    b'{"critical": {"image": {"docker-manifest-digest": null}}, "optional": []}',
)


class OddRegistries:
    """Registries that keep what nobody would put there."""

    def manifest(
        self, repository: str, tag_or_digest: str, access: RegistryAccess
    ) -> ImageManifest:
        content = _content(f"manifest {repository} {tag_or_digest}")
        digest = f"sha256:{sha256(content).hexdigest()}"
        return ImageManifest("application/vnd.oci.image.manifest.v1+json", digest, content)

    def blob(self, repository: str, digest: str, access: RegistryAccess) -> bytes:
        return _content(f"blob {repository} {digest}")

    def referrers(
        self, repository: str, digest: str, access: RegistryAccess
    ) -> tuple[Descriptor, ...]:
        content = _content(f"referrers {repository} {digest}")
        odd = f"sha256:{sha256(content).hexdigest()}"
        types = ("", "application/vnd.dev.sigstore.bundle.v0.3+json", content.decode())
        return tuple(Descriptor("m", odd, 1, {}, each) for each in types)

    def trusted_root(self, mirror: str, root: bytes, namespace: str = "") -> bytes:
        return _content(f"root {mirror}")


class OddWorld:
    """Every port of the core, without a cluster behind it."""

    def __init__(self, given: Mapping[str, Json]) -> None:
        self._given = given

    def config_map(self, namespace: str, name: str) -> JsonObject:
        answer = _answer(f"map {namespace}/{name}")
        return answer if isinstance(answer, dict) else {}

    def call_api(self, call: ApiCall) -> Json:
        return _answer(f"api {call.url_path} {call.service_url}")

    def global_reference(self, name: str) -> Json:
        return _answer(f"global {name}")

    def image_data(self, reference: str, access: RegistryAccess = DEFAULT_ACCESS) -> JsonObject:
        return {"registry": "docker.io", "configData": _answer(f"image {reference}")}

    def registries(self) -> Registries:
        return OddRegistries()

    def resource(self, api_version: str, kind: str, namespace: str, name: str) -> JsonObject | None:
        number = _number(f"{api_version} {kind} {namespace} {name}")
        return None if number % 3 == 0 else _OBJECTS[number % len(_OBJECTS)]

    def resources(self, api_version: str, kind: str, namespace: str) -> list[JsonObject]:
        return list(_OBJECTS[: 1 + _number(f"{api_version} {kind} {namespace}") % len(_OBJECTS)])

    def select_objects(self, query: ObjectQuery) -> list[JsonObject]:
        return self.resources(query.api_version, query.kind, query.namespace)

    def describe_kind(self, api_version: str, kind: str) -> ResourceFacts:
        number = _number(f"kind {api_version} {kind}")
        if number % 4 == 0:
            raise LookupFailedError("there is no such kind")
        return ResourceFacts("things", number % 2 == 0)

    def resolve_host(self, host: str) -> tuple[str, ...]:
        if _number(host) % 2:
            raise LookupFailedError("there is no such host")
        return ("192.0.2.1", "2001:db8::1")

    def log_line(self, line: GuestLogLine) -> None:
        assert line.message.isprintable()

    def rule_values(self, policy: str, rule: str) -> Mapping[str, Json]:
        return self._given

    def foreach_values(self, policy: str, rule: str, index: int) -> Mapping[str, Json]:
        return {}

    def now(self) -> datetime:
        return NOW


def _number(question: str) -> int:
    return crc32(question.encode("utf-8", "replace"))


def _content(question: str) -> bytes:
    number = _number(question)
    if number % 5 == 0:
        raise ImageNotFoundError("there is no such thing")
    if number % 11 == 0:
        raise LookupFailedError("the registry is away")
    return _CONTENTS[number % len(_CONTENTS)]


def _answer(question: str) -> Json:
    number = _number(question)
    if number % 7 == 0:
        raise LookupFailedError("the world is away")
    if number % 7 == 1:
        raise NotProvidedError("there is no world")
    return _ANSWERS[number % len(_ANSWERS)]
