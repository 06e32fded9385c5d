"""Keyless signatures as they lie in a registry, in all formats, with a Sigstore of our own."""

from collections.abc import Iterator

import orjson
import pytest
from cryptography import x509
from msgspec.structs import replace
from private_sigstore import ALICE, ISSUER, PrivateSigstore, Wish, describe
from signing import (
    BUNDLE,
    IN_TOTO,
    SIGNED,
    Layer,
    MemoryRegistries,
    encode_for_signing,
    make_key,
    make_payload,
    make_statement,
    pem_of,
    push_bundle,
    push_image,
    push_layers,
    sign,
)
from stored_signatures import store_attestation, store_bundle, store_signature

from lictor.core.errors import LookupFailedError, SignatureRefusedError
from lictor.core.raw import Json, JsonObject
from lictor.core.signatures.discovery import find_attestations, find_bundles, find_signatures
from lictor.core.signatures.records import (
    FoundSignature,
    Identity,
    LogTrust,
    SignatureLocation,
    SignedImage,
    TrustedIdentity,
    TrustedKey,
)
from lictor.core.signatures.verification import (
    accept_signature,
    accept_statements,
    verify_signature,
)

BESIDE = SignatureLocation()
MALLORY = Wish(names=(x509.RFC822Name("mallory@example.test"),))
BY_ALICE = TrustedIdentity((Identity(issuer=ISSUER, subject=ALICE),))


@pytest.fixture(scope="module")
def sigstore() -> PrivateSigstore:
    return PrivateSigstore()


@pytest.fixture
def registries(sigstore) -> MemoryRegistries:
    return MemoryRegistries(trust_roots={"": sigstore.trusted_root()})


@pytest.fixture
def image(registries) -> SignedImage:
    return push_image(registries)


def test_a_signature_of_the_first_format(registries, image, sigstore):
    found = sigstore.sign(make_payload(image, {"env": "prod"}))
    push_layers(registries, image, [store_signature(found)])
    verified = accept_signature(
        find_signatures(registries, image, BESIDE), image, BY_ALICE, registries, {"env": "prod"}
    )
    assert (verified.signer.subject, verified.signer.issuer) == (ALICE, ISSUER)
    assert verified.signer.signed_at is not None


def test_an_attestation_of_the_first_format(registries, image, sigstore):
    found = sigstore.sign(make_statement(image, {"score": 7}), payload_type=IN_TOTO)
    push_layers(registries, image, [store_attestation(found)], suffix="att")
    (verified,) = accept_statements(
        find_attestations(registries, image, BESIDE), image, BY_ALICE, registries
    )
    assert verified.signer.subject == ALICE
    assert verified.statement["predicate"] == {"score": 7}


def test_the_time_stamp_of_an_attestation_is_over_its_envelope(registries, image, sigstore):
    trusts_stamps = replace(
        BY_ALICE,
        log=LogTrust(
            ignore_log=True,
            timestamp_chain=sigstore.stamp_certificate.public_bytes(_pem()).decode()
            + sigstore.stamp_root.certificate.public_bytes(_pem()).decode(),
        ),
    )
    found = replace(
        sigstore.sign(make_statement(image), payload_type=IN_TOTO), log_entries=(), timestamps=()
    )
    envelope = store_attestation(found).content
    for message, counts in ((envelope, True), (found.signature, False)):
        stamped = replace(found, timestamps=(sigstore.stamp(message),))
        push_layers(registries, image, [store_attestation(stamped)], suffix="att")
        listed = find_attestations(registries, image, BESIDE)
        if counts:
            assert accept_statements(listed, image, trusts_stamps, registries)
        else:
            with pytest.raises(SignatureRefusedError):
                accept_statements(listed, image, trusts_stamps, registries)


def _pem():
    from cryptography.hazmat.primitives.serialization import Encoding

    return Encoding.PEM


@pytest.mark.parametrize("chained", [False, True])
def test_a_bundle(registries, image, sigstore, chained):
    payload = make_statement(image, predicate_type=SIGNED)
    found = sigstore.sign(payload, payload_type=IN_TOTO)
    proven = sigstore.log_body(describe(found), siblings=3)
    bundle = store_bundle(replace(found, log_entries=(proven,)), chained=chained)
    push_bundle(registries, image, bundle)
    listed = find_bundles(registries, image, BESIDE)
    assert listed[0].log_entries[0].inclusion_proof is not None
    assert accept_signature(listed, image, BY_ALICE, registries).signer.subject == ALICE


def test_a_bundle_with_a_time_stamp_needs_no_log(registries, image, sigstore):
    found = sigstore.sign(make_statement(image, predicate_type=SIGNED), payload_type=IN_TOTO)
    stamped = replace(found, log_entries=(), timestamps=(sigstore.stamp(found.signature),))
    push_bundle(registries, image, store_bundle(stamped))
    listed = find_bundles(registries, image, BESIDE)
    unlogged = replace(BY_ALICE, log=LogTrust(ignore_log=True))
    assert accept_signature(listed, image, unlogged, registries).signer.signed_at is not None
    with pytest.raises(SignatureRefusedError, match="in no transparency log"):
        accept_signature(listed, image, BY_ALICE, registries)


def test_a_bundle_may_sign_the_manifest_itself(registries, image, sigstore):
    found = sigstore.sign(registries.manifests[image.repository, image.digest].content)
    push_bundle(registries, image, store_bundle(found))
    listed = find_bundles(registries, image, BESIDE)
    assert accept_signature(listed, image, BY_ALICE, registries).signer.subject == ALICE


@pytest.mark.parametrize("form", ["signature", "attestation", "bundle"])
def test_a_borrowed_certificate_makes_no_signature(registries, image, sigstore, form):
    """Certificate and log entry are Alice's and about this payload; the signature is not."""
    payload_type = "" if form == "signature" else IN_TOTO
    payload = make_payload(image) if form == "signature" else make_statement(image)
    good = sigstore.sign(payload, payload_type=payload_type)
    forged = replace(good, signature=sign(make_key(), good.signed))
    relogged = replace(forged, log_entries=(sigstore.log_body(describe(forged)),))
    for one, reason in ((forged, "about another signature"), (relogged, "not made by this key")):
        with pytest.raises(SignatureRefusedError, match=reason):
            _accept(registries, image, one, form)
    _accept(registries, image, good, form)


def _accept(registries, image, found: FoundSignature, form: str) -> None:
    registries = MemoryRegistries(dict(registries.manifests), {}, registries.trust_roots)
    if form == "signature":
        push_layers(registries, image, [store_signature(found)])
        listed = find_signatures(registries, image, BESIDE)
        accept_signature(listed, image, BY_ALICE, registries)
    elif form == "attestation":
        push_layers(registries, image, [store_attestation(found)], suffix="att")
        listed = find_attestations(registries, image, BESIDE)
        accept_statements(listed, image, BY_ALICE, registries)
    else:
        push_bundle(registries, image, store_bundle(found))
        accept_statements(find_bundles(registries, image, BESIDE), image, BY_ALICE, registries)


def test_identity_and_annotations_are_those_of_one_signature(registries, image, sigstore):
    by_alice = sigstore.sign(make_payload(image))
    by_mallory = sigstore.sign(make_payload(image, {"env": "prod"}), MALLORY)
    push_layers(registries, image, [store_signature(by_alice), store_signature(by_mallory)])
    listed = find_signatures(registries, image, BESIDE)
    with pytest.raises(SignatureRefusedError) as refused:
        accept_signature(listed, image, BY_ALICE, registries, {"env": "prod"})
    assert "#0: annotation env is not signed" in str(refused.value)
    assert "#1: subject mismatch" in str(refused.value)


def test_statements_of_others_are_left_out(registries, image, sigstore):
    layers = [
        store_attestation(sigstore.sign(make_statement(image), wish, payload_type=IN_TOTO))
        for wish in (None, MALLORY)
    ]
    push_layers(registries, image, layers, suffix="att")
    listed = find_attestations(registries, image, BESIDE)
    (verified,) = accept_statements(listed, image, BY_ALICE, registries)
    assert verified.origin.endswith("#0")


@pytest.mark.parametrize("form", ["signature", "bundle"])
def test_a_signature_by_a_key_in_the_log(registries, image, sigstore, form):
    key = make_key()
    payload = (
        make_payload(image) if form == "signature" else make_statement(image, predicate_type=SIGNED)
    )
    kind = "" if form == "signature" else IN_TOTO
    signed = encode_for_signing(kind, payload) if kind else payload
    found = FoundSignature("", payload, signed, sign(key, signed), payload_type=kind)
    entry = sigstore.log_body(describe(found, pem_of(key)))
    if form == "signature":
        push_layers(registries, image, [store_signature(replace(found, log_entries=(entry,)))])
        listed = find_signatures(registries, image, BESIDE)
    else:
        certified = replace(sigstore.sign(payload), signature=found.signature, payload_type=kind)
        bundle = orjson.loads(store_bundle(replace(certified, log_entries=(entry,))).content)
        bundle["verificationMaterial"].pop("certificate")
        push_bundle(registries, image, replace_content(bundle))
        listed = find_bundles(registries, image, BESIDE)
    verified = accept_signature(listed, image, TrustedKey(pem_of(key)), registries)
    assert verified.signer.signed_at is not None
    with pytest.raises(SignatureRefusedError, match="not made by this key"):
        accept_signature(listed, image, TrustedKey(pem_of(make_key())), registries)


def replace_content(bundle: JsonObject) -> Layer:
    return Layer(orjson.dumps(bundle), media_type=bundle["mediaType"])


# --- whatever lies there: it is refused, and nothing else happens

ODD = (None, [], {}, "", 0, -1, 2**64, 1.5, True, "rubbish", "AAAA", [None], {"a": None}, "é" * 9)


def _mutate(value: Json) -> Iterator[Json]:
    """The document with each of its parts in turn replaced by something odd, or left out."""
    yield from ODD
    if isinstance(value, dict):
        for key, part in value.items():
            yield {name: each for name, each in value.items() if name != key}
            yield from ({**value, key: odd} for odd in _mutate(part))
    elif isinstance(value, list):
        for index, part in enumerate(value):
            yield from ([*value[:index], odd, *value[index + 1 :]] for odd in _mutate(part))


def _count_refused(found: tuple[FoundSignature, ...], image, attestor, registries) -> int:
    refused = 0
    for one in found:
        try:
            assert verify_signature(one, image, attestor, registries).digest == image.digest
        except (SignatureRefusedError, LookupFailedError):
            refused += 1
    return refused


def test_an_odd_bundle_is_refused_and_no_more(image, sigstore):
    found = sigstore.sign(make_statement(image, predicate_type=SIGNED), payload_type=IN_TOTO)
    entry = sigstore.log_body(describe(found), siblings=3)
    stamped = replace(found, log_entries=(entry,), timestamps=(sigstore.stamp(found.signature),))
    good = orjson.loads(store_bundle(stamped).content)
    registries = MemoryRegistries(trust_roots={"": sigstore.trusted_root()})
    push_bundle(registries, image, replace_content(good))
    assert not _count_refused(find_bundles(registries, image, BESIDE), image, BY_ALICE, registries)
    refused = tried = 0
    for bundle in _mutate(good):
        try:
            content = orjson.dumps(bundle)
        except TypeError:
            continue
        listed = read_odd(content)
        tried += 1
        refused += _count_refused(listed, image, BY_ALICE, registries)
    assert tried > 400
    assert refused > tried * 0.8


def read_odd(content: bytes) -> tuple[FoundSignature, ...]:
    registries = MemoryRegistries()
    image = push_image(registries)
    push_bundle(registries, image, Layer(content, media_type=BUNDLE))
    return find_bundles(registries, image, BESIDE)


@pytest.mark.parametrize(
    "annotation",
    [
        "dev.cosignproject.cosign/signature",
        "dev.sigstore.cosign/certificate",
        "dev.sigstore.cosign/chain",
        "dev.sigstore.cosign/bundle",
        "dev.sigstore.cosign/rfc3161timestamp",
    ],
)
def test_odd_annotations_are_refused_and_no_more(registries, image, sigstore, annotation):
    found = sigstore.sign(make_payload(image))
    stored = store_signature(replace(found, timestamps=(sigstore.stamp(found.signature),)))
    own = stored.annotations[annotation]
    written = _mutate(orjson.loads(own)) if own.startswith("{") else iter(ODD)
    texts = [one if isinstance(one, str) else _dump(one) for one in written]
    stamps = sigstore.stamp_certificate.public_bytes(_pem()).decode()
    stamps += sigstore.stamp_root.certificate.public_bytes(_pem()).decode()
    attestors = (BY_ALICE, replace(BY_ALICE, log=LogTrust(timestamp_chain=stamps)))
    begin, end = "-----BEGIN CERTIFICATE-----", "-----END CERTIFICATE-----"
    texts += [f"{begin}\nAAAA\n{end}", begin, f"{begin}{end}" * 11, own[: len(own) // 2]]
    for text in texts:
        layer = Layer(stored.content, {**stored.annotations, annotation: text})
        push_layers(registries, image, [layer])
        listed = find_signatures(registries, image, BESIDE)
        for attestor in attestors:
            _count_refused(listed, image, attestor, registries)


def _dump(value: Json) -> str:
    try:
        return orjson.dumps(value).decode()
    except TypeError:
        return str(value)
