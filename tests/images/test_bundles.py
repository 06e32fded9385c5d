"""Bundles that real cosign made, and ImageValidatingPolicy: signed passes, tampered is refused."""

import json
from base64 import b64decode, b64encode
from collections.abc import Callable
from typing import Any

import pytest
from image_tools.scene import Policy, Scene
from image_tools.signers import CosignKey

REVIEW = "https://example.com/review/v1"
SCAN = "https://example.com/scan/v1"


def _write_policy(scene: Scene, expression: str) -> Policy:
    ctlog = {"insecureIgnoreTlog": True, "insecureIgnoreSCT": True}
    attestor = {"key": {"data": scene.signers.trusted.public}, "ctlog": ctlog}
    return {
        "apiVersion": "policies.kyverno.io/v1",
        "kind": "ImageValidatingPolicy",
        "metadata": {"name": "signed"},
        "spec": {
            "validationActions": ["Deny"],
            "matchConstraints": {
                "resourceRules": [
                    {
                        "apiGroups": [""],
                        "apiVersions": ["v1"],
                        "operations": ["CREATE", "UPDATE"],
                        "resources": ["pods"],
                    }
                ]
            },
            "matchImageReferences": [{"glob": "*"}],
            "attestors": [{"name": "ours", "cosign": attestor}],
            "attestations": [{"name": "review", "intoto": {"type": REVIEW}}],
            "validations": [{"expression": expression, "message": "not signed"}],
        },
    }


def _signed(scene: Scene) -> Policy:
    check = "verifyImageSignatures(image, [attestors.ours]) > 0"
    return _write_policy(scene, f"images.containers.map(image, {check}).all(e, e)")


def _attested(scene: Scene) -> Policy:
    check = (
        "verifyAttestationSignatures(image, attestations.review, [attestors.ours]) > 0"
        " && extractPayload(image, attestations.review).predicate.score > 2"
    )
    return _write_policy(scene, f"images.containers.map(image, {check}).all(e, e)")


def _change_bundle(
    scene: Scene, change: Callable[[dict[str, Any]], None], *, beside: str = ""
) -> None:
    """Put another bundle in the place of the only one, as the tags of OCI 1.1 list them."""
    repository = scene.repository
    index = repository.manifest(repository.digest("v1").replace(":", "-"))
    [entry] = index["manifests"]
    manifest = repository.manifest(entry["digest"])
    [layer] = manifest["layers"]
    bundle = json.loads(repository.blob(layer["digest"]))
    change(bundle)
    layer.update(repository.push_blob(json.dumps(bundle).encode(), layer["mediaType"]))
    if beside:
        manifest["subject"]["digest"] = beside
    entry["digest"] = repository.push_manifest("changed", manifest)
    entry["size"] = len(json.dumps(manifest))
    repository.push_manifest((beside or repository.digest("v1")).replace(":", "-"), index)


def _change_payload(before: bytes, after: bytes) -> Callable[[dict[str, Any]], None]:
    def change(bundle: dict[str, Any]) -> None:
        envelope = bundle["dsseEnvelope"]
        payload = b64decode(envelope["payload"])
        assert before in payload
        envelope["payload"] = b64encode(payload.replace(before, after)).decode()

    return change


def _flip_signature(bundle: dict[str, Any]) -> None:
    [signature] = bundle["dsseEnvelope"]["signatures"]
    raw = bytearray(b64decode(signature["sig"]))
    raw[-1] ^= 1
    signature["sig"] = b64encode(raw).decode()


def _replay(scene: Scene) -> None:
    other = scene.repository.push_image("evil", "evil")
    _change_bundle(scene, lambda _: None, beside=other)
    scene.repository.push_image("v1", "evil")


def _replay_with_other_digest(scene: Scene) -> None:
    before = scene.repository.digest("v1").partition(":")[2]
    other = scene.repository.push_image("evil", "evil")
    change = _change_payload(before.encode(), other.partition(":")[2].encode())
    _change_bundle(scene, change, beside=other)
    scene.repository.push_image("v1", "evil")


def _start_over(scene: Scene) -> None:
    scene.repository.delete(scene.repository.digest("v1").replace(":", "-"))


def _sign_by_stranger(scene: Scene) -> None:
    _start_over(scene)
    scene.signers.cosign.sign(scene.image, scene.signers.stranger, bundle=True)


def _attest_anew(scene: Scene, key: CosignKey, kind: str, score: int) -> None:
    _start_over(scene)
    scene.signers.cosign.attest(scene.image, key, kind, {"score": score}, bundle=True)


SIGNATURES: dict[str, Callable[[Scene], None]] = {
    "signature": lambda scene: _change_bundle(scene, _flip_signature),
    "digest": _replay_with_other_digest,
    "replay of another image's signature": _replay,
    "key": _sign_by_stranger,
    "an attestation in its place": lambda scene: _attest_anew(
        scene, scene.signers.trusted, REVIEW, 3
    ),
    "moved tag": lambda scene: scene.repository.push_image("v1", "evil") and None,
}


@pytest.mark.parametrize("tamper", SIGNATURES.values(), ids=SIGNATURES)
def test_signatures(scene: Scene, tamper: Callable[[Scene], None]) -> None:
    scene.signers.cosign.sign(scene.image, scene.signers.trusted, bundle=True)
    assert scene.refusals(_signed(scene)) == []
    tamper(scene)
    assert scene.refusals(_signed(scene))


ATTESTATIONS: dict[str, Callable[[Scene], None]] = {
    "predicate": lambda scene: _change_bundle(scene, _change_payload(b'"score":3', b'"score":9')),
    "signature": lambda scene: _change_bundle(scene, _flip_signature),
    "swapped attestation": _replay,
    "predicate of another type": lambda scene: _attest_anew(scene, scene.signers.trusted, SCAN, 3),
    "key": lambda scene: _attest_anew(scene, scene.signers.stranger, REVIEW, 3),
    "condition": lambda scene: _attest_anew(scene, scene.signers.trusted, REVIEW, 1),
}


@pytest.mark.parametrize("tamper", ATTESTATIONS.values(), ids=ATTESTATIONS)
def test_attestations(scene: Scene, tamper: Callable[[Scene], None]) -> None:
    scene.signers.cosign.attest(
        scene.image, scene.signers.trusted, REVIEW, {"score": 3}, bundle=True
    )
    assert scene.refusals(_attested(scene)) == []
    tamper(scene)
    assert scene.refusals(_attested(scene))
