"""What Kubewarden's policies are told of images and certificates: real signatures and chains."""

from datetime import UTC, datetime, timedelta

import orjson
import pytest
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding
from private_sigstore import (
    ALICE,
    ISSUER,
    NOON,
    PrivateSigstore,
    Wish,
    make_authority,
    pem_of_certificates,
)
from signing import (
    SIGNED,
    MemoryRegistries,
    make_bundle,
    make_envelope,
    make_key,
    make_payload,
    make_signature,
    make_statement,
    pem_of,
    push_bundle,
    push_image,
    push_layers,
)
from stored_signatures import store_signature

from lictor.addons.kubewarden.family.entries import MemberEntry
from lictor.addons.kubewarden.family.host_calls import AnswerCache, LookupAnswers, PolicyHost
from lictor.core.errors import HostCallError
from lictor.core.ports import NoLookups
from lictor.core.raw import Json, JsonObject
from lictor.core.signatures.records import SignedImage

GITHUB = "https://token.actions.githubusercontent.com"
WORKFLOW = "https://github.com/acme/shop/.github/workflows/build.yml@refs/tags/v1"


class Outside(NoLookups):
    def __init__(self, registries: MemoryRegistries) -> None:
        self._registries = registries

    def registries(self):
        return self._registries

    def now(self):
        return NOON + timedelta(minutes=2)


@pytest.fixture(scope="module")
def sigstore() -> PrivateSigstore:
    return PrivateSigstore()


@pytest.fixture
def registries(sigstore) -> MemoryRegistries:
    return MemoryRegistries(trust_roots={"": sigstore.trusted_root()})


@pytest.fixture
def image(registries) -> SignedImage:
    return push_image(registries)


@pytest.fixture
def host(registries) -> PolicyHost:
    return make_host(registries)


def make_host(registries: MemoryRegistries, cache: AnswerCache | None = None) -> PolicyHost:
    entry = MemberEntry(module="m", host_capabilities=("*",))
    outside = Outside(registries)
    return PolicyHost(outside, entry, answers=LookupAnswers(outside, cache=cache))


def ask(host: PolicyHost, operation: str, payload: Json, namespace: str = "oci") -> Json:
    return orjson.loads(host.call(namespace, operation, orjson.dumps(payload)))


def name(image: SignedImage) -> str:
    return f"{image.repository}:v1"


def verify(host: PolicyHost, image: SignedImage, kind: str, **fields: Json) -> JsonObject:
    payload = {"type": kind, "image": name(image), "annotations": None, **fields}
    found: JsonObject = ask(host, "v2/verify", payload)
    return found


def trusted(image: SignedImage) -> JsonObject:
    return {"is_trusted": True, "digest": image.digest}


# --- keys


@pytest.mark.parametrize("kind", ["p256", "p384", "ed25519", "rsa2048"])
def test_an_image_signed_with_a_key(registries, image, host, kind):
    key = make_key(kind)
    push_layers(registries, image, [make_signature(key, make_payload(image))])
    fields = {"image": name(image), "pub_keys": [pem_of(key)], "annotations": None}
    assert ask(host, "v1/verify", {"SigstorePubKeyVerify": fields}) == trusted(image)
    assert verify(host, image, "SigstorePubKeyVerify", pub_keys=[pem_of(key)]) == trusted(image)


def test_an_image_signed_with_a_key_in_a_bundle(registries, image, host):
    key = make_key()
    statement = make_statement(image, predicate_type=SIGNED)
    push_bundle(registries, image, make_bundle(make_envelope(statement, key)))
    assert verify(host, image, "SigstorePubKeyVerify", pub_keys=[pem_of(key)]) == trusted(image)


def test_all_keys_must_have_signed(registries, image, host):
    first, second = make_key(), make_key()
    push_layers(registries, image, [make_signature(first, make_payload(image))])
    keys = [pem_of(first), pem_of(second)]
    with pytest.raises(HostCallError, match="not made by this key"):
        verify(host, image, "SigstorePubKeyVerify", pub_keys=keys)
    layers = [make_signature(key, make_payload(image)) for key in (first, second)]
    push_layers(registries, image, layers)
    assert verify(host, image, "SigstorePubKeyVerify", pub_keys=keys) == trusted(image)


def test_annotations_count_where_the_trusted_key_signed_them(registries, image, host):
    key, stranger = make_key(), make_key()
    layers = [
        make_signature(key, make_payload(image, {"env": "dev"})),
        make_signature(stranger, make_payload(image, {"env": "prod"})),
    ]
    push_layers(registries, image, layers)
    fields = {"pub_keys": [pem_of(key)]}
    assert verify(
        host, image, "SigstorePubKeyVerify", **{**fields, "annotations": {"env": "dev"}}
    ) == trusted(image)
    with pytest.raises(HostCallError, match="annotations"):
        verify(host, image, "SigstorePubKeyVerify", **{**fields, "annotations": {"env": "prod"}})


@pytest.mark.parametrize(
    ("keys", "reason"),
    [
        ([], "Must provide at least one pub key"),
        (["x"], "in PEM"),
        (["awskms://key"], "in PEM"),
        (["-----BEGIN PUBLIC KEY-----\nAAAA\n-----END PUBLIC KEY-----\n"], "failed to load"),
    ],
)
def test_keys_that_are_none(registries, image, host, keys, reason):
    push_layers(registries, image, [make_signature(make_key(), make_payload(image))])
    with pytest.raises(HostCallError, match=reason):
        verify(host, image, "SigstorePubKeyVerify", pub_keys=keys)


def test_nobody_signed(image, host):
    with pytest.raises(HostCallError, match="no signatures found"):
        verify(host, image, "SigstorePubKeyVerify", pub_keys=[pem_of(make_key())])


def test_a_signature_of_another_image(registries, image, host):
    key = make_key()
    other = push_image(registries, "registry.test/other", seed="other")
    push_layers(registries, image, [make_signature(key, make_payload(other))])
    with pytest.raises(HostCallError, match="was made for the image"):
        verify(host, image, "SigstorePubKeyVerify", pub_keys=[pem_of(key)])


# --- identities


def sign_by(sigstore, registries, image, issuer: str, subject: x509.GeneralName) -> None:
    wish = Wish(issuer=issuer, names=(subject,))
    found = sigstore.sign(make_payload(image), wish)
    push_layers(registries, image, [store_signature(found)])


def test_an_image_signed_by_a_person(registries, image, host, sigstore):
    sign_by(sigstore, registries, image, ISSUER, x509.RFC822Name(ALICE))
    fields = {"image": name(image), "keyless": [{"issuer": ISSUER, "subject": ALICE}]}
    assert ask(host, "v1/verify", {"SigstoreKeylessVerify": fields}) == trusted(image)
    assert verify(host, image, "SigstoreKeylessVerify", keyless=fields["keyless"]) == trusted(image)


@pytest.mark.parametrize(
    "keyless",
    [
        [],
        [{"issuer": ISSUER, "subject": "bob@example.test"}],
        [{"issuer": "https://other.test", "subject": ALICE}],
        [{"issuer": ISSUER, "subject": ALICE}, {"issuer": ISSUER, "subject": "bob@example.test"}],
        # What is empty is not anybody.
        [{"issuer": ISSUER, "subject": ""}],
        [{"issuer": "", "subject": ALICE}],
        [{"issuer": "*", "subject": "*"}],
        [{"issuer": ISSUER, "subject": "alice.example.test"}],
    ],
)
def test_an_image_signed_by_somebody_else(registries, image, host, sigstore, keyless):
    sign_by(sigstore, registries, image, ISSUER, x509.RFC822Name(ALICE))
    with pytest.raises(HostCallError):
        verify(host, image, "SigstoreKeylessVerify", keyless=keyless)


def test_a_sigstore_that_is_away_trusts_nobody(registries, image, host, sigstore):
    sign_by(sigstore, registries, image, ISSUER, x509.RFC822Name(ALICE))
    registries.trust_roots.clear()
    with pytest.raises(HostCallError, match="no trust root"):
        verify(host, image, "SigstoreKeylessVerify", keyless=[{"issuer": ISSUER, "subject": ALICE}])


@pytest.mark.parametrize(
    ("prefix", "good"),
    [
        ("https://github.com/acme", True),
        ("https://github.com/acme/", True),
        ("https://github.com/acme/shop", True),
        ("https://github.com/acm", False),
        ("https://github.com/acme/sho", False),
        ("https://github.com/.*", False),
        ("https://github.com", True),
        ("https://", False),
        ("", False),
        ("/acme", False),
    ],
)
def test_an_image_signed_below_a_url(registries, image, host, sigstore, prefix, good):
    sign_by(sigstore, registries, image, GITHUB, x509.UniformResourceIdentifier(WORKFLOW))
    wanted = [{"issuer": GITHUB, "url_prefix": prefix}]
    if good:
        told = verify(host, image, "SigstoreKeylessPrefixVerify", keyless_prefix=wanted)
        assert told == trusted(image)
        return
    with pytest.raises(HostCallError):
        verify(host, image, "SigstoreKeylessPrefixVerify", keyless_prefix=wanted)


@pytest.mark.parametrize(
    ("owner", "repo", "good"),
    [
        ("acme", None, True),
        ("acme", "shop", True),
        ("acme", "sho", False),
        ("acme", "", False),
        ("acm", None, False),
        ("acme/shop", None, False),
        ("", None, False),
        (".*", None, False),
        ("other", "shop", False),
    ],
)
def test_an_image_signed_by_a_workflow(image, host, by_workflow, owner, repo, good):
    if good:
        told = verify(host, image, "SigstoreGithubActionsVerify", owner=owner, repo=repo)
        assert told == trusted(image)
        return
    with pytest.raises(HostCallError):
        verify(host, image, "SigstoreGithubActionsVerify", owner=owner, repo=repo)


@pytest.fixture
def by_workflow(sigstore, registries, image) -> None:
    sign_by(sigstore, registries, image, GITHUB, x509.UniformResourceIdentifier(WORKFLOW))


def test_a_workflow_of_another_issuer(registries, image, host, sigstore):
    sign_by(sigstore, registries, image, ISSUER, x509.UniformResourceIdentifier(WORKFLOW))
    with pytest.raises(HostCallError, match="issuer mismatch"):
        verify(host, image, "SigstoreGithubActionsVerify", owner="acme", repo=None)


# --- certificates that sign images


@pytest.fixture
def certified(registries, image, sigstore):
    """An image signed with the key of a certificate that is valid today."""
    key = make_key()
    wish = Wish(start=datetime.now(UTC) - timedelta(hours=1), length=timedelta(days=1))
    certificate = sigstore.issue(key, wish)
    push_layers(registries, image, [make_signature(key, make_payload(image))])
    return certificate


def as_bytes(*certificates: x509.Certificate) -> list[int]:
    return list(pem_of_certificates(*certificates).encode())


def test_an_image_signed_with_a_certificate(image, host, sigstore, certified):
    chain = [as_bytes(sigstore.intermediate.certificate), as_bytes(sigstore.root.certificate)]
    fields = {"certificate": as_bytes(certified), "require_rekor_bundle": False}
    told = verify(host, image, "SigstoreCertificateVerify", **fields, certificate_chain=chain)
    assert told == trusted(image)
    told = verify(host, image, "SigstoreCertificateVerify", **fields, certificate_chain=None)
    assert told == trusted(image)


def test_certificates_that_do_not_count(image, host, sigstore, certified):
    other = PrivateSigstore("other")
    stranger = sigstore.issue(make_key())
    good, bad_chain = as_bytes(certified), [as_bytes(other.root.certificate)]
    for fields in (
        {"certificate": good, "certificate_chain": bad_chain, "require_rekor_bundle": False},
        {"certificate": good, "certificate_chain": [], "require_rekor_bundle": False},
        {"certificate": good, "certificate_chain": [[1]], "require_rekor_bundle": False},
        {"certificate": good, "certificate_chain": None, "require_rekor_bundle": True},
        {"certificate": as_bytes(stranger), "require_rekor_bundle": False},
        {"certificate": [], "require_rekor_bundle": False},
        {"certificate": [255], "require_rekor_bundle": False},
    ):
        with pytest.raises(HostCallError):
            verify(host, image, "SigstoreCertificateVerify", **fields)


# --- manifests


def test_manifests_and_digests(image, host):
    assert ask(host, "v1/manifest_digest", name(image)) == {"digest": image.digest}
    manifest = ask(host, "v1/oci_manifest", name(image))
    assert manifest["schemaVersion"] == 2
    whole = ask(host, "v1/oci_manifest_config", name(image))
    assert (whole["digest"], whole["manifest"]) == (image.digest, manifest)


def test_the_image_of_an_index_is_described(registries, host):
    repository = "registry.test/many"
    config = registries.push_blob(repository, b'{"os":"linux"}', "application/json")
    document = {"schemaVersion": 2, "config": config, "layers": []}
    digest = registries.push_manifest(repository, document)
    entries = [
        {"digest": "sha256:" + "0" * 64, "platform": {"os": "linux", "architecture": "arm64"}},
        {"digest": digest, "platform": {"os": "linux", "architecture": "amd64"}},
    ]
    index = {"schemaVersion": 2, "manifests": entries}
    registries.push_manifest(repository, index, "v1")
    found = registries.manifests[repository, "v1"]
    kind = "application/vnd.oci.image.index.v1+json"
    registries.manifests[repository, "v1"] = type(found)(kind, found.digest, found.content)
    assert ask(host, "v1/oci_manifest", f"{repository}:v1") == index
    told = ask(host, "v1/oci_manifest_config", f"{repository}:v1")
    assert told == {"manifest": document, "digest": digest, "config": {"os": "linux"}}


@pytest.mark.parametrize("operation", ["manifest_digest", "oci_manifest", "oci_manifest_config"])
@pytest.mark.parametrize("reference", ["A B", "", "registry.test/none:v1", "a@sha256:0"])
def test_images_that_are_not_there(host, operation, reference):
    with pytest.raises(HostCallError):
        ask(host, f"v1/{operation}", reference)


def test_what_is_no_manifest(registries, host):
    registries.push_manifest("registry.test/odd", b"[]", "v1")
    registries.push_manifest("registry.test/odd", {"config": 1}, "v2")
    for operation, reference in (("oci_manifest", "odd:v1"), ("oci_manifest_config", "odd:v2")):
        with pytest.raises(HostCallError, match="manifest"):
            ask(host, f"v1/{operation}", f"registry.test/{reference}")


def test_answers_about_images_count_for_a_minute_and_failures_do_not(registries, image):
    now = [0.0]
    host = make_host(registries, AnswerCache(clock=lambda: now[0]))
    key = make_key()
    wanted = {"pub_keys": [pem_of(key)]}
    with pytest.raises(HostCallError):
        verify(host, image, "SigstorePubKeyVerify", **wanted)
    push_layers(registries, image, [make_signature(key, make_payload(image))])
    assert verify(host, image, "SigstorePubKeyVerify", **wanted) == trusted(image)
    assert ask(host, "v1/manifest_digest", name(image)) == {"digest": image.digest}
    registries.down = True
    assert verify(host, image, "SigstorePubKeyVerify", **wanted) == trusted(image)
    assert ask(host, "v1/manifest_digest", name(image)) == {"digest": image.digest}
    with pytest.raises(HostCallError, match="does not answer"):
        verify(host, image, "SigstorePubKeyVerify", pub_keys=[pem_of(make_key())])
    now[0] = 61.0
    for operation in (
        lambda: verify(host, image, "SigstorePubKeyVerify", **wanted),
        lambda: ask(host, "v1/manifest_digest", name(image)),
    ):
        with pytest.raises(HostCallError, match="does not answer"):
            operation()


# --- is a certificate trusted?


def encode(certificate: x509.Certificate, encoding: str = "Pem") -> JsonObject:
    form = Encoding.PEM if encoding == "Pem" else Encoding.DER
    return {"encoding": encoding, "data": list(certificate.public_bytes(form))}


def ask_trust(host, certificate, chain, **more) -> JsonObject:
    listed = None if chain is None else [encode(each) for each in chain]
    payload = {"cert": encode(certificate), "cert_chain": listed, "not_after": None, **more}
    found: JsonObject = ask(host, "v1/is_certificate_trusted", payload, "crypto")
    return found


@pytest.fixture
def leaf(sigstore) -> x509.Certificate:
    return sigstore.issue(make_key())


def test_a_certificate_leads_to_the_last_of_its_chain(host, sigstore, leaf):
    chain = [sigstore.intermediate.certificate, sigstore.root.certificate]
    good = {"trusted": True, "reason": ""}
    assert ask_trust(host, leaf, chain) == good
    assert ask_trust(host, leaf, chain, cert=encode(leaf, "Der")) == good
    # The last is trusted, also where another has issued it.
    assert ask_trust(host, leaf, chain[:1]) == good


def test_certificates_that_are_not_trusted(host, sigstore, leaf):
    root, between = sigstore.root.certificate, sigstore.intermediate.certificate
    other = PrivateSigstore("other")
    for certificate, chain, reason in (
        (leaf, [], "not trusted by the provided cert chain"),
        (leaf, [root], "not trusted by the provided cert chain"),
        (leaf, [root, between, other.root.certificate], "not trusted"),
        (leaf, [leaf], "not trusted"),
        (between, [root], "CaUsedAsEndEntity"),
        (leaf, None, "not trusted"),
    ):
        told = ask_trust(host, certificate, chain)
        assert not told["trusted"]
        assert reason in told["reason"]


@pytest.mark.parametrize(
    ("time", "reason"),
    [
        ("2026-01-15T12:05:00Z", ""),
        ("2026-01-15T13:05:00+01:00", ""),
        ("2200-01-01T00:00:00+00:00", "after its expiration"),
        ("2026-01-15T11:59:00Z", "before its validity"),
    ],
)
def test_the_time_of_use(host, sigstore, leaf, time, reason):
    chain = [sigstore.intermediate.certificate, sigstore.root.certificate]
    told = ask_trust(host, leaf, chain, not_after=time)
    assert told["trusted"] is not bool(reason)
    assert reason in told["reason"]


def test_an_expired_authority_leads_nowhere(host, sigstore):
    root = make_authority("old", until=NOON - timedelta(days=1))
    certificate = sigstore.issue(make_key(), by=root)
    assert not ask_trust(host, certificate, [root.certificate])["trusted"]


@pytest.mark.parametrize(
    "change",
    [
        {"not_after": "tomorrow"},
        {"not_after": "2026-01-15"},
        {"not_after": "2026-01-15T12:05:00"},
        {"cert": {"encoding": "Pem", "data": [1]}},
        {"cert": {"encoding": "Der", "data": [1]}},
        {"cert": {"encoding": "Zip", "data": []}},
        {"cert_chain": [{"encoding": "Der", "data": []}]},
        {"cert_chain": [{"encoding": "Der", "data": []}] * 17},
    ],
)
def test_what_is_no_certificate(host, sigstore, leaf, change):
    with pytest.raises(HostCallError):
        ask_trust(host, leaf, [sigstore.root.certificate], **change)
