"""Who made a signature, by certificates, logs and time stamps: what proves it, and what does not."""

import contextlib
import warnings
from base64 import b64decode, b64encode
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address, ip_network
from random import Random

import msgspec
import orjson
import pytest
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import ExtendedKeyUsageOID, ObjectIdentifier
from der import make_timestamp, utf8
from private_sigstore import (
    ALICE,
    FULCIO,
    ISSUER,
    NOON,
    Authority,
    PrivateSigstore,
    Wish,
    describe,
    log_id,
    make_authority,
    pem_of_certificates,
)
from signing import IN_TOTO, MemoryRegistries, make_key, pem_of, sign

from lictor.core.errors import EvaluationError, LookupFailedError, SignatureRefusedError
from lictor.core.signatures.keyless import check_logged, identify_signer
from lictor.core.signatures.records import (
    FoundSignature,
    Identity,
    LogTrust,
    Signer,
    TrustedCertificate,
    TrustedIdentity,
    TrustedKey,
)
from lictor.core.signatures.trust_root import gather_trust, read_trust_root

OURS, STRANGERS = PrivateSigstore("ours"), PrivateSigstore("strangers")
BY_ALICE = TrustedIdentity((Identity(issuer=ISSUER, subject=ALICE),))
PAYLOAD = b'{"what": "was signed"}'
LATER = NOON + timedelta(days=300)
MINUTE = timedelta(minutes=1)


def change(record, **fields):
    return msgspec.structs.replace(record, **fields)


def identify(
    found: FoundSignature,
    attestor: TrustedIdentity | TrustedCertificate = BY_ALICE,
    *,
    now: datetime = LATER,
    sigstore: PrivateSigstore = OURS,
) -> Signer:
    registries = MemoryRegistries(trust_roots={"": sigstore.trusted_root()})
    _, signer = identify_signer(
        found,
        attestor,
        gather_trust(attestor, registries, is_stamped=found.is_bundle and bool(found.timestamps)),
        now=lambda: now,
    )
    return signer


def test_a_keyless_signature_tells_its_signer():
    signer = identify(OURS.sign(PAYLOAD))
    assert (signer.issuer, signer.subject) == (ISSUER, ALICE)
    assert signer.signed_at == NOON + MINUTE
    assert signer.extensions["oidcIssuer"] == ISSUER


def test_an_attestation_is_logged_by_its_payload():
    assert identify(OURS.sign(PAYLOAD, payload_type=IN_TOTO)).subject == ALICE


def relog(found: FoundSignature, **entry) -> FoundSignature:
    """The signature with fields of its log entry changed, which the log has not signed."""
    return change(found, log_entries=(change(found.log_entries[0], **entry),))


def log_anew(found: FoundSignature, body, time=NOON + MINUTE) -> FoundSignature:
    """The signature with an entry that the log did sign, about something else."""
    return change(found, log_entries=(OURS.log_body(body, time),))


def respec(found: FoundSignature, *path: str, value: str) -> FoundSignature:
    body = orjson.loads(found.log_entries[0].body)
    place = body["spec"]
    for step in path[:-1]:
        place = place[step]
    place[path[-1]] = value
    return log_anew(found, body)


OTHER = OURS.sign(b"another payload")
STOLEN = STRANGERS.sign(PAYLOAD)

TAMPERED = {
    "no log entry": (lambda found: change(found, log_entries=()), "in no transparency log"),
    "forged promise": (lambda found: relog(found, signed_entry_timestamp=b"forged"), "SET"),
    "promise by another key": (
        lambda found: relog(
            found,
            signed_entry_timestamp=STRANGERS.promise(found.log_entries[0]).signed_entry_timestamp,
        ),
        "SET",
    ),
    "time changed": (
        lambda found: relog(found, integrated_time=found.log_entries[0].integrated_time + 1),
        "SET",
    ),
    "index changed": (lambda found: relog(found, log_index=43), "SET"),
    "body changed": (
        lambda found: relog(found, body=found.log_entries[0].body.replace(b"0.0.1", b"0.0.1 ")),
        "not supported",
    ),
    "neither promise nor proof": (
        lambda found: relog(found, signed_entry_timestamp=b""),
        "neither a signed promise",
    ),
    "another log": (lambda found: relog(found, log_id="00" * 32), "is not trusted"),
    "a stranger's log": (
        lambda found: change(found, log_entries=(STRANGERS.log_body(describe(found)),)),
        "is not trusted",
    ),
    "a stranger's log under our name": (
        lambda found: change(
            found,
            log_entries=(
                change(STRANGERS.log_body(describe(found)), log_id=log_id(OURS.log).hex()),
            ),
        ),
        "SET",
    ),
    "entry of another payload": (
        lambda found: change(found, log_entries=OTHER.log_entries),
        "about other content",
    ),
    "entry of another signature": (
        lambda found: respec(found, "signature", "content", value=b64encode(b"other").decode()),
        "about another signature",
    ),
    "entry of another key": (
        lambda found: log_anew(found, describe(found, pem_of(make_key()))),
        "about another key",
    ),
    "entry of another certificate": (
        lambda found: log_anew(found, describe(found, OTHER.certificate.decode())),
        "about another key or certificate",
    ),
    "entry of an unknown kind": (
        lambda found: log_anew(found, {"kind": "helm", "apiVersion": "0.0.1", "spec": {}}),
        "not supported",
    ),
    "entry with a weak hash": (
        lambda found: respec(found, "data", "hash", "algorithm", value="md5"),
        "not supported",
    ),
    "entry that is no JSON": (lambda found: log_anew(found, b"nothing"), "cannot be read"),
    "entry of a list": (lambda found: log_anew(found, b"[]"), "cannot be read"),
    "logged before the certificate": (
        lambda found: log_anew(found, describe(found), NOON - MINUTE),
        "was not valid yet",
    ),
    "logged after the certificate": (
        lambda found: log_anew(found, describe(found), NOON + 11 * MINUTE),
        "expired",
    ),
    "no certificate": (lambda found: change(found, certificate=b""), "without a certificate"),
    "rubbish for a certificate": (
        lambda found: change(found, certificate=b"-----BEGIN CERTIFICATE-----\n"),
        "cannot be read",
    ),
    "certificate of another": (
        lambda found: change(found, certificate=OTHER.certificate),
        "about another key or certificate",
    ),
    "certificate of a stranger": (
        lambda found: change(
            STOLEN, log_entries=(OURS.log_body(describe(STOLEN)),), signature=STOLEN.signature
        ),
        "no trusted certificate issued it",
    ),
    "rubbish for a chain": (lambda found: change(found, chain=(b"rubbish",)), "cannot be read"),
}


@pytest.mark.parametrize("what", TAMPERED)
def test_what_was_tampered_with_proves_nothing(what):
    tamper, reason = TAMPERED[what]
    found = OURS.sign(PAYLOAD)
    identify(found)
    with pytest.raises(SignatureRefusedError, match=reason):
        identify(tamper(found))


def test_an_entry_of_another_certificate_of_the_same_key_proves_nothing():
    key = make_key()
    first, second = (pem_of_certificates(OURS.issue(key)) for _ in range(2))
    found = FoundSignature("test", PAYLOAD, PAYLOAD, sign(key, PAYLOAD), first.encode())
    assert identify(log_anew(found, describe(found)))
    with pytest.raises(SignatureRefusedError, match="another key or certificate"):
        identify(log_anew(found, describe(found, second)))


UNLOGGED = make_authority("ours intermediate")

CERTIFICATES = {
    "no certificate timestamp": (Wish(is_logged=False), "no certificate timestamp"),
    "forged certificate timestamp": (Wish(forger=make_key()), "trusted certificate log"),
    "for another purpose": (
        Wish(purposes=(ExtendedKeyUsageOID.SERVER_AUTH,)),
        "not for code signing",
    ),
    "for no purpose": (Wish(purposes=()), "not for code signing"),
    "may not sign": (Wish(signs=False), "may not make signatures"),
    "unknown critical extension": (
        Wish(extra=((x509.UnrecognizedExtension(ObjectIdentifier("1.2.3"), b"x"), True),)),
        "critical extension 1.2.3",
    ),
    "wrong issuer": (Wish(issuer="https://evil.test"), "issuer mismatch"),
    "no issuer": (Wish(issuer=""), "issuer mismatch"),
    "issuer begins right": (Wish(issuer=f"{ISSUER}.evil.test"), "issuer mismatch"),
    "two issuers": (Wish(extensions={8: "https://evil.test"}), "two different issuers"),
    "wrong subject": (Wish(names=(x509.RFC822Name("bob@example.test"),)), "subject mismatch"),
    "no subject": (Wish(names=()), "without subject alternative names"),
    "subject of another kind": (
        Wish(names=(x509.DirectoryName(x509.Name([])),)),
        "without subject alternative names",
    ),
    "an extension that is no text": (
        Wish(extra=((x509.UnrecognizedExtension(ObjectIdentifier(f"{FULCIO}9"), b"x"), False),)),
        "cannot be read",
    ),
}


@pytest.mark.parametrize("what", CERTIFICATES)
def test_certificates_that_do_not_count(what):
    wish, reason = CERTIFICATES[what]
    with pytest.raises(SignatureRefusedError, match=reason):
        identify(OURS.sign(PAYLOAD, wish))


def issue_by(authority: Authority, *above: Authority, wish: Wish | None = None) -> FoundSignature:
    """A signature whose certificate is by this authority, with the chain that leads on."""
    key = make_key()
    certificate = OURS.issue(key, wish, by=authority)
    chain = pem_of_certificates(*(one.certificate for one in (authority, *above)))
    found = FoundSignature(
        "test",
        PAYLOAD,
        PAYLOAD,
        sign(key, PAYLOAD),
        pem_of_certificates(certificate).encode(),
        (chain.encode(),),
    )
    return change(found, log_entries=(OURS.log_body(describe(found)),))


SHORT = make_authority("short", OURS.root, path_length=0)
CHAINS = {
    "good": ((make_authority("below", OURS.intermediate),), ""),
    "no authority": ((make_authority("a", OURS.root, is_authority=False),), "no certificate auth"),
    "may not sign": ((make_authority("b", OURS.root, may_sign=False),), "may not sign certif"),
    "path too long": ((make_authority("c", SHORT), SHORT), "allows only 0"),
    "for another purpose": (
        (make_authority("d", OURS.root, purposes=(ExtendedKeyUsageOID.SERVER_AUTH,)),),
        "this purpose",
    ),
    "expired": ((make_authority("e", OURS.root, until=NOON - MINUTE),), "expired"),
    "a stranger of the same name": ((UNLOGGED,), "no trusted authority"),
    "of our root's name": ((make_authority("ours root"),), "no trusted authority"),
    "a stranger's": ((STRANGERS.intermediate, STRANGERS.root), "no trusted authority"),
}


@pytest.mark.parametrize("what", CHAINS)
def test_chains_of_certificates(what):
    chain, reason = CHAINS[what]
    found = issue_by(*chain)
    if not reason:
        assert identify(found).subject == ALICE
        return
    with pytest.raises(SignatureRefusedError, match=reason):
        identify(found)


URL = x509.UniformResourceIdentifier
NET = ip_network("10.0.0.0/8")


@pytest.mark.parametrize("is_critical", [True, False])
@pytest.mark.parametrize(
    ("names", "permitted", "excluded", "counts"),
    [
        ([x509.RFC822Name(ALICE)], [x509.RFC822Name("example.test")], None, True),
        ([x509.RFC822Name(ALICE)], [x509.RFC822Name(ALICE)], None, True),
        ([x509.RFC822Name(ALICE)], [x509.RFC822Name("bob@example.test")], None, False),
        ([x509.RFC822Name(ALICE)], [x509.RFC822Name(".test")], None, True),
        ([x509.RFC822Name(ALICE)], [x509.RFC822Name("test")], None, False),
        ([x509.RFC822Name(ALICE)], None, [x509.RFC822Name("example.test")], False),
        ([x509.RFC822Name(ALICE)], None, [x509.RFC822Name("other.test")], True),
        # Names of other kinds are not constrained.
        ([x509.RFC822Name(ALICE)], [x509.DNSName("example.test")], None, True),
        ([x509.DNSName("a.example.test")], [x509.DNSName("example.test")], None, True),
        ([x509.DNSName("badexample.test")], [x509.DNSName("example.test")], None, False),
        ([x509.DNSName("A.EXAMPLE.test")], None, [x509.DNSName("example.TEST")], False),
        ([URL("https://git.test/a")], [URL("git.test")], None, True),
        ([URL("https://a.git.test/a")], [URL("git.test")], None, False),
        ([URL("https://a.git.test/a")], [URL(".git.test")], None, True),
        ([URL("https://git.test@evil.test/")], [URL("git.test")], None, False),
        ([URL("urn:x")], [URL("git.test")], None, False),
        ([x509.IPAddress(ip_address("10.1.2.3"))], [x509.IPAddress(NET)], None, True),
        ([x509.IPAddress(ip_address("11.1.2.3"))], [x509.IPAddress(NET)], None, False),
        (
            [x509.RFC822Name(ALICE), x509.RFC822Name("eve@evil.test")],
            [x509.RFC822Name("example.test")],
            None,
            False,
        ),
        ([x509.RFC822Name(ALICE)], None, [x509.DirectoryName(x509.Name([]))], False),
    ],
)
def test_name_constraints(names, permitted, excluded, counts, is_critical):
    constraints = x509.NameConstraints(permitted, excluded)
    authority = make_authority("f", OURS.root, extra=((constraints, is_critical),))
    found = issue_by(authority, wish=Wish(names=tuple(names)))
    attestor = TrustedIdentity((Identity(issuer=ISSUER),))
    if counts:
        assert identify(found, attestor)
        return
    with pytest.raises(SignatureRefusedError, match="name constraints"):
        identify(found, attestor)


def test_a_long_chain_and_many_of_one_name_are_given_up():
    above, chain = OURS.root, []
    for number in range(9):
        above = make_authority(f"deep {number}", above)
        chain.insert(0, above)
    with pytest.raises(SignatureRefusedError, match="no trusted authority"):
        identify(issue_by(*chain))
    with pytest.raises(SignatureRefusedError, match="no trusted authority"):
        identify(issue_by(*[make_authority("same", make_authority("same")) for _ in range(9)]))


CI = Wish(
    issuer="https://ci.test",
    names=(
        x509.UniformResourceIdentifier("https://git.test/acme/app/release.yml@refs/heads/main"),
    ),
    extensions={2: "push", 5: "acme/app", 8: "https://ci.test", 12: "https://git.test/acme/app"},
)
USER = x509.OtherName(ObjectIdentifier(f"{FULCIO}7"), utf8("alice"))

IDENTITIES = [
    (Wish(), Identity(issuer=ISSUER, subject=ALICE), True),
    (Wish(), Identity(issuer=ISSUER), True),
    (Wish(), Identity(subject=ALICE), True),
    (Wish(), Identity(issuer=ISSUER, subject="*@example.test"), False),
    (Wish(), Identity(issuer="https://*.test", subject="*@example.test", wildcards=True), True),
    (Wish(), Identity(issuer=ISSUER, subject="*@other.test", wildcards=True), False),
    (Wish(), Identity(issuer=ISSUER, issuer_regexp="^https://other", subject=ALICE), False),
    (Wish(), Identity(issuer_regexp="accounts", subject_regexp="@example[.]test$"), True),
    # Of the subject and its expression one is enough.
    (Wish(), Identity(issuer=ISSUER, subject="bob@example.test", subject_regexp="^alice@"), True),
    (Wish(), Identity(issuer=ISSUER, subject_regexp="(["), False),
    (Wish(names=()), Identity(issuer=ISSUER), True),
    (Wish(names=()), Identity(subject="*", wildcards=True), False),
    (Wish(names=()), Identity(subject_regexp=".*"), False),
    (Wish(names=(x509.DNSName("app.test"),)), Identity(issuer=ISSUER, subject="app.test"), True),
    (Wish(names=(USER,)), Identity(issuer=ISSUER, subject="alice"), True),
    (CI, Identity(issuer="https://ci.test", subject_regexp="acme/app"), True),
    # Everybody can have a certificate of the public Sigstore.
    (Wish(), Identity(), False),
]


@pytest.mark.parametrize(("wish", "identity", "counts"), IDENTITIES)
def test_identities(wish, identity, counts):
    attestor = TrustedIdentity((Identity(issuer="https://nobody.test"), identity))
    found = OURS.sign(PAYLOAD, wish)
    if counts:
        assert identify(found, attestor).signed_at
        return
    with pytest.raises(SignatureRefusedError):
        identify(found, attestor)


def test_any_identity_counts_by_an_authority_of_ones_own():
    roots = pem_of_certificates(OURS.root.certificate)
    assert identify(OURS.sign(PAYLOAD), TrustedIdentity((Identity(),), roots=roots)).subject
    with pytest.raises(SignatureRefusedError, match="no identity"):
        identify(OURS.sign(PAYLOAD), TrustedIdentity((), roots=roots))


@pytest.mark.parametrize(
    ("wanted", "counts"),
    [
        ({"githubWorkflowTrigger": "push", f"{FULCIO}5": "acme/*"}, True),
        ({"sourceRepositoryURI": "https://git.test/acme/app"}, True),
        ({"githubWorkflowTrigger": "schedule"}, False),
        ({"githubWorkflowRef": "*"}, False),
        ({"githubWorkflowRef": ""}, True),
        ({"githubWorkflowTrigger": ""}, False),
        ({"githubWorkflowColour": "*"}, False),
    ],
)
def test_extensions(wanted, counts):
    attestor = TrustedIdentity((Identity(issuer="https://ci.test"),), extensions=wanted)
    if counts:
        assert identify(OURS.sign(PAYLOAD, CI), attestor)
        return
    with pytest.raises(SignatureRefusedError, match="extension"):
        identify(OURS.sign(PAYLOAD, CI), attestor)


# --- what a policy trusts in place of the trust root


def trusting(**log) -> TrustedIdentity:
    return change(BY_ALICE, log=LogTrust(**log))


@pytest.mark.parametrize(
    ("attestor", "counts"),
    [
        (trusting(public_keys=pem_of(STRANGERS.log)), False),
        (trusting(public_keys=pem_of(STRANGERS.log) + pem_of(OURS.log)), True),
        (trusting(certificate_log_keys=pem_of(STRANGERS.certificate_log)), False),
        (trusting(certificate_log_keys=pem_of(OURS.certificate_log)), True),
        (change(BY_ALICE, roots=pem_of_certificates(STRANGERS.root.certificate)), False),
        (change(BY_ALICE, roots=pem_of_certificates(OURS.root.certificate)), True),
        (change(BY_ALICE, roots=pem_of_certificates(OURS.intermediate.certificate)), True),
    ],
)
def test_what_the_policy_names_takes_the_place_of_the_trust_root(attestor, counts):
    if counts:
        assert identify(OURS.sign(PAYLOAD), attestor)
        return
    with pytest.raises(SignatureRefusedError):
        identify(OURS.sign(PAYLOAD), attestor)


def test_a_trust_root_is_asked_for_only_where_it_is_needed():
    down = MemoryRegistries(down=True)
    own = LogTrust(public_keys=pem_of(OURS.log), certificate_log_keys=pem_of(OURS.certificate_log))
    roots = pem_of_certificates(OURS.root.certificate)
    for attestor in (
        TrustedKey(pem_of(make_key()), log=LogTrust(ignore_log=True)),
        TrustedKey(pem_of(make_key()), log=own),
        change(BY_ALICE, roots=roots, log=own),
        change(BY_ALICE, roots=roots, log=change(own, ignore_log=True)),
        TrustedCertificate(certificate=roots, log=LogTrust(ignore_log=True)),
    ):
        gather_trust(attestor, down)
    with pytest.raises(LookupFailedError):
        gather_trust(
            change(BY_ALICE, roots=roots, log=change(own, ignore_log=True)), down, is_stamped=True
        )
    for attestor in (
        TrustedKey(pem_of(make_key())),
        change(BY_ALICE, log=own),
        change(BY_ALICE, roots=roots),
        TrustedCertificate(chain=roots, log=LogTrust(ignore_log=True)),
    ):
        with pytest.raises(LookupFailedError):
            gather_trust(attestor, down)


@pytest.mark.parametrize(
    "attestor",
    [
        change(BY_ALICE, roots="rubbish"),
        change(BY_ALICE, roots=pem_of(make_key())),
        trusting(public_keys="rubbish"),
        trusting(public_keys=pem_of(make_key("rsa1024"))),
        trusting(certificate_log_keys=pem_of_certificates(OURS.root.certificate)),
        trusting(timestamp_chain="rubbish"),
        TrustedCertificate(certificate="rubbish", log=LogTrust(ignore_log=True)),
        TrustedCertificate(log=LogTrust(ignore_log=True)),
    ],
)
def test_trust_that_cannot_be_read_is_an_error(attestor):
    with pytest.raises(EvaluationError):
        identify(OURS.sign(PAYLOAD), attestor)


def test_a_trust_root_that_was_withdrawn_does_not_count():
    past = {"start": "2020-01-01T00:00:00Z", "end": "2025-12-31T00:00:00Z"}
    file = orjson.loads(OURS.trusted_root())
    for withdraw in (
        lambda root: root["tlogs"][0]["publicKey"].update(validFor=past),
        lambda root: root["ctlogs"][0]["publicKey"].update(validFor=past),
        lambda root: root["certificateAuthorities"][0].update(validFor=past),
    ):
        changed = orjson.loads(orjson.dumps(file))
        withdraw(changed)
        with pytest.raises(SignatureRefusedError):
            identify_signer(OURS.sign(PAYLOAD), BY_ALICE, read_trust_root(orjson.dumps(changed)))


@pytest.mark.parametrize(
    "content", [b"", b"[]", b'{"tlogs": [{}]}', b'{"certificateAuthorities": [{"certChain": {}}]}']
)
def test_a_trust_root_that_cannot_be_read_is_an_error(content):
    with pytest.raises(LookupFailedError, match=r"trusted_root\.json"):
        read_trust_root(content)


# --- without the log


WITHOUT_LOG = trusting(ignore_log=True)


def test_without_a_log_an_old_signature_is_as_good_as_its_certificate_is_now():
    found = OURS.sign(PAYLOAD)
    signer = identify(found, WITHOUT_LOG, now=NOON + MINUTE)
    assert signer.signed_at is None
    with pytest.raises(SignatureRefusedError, match="expired"):
        identify(found, WITHOUT_LOG)
    with pytest.raises(SignatureRefusedError, match="no trusted proof of the signing time"):
        identify(change(found, is_bundle=True), WITHOUT_LOG, now=NOON + MINUTE)


STAMPS = pem_of_certificates(OURS.stamp_certificate, OURS.stamp_root.certificate)
STAMPED = trusting(ignore_log=True, timestamp_chain=STAMPS)


def stamped(*stamps: bytes) -> FoundSignature:
    return change(OURS.sign(PAYLOAD), log_entries=(), timestamps=stamps)


def stamp(found: FoundSignature, by: PrivateSigstore = OURS, time=NOON + MINUTE) -> FoundSignature:
    return change(found, timestamps=(by.stamp(found.signature, time),))


def test_a_time_stamp_tells_when_a_signature_was_made():
    found = stamp(stamped())
    assert identify(found, STAMPED).signed_at == NOON + MINUTE
    assert identify(change(found, is_bundle=True), WITHOUT_LOG).signed_at == NOON + MINUTE
    # Old signatures are stamped by whom the policy names, or by nobody.
    with pytest.raises(SignatureRefusedError, match="expired"):
        identify(found, WITHOUT_LOG)
    # The log is wanted all the same.
    with pytest.raises(SignatureRefusedError, match="in no transparency log"):
        identify(found, trusting(timestamp_chain=STAMPS))


def test_a_time_stamp_may_hold_the_certificate_of_its_authority():
    found = stamped()
    held = make_timestamp(
        found.signature, NOON + MINUTE, OURS.stamp_key, OURS.stamp_certificate, embeds=True
    )
    chain = pem_of_certificates(OURS.stamp_root.certificate)
    attestor = trusting(ignore_log=True, timestamp_chain=chain)
    assert identify(change(found, timestamps=(held,)), attestor).signed_at
    with pytest.raises(SignatureRefusedError, match="does not contain the certificate"):
        identify(stamp(found), attestor)


def test_a_chain_of_time_stamps_must_hang_together():
    chain = pem_of_certificates(OURS.stamp_certificate, STRANGERS.stamp_root.certificate)
    with pytest.raises(SignatureRefusedError, match="no trusted authority"):
        identify(stamp(stamped()), trusting(ignore_log=True, timestamp_chain=chain))


@pytest.mark.parametrize(
    ("tamper", "reason"),
    [
        (lambda found: change(found, timestamps=(b"rubbish",)), "time stamp"),
        (lambda found: change(found, timestamps=(b"x" * 70_000,)), "more than"),
        (lambda found: stamp(found, STRANGERS), "time stamp"),
        (lambda found: change(found, timestamps=(OURS.stamp(b"other"),)), "time stamp"),
        (lambda found: stamp(found, time=NOON - MINUTE), "not valid yet"),
        (lambda found: stamp(found, time=NOON + 11 * MINUTE), "expired"),
        (lambda found: change(found, timestamps=(found.timestamps[0], b"x")), "time stamp"),
        (
            lambda found: change(
                found,
                timestamps=(
                    make_timestamp(
                        found.signature, NOON + MINUTE, STRANGERS.stamp_key, OURS.stamp_certificate
                    ),
                ),
            ),
            "time stamp",
        ),
    ],
)
def test_time_stamps_that_do_not_count(tamper, reason):
    found = stamp(stamped())
    with pytest.raises(SignatureRefusedError, match=reason):
        identify(tamper(found), STAMPED)


# --- proofs of inclusion


@pytest.mark.parametrize("siblings", [0, 1, 2, 3, 4, 6, 7, 11])
def test_a_proof_of_inclusion_proves_the_entry_but_no_time(siblings):
    found = OURS.sign(PAYLOAD)
    body = found.log_entries[0].body
    promised = OURS.log_body(body, siblings=siblings)
    assert identify(change(found, log_entries=(promised,))).signed_at == NOON + MINUTE
    proven = OURS.log_body(body, siblings=siblings, promises=False)
    signer = identify(change(found, log_entries=(proven,)), now=NOON + 2 * MINUTE)
    assert signer.signed_at is None
    # Anybody may have written the time of an entry that the log did not sign with it.
    with pytest.raises(SignatureRefusedError, match="expired"):
        identify(change(found, log_entries=(proven,)))


def reprove(**changed):
    return lambda proof: {**proof, **changed}


@pytest.mark.parametrize(
    ("tamper", "reason"),
    [
        (reprove(rootHash=b64encode(b"0" * 32).decode()), "does not lead"),
        (reprove(hashes=[]), "too short"),
        (lambda proof: {**proof, "hashes": proof["hashes"] * 2}, "too long|does not lead"),
        (lambda proof: {**proof, "hashes": proof["hashes"] * 100}, "not well-formed"),
        (reprove(logIndex="0"), "does not lead|too short|too long"),
        (reprove(logIndex="-1"), "not well-formed"),
        (reprove(logIndex="9"), "not well-formed"),
        (reprove(treeSize="x"), "not well-formed"),
        (
            lambda proof: {
                **proof,
                "checkpoint": {
                    "envelope": STRANGERS.sign_checkpoint(
                        int(proof["treeSize"]), b64decode(proof["rootHash"])
                    )
                },
            },
            "not signed by the transparency log",
        ),
        (
            lambda proof: {
                **proof,
                "checkpoint": {"envelope": OURS.sign_checkpoint(6, b64decode(proof["rootHash"]))},
            },
            "another tree",
        ),
        (
            lambda proof: {
                **proof,
                "checkpoint": {"envelope": OURS.sign_checkpoint(5, b"0" * 32)},
            },
            "another tree",
        ),
        (reprove(checkpoint={"envelope": "a\n5\nb"}), "not well-formed"),
        (reprove(checkpoint={"envelope": "a\n5\nb\n\n— c d e\nf\n"}), "not signed"),
    ],
)
@pytest.mark.parametrize("promises", [True, False])
def test_proofs_of_inclusion_that_do_not_count(tamper, reason, promises):
    found = OURS.sign(PAYLOAD)
    entry = OURS.log_body(found.log_entries[0].body, siblings=4, promises=promises)
    wrong = change(entry, inclusion_proof=tamper(entry.inclusion_proof))
    with pytest.raises(SignatureRefusedError, match=reason):
        identify(change(found, log_entries=(wrong,)), now=NOON + MINUTE)


def test_a_log_that_was_given_up_proves_nothing_that_was_stamped_later():
    found = stamp(OURS.sign(PAYLOAD))
    entry = OURS.log_body(found.log_entries[0].body, siblings=3, promises=False)
    proven = change(found, log_entries=(entry,), is_bundle=True)
    assert identify(proven).signed_at == NOON + MINUTE
    file = orjson.loads(OURS.trusted_root())
    file["tlogs"][0]["publicKey"]["validFor"]["end"] = "2026-01-01T00:00:00Z"
    with pytest.raises(SignatureRefusedError, match="was not trusted at"):
        identify_signer(proven, BY_ALICE, read_trust_root(orjson.dumps(file)))


def test_one_good_entry_among_bad_ones_is_enough():
    found = OURS.sign(PAYLOAD)
    entries = (*STOLEN.log_entries, *OTHER.log_entries, *found.log_entries)
    assert identify(change(found, log_entries=entries)).signed_at == NOON + MINUTE


# --- kinds of entries


def hashed(found: FoundSignature, field: str) -> dict[str, str]:
    digest = orjson.loads(OURS.sign(getattr(found, field)).log_entries[0].body)
    return digest["spec"]["data"]["hash"]


def double(data: bytes) -> str:
    return b64encode(b64encode(data)).decode()


def tiled_hash(found: FoundSignature, field: str) -> dict[str, str]:
    value = bytes.fromhex(hashed(found, field)["value"])
    return {"algorithm": "SHA2_256", "digest": b64encode(value).decode()}


def tiled_verifier(found: FoundSignature) -> dict[str, object]:
    certificate = x509.load_pem_x509_certificate(found.certificate).public_bytes(Encoding.DER)
    return {"x509Certificate": {"rawBytes": b64encode(certificate).decode()}}


KINDS = {
    "rekord": lambda found: {
        "apiVersion": "0.0.1",
        "kind": "rekord",
        "spec": describe(change(found, payload_type=""))["spec"],
    },
    "intoto 0.0.1": lambda found: {
        "apiVersion": "0.0.1",
        "kind": "intoto",
        "spec": {
            "content": {"payloadHash": hashed(found, "payload")},
            "publicKey": b64encode(found.certificate).decode(),
        },
    },
    "intoto 0.0.2": lambda found: {
        "apiVersion": "0.0.2",
        "kind": "intoto",
        "spec": {
            "content": {
                "payloadHash": hashed(found, "payload"),
                "envelope": {
                    "signatures": [
                        {
                            "sig": double(found.signature),
                            "publicKey": b64encode(found.certificate).decode(),
                        }
                    ]
                },
            }
        },
    },
    "hashedrekord 0.0.2": lambda found: {
        "apiVersion": "0.0.2",
        "kind": "hashedrekord",
        "spec": {
            "hashedRekordV002": {
                "data": tiled_hash(found, "signed"),
                "signature": {
                    "content": b64encode(found.signature).decode(),
                    "verifier": tiled_verifier(found),
                },
            }
        },
    },
    "dsse 0.0.2": lambda found: {
        "apiVersion": "0.0.2",
        "kind": "dsse",
        "spec": {
            "dsseV002": {
                "payloadHash": tiled_hash(found, "payload"),
                "signatures": [
                    {
                        "content": b64encode(found.signature).decode(),
                        "verifier": tiled_verifier(found),
                    }
                ],
            }
        },
    },
}


@pytest.mark.parametrize("kind", KINDS)
def test_kinds_of_log_entries(kind):
    describe_as = KINDS[kind]
    found = OURS.sign(PAYLOAD, payload_type=IN_TOTO)
    assert identify(log_anew(found, describe_as(found)))
    other = OURS.sign(b"another", payload_type=IN_TOTO)
    for wrong in (
        describe_as(other),
        describe_as(change(found, certificate=other.certificate)),
        describe_as(change(found, payload=b"x", signed=b"x")),
    ):
        with pytest.raises(SignatureRefusedError, match="about"):
            identify(log_anew(found, wrong))
    if kind != "intoto 0.0.1":
        wrong = describe_as(change(found, signature=b"another"))
        with pytest.raises(SignatureRefusedError, match="another signature"):
            identify(log_anew(found, wrong))


def test_an_old_entry_names_the_envelope():
    found = change(OURS.sign(PAYLOAD, payload_type=IN_TOTO), envelope=b"the envelope")
    body = KINDS["intoto 0.0.1"](found)
    body["spec"]["content"] = {"hash": hashed(found, "envelope")}
    assert identify(log_anew(found, body))
    with pytest.raises(SignatureRefusedError, match="about other content"):
        identify(log_anew(change(found, envelope=b"another"), body))


def test_an_old_entry_without_an_envelope_proves_nothing():
    """The hash of nothing is the hash of every envelope that is missing."""
    found = change(OURS.sign(PAYLOAD, payload_type=IN_TOTO), envelope=b"")
    body = KINDS["intoto 0.0.1"](found)
    body["spec"]["content"] = {"hash": hashed(found, "envelope")}
    with pytest.raises(SignatureRefusedError, match="about an envelope"):
        identify(log_anew(found, body))


# --- plain keys and certificates


def test_a_signature_by_a_key_is_in_the_log():
    key = make_key()
    found = FoundSignature("test", PAYLOAD, PAYLOAD, sign(key, PAYLOAD))
    logged = log_anew(found, describe(found, pem_of(key)))
    root = read_trust_root(OURS.trusted_root())
    assert check_logged(logged, LogTrust(), root, key.public_key()) == NOON + MINUTE
    assert check_logged(found, LogTrust(ignore_log=True), root, key.public_key()) is None
    for wrong, by in (
        (found, key),
        (logged, make_key()),
        (log_anew(found, describe(found, pem_of(make_key()))), key),
        (change(logged, signature=b"x"), key),
        (change(logged, signed=b"x"), key),
    ):
        with pytest.raises(SignatureRefusedError):
            check_logged(wrong, LogTrust(), root, by.public_key())


LONG = Wish(length=timedelta(days=900), issuer="", is_logged=False)
NO_LOGS = LogTrust(ignore_log=True, ignore_certificate_log=True)
CHAIN = pem_of_certificates(OURS.intermediate.certificate, OURS.root.certificate)


def test_certificates_of_a_policy():
    found = change(OURS.sign(PAYLOAD, LONG), log_entries=())
    bare = change(found, certificate=b"", chain=())
    leaf = found.certificate.decode()
    for good, attestor in (
        (found, TrustedCertificate(chain=CHAIN, log=NO_LOGS)),
        (found, TrustedCertificate(certificate=leaf, log=NO_LOGS)),
        (found, TrustedCertificate(certificate=leaf, chain=CHAIN, log=NO_LOGS)),
        (bare, TrustedCertificate(certificate=leaf, log=NO_LOGS)),
    ):
        assert identify(good, attestor).subject == ALICE
        with pytest.raises(SignatureRefusedError, match="expired"):
            identify(good, attestor, now=NOON + timedelta(days=901))


def test_certificates_that_the_policy_does_not_trust():
    found = change(OURS.sign(PAYLOAD, LONG), log_entries=())
    leaf, strange = found.certificate.decode(), pem_of_certificates(STRANGERS.root.certificate)
    with_sct = NO_LOGS.__class__(ignore_log=True)
    for wrong, attestor in (
        (change(found, certificate=b""), TrustedCertificate(chain=CHAIN, log=NO_LOGS)),
        (found, TrustedCertificate(chain=strange, log=NO_LOGS)),
        (found, TrustedCertificate(certificate=leaf, chain=strange, log=NO_LOGS)),
        (found, TrustedCertificate(chain=CHAIN, log=with_sct)),
        (found, TrustedCertificate(certificate=leaf, chain=CHAIN, log=with_sct)),
        (found, TrustedCertificate(certificate=leaf)),
    ):
        with pytest.raises(SignatureRefusedError):
            identify(wrong, attestor)


def test_a_logged_signature_outlives_its_certificate():
    found = OURS.sign(PAYLOAD, replace(LONG, length=timedelta(minutes=5)))
    attestor = TrustedCertificate(
        certificate=found.certificate.decode(), log=LogTrust(ignore_certificate_log=True)
    )
    assert identify(found, attestor).signed_at == NOON + MINUTE
    late = log_anew(found, describe(found), datetime(2026, 2, 1, tzinfo=UTC))
    with pytest.raises(SignatureRefusedError, match="expired"):
        identify(late, attestor)


# --- noise


def damage(content: bytes, random: Random) -> bytes:
    """The bytes with some changed, lost or added."""
    changed = bytearray(content)
    for _ in range(random.choice((1, 1, 2, 8))):
        place = random.randrange(len(changed))
        piece = random.choice((b"", b"\x00", b"\xff", b"\x30\x84", random.randbytes(3)))
        changed[place : place + random.randrange(3)] = piece
    return bytes(changed)


def test_noise_is_refused_and_raises_nothing_else():
    random = Random(1)
    found = stamp(OURS.sign(PAYLOAD))
    entry = OURS.log_body(found.log_entries[0].body, siblings=5)
    encoded = x509.load_pem_x509_certificate(found.certificate).public_bytes(Encoding.DER)

    def noisy_certificate() -> FoundSignature:
        body = b64encode(damage(encoded, random)).decode()
        text = f"-----BEGIN CERTIFICATE-----\n{body}\n-----END CERTIFICATE-----\n"
        return change(found, certificate=text.encode())

    def noisy_entry() -> FoundSignature:
        return change(found, log_entries=(OURS.log_body(damage(entry.body, random)),))

    def noisy_proof() -> FoundSignature:
        values = (None, -1, "", "x", [], {}, ["x"], [1], "9" * 5000, 2**70, {"envelope": 1})
        proof = dict(entry.inclusion_proof or {})
        proof[random.choice(list(proof))] = None
        proof = {name: value or random.choice(values) for name, value in proof.items()}
        return change(found, log_entries=(change(entry, inclusion_proof=proof),))

    def noisy_stamp() -> FoundSignature:
        return change(found, timestamps=(damage(found.timestamps[0], random),))

    attestor = trusting(timestamp_chain=STAMPS)
    identify(found, attestor)
    for make in (noisy_certificate, noisy_entry, noisy_proof, noisy_stamp) * 60:
        with contextlib.suppress(SignatureRefusedError), warnings.catch_warnings():
            # The library warns of certificates that break rules of today.
            warnings.simplefilter("ignore")
            assert identify(make(), attestor).signed_at == NOON + MINUTE
