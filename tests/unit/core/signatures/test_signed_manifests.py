"""Manifests signed without a lasting key, with keys in Secrets, and manifests that an image holds."""

import gzip
from base64 import b64encode

import orjson
import pytest
import yaml
from cryptography import x509
from private_sigstore import ALICE, ISSUER, PrivateSigstore, Wish
from signing import (
    MANIFEST,
    MemoryRegistries,
    make_key,
    make_payload,
    make_signature,
    pem_of,
    push_layers,
    sign,
)

import lictor
from lictor.core.assembly import compile_documents
from lictor.core.load.policies import load_documents
from lictor.core.ports import NoLookups, Registries
from lictor.core.raw import Json, JsonObject
from lictor.core.signatures.records import FoundSignature, SignedImage

SERVICE = {
    "apiVersion": "v1",
    "kind": "Service",
    "metadata": {"name": "web", "namespace": "shop"},
    "spec": {"ports": [{"port": 80}]},
}
MESSAGE = yaml.safe_dump(SERVICE).encode()
BY_ALICE = {"keyless": {"issuer": ISSUER, "subject": ALICE}}
MALLORY = Wish(names=(x509.RFC822Name("mallory@example.test"),))
KEY = make_key()


class Outside(NoLookups):
    """A registry, and one Secret."""

    def __init__(self, found: MemoryRegistries) -> None:
        self._found = found

    def registries(self) -> Registries:
        return self._found

    def resource(self, api_version: str, kind: str, namespace: str, name: str) -> JsonObject | None:
        if (kind, namespace, name) != ("Secret", "keys", "signer"):
            return None
        return {"data": {"cosign.pub": _encode(pem_of(KEY).encode())}}


@pytest.fixture(scope="module")
def sigstore() -> PrivateSigstore:
    return PrivateSigstore()


@pytest.fixture
def registries(sigstore: PrivateSigstore) -> MemoryRegistries:
    return MemoryRegistries(trust_roots={"": sigstore.trusted_root()})


def _encode(data: bytes) -> str:
    return b64encode(data).decode()


def _pack(data: bytes) -> str:
    return _encode(gzip.compress(data))


def _annotate(found: FoundSignature, message: bytes = MESSAGE) -> JsonObject:
    (entry,) = found.log_entries
    logged = {
        "SignedEntryTimestamp": _encode(entry.signed_entry_timestamp),
        "Payload": {
            "body": _encode(entry.body),
            "integratedTime": entry.integrated_time,
            "logIndex": entry.log_index,
            "logID": entry.log_id,
        },
    }
    return _add(
        message=_pack(message),
        signature=_encode(found.signature),
        certificate=_pack(found.certificate),
        bundle=_pack(orjson.dumps(logged)),
    )


def _add(**notes: str) -> JsonObject:
    annotations = {f"cosign.sigstore.dev/{name}": text for name, text in notes.items()}
    return {**SERVICE, "metadata": {"name": "web", "namespace": "shop", "annotations": annotations}}


def _judge(resource: JsonObject, entry: Json, registries: MemoryRegistries, **more: Json) -> str:
    rule = {
        "name": "signed",
        "match": {"any": [{"resources": {"kinds": ["Service"]}}]},
        "validate": {
            "failureAction": "Enforce",
            "manifests": {"attestors": [{"entries": [entry]}], **more},
        },
    }
    policy = {
        "apiVersion": "kyverno.io/v1",
        "kind": "ClusterPolicy",
        "metadata": {"name": "p"},
        "spec": {"background": False, "rules": [rule]},
    }
    loaded = load_documents(yaml.safe_dump(policy), "policy.yaml")
    assert not loaded.problems
    records = [each.record for each in loaded.policies]
    engine = lictor.Engine(compile_documents(records, lookups=Outside(registries)))
    (result,) = engine.evaluate(resource).results
    return f"{result.status}: {result.message}"


def test_a_manifest_signed_without_a_lasting_key(
    sigstore: PrivateSigstore, registries: MemoryRegistries
) -> None:
    resource = _annotate(sigstore.sign(MESSAGE))
    assert _judge(resource, BY_ALICE, registries).startswith("pass:")
    changed = {**resource, "spec": {"ports": [{"port": 81}]}}
    assert _judge(changed, BY_ALICE, registries).startswith("fail:")


@pytest.mark.parametrize("fault", ["identity", "message", "sigstore", "log", "certificate", "none"])
def test_what_is_not_proven_never_passes(
    fault: str, sigstore: PrivateSigstore, registries: MemoryRegistries
) -> None:
    resource = _annotate(sigstore.sign(MESSAGE))
    if fault == "identity":
        resource = _annotate(sigstore.sign(MESSAGE, MALLORY))
    elif fault == "message":
        resource = _annotate(sigstore.sign(MESSAGE + b"#"))
    elif fault == "sigstore":
        resource = _annotate(PrivateSigstore("another").sign(MESSAGE))
    else:
        notes = resource["metadata"]["annotations"]
        dropped = {"log": "bundle", "certificate": "certificate", "none": "signature"}[fault]
        del notes[f"cosign.sigstore.dev/{dropped}"]
    answer = _judge(resource, BY_ALICE, registries)
    assert answer.startswith("fail:" if fault == "none" else "error:"), answer


def test_a_key_in_a_secret(registries: MemoryRegistries) -> None:
    signed = _add(message=_pack(MESSAGE), signature=_encode(sign(KEY, MESSAGE)))
    entry = {
        "keys": {"secret": {"name": "signer", "namespace": "keys"}, "rekor": {"ignoreTlog": True}}
    }
    assert _judge(signed, entry, registries).startswith("pass:")
    other = _add(message=_pack(MESSAGE), signature=_encode(sign(make_key(), MESSAGE)))
    assert _judge(other, entry, registries).startswith("error:")
    entry["keys"]["secret"]["name"] = "missing"
    assert "not found" in _judge(signed, entry, registries)


def _push_manifest(registries: MemoryRegistries, content: bytes) -> SignedImage:
    repository = "registry.test/manifests"
    config = registries.push_blob(repository, b"{}", "application/vnd.oci.image.config.v1+json")
    layer = registries.push_blob(repository, content, "application/octet-stream")
    document = {"schemaVersion": 2, "mediaType": MANIFEST, "config": config, "layers": [layer]}
    return SignedImage(repository, registries.push_manifest(repository, document, "v1"))


def test_a_manifest_that_an_image_holds(registries: MemoryRegistries) -> None:
    image = _push_manifest(registries, MESSAGE)
    entry = {"keys": {"publicKeys": pem_of(KEY), "rekor": {"ignoreTlog": True}}}
    more = {"repository": "registry.test/manifests:v1"}
    assert _judge(SERVICE, entry, registries, **more).startswith("error:")
    push_layers(registries, image, [make_signature(KEY, make_payload(image))])
    assert _judge(SERVICE, entry, registries, **more).startswith("pass:")
    changed = {**SERVICE, "spec": {"ports": [{"port": 81}]}}
    assert _judge(changed, entry, registries, **more).startswith("fail:")
    other = {"keys": {"publicKeys": pem_of(make_key()), "rekor": {"ignoreTlog": True}}}
    assert _judge(SERVICE, other, registries, **more).startswith("error:")
