"""Notation signatures and attestations beside an image: what is found, and what counts of it."""

import json

import pytest
from notation import COSE, JWS, NOW, SIGNATURE_TYPE, MemoryRegistry, envelope_of, issue, payload_of

from lictor.core.errors import SignatureRefusedError
from lictor.core.signatures.notary import (
    find_envelopes,
    find_referrers_of_type,
    verify_notary,
    verify_referrers,
)
from lictor.core.signatures.records import (
    SignatureLocation,
    SignedImage,
    TrustedNotary,
    VerifiedStatement,
)

ROOT = issue("root", authority=True)
SIGNER = issue("signer", ROOT)
STRANGER = issue("stranger", issue("other root", authority=True))
TRUSTED = TrustedNotary(ROOT.pem)
HERE = SignatureLocation()
SBOM = "sbom/cyclone-dx"
LOW = b'{"severity": "low"}'


@pytest.fixture
def registry() -> MemoryRegistry:
    return MemoryRegistry()


@pytest.fixture
def image(registry: MemoryRegistry) -> SignedImage:
    return SignedImage("localhost:5005/app", registry.push(b'{"an": "image"}'))


def _sign(registry, digest: str, signer=SIGNER, media_type: str = JWS) -> str:
    content = envelope_of(media_type, signer, payload_of(digest))
    return registry.push_referrer(digest, SIGNATURE_TYPE, [(media_type, content)])


def _attest(registry, image: SignedImage, content: bytes = LOW, signer=SIGNER) -> str:
    digest = registry.push_referrer(image.digest, SBOM, [("application/json", content)])
    _sign(registry, digest, signer)
    return digest


def _read(registry, image: SignedImage) -> tuple[VerifiedStatement, ...]:
    return verify_referrers(registry, image, SBOM, TRUSTED, HERE, NOW)


# --- signatures


def test_both_formats_are_found(registry: MemoryRegistry, image: SignedImage) -> None:
    origins = [_sign(registry, image.digest, media_type=kind) for kind in (JWS, COSE)]
    found = find_envelopes(registry, image, HERE)
    assert [envelope.origin for envelope in found] == origins
    assert [envelope.media_type for envelope in found] == [JWS, COSE]


def test_signatures_may_lie_in_another_repository(registry, image: SignedImage) -> None:
    elsewhere = SignatureLocation(repository="localhost:5005/signatures")
    _sign(registry, image.digest)
    (referrer,) = find_referrers_of_type(registry, image, SIGNATURE_TYPE, elsewhere)
    assert referrer.repository == "localhost:5005/signatures"


def test_one_signature_that_counts_is_enough(registry, image: SignedImage) -> None:
    registry.push_referrer(image.digest, SIGNATURE_TYPE, [(JWS, b"rubbish")])
    registry.push_referrer(image.digest, SIGNATURE_TYPE, [])
    registry.refer(image.digest, registry.push(b"no manifest"), SIGNATURE_TYPE)
    lost = registry.push_referrer(image.digest, SIGNATURE_TYPE, [(JWS, b"soon gone")])
    del registry.contents[registry.push(b"soon gone")]
    assert lost in registry.contents
    _sign(registry, image.digest, STRANGER)
    origin = _sign(registry, image.digest)
    assert verify_notary(registry, image, TRUSTED, HERE, NOW).origin == origin


def test_annotations_are_looked_for_in_all_signatures(registry, image: SignedImage) -> None:
    _sign(registry, image.digest)
    for signer, annotations in ((STRANGER, {"env": "prod"}), (SIGNER, {"env": "test"})):
        content = envelope_of(JWS, signer, payload_of(image.digest, annotations))
        origin = registry.push_referrer(image.digest, SIGNATURE_TYPE, [(JWS, content)])
    found = verify_notary(registry, image, TRUSTED, HERE, NOW, {"env": "test"})
    assert found.origin == origin
    with pytest.raises(SignatureRefusedError, match="annotation env is 'test', 'prod'"):
        verify_notary(registry, image, TRUSTED, HERE, NOW, {"env": "prod"})


def test_image_without_signatures_is_refused(registry, image: SignedImage) -> None:
    with pytest.raises(SignatureRefusedError, match="no notation signature"):
        verify_notary(registry, image, TRUSTED, HERE, NOW)


def test_reasons_of_all_signatures_are_told(registry, image: SignedImage) -> None:
    _sign(registry, image.digest, STRANGER)
    registry.push_referrer(image.digest, SIGNATURE_TYPE, [("text/plain", b"x")])
    with pytest.raises(SignatureRefusedError, match=r"(?s)trusted certificate.*text/plain"):
        verify_notary(registry, image, TRUSTED, HERE, NOW)


def test_signature_of_another_image_does_not_count(registry, image: SignedImage) -> None:
    other = registry.push(b'{"another": "image"}')
    registry.refer(image.digest, _sign(registry, other), SIGNATURE_TYPE)
    with pytest.raises(SignatureRefusedError, match=f"is for {other}"):
        verify_notary(registry, image, TRUSTED, HERE, NOW)


def test_number_of_signatures_is_bounded(registry, image: SignedImage) -> None:
    for number in range(120):
        registry.push_referrer(image.digest, SIGNATURE_TYPE, [(JWS, b"%d" % number)])
    assert len(find_envelopes(registry, image, HERE)) == 100


def test_huge_envelope_is_not_fetched(registry, image: SignedImage) -> None:
    registry.push_referrer(image.digest, SIGNATURE_TYPE, [(JWS, b" " * (1024 * 1024 + 1))])
    assert find_envelopes(registry, image, HERE)[0].content == b""


# --- attestations


def test_attestation_with_a_signature_of_its_own_counts(registry, image: SignedImage) -> None:
    origin = _attest(registry, image)
    (statement,) = _read(registry, image)
    assert statement.origin == origin
    assert statement.predicate_type == SBOM
    assert statement.statement["predicate"] == {"severity": "low"}
    assert statement.signer.subject == "CN=signer"


def test_what_others_put_beside_the_image_is_left_out(registry, image: SignedImage) -> None:
    _attest(registry, image, b'{"severity": "none"}', STRANGER)
    registry.push_referrer(image.digest, SBOM, [("application/json", b'{"severity": "none"}')])
    origin = _attest(registry, image)
    assert [statement.origin for statement in _read(registry, image)] == [origin]


def test_attestation_of_another_image_does_not_count(registry, image: SignedImage) -> None:
    other = SignedImage(image.repository, registry.push(b'{"another": "image"}'))
    registry.refer(image.digest, _attest(registry, other), SBOM)
    with pytest.raises(SignatureRefusedError, match="does not refer to"):
        _read(registry, image)


def test_attestation_of_another_type_does_not_count(registry, image: SignedImage) -> None:
    digest = registry.push_referrer(image.digest, "other/type", [("application/json", LOW)])
    _sign(registry, digest)
    registry.refer(image.digest, digest, SBOM)
    with pytest.raises(SignatureRefusedError, match="not of type"):
        _read(registry, image)


def test_signature_of_the_image_does_not_sign_its_attestation(registry, image) -> None:
    _sign(registry, image.digest)
    registry.push_referrer(image.digest, SBOM, [("application/json", LOW)])
    with pytest.raises(SignatureRefusedError, match="no notation signature"):
        _read(registry, image)


@pytest.mark.parametrize(
    "layers",
    [[], [("application/json", LOW)] * 2, [("application/json", b"x")], [("text/plain", b"[]")]],
    ids=["none", "two", "not JSON", "a list"],
)
def test_attestation_is_one_json_object(registry, image: SignedImage, layers) -> None:
    _sign(registry, registry.push_referrer(image.digest, SBOM, layers))
    with pytest.raises(SignatureRefusedError, match=r"one layer|not JSON"):
        _read(registry, image)


def test_without_attestation_nothing_counts(registry, image: SignedImage) -> None:
    _sign(registry, image.digest)
    with pytest.raises(SignatureRefusedError, match="none of type sbom/cyclone-dx"):
        _read(registry, image)


def test_newer_manifests_name_their_type(registry, image: SignedImage) -> None:
    layer = {"mediaType": "application/json", "digest": registry.push(LOW), "size": len(LOW)}
    manifest = {
        "artifactType": SBOM,
        "config": {"mediaType": "application/vnd.oci.empty.v1+json"},
        "layers": [layer],
        "subject": {"digest": image.digest},
    }
    digest = registry.push(json.dumps(manifest).encode())
    registry.refer(image.digest, digest, SBOM)
    _sign(registry, digest)
    assert len(_read(registry, image)) == 1
