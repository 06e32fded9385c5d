"""Signed statements about images, and what is stored by OCI 1.1: what counts, what is refused."""

from base64 import b64encode

import orjson
import pytest
from signing import (
    BUNDLE,
    ENVELOPE,
    REVIEW,
    SIGNED,
    Layer,
    MemoryRegistries,
    make_attestation,
    make_bundle,
    make_envelope,
    make_key,
    make_message,
    make_payload,
    make_signature,
    make_statement,
    push_bundle,
    push_image,
    push_layers,
    push_referrer,
    sign,
    trust,
)

from lictor.core.errors import LookupFailedError, SignatureRefusedError
from lictor.core.signatures.discovery import find_attestations, find_bundles, find_signatures
from lictor.core.signatures.records import SignatureLocation, SignedImage
from lictor.core.signatures.verification import (
    accept_signature,
    accept_statements,
    verify_statement,
)

BESIDE = SignatureLocation()
REFERRERS = SignatureLocation(oci11=True)


@pytest.fixture
def registries() -> MemoryRegistries:
    return MemoryRegistries()


@pytest.fixture
def image(registries) -> SignedImage:
    return push_image(registries)


@pytest.fixture(scope="module")
def key():
    return make_key()


@pytest.mark.parametrize("version", ["v0.1", "v1"])
def test_a_statement_is_read_from_what_was_signed(registries, image, key, version):
    payload = make_statement(image, {"score": 7}, _type=f"https://in-toto.io/Statement/{version}")
    layers = [make_attestation(payload, key, predicateType="https://example.com/other")]
    push_layers(registries, image, layers, suffix="att")
    found = find_attestations(registries, image, BESIDE)
    (verified,) = accept_statements(found, image, trust(key), registries)
    assert verified.predicate_type == REVIEW
    assert verified.statement["predicate"] == {"score": 7}


def test_each_signature_of_an_envelope_stands_for_itself(registries, image, key):
    other, stranger = make_key(), make_key()
    push_layers(
        registries, image, [make_attestation(make_statement(image), key, other)], suffix="att"
    )
    found = find_attestations(registries, image, BESIDE)
    assert [one.origin[-6:] for one in found] == [".att.0", ".att.1"]
    for one in (key, other):
        assert len(accept_statements(found, image, trust(one), registries)) == 1
    with pytest.raises(SignatureRefusedError, match="no matching attestations"):
        accept_statements(found, image, trust(stranger), registries)


def _envelope(**fields) -> Layer:
    envelope = {"payload": "e30=", "payloadType": "a", "signatures": [{"sig": "AA=="}], **fields}
    return Layer(orjson.dumps(envelope), media_type=ENVELOPE)


def _forge(name: str, image: SignedImage, other: SignedImage, key) -> Layer:
    payload = make_statement(image)
    swapped = orjson.loads(make_attestation(make_statement(image, {"score": 1}), key).content)
    forged = {
        "payload": Layer(
            orjson.dumps({**swapped, "payload": b64encode(payload).decode()}), media_type=ENVELOPE
        ),
        "payload type": Layer(
            orjson.dumps({**swapped, "payloadType": "text/plain"}), media_type=ENVELOPE
        ),
        "key": make_attestation(payload, make_key()),
        "replay": make_attestation(make_statement(other), key),
        "bare signature": Layer(
            orjson.dumps(
                {
                    **make_envelope(payload),
                    "signatures": [{"sig": b64encode(sign(key, payload)).decode()}],
                }
            ),
            media_type=ENVELOPE,
        ),
        "no subject": make_attestation(make_statement(image, subject=[]), key),
        "null subject": make_attestation(make_statement(image, subject=None), key),
        "odd subject": make_attestation(make_statement(image, subject=[7]), key),
        "odd digest": make_attestation(
            make_statement(image, subject=[{"digest": {"sha256": 7}}]), key
        ),
        "type": make_attestation(make_statement(image, _type="https://example.com"), key),
        "no predicate type": make_attestation(make_statement(image, predicateType=None), key),
        "other payload": Layer(
            orjson.dumps(make_envelope(b"{}", key, payload_type="text/plain")), media_type=ENVELOPE
        ),
        "not JSON": Layer(b"\xff", media_type=ENVELOPE),
        "no object": Layer(b"[]", media_type=ENVELOPE),
        "deep": Layer(b"[" * 100_000, media_type=ENVELOPE),
        "no payload": _envelope(payload=None),
        "no base64": _envelope(payload="?"),
        "no type": _envelope(payloadType=None),
        "no signatures": _envelope(signatures=[]),
        "odd signatures": _envelope(signatures={}),
        "odd signature": _envelope(signatures=["AA=="]),
        "empty signature": _envelope(signatures=[{}]),
        "many signatures": _envelope(signatures=[{"sig": "AA=="}] * 101),
    }
    return forged[name]


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("payload", "not made by this key"),
        ("payload type", "not made by this key"),
        ("key", "not made by this key"),
        ("replay", "no matching subject digest found: it is about sha256:"),
        ("bare signature", "not made by this key"),
        ("no subject", "it is about nothing"),
        ("null subject", "it is about nothing"),
        ("odd subject", "a subject is not a JSON object"),
        ("odd digest", "a digest is not a string"),
        ("type", "_type is 'https://example.com'"),
        ("no predicate type", "predicateType is not a string"),
        ("other payload", "it contains text/plain"),
        ("not JSON", "is not JSON"),
        ("no object", "is not a JSON object"),
        ("deep", "is not JSON"),
        ("no payload", "payload is not a string"),
        ("no base64", "payload is not base64"),
        ("no type", "payloadType is not a string"),
        ("no signatures", "has no signatures"),
        ("odd signatures", "signatures is not a list"),
        ("odd signature", "a signature is not a JSON object"),
        ("empty signature", "sig is not a string"),
        ("many signatures", "101 entries, more than 100"),
    ],
)
def test_a_tampered_attestation_is_refused_and_hides_no_good_one(
    registries, image, key, name, reason
):
    forged = _forge(name, image, push_image(registries, seed="other"), key)
    push_layers(registries, image, [forged], suffix="att")
    with pytest.raises(SignatureRefusedError, match=reason):
        accept_statements(
            find_attestations(registries, image, BESIDE), image, trust(key), registries
        )
    good = make_attestation(make_statement(image), key)
    push_layers(registries, image, [forged, good], suffix="att")
    found = find_attestations(registries, image, BESIDE)
    (verified,) = accept_statements(found, image, trust(key), registries)
    assert verified.origin.endswith("#1")


def test_attestations_in_another_repository_count_only_where_the_policy_says_so(
    registries, image, key
):
    layers = [make_attestation(make_statement(image), key)]
    push_layers(registries, image, layers, suffix="att", repository="registry.test/notes")
    assert find_attestations(registries, image, BESIDE) == ()
    elsewhere = SignatureLocation(repository="registry.test/notes")
    assert len(find_attestations(registries, image, elsewhere)) == 1


def test_attestations_that_fill_the_memory_are_an_error(registries, image, key):
    large = Layer(b"x" * (13 * 1024 * 1024), media_type=ENVELOPE)
    push_layers(registries, image, [large] * 5, suffix="att")
    with pytest.raises(LookupFailedError, match="more than 67108864 bytes"):
        find_attestations(registries, image, BESIDE)


def test_no_attestation_is_a_refusal(registries, image, key):
    with pytest.raises(SignatureRefusedError, match=r"^no attestations found$"):
        accept_statements((), image, trust(key), registries)


# --- OCI 1.1


def test_referring_signatures_count_only_where_the_policy_asks_for_them(registries, image, key):
    kind = "application/vnd.dev.cosign.artifact.sig.v1+json"
    push_referrer(registries, image, [make_signature(key, make_payload(image))], kind)
    assert find_signatures(registries, image, BESIDE) == ()
    found = find_signatures(registries, image, REFERRERS)
    assert accept_signature(found, image, trust(key), registries).origin.startswith(
        "registry.test/app@sha256:"
    )


def test_with_referrers_the_old_tags_still_count(registries, image, key):
    push_layers(registries, image, [make_signature(key, make_payload(image))])
    push_layers(registries, image, [make_attestation(make_statement(image), key)], suffix="att")
    push_referrer(registries, image, [make_attestation(make_statement(image), key)], ENVELOPE)
    assert len(find_signatures(registries, image, REFERRERS)) == 1
    assert len(find_attestations(registries, image, REFERRERS)) == 2


def test_too_many_referrers_are_an_error(registries, image, key):
    for number in range(101):
        payload = make_statement(image, {"number": number})
        push_bundle(registries, image, make_bundle(make_envelope(payload, key)))
    with pytest.raises(LookupFailedError, match="has 101 signatures"):
        find_bundles(registries, image, BESIDE)


# --- bundles


@pytest.mark.parametrize(
    "media_type",
    [
        BUNDLE,
        "application/vnd.dev.sigstore.bundle+json;version=0.1",
        "application/vnd.dev.sigstore.bundle+json;version=0.2",
        "application/vnd.dev.sigstore.bundle+json;version=0.3",
    ],
)
def test_a_bundle_signs_an_image(registries, image, key, media_type):
    subject = [
        {
            "digest": {"sha256": image.digest.removeprefix("sha256:")},
            "annotations": {"env": "prod"},
        }
    ]
    payload = make_statement(image, predicate_type=SIGNED, subject=subject)
    push_bundle(registries, image, make_bundle(make_envelope(payload, key), media_type=media_type))
    found = find_bundles(registries, image, BESIDE)
    verified = accept_signature(found, image, trust(key), registries, {"env": "prod"})
    assert verified.annotations == {"env": "prod"}
    with pytest.raises(SignatureRefusedError, match="not made by this key"):
        accept_signature(found, image, trust(make_key()), registries)


@pytest.mark.parametrize(
    ("kind", "hash_name"), [("p256", "sha256"), ("p384", "sha384"), ("p521", "sha512")]
)
def test_a_bundle_may_sign_the_manifest_itself(registries, image, kind, hash_name):
    signer = make_key(kind)
    manifest = registries.manifests[image.repository, image.digest].content
    push_bundle(registries, image, make_bundle(make_message(signer, manifest, hash_name)))
    found = find_bundles(registries, image, BESIDE)
    assert accept_signature(found, image, trust(signer), registries).digest == image.digest
    with pytest.raises(SignatureRefusedError, match="without type"):
        accept_statements(found, image, trust(signer), registries)


def test_a_signed_manifest_of_another_image_does_not_count(registries, image, key):
    other = push_image(registries, seed="other")
    manifest = registries.manifests[other.repository, other.digest].content
    push_bundle(registries, image, make_bundle(make_message(key, manifest)))
    (found,) = find_bundles(registries, image, BESIDE)
    with pytest.raises(SignatureRefusedError, match="not made by this key"):
        accept_signature((found,), image, trust(key), registries)
    push_bundle(registries, other, make_bundle(make_message(key, manifest)))
    (stolen,) = find_bundles(registries, other, BESIDE)
    with pytest.raises(SignatureRefusedError, match="made for another image"):
        accept_signature((stolen,), image, trust(key), registries)


def test_an_attestation_in_a_bundle_is_no_signature(registries, image, key):
    push_bundle(registries, image, make_bundle(make_envelope(make_statement(image), key)))
    found = find_bundles(registries, image, BESIDE)
    assert accept_statements(found, image, trust(key), registries)[0].predicate_type == REVIEW
    with pytest.raises(
        SignatureRefusedError, match=f"attestation of type {REVIEW}, not a signature"
    ):
        accept_signature(found, image, trust(key), registries)


def test_a_bundle_is_found_where_the_index_does_not_tell_its_type(registries, image, key):
    bundle = make_bundle(make_envelope(make_statement(image), key))
    push_referrer(registries, image, [bundle], "application/vnd.oci.empty.v1+json")
    push_referrer(registries, image, [Layer(b"{}", media_type="application/json")], "text/plain")
    push_referrer(
        registries, image, [Layer(b"x", media_type="a/b")], "application/vnd.oci.empty.v1+json"
    )
    assert len(find_bundles(registries, image, BESIDE)) == 1


GOOD = {
    "mediaType": BUNDLE,
    "verificationMaterial": {},
    "dsseEnvelope": {"payload": "", "payloadType": "a", "signatures": [{"sig": ""}]},
}
LOGGED = {"canonicalizedBody": "", "logId": {"keyId": ""}}


@pytest.mark.parametrize(
    ("bundle", "reason"),
    [
        ([], "is not a JSON object"),
        ({**GOOD, "mediaType": 1}, "mediaType is not a string"),
        ({**GOOD, "mediaType": f"{BUNDLE}x"}, "are not supported"),
        ({**GOOD, "mediaType": BUNDLE.replace("0.3", "9.9")}, "are not supported"),
        ({**GOOD, "verificationMaterial": None}, "verificationMaterial is not a JSON object"),
        ({**GOOD, "dsseEnvelope": None}, "dsseEnvelope is not a JSON object"),
        (
            {**GOOD, "dsseEnvelope": {**GOOD["dsseEnvelope"], "signatures": []}},
            "0 signatures, not one",
        ),
        (
            {**GOOD, "dsseEnvelope": {**GOOD["dsseEnvelope"], "payloadType": ""}},
            "has no payloadType",
        ),
        ({"mediaType": BUNDLE, "verificationMaterial": {}}, "neither a dsseEnvelope"),
        *(
            ({**GOOD, "verificationMaterial": material}, reason)
            for material, reason in (
                ({"certificate": None}, "a certificate is not a JSON object"),
                ({"certificate": {"rawBytes": "?"}}, "rawBytes is not base64"),
                ({"x509CertificateChain": 1}, "x509CertificateChain is not a JSON object"),
                ({"x509CertificateChain": {"certificates": [{}] * 11}}, "more than 10"),
                ({"tlogEntries": 1}, "tlogEntries is not a list"),
                ({"tlogEntries": [1]}, "a log entry is not a JSON object"),
                ({"tlogEntries": [{}]}, "logId is not a JSON object"),
                ({"tlogEntries": [{**LOGGED, "logIndex": "-1"}]}, "logIndex is not an integer"),
                ({"tlogEntries": [{**LOGGED, "logIndex": True}]}, "logIndex is not an integer"),
                ({"tlogEntries": [{**LOGGED, "inclusionPromise": 1}]}, "inclusionPromise is no"),
                ({"tlogEntries": [{**LOGGED, "inclusionProof": 1}]}, "inclusionProof is no"),
                ({"tlogEntries": [LOGGED] * 17}, "17 entries, more than 16"),
                ({"timestampVerificationData": 1}, "timestampVerificationData is no"),
                ({"timestampVerificationData": {"rfc3161Timestamps": [1]}}, "a time stamp is no"),
            )
        ),
    ],
)
def test_a_malformed_bundle_is_refused_and_hides_no_good_one(
    registries, image, key, bundle, reason
):
    push_bundle(registries, image, Layer(orjson.dumps(bundle), media_type=BUNDLE))
    (broken,) = find_bundles(registries, image, BESIDE)
    with pytest.raises(SignatureRefusedError, match=reason):
        verify_statement(broken, image, trust(key), registries)
    push_bundle(registries, image, make_bundle(make_envelope(make_statement(image), key)))
    found = find_bundles(registries, image, BESIDE)
    assert len(accept_statements(found, image, trust(key), registries)) == 1


def test_a_referrer_that_is_gone_or_corrupt_hides_no_good_one(registries, image, key):
    gone = push_bundle(
        registries, image, make_bundle(make_envelope(make_statement(image, {"a": 1}), key))
    )
    push_bundle(registries, image, make_bundle(make_envelope(make_statement(image), key)))
    listed = registries.referrers(image.repository, image.digest, BESIDE.access)
    registries.referrers = lambda *_: listed
    del registries.manifests[image.repository, gone]
    found = find_bundles(registries, image, BESIDE)
    assert [bool(one.fault) for one in found] == [True, False]
    assert len(accept_statements(found, image, trust(key), registries)) == 1
