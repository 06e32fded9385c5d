"""Signatures in cosign's first format: what counts, what is refused, and what is said of it."""

from base64 import b64encode
from dataclasses import replace

import pytest
from signing import (
    Layer,
    MemoryRegistries,
    make_key,
    make_payload,
    make_signature,
    pem_of,
    push_image,
    push_layers,
    sign,
    sign_prehashed,
    trust,
)

from lictor.core.errors import LookupFailedError, SignatureRefusedError
from lictor.core.signatures.discovery import MOST_SIGNATURES, find_signatures
from lictor.core.signatures.records import (
    LogTrust,
    SignatureLocation,
    SignedImage,
    TrustedCertificate,
    TrustedIdentity,
    TrustedKey,
)
from lictor.core.signatures.verification import accept_signature, verify_signature

BESIDE = SignatureLocation()
SIGNATURE = "dev.cosignproject.cosign/signature"


@pytest.fixture
def registries() -> MemoryRegistries:
    return MemoryRegistries()


@pytest.fixture
def image(registries) -> SignedImage:
    return push_image(registries)


@pytest.fixture(scope="module")
def key():
    return make_key()


@pytest.mark.parametrize(
    ("kind", "hash_name"),
    [
        ("p256", "sha256"),
        ("p256", "sha224"),
        ("p256", "sha384"),
        ("p256", "sha512"),
        ("p384", "sha256"),
        ("p521", "sha256"),
        ("rsa2048", "sha256"),
        ("rsa2048", "sha512"),
        ("ed25519", "sha256"),
    ],
)
def test_a_key_of_each_kind_signs_an_image(registries, image, kind, hash_name):
    key = make_key(kind)
    push_layers(registries, image, [make_signature(key, make_payload(image), hash_name)])
    (found,) = find_signatures(registries, image, BESIDE)
    verified = verify_signature(found, image, trust(key, hash_name), registries)
    assert verified.digest == image.digest
    assert len(verified.signer.key) == 64


def test_rsa_signatures_with_salt_and_prehashed_ed25519_count(registries, image):
    payload = make_payload(image)
    salted, edwards = make_key("rsa2048"), make_key("ed25519")
    layers = [
        Layer(payload, {SIGNATURE: b64encode(sign(salted, payload, pss=True)).decode()}),
        Layer(payload, {SIGNATURE: b64encode(sign_prehashed(edwards, payload)).decode()}),
    ]
    push_layers(registries, image, layers)
    first, second = find_signatures(registries, image, BESIDE)
    assert verify_signature(first, image, trust(salted), registries)
    assert verify_signature(second, image, trust(edwards), registries)
    for found, other in ((first, edwards), (second, salted), (second, make_key("ed25519"))):
        with pytest.raises(SignatureRefusedError, match="not made by this key"):
            verify_signature(found, image, trust(other), registries)


def test_annotations_come_from_what_was_signed(registries, image, key):
    payload = make_payload(image, {"env": "prod", "build": 7})
    push_layers(registries, image, [make_signature(key, payload, team="a")])
    verified = accept_signature(
        find_signatures(registries, image, BESIDE), image, trust(key), registries, {"env": "prod"}
    )
    assert verified.annotations == {"env": "prod", "build": 7}
    assert verified.layer_annotations["team"] == "a"


@pytest.mark.parametrize(
    ("signed", "wanted", "reason"),
    [
        (None, {"env": "prod"}, "annotation env is not signed"),
        ({"env": "test"}, {"env": "prod"}, "annotation env is 'test'"),
        ({"env": "prod"}, {"env": "prod", "team": "a"}, "annotation team is not signed"),
        ({"env": 1}, {"env": "1"}, "annotation env is 1"),
    ],
)
def test_wanted_annotations_must_all_be_signed(registries, image, key, signed, wanted, reason):
    push_layers(registries, image, [make_signature(key, make_payload(image, signed), env="prod")])
    found = find_signatures(registries, image, BESIDE)
    with pytest.raises(SignatureRefusedError, match=reason):
        accept_signature(found, image, trust(key), registries, wanted)


def test_annotations_are_not_gathered_from_two_signatures(registries, image, key):
    payloads = [make_payload(image, {"env": "prod"}), make_payload(image, {"team": "a"})]
    push_layers(registries, image, [make_signature(key, payload) for payload in payloads])
    found = find_signatures(registries, image, BESIDE)
    with pytest.raises(SignatureRefusedError, match=r"#0: annotation team.*#1: annotation env"):
        accept_signature(found, image, trust(key), registries, {"env": "prod", "team": "a"})


def test_another_signers_annotations_do_not_count(registries, image, key):
    other = make_key()
    layers = [
        make_signature(key, make_payload(image)),
        make_signature(other, make_payload(image, {"env": "prod"})),
    ]
    push_layers(registries, image, layers)
    found = find_signatures(registries, image, BESIDE)
    with pytest.raises(
        SignatureRefusedError, match="no signature matched the required annotations"
    ):
        accept_signature(found, image, trust(key), registries, {"env": "prod"})


def _forge(name: str, image: SignedImage, other: SignedImage, key) -> Layer:
    good = make_signature(key, make_payload(image))
    forged = {
        "payload": replace(good, content=make_payload(image, {"env": "prod"})),
        "digest": replace(good, content=good.content.replace(b'"sha256:', b'"sha512:')),
        "signature": make_signature(make_key(), good.content),
        "replay": make_signature(key, make_payload(other)),
        "type": make_signature(key, make_payload(image, type="atomic container signature")),
        "no digest": make_signature(key, make_payload(SignedImage(image.repository, None))),
        "no payload": make_signature(key, b"null"),
        "not JSON": make_signature(key, b"\xff{"),
        "deep": make_signature(key, b"[" * 100_000),
        "optional": make_signature(key, make_payload(image, ["env"])),
        "no signature": Layer(good.content),
        "empty signature": Layer(good.content, {SIGNATURE: ""}),
        "no base64": Layer(good.content, {SIGNATURE: "{}"}),
        "short signature": Layer(good.content, {SIGNATURE: "MEQ="}),
        "log entry": replace(
            good, annotations={**good.annotations, "dev.sigstore.cosign/bundle": "[]"}
        ),
        "time stamp": replace(
            good, annotations={**good.annotations, "dev.sigstore.cosign/rfc3161timestamp": "7"}
        ),
    }
    return forged[name]


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("payload", "not made by this key"),
        ("digest", "not made by this key"),
        ("signature", "not made by this key"),
        ("replay", "it was made for the image sha256:"),
        ("type", "atomic container signature"),
        ("no digest", "docker-manifest-digest is not a string"),
        ("no payload", "is not a JSON object"),
        ("not JSON", "is not JSON"),
        ("deep", "is not JSON"),
        ("optional", "optional is not a JSON object"),
        ("no signature", 'missing "dev.cosignproject.cosign/signature"'),
        ("empty signature", "not made by this key"),
        ("no base64", "is not base64"),
        ("short signature", "not made by this key"),
        ("log entry", "is not a JSON object"),
        ("time stamp", "is not a JSON object"),
    ],
)
def test_a_tampered_signature_is_refused_and_hides_no_good_one(
    registries, image, key, name, reason
):
    other = push_image(registries, seed="other")
    forged = _forge(name, image, other, key)
    push_layers(registries, image, [forged])
    with pytest.raises(SignatureRefusedError, match=reason):
        accept_signature(find_signatures(registries, image, BESIDE), image, trust(key), registries)
    push_layers(registries, image, [forged, make_signature(key, make_payload(image))])
    found = find_signatures(registries, image, BESIDE)
    assert accept_signature(found, image, trust(key), registries).origin.endswith("#1")


def test_corrupt_and_missing_payloads_refuse_only_their_signature(registries, image, key):
    good = make_signature(key, make_payload(image))
    corrupt = make_signature(key, make_payload(image, {"number": 1}))
    missing = make_signature(key, make_payload(image, {"number": 2}))
    push_layers(registries, image, [corrupt, missing, good])
    for (repository, digest), content in list(registries.blobs.items()):
        if content == corrupt.content:
            registries.blobs[repository, digest] = good.content
        if content == missing.content:
            del registries.blobs[repository, digest]
    found = find_signatures(registries, image, BESIDE)
    assert [bool(one.fault) for one in found] == [True, True, False]
    assert accept_signature(found, image, trust(key), registries)


def test_signatures_in_another_repository_count_only_where_the_policy_says_so(
    registries, image, key
):
    elsewhere = SignatureLocation(repository="registry.test/signatures")
    layers = [make_signature(key, make_payload(image))]
    push_layers(registries, image, layers, repository=elsewhere.repository)
    assert find_signatures(registries, image, BESIDE) == ()
    found = find_signatures(registries, image, elsewhere)
    assert accept_signature(found, image, trust(key), registries)


def test_tags_may_have_a_prefix(registries, image, key):
    push_layers(registries, image, [make_signature(key, make_payload(image))], prefix="team-")
    assert find_signatures(registries, image, BESIDE) == ()
    assert len(find_signatures(registries, image, SignatureLocation(tag_prefix="team-"))) == 1


def test_nothing_found_is_a_refusal(registries, image, key):
    with pytest.raises(SignatureRefusedError, match=r"^no signatures found$"):
        accept_signature((), image, trust(key), registries)


def test_of_many_refusals_the_first_are_told(registries, image, key):
    push_layers(registries, image, [make_signature(make_key(), make_payload(image))] * 13)
    with pytest.raises(SignatureRefusedError, match=r"#9: [^;]*; and 3 more$"):
        accept_signature(find_signatures(registries, image, BESIDE), image, trust(key), registries)


def test_too_many_signatures_are_an_error_and_not_cut_off(registries, image, key):
    layers = [make_signature(key, make_payload(image))] * (MOST_SIGNATURES + 1)
    push_layers(registries, image, layers)
    with pytest.raises(LookupFailedError, match="has 101 signatures"):
        find_signatures(registries, image, BESIDE)


def test_a_registry_that_does_not_answer_is_no_missing_signature(registries, image):
    registries.down = True
    with pytest.raises(LookupFailedError, match="does not answer"):
        find_signatures(registries, image, BESIDE)


ZEROS = b"sha256:" + 64 * b"0"


@pytest.mark.parametrize(
    "manifest",
    [
        b"",
        b"null",
        b"[]",
        b"{}",
        b"[" * 100_000,
        b'{"layers": 7}',
        b'{"layers": [7]}',
        b'{"layers": [{}]}',
        b'{"layers": [{"mediaType": "a", "digest": "b", "size": 1}]}',
        b'{"layers": [{"mediaType": "a", "digest": "%b", "size": true}]}' % ZEROS,
        b'{"layers": [{"mediaType": "a", "digest": "%b", "annotations": {"a": 1}}]}' % ZEROS,
        b'{"layers": [{"mediaType": "a", "digest": "%b", "size": 99999999999}]}' % ZEROS,
    ],
)
def test_a_malformed_manifest_is_refused(registries, image, key, manifest):
    tag = image.digest.replace(":", "-")
    registries.push_manifest(image.repository, manifest, f"{tag}.sig")
    found = find_signatures(registries, image, BESIDE)
    with pytest.raises(SignatureRefusedError, match=r"no matching signatures: registry\.test/app:"):
        accept_signature(found, image, trust(key), registries)


CERTIFICATE = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"


@pytest.mark.parametrize(
    ("text", "error", "reason"),
    [
        ("", SignatureRefusedError, "PEM is expected"),
        ("rubbish", SignatureRefusedError, "PEM is expected"),
        (CERTIFICATE, SignatureRefusedError, "from -----BEGIN CERTIFICATE-----"),
        (CERTIFICATE.replace("CERTIFICATE", "PUBLIC KEY"), SignatureRefusedError, "failed to load"),
        (pem_of(make_key("rsa1024")), SignatureRefusedError, "RSA key of 1024 bits"),
        ("awskms:///alias/a", LookupFailedError, "entry point lictor.keys"),
        ("k8s://team/cosign", LookupFailedError, "entry point lictor.keys"),
    ],
)
def test_what_is_no_key_verifies_nothing(registries, image, key, text, error, reason):
    push_layers(registries, image, [make_signature(key, make_payload(image))])
    attestor = TrustedKey(public_key=text, log=LogTrust(ignore_log=True))
    (found,) = find_signatures(registries, image, BESIDE)
    with pytest.raises(error, match=reason):
        verify_signature(found, image, attestor, registries)


def test_an_unknown_hash_verifies_nothing(registries, image, key):
    push_layers(registries, image, [make_signature(key, make_payload(image))])
    (found,) = find_signatures(registries, image, BESIDE)
    with pytest.raises(SignatureRefusedError, match="md5 is unknown"):
        verify_signature(found, image, trust(key, "md5"), registries)


def test_a_key_with_an_ignored_log_asks_for_no_trust_root(registries, image, key):
    push_layers(registries, image, [make_signature(key, make_payload(image))])
    accept_signature(find_signatures(registries, image, BESIDE), image, trust(key), registries)
    assert not [call for call in registries.calls if call[0] == "trusted_root"]


def test_a_key_without_a_trust_root_is_an_error_and_no_refusal(registries, image, key):
    push_layers(registries, image, [make_signature(key, make_payload(image))])
    (found,) = find_signatures(registries, image, BESIDE)
    with pytest.raises(LookupFailedError, match="no trust root"):
        verify_signature(found, image, TrustedKey(public_key=pem_of(key)), registries)


def test_a_signature_in_no_log_is_refused_where_one_is_wanted(registries, image, key):
    push_layers(registries, image, [make_signature(key, make_payload(image))])
    attestor = TrustedKey(public_key=pem_of(key), log=LogTrust(public_keys=pem_of(make_key())))
    (found,) = find_signatures(registries, image, BESIDE)
    with pytest.raises(SignatureRefusedError, match="in no transparency log"):
        verify_signature(found, image, attestor, registries)


@pytest.mark.parametrize(
    "attestor",
    [
        TrustedCertificate(certificate="rubbish", log=LogTrust(ignore_log=True)),
        TrustedCertificate(certificate=CERTIFICATE, log=LogTrust(ignore_log=True)),
        TrustedCertificate(chain=CERTIFICATE, log=LogTrust(ignore_log=True)),
        TrustedCertificate(log=LogTrust(ignore_log=True)),
        TrustedIdentity(identities=(), roots="rubbish", log=LogTrust(ignore_log=True)),
    ],
)
def test_what_is_no_certificate_verifies_nothing(registries, image, key, attestor):
    push_layers(registries, image, [make_signature(key, make_payload(image))])
    (found,) = find_signatures(registries, image, BESIDE)
    with pytest.raises(SignatureRefusedError):
        verify_signature(found, image, attestor, registries)


@pytest.fixture
def key_service(tmp_path, monkeypatch, key):
    """A package that knows the keys of `testkms://`, as pip would have installed it."""
    metadata = tmp_path / "testkms-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: testkms\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text("[lictor.keys]\ntestkms = testkms:fetch\n")
    (tmp_path / "testkms.py").write_text(
        f"KEYS = {{'testkms://team/key': {pem_of(key)!r}}}\ndef fetch(uri): return KEYS[uri]\n"
    )
    monkeypatch.syspath_prepend(tmp_path)


@pytest.mark.usefixtures("key_service")
def test_a_package_can_offer_keys_of_a_service(registries, image, key):
    push_layers(registries, image, [make_signature(key, make_payload(image))])
    (found,) = find_signatures(registries, image, BESIDE)
    attestor = TrustedKey(public_key="testkms://team/key", log=LogTrust(ignore_log=True))
    assert verify_signature(found, image, attestor, registries)
    missing = TrustedKey(public_key="testkms://team/other", log=LogTrust(ignore_log=True))
    with pytest.raises(LookupFailedError, match="failed to load public key from testkms://"):
        verify_signature(found, image, missing, registries)
