"""Images that real cosign and notation signed, and what an attacker can do to a registry: refused.

Every row signs an image of its own, shows that an enforcing policy accepts it, tampers, and shows that
the same policy refuses it. Policies are applied as users apply them.
"""

import hashlib
import json
import time
from base64 import b64decode, b64encode, urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from image_tools.loopback_registry import Repository
from image_tools.scene import Policy, Scene
from image_tools.signers import Certified, CosignKey, make_signer

from lictor.cli.inputs.lookups import GivenObjects, OfflineLookups, choose_registries
from lictor.cli.inputs.requests import GivenValues
from lictor.core.assembly import parse_policies
from lictor.core.engine import Engine
from lictor.core.model.result import Verdict

REVIEW = "https://example.com/review/v1"
SCAN = "https://example.com/scan/v1"
SIGNATURE = "dev.cosignproject.cosign/signature"
CERTIFICATE = "dev.sigstore.cosign/certificate"
CHAIN = "dev.sigstore.cosign/chain"
_NO_LOG = {"rekor": {"ignoreTlog": True}, "ctlog": {"ignoreSCT": True}}


# --- policies


def _write_policy(**block: Any) -> Policy:
    return {
        "apiVersion": "kyverno.io/v1",
        "kind": "ClusterPolicy",
        "metadata": {"name": "signed"},
        "spec": {
            "validationFailureAction": "Enforce",
            "webhookConfiguration": {"failurePolicy": "Fail"},
            "rules": [
                {
                    "name": "verify",
                    "match": {"any": [{"resources": {"kinds": ["Pod"]}}]},
                    "verifyImages": [
                        {
                            "imageReferences": ["*"],
                            "mutateDigest": False,
                            "verifyDigest": False,
                            **block,
                        }
                    ],
                }
            ],
        },
    }


def _by_key(scene: Scene, **more: Any) -> Policy:
    keys = {"publicKeys": scene.signers.trusted.public, **_NO_LOG}
    return _write_policy(attestors=[{"entries": [{"keys": keys}]}], **more)


def _by_attestation(scene: Scene) -> Policy:
    keys = {"publicKeys": scene.signers.trusted.public, **_NO_LOG}
    condition = {"key": "{{ score }}", "operator": "GreaterThan", "value": 2}
    wanted = {
        "type": REVIEW,
        "attestors": [{"entries": [{"keys": keys}]}],
        "conditions": [{"all": [condition]}],
    }
    return _write_policy(attestations=[wanted])


def _by_certificate(scene: Scene) -> Policy:
    chain = {"certChain": scene.signers.authority.pem, **_NO_LOG}
    return _write_policy(attestors=[{"entries": [{"certificates": chain}]}])


def _by_notary(scene: Scene) -> Policy:
    trusted = {"certificates": {"cert": scene.signers.authority.pem}}
    return _write_policy(type="Notary", attestors=[{"entries": [trusted]}])


# --- what lies beside an image, changed


def _change_layers(scene: Scene, suffix: str, change: Callable[[bytes, dict[str, str]], bytes]):
    """Replace the content of each signature; its annotations may be changed in place."""
    tag = scene.signature_tag(suffix)
    manifest = scene.repository.manifest(tag)
    for layer in manifest["layers"]:
        before = scene.repository.blob(layer["digest"])
        content = change(before, layer["annotations"])
        layer.update(scene.repository.push_blob(content, layer["mediaType"]))
    scene.repository.push_manifest(tag, manifest)


def _change_payload(scene: Scene) -> None:
    _change_layers(scene, "sig", lambda content, _: content.replace(b"prod", b"test"))


def _change_signature(scene: Scene) -> None:
    def flip(content: bytes, annotations: dict[str, str]) -> bytes:
        raw = bytearray(b64decode(annotations[SIGNATURE]))
        raw[-1] ^= 1
        annotations[SIGNATURE] = b64encode(raw).decode()
        return content

    _change_layers(scene, "sig", flip)


def _drop_signature(scene: Scene) -> None:
    _change_layers(scene, "sig", lambda content, notes: notes.update({SIGNATURE: ""}) or content)


def _sign_by_stranger(scene: Scene) -> None:
    """Only the stranger's signature is left."""
    scene.repository.delete(scene.signature_tag())
    scene.signers.cosign.sign(scene.image, scene.signers.stranger, "-a", "env=prod")


def _move_tag(scene: Scene) -> None:
    """The tag names another image, which nobody has signed."""
    scene.repository.push_image("v1", "evil")


def _replay(scene: Scene) -> None:
    """The signature of one image is put beside another."""
    signature = scene.repository.manifest(scene.signature_tag())
    _move_tag(scene)
    scene.repository.push_manifest(scene.signature_tag(), signature)


def _replay_with_other_digest(scene: Scene) -> None:
    """As before, and the payload names the other image; the signature no longer fits."""
    before = scene.repository.digest("v1").encode()
    _replay(scene)
    after = scene.repository.digest("v1").encode()
    _change_layers(scene, "sig", lambda content, _: content.replace(before, after))


KEY_TAMPERING = {
    "payload": _change_payload,
    "digest": _replay_with_other_digest,
    "signature": _change_signature,
    "no signature": _drop_signature,
    "key": _sign_by_stranger,
    "replay of another image's signature": _replay,
    "moved tag": _move_tag,
}


@pytest.mark.parametrize("tamper", KEY_TAMPERING.values(), ids=KEY_TAMPERING)
def test_signatures_by_a_key(scene: Scene, tamper: Callable[[Scene], None]) -> None:
    scene.signers.cosign.sign(scene.image, scene.signers.trusted, "-a", "env=prod")
    assert scene.refusals(_by_key(scene)) == []
    tamper(scene)
    assert scene.refusals(_by_key(scene))


def test_a_signature_in_another_repository(scene: Scene) -> None:
    """Who may write elsewhere, signs nothing here; only where the policy sends us, we look."""
    elsewhere = Repository(scene.repository.address, f"{scene.repository.name}-signatures")
    scene.signers.cosign.sign(scene.image, scene.signers.trusted)
    _copy(scene.repository, elsewhere, scene.signature_tag())
    scene.repository.delete(scene.signature_tag())
    assert scene.refusals(_by_key(scene, repository=str(elsewhere))) == []
    assert scene.refusals(_by_key(scene))


def _copy(source: Repository, target: Repository, tag: str) -> None:
    manifest = source.manifest(tag)
    for part in (manifest["config"], *manifest["layers"]):
        target.push_blob(source.blob(part["digest"]), part["mediaType"])
    target.push_manifest(tag, manifest)


def test_annotations_by_a_user(scene: Scene) -> None:
    """What a user writes into a Pod about its verification is not believed."""
    forged = {
        "kyverno.io/verify-images": json.dumps(
            {f"{scene.repository}:v1": "pass", scene.image: "pass"}
        ),
        "kyverno.io/image-verification-outcomes": json.dumps({"signed": "pass"}),
    }
    assert scene.refusals(_by_key(scene, required=True), annotations=forged)
    assert scene.refusals(_write_policy(required=True), annotations=forged)
    scene.signers.cosign.sign(scene.image, scene.signers.trusted)
    assert scene.refusals(_by_key(scene, required=True), annotations=forged) == []


def test_what_was_verified_is_what_runs(scene: Scene) -> None:
    """The digest of the verified image goes into the Pod: a tag that moves later changes nothing."""
    scene.signers.cosign.sign(scene.image, scene.signers.trusted)
    policy, verified = _by_key(scene, mutateDigest=True, verifyDigest=True), scene.image
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "pod", "namespace": "default"},
        "spec": {"containers": [{"name": "main", "image": f"{scene.repository}:v1"}]},
    }
    admitted = _evaluate(policy, pod)
    assert admitted.allowed
    _move_tag(scene)
    [container] = admitted.patched["spec"]["containers"]
    assert container["image"].endswith(verified.partition("@")[2])
    assert not _evaluate(policy, pod).allowed


def _evaluate(policy: Policy, pod: dict[str, Any]) -> Verdict:
    """As a webhook that has just started would: nothing is remembered."""
    registries = choose_registries(network=True)
    lookups = OfflineLookups(GivenValues(), GivenObjects(registries=registries))
    return Engine(parse_policies(policy, lookups=lookups)).evaluate(pod)


# --- attestations


def _swap_attestation(scene: Scene) -> None:
    attestation = scene.repository.manifest(scene.signature_tag("att"))
    _move_tag(scene)
    scene.repository.push_manifest(scene.signature_tag("att"), attestation)


def _change_predicate(scene: Scene) -> None:
    def change(content: bytes, _: dict[str, str]) -> bytes:
        envelope = json.loads(content)
        payload = b64decode(envelope["payload"]).replace(b'"score":3', b'"score":9')
        return json.dumps({**envelope, "payload": b64encode(payload).decode()}).encode()

    _change_layers(scene, "att", change)


def _attest_anew(scene: Scene, key: CosignKey, kind: str) -> None:
    scene.repository.delete(scene.signature_tag("att"))
    scene.signers.cosign.attest(scene.image, key, kind, {"score": 3})


ATTESTATION_TAMPERING: dict[str, Callable[[Scene], None]] = {
    "swapped attestation": _swap_attestation,
    "predicate": _change_predicate,
    "predicate of another type": lambda scene: _attest_anew(scene, scene.signers.trusted, SCAN),
    "key": lambda scene: _attest_anew(scene, scene.signers.stranger, REVIEW),
    "moved tag": _move_tag,
}


@pytest.mark.parametrize("tamper", ATTESTATION_TAMPERING.values(), ids=ATTESTATION_TAMPERING)
def test_attestations(scene: Scene, tamper: Callable[[Scene], None]) -> None:
    scene.signers.cosign.attest(scene.image, scene.signers.trusted, REVIEW, {"score": 3})
    assert scene.refusals(_by_attestation(scene)) == []
    tamper(scene)
    assert scene.refusals(_by_attestation(scene))


def test_a_predicate_that_does_not_satisfy(scene: Scene) -> None:
    scene.signers.cosign.attest(scene.image, scene.signers.trusted, REVIEW, {"score": 1})
    assert scene.refusals(_by_attestation(scene))


# --- certificates


def _sign_certified(scene: Scene, name: str, signer: Certified, shown: Certified) -> None:
    """Sign with one's key, and show a certificate."""
    key = scene.signers.cosign.import_key(name, signer.key_pem)
    for suffix, text in (("crt", shown.pem), ("chain", shown.chain)):
        (scene.folder / f"{name}.{suffix}").write_text(text)
    scene.signers.cosign.sign(
        scene.image,
        key,
        "--certificate",
        str(scene.folder / f"{name}.crt"),
        "--certificate-chain",
        str(scene.folder / f"{name}.chain"),
    )


def _show_certificate(scene: Scene, shown: Certified) -> None:
    """The signature stays, the certificate beside it is another's."""

    def change(content: bytes, annotations: dict[str, str]) -> bytes:
        annotations |= {CERTIFICATE: shown.pem, CHAIN: shown.chain}
        return content

    _change_layers(scene, "sig", change)


def test_the_certificate_of_someone_else(scene: Scene) -> None:
    _sign_certified(scene, "alice", scene.signers.alice, scene.signers.alice)
    assert scene.refusals(_by_certificate(scene)) == []
    _show_certificate(scene, make_signer("bob", scene.signers.authority))
    assert scene.refusals(_by_certificate(scene))


def test_a_certificate_of_an_unknown_authority(scene: Scene) -> None:
    _sign_certified(scene, "mallory", scene.signers.mallory, scene.signers.mallory)
    assert scene.refusals(_by_certificate(scene))


def test_an_expired_certificate(scene: Scene) -> None:
    life = timedelta(seconds=15)
    short = make_signer("carol", scene.signers.authority, timedelta(0), life)
    _sign_certified(scene, "carol", short, short)
    scene.signers.notation.add("carol", short)
    scene.signers.notation.sign(scene.image, "carol")
    for policy in (_by_certificate(scene), _by_notary(scene)):
        assert scene.refusals(policy) == []
    time.sleep(
        max(0.0, (short.certificate.not_valid_after_utc - datetime.now(UTC)).total_seconds()) + 1
    )
    for policy in (_by_certificate(scene), _by_notary(scene)):
        assert scene.refusals(policy)


# --- notation


def _change_envelope(scene: Scene, change: Callable[[bytes], bytes], *, beside: str = "") -> None:
    """Put another signature in the place of the only one, as the tags of OCI 1.1 list them."""
    repository = scene.repository
    index = repository.manifest(_referrers_tag(scene))
    [entry] = index["manifests"]
    manifest = repository.manifest(entry["digest"])
    [layer] = manifest["layers"]
    layer.update(repository.push_blob(change(repository.blob(layer["digest"])), layer["mediaType"]))
    if beside:
        manifest["subject"]["digest"] = beside
    content = json.dumps(manifest).encode()
    entry["digest"] = f"sha256:{hashlib.sha256(content).hexdigest()}"
    entry["size"] = len(content)
    repository.push_manifest(entry["digest"], manifest)
    repository.push_manifest((beside or repository.digest("v1")).replace(":", "-"), index)


def _referrers_tag(scene: Scene) -> str:
    return scene.repository.digest("v1").replace(":", "-")


def _change_jws(field: str, change: Callable[[bytes], bytes]) -> Callable[[bytes], bytes]:
    def changed(content: bytes) -> bytes:
        envelope = json.loads(content)
        text = envelope[field]
        raw = urlsafe_b64decode(text + "=" * (-len(text) % 4))
        envelope[field] = urlsafe_b64encode(change(raw)).rstrip(b"=").decode()
        return json.dumps(envelope).encode()

    return changed


def _replay_envelope(scene: Scene) -> None:
    other = scene.repository.push_image("evil", "evil")
    _change_envelope(scene, lambda content: content, beside=other)
    scene.repository.push_image("v1", "evil")


def _change_target(scene: Scene) -> None:
    """The envelope names another image, which it is put beside."""
    before, after = scene.repository.digest("v1"), scene.repository.push_image("evil", "evil")
    change = _change_jws("payload", lambda raw: raw.replace(before.encode(), after.encode()))
    _change_envelope(scene, change, beside=after)
    scene.repository.push_image("v1", "evil")


def _sign_by_mallory(scene: Scene) -> None:
    scene.repository.delete(_referrers_tag(scene))
    scene.signers.notation.sign(scene.image, "mallory")


NOTATION_TAMPERING: dict[str, Callable[[Scene], None]] = {
    "payload": _change_target,
    "signature": lambda scene: _change_envelope(
        scene, _change_jws("signature", lambda raw: raw[:-1] + bytes([raw[-1] ^ 1]))
    ),
    "headers": lambda scene: _change_envelope(
        scene, _change_jws("protected", lambda raw: raw.replace(b"notary.x509", b"notary.x50x"))
    ),
    "certificate of an unknown authority": _sign_by_mallory,
    "replay of another image's signature": _replay_envelope,
    "moved tag": _move_tag,
}


@pytest.mark.parametrize("tamper", NOTATION_TAMPERING.values(), ids=NOTATION_TAMPERING)
def test_signatures_by_notation(scene: Scene, tamper: Callable[[Scene], None]) -> None:
    scene.signers.notation.sign(scene.image, "alice")
    assert scene.refusals(_by_notary(scene)) == []
    tamper(scene)
    assert scene.refusals(_by_notary(scene))


def test_a_broken_cose_envelope(scene: Scene) -> None:
    scene.signers.notation.sign(scene.image, "alice", "cose")
    assert scene.refusals(_by_notary(scene)) == []
    _change_envelope(scene, lambda content: content[:-1] + bytes([content[-1] ^ 1]))
    assert scene.refusals(_by_notary(scene))
