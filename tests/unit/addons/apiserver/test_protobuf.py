"""Kubernetes' protobuf, read: as kubectl sends it, and as nobody should."""

import json
import struct
from base64 import b64decode
from pathlib import Path

import pytest

from lictor.addons.apiserver.protobuf import read_protobuf
from lictor.core.errors import RefusedRequestError
from lictor.core.raw import Json, JsonObject

# What `kubectl create` sent, and what it says it means with --dry-run=client -o json.
BODIES: dict[str, JsonObject] = json.loads(
    (Path(__file__).parent / "protobuf_bodies.json").read_text(encoding="utf-8")
)


def leave_out_empty(value: Json) -> Json:
    """JSON shows some fields that were never set; protobuf cannot tell them from nothing."""
    if isinstance(value, dict):
        kept = {key: leave_out_empty(inner) for key, inner in value.items()}
        return {key: inner for key, inner in kept.items() if inner not in (None, "", {}, [])}
    if isinstance(value, list):
        return [leave_out_empty(inner) for inner in value]
    return value


@pytest.mark.parametrize("name", sorted(BODIES))
def test_bodies_of_kubectl(name: str) -> None:
    body = BODIES[name]
    read, meant = (
        leave_out_empty(each) for each in (read_protobuf(b64decode(body["sent"])), body["meant"])
    )
    for document in (read, meant):
        # The one is sent to a path that says it; the other is nobody's to send.
        document["metadata"].pop("namespace", None)
        document.pop("status", None)
    assert read == meant


def field(number: int, value: bytes | int) -> bytes:
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    return varint(number << 3 | 2) + varint(len(value)) + value


def varint(value: int) -> bytes:
    value &= (1 << 64) - 1
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes((*out, value))


def wrap(version: str, kind: str, content: bytes) -> bytes:
    named = field(1, version.encode()) + field(2, kind.encode())
    return b"k8s\0" + field(1, named) + field(2, content)


def test_values_of_all_sorts() -> None:
    time = field(1, 1_700_000_000) + field(2, 123_456_000)
    metadata = (
        field(1, b"l")
        + field(8, field(1, 1_700_000_000))
        + field(11, field(1, b"a") + field(2, b"b"))
    )
    spec = field(1, b"") + field(2, -1) + field(3, time) + field(5, 0)
    read = read_protobuf(
        wrap("coordination.k8s.io/v1", "Lease", field(1, metadata) + field(2, spec))
    )
    assert read["metadata"] == {
        "name": "l",
        "creationTimestamp": "2023-11-14T22:13:20Z",
        "labels": {"a": "b"},
    }
    # Pointers keep what was set, be it nothing.
    assert read["spec"] == {
        "holderIdentity": "",
        "leaseDurationSeconds": -1,
        "acquireTime": "2023-11-14T22:13:20.123456Z",
        "leaseTransitions": 0,
    }


def test_values_of_a_review() -> None:
    extra = field(1, b"k") + field(2, field(1, b"x") + field(1, b"y"))
    spec = field(3, b"bob") + field(4, b"g") + field(5, extra)
    read = read_protobuf(wrap("authorization.k8s.io/v1", "SubjectAccessReview", field(2, spec)))
    assert read["spec"] == {"user": "bob", "groups": ["g"], "extra": {"k": ["x", "y"]}}


def test_fields_of_later_releases_are_passed_over() -> None:
    content = field(1, field(1, b"c") + field(99, b"?")) + field(77, 5)
    assert read_protobuf(wrap("v1", "ConfigMap", content))["metadata"] == {"name": "c"}


def test_schemas_of_custom_kinds() -> None:
    def property_of(name: bytes, schema: bytes) -> bytes:
        return field(29, field(1, name) + field(2, schema))

    text, double = field(5, b"string"), struct.pack("<d", 10.0)
    schema = (
        field(5, b"object")
        + property_of(b"list", field(24, field(1, text)))
        + property_of(b"map", field(30, field(1, 1) + field(2, text)))
        + property_of(b"closed", field(30, field(1, 0)))
        + property_of(b"open", field(30, field(1, 1)))
        + property_of(b"number", varint(9 << 3 | 1) + double + field(8, field(1, b"[1, null]")))
        + property_of(b"any", field(27, text) + field(27, field(5, b"integer")))
    )
    version = field(1, b"v1") + field(2, 0) + field(3, 1) + field(4, field(1, schema))
    version += field(5, field(1, b""))
    content = field(1, field(1, b"things.example.com")) + field(2, field(7, version))
    read = read_protobuf(wrap("apiextensions.k8s.io/v1", "CustomResourceDefinition", content))
    [found] = read["spec"]["versions"]
    assert (found["served"], found["storage"], found["subresources"]) == (
        False,
        True,
        {"status": {}},
    )
    assert found["schema"]["openAPIV3Schema"] == {
        "type": "object",
        "properties": {
            "list": {"items": {"type": "string"}},
            "map": {"additionalProperties": {"type": "string"}},
            "closed": {"additionalProperties": False},
            "open": {"additionalProperties": True},
            "number": {"maximum": 10, "default": [1, None]},
            "any": {"anyOf": [{"type": "string"}, {"type": "integer"}]},
        },
    }


WRONG = [
    b"",
    b"{}",
    b"k8s\0",
    wrap("v1", "Nonsense", b""),
    wrap("apiextensions.k8s.io/v1beta1", "CustomResourceDefinition", b""),
    wrap("v1", "ConfigMap", b"\x0a\xff\x01"),
    wrap("v1", "ConfigMap", b"\xff" * 20),
    wrap("v1", "ConfigMap", field(1, 5)),
    wrap("v1", "ConfigMap", field(1, field(1, b"\xff\xfe"))),
    wrap("v1", "ConfigMap", field(2, 3)),
    wrap("v1", "ConfigMap", b"\x0b"),
    wrap("v1", "ConfigMap", field(1, field(8, field(1, 1 << 62)))),
    wrap("coordination.k8s.io/v1", "Lease", field(2, b"\x11\x00")),
    wrap("apps/v1", "ControllerRevision", field(2, field(1, b"{"))),
]


@pytest.mark.parametrize("body", WRONG)
def test_other_bodies_are_refused(body: bytes) -> None:
    with pytest.raises(RefusedRequestError) as refusal:
        read_protobuf(body)
    assert refusal.value.code == 400
