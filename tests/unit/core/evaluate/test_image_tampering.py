"""Keyless signatures, and everything that can be wrong with one: an enforcing policy refuses the Pod.

Certificates, logs and signatures are real ones of a Sigstore that lives in the test; each row breaks
one of them, and the first shows that the whole one passes.
"""

import sys
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import msgspec
import orjson
import pytest
from cryptography import x509

sys.path.insert(0, str(Path(__file__).parents[2] / "core" / "signatures"))

from private_sigstore import ALICE, ISSUER, NOON, PrivateSigstore, Wish
from signing import (
    IN_TOTO,
    REVIEW,
    MemoryRegistries,
    make_key,
    make_payload,
    make_statement,
    push_image,
    push_layers,
)
from stored_signatures import store_attestation, store_signature

from lictor.cli.inputs.lookups import GivenObjects, OfflineLookups
from lictor.cli.inputs.requests import GivenValues
from lictor.core.assembly import parse_policies
from lictor.core.engine import Engine
from lictor.core.model.result import Status, Verdict
from lictor.core.ports import ImageManifest, RegistryAccess
from lictor.core.raw import Json, JsonObject
from lictor.core.signatures.records import FoundSignature, SignedImage

OURS, STRANGERS = PrivateSigstore("ours"), PrivateSigstore("strangers")
MALLORY = "mallory@example.com"
LATE = NOON + timedelta(hours=1)


@dataclass
class Site:
    """An image to be judged, and another one."""

    registries: MemoryRegistries
    image: SignedImage
    other: SignedImage

    def judge(self, policy: JsonObject, **metadata: Json) -> Verdict:
        pod = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": "pod", "namespace": "default", **metadata},
            "spec": {"containers": [{"name": "main", "image": f"{self.image.repository}:v1"}]},
        }
        lookups = OfflineLookups(GivenValues(), GivenObjects(registries=self.registries))
        verdict = Engine(parse_policies(policy, lookups=lookups)).evaluate(pod)
        # Nothing that was not looked at may count as accepted.
        assert verdict.results
        return verdict


@pytest.fixture
def site() -> Site:
    registries = MemoryRegistries(trust_roots={"": OURS.trusted_root()})
    other = push_image(registries, "registry.test/other", "other")
    return Site(registries, push_image(registries), other)


def write_policy(**block: Json) -> JsonObject:
    verify = {"imageReferences": ["*"], "mutateDigest": True, "verifyDigest": True, **block}
    rule = {
        "name": "verify",
        "match": {"any": [{"resources": {"kinds": ["Pod"]}}]},
        "verifyImages": [verify],
    }
    return {
        "apiVersion": "kyverno.io/v1",
        "kind": "ClusterPolicy",
        "metadata": {"name": "signed"},
        "spec": {"validationFailureAction": "Enforce", "rules": [rule]},
    }


BY_ALICE = [{"entries": [{"keyless": {"issuer": ISSUER, "subject": ALICE}}]}]
SIGNED = write_policy(attestors=BY_ALICE)
APPROVED = {"key": "{{ approved }}", "operator": "Equals", "value": True}
REVIEWED = write_policy(
    attestations=[{"type": REVIEW, "attestors": BY_ALICE, "conditions": [{"all": [APPROVED]}]}]
)


def change(found: FoundSignature, **fields: Json) -> FoundSignature:
    return msgspec.structs.replace(found, **fields)


def change_entry(found: FoundSignature, **fields: Json) -> FoundSignature:
    [entry] = found.log_entries
    return change(found, log_entries=(msgspec.structs.replace(entry, **fields),))


def flip_signature(found: FoundSignature) -> FoundSignature:
    last = found.signature[-1] ^ 1
    return change(found, signature=found.signature[:-1] + bytes([last]))


def promise_by_strangers(found: FoundSignature) -> FoundSignature:
    return change(found, log_entries=tuple(map(STRANGERS.promise, found.log_entries)))


def sign(site: Site, wish: Wish | None = None, **more: Json) -> FoundSignature:
    return OURS.sign(make_payload(site.image), wish, **more)


Tamper = Callable[[Site], FoundSignature]
TAMPERED: dict[str, Tamper] = {
    "payload": lambda s: change(sign(s), payload=make_payload(s.image, {"env": "prod"})),
    "digest": lambda s: change(OURS.sign(make_payload(s.other)), payload=make_payload(s.image)),
    "replay of another image's signature": lambda s: OURS.sign(make_payload(s.other)),
    "signature": lambda s: flip_signature(sign(s)),
    "no signature": lambda s: change(sign(s), signature=b""),
    "certificate of another signing": lambda s: change(sign(s), certificate=sign(s).certificate),
    "certificate of someone else": lambda s: change(
        sign(s, Wish(names=(x509.RFC822Name(MALLORY),))), certificate=sign(s).certificate
    ),
    "no certificate": lambda s: change(sign(s), certificate=b"", chain=()),
    "certificate of an unknown authority": lambda s: STRANGERS.sign(make_payload(s.image)),
    "expired certificate": lambda s: sign(s, time=LATE),
    "certificate not yet valid": lambda s: sign(s, time=NOON - timedelta(hours=1)),
    "issuer": lambda s: sign(s, Wish(issuer="https://elsewhere.example.com")),
    "no issuer": lambda s: sign(s, Wish(issuer="")),
    "subject": lambda s: sign(s, Wish(names=(x509.RFC822Name(MALLORY),))),
    "no subject": lambda s: sign(s, Wish(names=())),
    "no log entry": lambda s: change(sign(s), log_entries=()),
    "log entry with another time": lambda s: change_entry(
        sign(s, time=LATE), integrated_time=int((NOON + timedelta(minutes=1)).timestamp())
    ),
    "log entry without the log's signature": lambda s: change_entry(
        sign(s), signed_entry_timestamp=b""
    ),
    "log entry with a forged signature": lambda s: promise_by_strangers(sign(s)),
    "log entry of a stranger's log": lambda s: change(
        sign(s), log_entries=STRANGERS.sign(make_payload(s.image)).log_entries
    ),
    "log entry of another signature": lambda s: change(sign(s), log_entries=sign(s).log_entries),
    "forged certificate timestamp": lambda s: sign(s, Wish(forger=make_key())),
    "no certificate timestamp": lambda s: sign(s, Wish(is_logged=False)),
}


def test_what_nobody_tampered_with_is_accepted(site: Site) -> None:
    push_layers(site.registries, site.image, [store_signature(sign(site))])
    verdict = site.judge(SIGNED)
    assert verdict.allowed
    assert verdict.patched["spec"]["containers"][0]["image"].endswith(site.image.digest)


@pytest.mark.parametrize("tamper", TAMPERED.values(), ids=TAMPERED)
def test_a_tampered_signature_is_refused(site: Site, tamper: Tamper) -> None:
    push_layers(site.registries, site.image, [store_signature(tamper(site))])
    verdict = site.judge(SIGNED)
    assert not verdict.allowed
    assert any(result.status is Status.FAIL for result in verdict.results)


def attest(site: Site, predicate: Json, kind: str = REVIEW, **more: Json) -> FoundSignature:
    statement = make_statement(site.image, predicate, kind)
    return OURS.sign(statement, payload_type=IN_TOTO, **more)


GOOD = {"approved": True}
TAMPERED_STATEMENTS: dict[str, Tamper] = {
    "predicate": lambda s: change(
        attest(s, {"approved": False}), payload=make_statement(s.image, GOOD)
    ),
    "predicate that does not satisfy": lambda s: attest(s, {"approved": False}),
    "predicate of another type": lambda s: attest(s, GOOD, "https://example.com/scan/v1"),
    "swapped attestation": lambda s: OURS.sign(make_statement(s.other, GOOD), payload_type=IN_TOTO),
    "signature": lambda s: flip_signature(attest(s, GOOD)),
    "payload type": lambda s: OURS.sign(make_statement(s.image, GOOD), payload_type="text/plain"),
    "subject": lambda s: attest(s, GOOD, wish=Wish(names=(x509.RFC822Name(MALLORY),))),
    "certificate of an unknown authority": lambda s: STRANGERS.sign(
        make_statement(s.image, GOOD), payload_type=IN_TOTO
    ),
    "no log entry": lambda s: change(attest(s, GOOD), log_entries=()),
    "forged certificate timestamp": lambda s: attest(s, GOOD, wish=Wish(forger=make_key())),
}


def test_an_attestation_that_nobody_tampered_with_is_accepted(site: Site) -> None:
    push_layers(site.registries, site.image, [store_attestation(attest(site, GOOD))], suffix="att")
    verdict = site.judge(REVIEWED)
    assert [result.message for result in verdict.results if result.status is not Status.PASS] == []
    assert verdict.allowed


@pytest.mark.parametrize("tamper", TAMPERED_STATEMENTS.values(), ids=TAMPERED_STATEMENTS)
def test_a_tampered_attestation_is_refused(site: Site, tamper: Tamper) -> None:
    push_layers(site.registries, site.image, [store_attestation(tamper(site))], suffix="att")
    assert not site.judge(REVIEWED).allowed


def test_a_signature_in_another_repository_is_not_looked_for(site: Site) -> None:
    elsewhere = "registry.test/elsewhere"
    push_layers(site.registries, site.image, [store_signature(sign(site))], repository=elsewhere)
    assert not site.judge(SIGNED).allowed
    assert site.judge(write_policy(attestors=BY_ALICE, repository=elsewhere)).allowed


def test_annotations_by_a_user_are_not_believed(site: Site) -> None:
    names = (f"{site.image.repository}:v1", f"{site.image.repository}@{site.image.digest}")
    forged = {
        "kyverno.io/verify-images": orjson.dumps(dict.fromkeys(names, "pass")).decode(),
        "kyverno.io/image-verification-outcomes": '{"signed": "pass"}',
    }
    for policy in (SIGNED, write_policy(required=True), write_policy(attestors=BY_ALICE)):
        assert not site.judge(policy, annotations=forged).allowed


class MovingRegistries(MemoryRegistries):
    """Who asks for the tag a second time is given another image."""

    moved_to: str = ""

    def manifest(
        self, repository: str, tag_or_digest: str, access: RegistryAccess
    ) -> ImageManifest:
        found = super().manifest(repository, tag_or_digest, access)
        if tag_or_digest == "v1":
            self.manifests[repository, "v1"] = self.manifests[repository, self.moved_to]
        return found


def test_a_tag_that_moves_meanwhile_changes_nothing() -> None:
    """What was verified is what runs, and what the second stage sees: one answer about the tag."""
    registries = MovingRegistries(trust_roots={"": OURS.trusted_root()})
    evil = push_image(registries, seed="evil")
    image = push_image(registries)
    registries.moved_to = evil.digest
    site = Site(registries, image, evil)
    push_layers(registries, image, [store_signature(sign(site))])
    verdict = site.judge(SIGNED)
    assert verdict.allowed
    assert verdict.patched["spec"]["containers"][0]["image"].endswith(image.digest)
    assert not site.judge(SIGNED).allowed
