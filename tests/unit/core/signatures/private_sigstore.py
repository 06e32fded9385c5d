"""A Sigstore of our own: certificate authority, certificate log, transparency log, time stamps.

Every part can be told to do something wrong, so that a test need only say what.
"""

from base64 import b64encode
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from hashlib import sha256

import msgspec
import orjson
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID, ObjectIdentifier
from der import make_timestamp, octets, utf8
from signing import encode_for_signing, make_key, sign

from lictor.core.raw import JsonObject
from lictor.core.signatures.records import FoundSignature, LogEntry

NOON = datetime(2026, 1, 15, 12, tzinfo=UTC)
ISSUER = "https://accounts.test"
ALICE = "alice@example.test"
FULCIO = "1.3.6.1.4.1.57264.1."
_SCT_LIST = ObjectIdentifier("1.3.6.1.4.1.11129.2.4.2")


def key_bytes(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)


def log_id(key: ec.EllipticCurvePrivateKey) -> bytes:
    return sha256(key_bytes(key)).digest()


def pem_of_certificates(*certificates: x509.Certificate) -> str:
    return "".join(one.public_bytes(Encoding.PEM).decode() for one in certificates)


def name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


@dataclass
class Authority:
    """A certificate with its key, which issues others."""

    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey


def make_authority(
    title: str,
    above: Authority | None = None,
    *,
    is_authority: bool = True,
    path_length: int | None = None,
    may_sign: bool = True,
    purposes: tuple[ObjectIdentifier, ...] = (),
    extra: tuple[tuple[x509.ExtensionType, bool], ...] = (),
    until: datetime = NOON + timedelta(days=3650),
) -> Authority:
    key = make_key()
    builder = (
        x509.CertificateBuilder()
        .subject_name(name(title))
        .issuer_name(above.certificate.subject if above else name(title))
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(NOON - timedelta(days=365))
        .not_valid_after(until)
        .add_extension(
            x509.BasicConstraints(is_authority, path_length if is_authority else None),
            critical=True,
        )
        .add_extension(key_usage(signs_certificates=may_sign), critical=True)
    )
    if purposes:
        builder = builder.add_extension(x509.ExtendedKeyUsage(purposes), critical=False)
    for extension, critical in extra:
        builder = builder.add_extension(extension, critical=critical)
    return Authority(builder.sign((above.key if above else key), hashes.SHA256()), key)


def key_usage(*, signs_certificates: bool = False, signs: bool = True) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=signs,
        key_cert_sign=signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        crl_sign=False,
        encipher_only=False,
        decipher_only=False,
    )


@dataclass
class Wish:
    """What the certificate of a signer shall look like."""

    issuer: str = ISSUER
    names: tuple[x509.GeneralName, ...] = (x509.RFC822Name(ALICE),)
    start: datetime = NOON
    length: timedelta = timedelta(minutes=10)
    # Numbers below FULCIO, from the eighth on as UTF8String.
    extensions: Mapping[int, str] = field(default_factory=dict)
    purposes: tuple[ObjectIdentifier, ...] = (ExtendedKeyUsageOID.CODE_SIGNING,)
    signs: bool = True
    extra: tuple[tuple[x509.ExtensionType, bool], ...] = ()
    is_logged: bool = True
    # Another key than the log's signs the certificate timestamp.
    forger: ec.EllipticCurvePrivateKey | None = None


class PrivateSigstore:
    """All keys of one Sigstore, and what they sign."""

    def __init__(self, title: str = "ours") -> None:
        self.root = make_authority(f"{title} root")
        self.intermediate = make_authority(f"{title} intermediate", self.root)
        self.certificate_log, self.log, self.stamp_key = make_key(), make_key(), make_key()
        self.stamp_root = make_authority(f"{title} time stamps")
        self.stamp_certificate = self._make_stamp_certificate(title)

    def _make_stamp_certificate(self, title: str) -> x509.Certificate:
        builder = (
            _begin(self.stamp_root, self.stamp_key)
            .subject_name(name(f"{title} clock"))
            .not_valid_before(NOON - timedelta(days=365))
            .not_valid_after(NOON + timedelta(days=3650))
            .add_extension(
                x509.ExtendedKeyUsage([ExtendedKeyUsageOID.TIME_STAMPING]), critical=True
            )
            .add_extension(key_usage(), critical=True)
        )
        return builder.sign(self.stamp_root.key, hashes.SHA256())

    # --- certificates

    def issue(
        self,
        key: ec.EllipticCurvePrivateKey,
        wish: Wish | None = None,
        by: Authority | None = None,
    ) -> x509.Certificate:
        """A certificate for a signer, with a certificate timestamp."""
        wish, by = wish or Wish(), by or self.intermediate
        builder = (
            _begin(by, key)
            .subject_name(x509.Name([]))
            .not_valid_before(wish.start)
            .not_valid_after(wish.start + wish.length)
            .add_extension(key_usage(signs=wish.signs), critical=True)
        )
        if wish.purposes:
            builder = builder.add_extension(x509.ExtendedKeyUsage(wish.purposes), critical=False)
        if wish.names:
            builder = builder.add_extension(x509.SubjectAlternativeName(wish.names), critical=True)
        for number, text in {
            **({1: wish.issuer} if wish.issuer else {}),
            **wish.extensions,
        }.items():
            value = utf8(text) if number > 7 else text.encode()
            kind = ObjectIdentifier(f"{FULCIO}{number}")
            builder = builder.add_extension(x509.UnrecognizedExtension(kind, value), critical=False)
        for extension, critical in wish.extra:
            builder = builder.add_extension(extension, critical=critical)
        if wish.is_logged:
            before = builder.sign(by.key, hashes.SHA256()).tbs_certificate_bytes
            stamps = self._stamp_certificate(before, by, wish)
            builder = builder.add_extension(
                x509.UnrecognizedExtension(_SCT_LIST, stamps), critical=False
            )
        return builder.sign(by.key, hashes.SHA256())

    def _stamp_certificate(self, before: bytes, by: Authority, wish: Wish) -> bytes:
        time = (int(wish.start.timestamp()) * 1000 + 123).to_bytes(8, "big")
        length = len(before).to_bytes(3, "big")
        message = b"\0\0" + time + b"\0\1" + sha256(key_bytes(by.key)).digest() + length + before
        signature = sign(wish.forger or self.certificate_log, message + b"\0\0")
        stamp = b"\0" + log_id(self.certificate_log) + time + b"\0\0" + b"\4\3" + _sized(signature)
        return octets(_sized(_sized(stamp)))

    # --- the transparency log

    def log_body(
        self,
        body: JsonObject | bytes,
        time: datetime = NOON + timedelta(minutes=1),
        *,
        promises: bool = True,
        siblings: int | None = None,
    ) -> LogEntry:
        """Log a body; with `siblings`, a proof of inclusion in a tree of so many more entries."""
        content = body if isinstance(body, bytes) else orjson.dumps(body)
        entry = LogEntry(
            body=content,
            log_id=log_id(self.log).hex(),
            log_index=42,
            integrated_time=int(time.timestamp()),
            signed_entry_timestamp=b"",
            inclusion_proof=None if siblings is None else self.prove(content, siblings),
        )
        return self.promise(entry) if promises else entry

    def promise(self, entry: LogEntry) -> LogEntry:
        """The entry with the log's signature of what it says."""
        message = {
            "body": b64encode(entry.body).decode(),
            "integratedTime": entry.integrated_time,
            "logID": entry.log_id,
            "logIndex": entry.log_index,
        }
        return msgspec.structs.replace(
            entry, signed_entry_timestamp=sign(self.log, orjson.dumps(message))
        )

    def prove(self, body: bytes, siblings: int) -> JsonObject:
        """A proof of inclusion for an entry that came after `siblings` others."""
        leaves = [sha256(b"\0other" + bytes([number])).digest() for number in range(siblings)]
        leaves.append(sha256(b"\0" + body).digest())
        hashes_up, root = _climb(leaves, siblings)
        return {
            "logIndex": str(siblings),
            "treeSize": str(len(leaves)),
            "rootHash": b64encode(root).decode(),
            "hashes": [b64encode(one).decode() for one in hashes_up],
            "checkpoint": {"envelope": self.sign_checkpoint(len(leaves), root)},
        }

    def sign_checkpoint(self, size: int, root: bytes) -> str:
        text = f"log.test - 1\n{size}\n{b64encode(root).decode()}\n"
        signature = log_id(self.log)[:4] + sign(self.log, text.encode())
        return f"{text}\n— log.test {b64encode(signature).decode()}\n"

    # --- time stamps and the whole

    def stamp(self, message: bytes, time: datetime = NOON + timedelta(minutes=1)) -> bytes:
        return make_timestamp(message, time, self.stamp_key, self.stamp_certificate)

    def sign(
        self,
        payload: bytes,
        wish: Wish | None = None,
        *,
        time: datetime = NOON + timedelta(minutes=1),
        payload_type: str = "",
    ) -> FoundSignature:
        """A keyless signature as it would be found: with certificate, chain and log entry."""
        key = make_key()
        certificate = self.issue(key, wish)
        signed = encode_for_signing(payload_type, payload) if payload_type else payload
        found = FoundSignature(
            origin="test",
            payload=payload,
            signed=signed,
            signature=sign(key, signed),
            certificate=pem_of_certificates(certificate).encode(),
            chain=(pem_of_certificates(self.intermediate.certificate).encode(),),
            payload_type=payload_type,
        )
        return msgspec.structs.replace(found, log_entries=(self.log_body(describe(found), time),))

    def trusted_root(self, **overwritten: object) -> bytes:
        """The `trusted_root.json` that trusts this Sigstore."""
        always = {"start": "2020-01-01T00:00:00Z"}
        return orjson.dumps(
            {
                "mediaType": "application/vnd.dev.sigstore.trustedroot+json;version=0.1",
                "certificateAuthorities": [
                    _chain(self.intermediate.certificate, self.root.certificate)
                ],
                "tlogs": [_log(self.log, always)],
                "ctlogs": [_log(self.certificate_log, always)],
                "timestampAuthorities": [
                    _chain(self.stamp_certificate, self.stamp_root.certificate)
                ],
                **overwritten,
            }
        )


def describe(found: FoundSignature, verifier: str = "") -> JsonObject:
    """The body by which a log describes a signature: `hashedrekord`, or `dsse` for envelopes."""
    signature = b64encode(found.signature).decode()
    key = b64encode(verifier.encode() or found.certificate).decode()
    if found.payload_type:
        digest = {"algorithm": "sha256", "value": sha256(found.payload).hexdigest()}
        pairs = [{"signature": signature, "verifier": key}]
        spec = {"payloadHash": digest, "envelopeHash": digest, "signatures": pairs}
        return {"apiVersion": "0.0.1", "kind": "dsse", "spec": spec}
    digest = {"algorithm": "sha256", "value": sha256(found.signed).hexdigest()}
    signed = {"content": signature, "publicKey": {"content": key}}
    spec = {"data": {"hash": digest}, "signature": signed}
    return {"apiVersion": "0.0.1", "kind": "hashedrekord", "spec": spec}


def _begin(by: Authority, key: ec.EllipticCurvePrivateKey) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .issuer_name(by.certificate.subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
    )


def _sized(content: bytes) -> bytes:
    return len(content).to_bytes(2, "big") + content


def _climb(level: list[bytes], position: int) -> tuple[list[bytes], bytes]:
    """The siblings from a leaf to the root, level by level; an odd one moves up as it is."""
    siblings = []
    while len(level) > 1:
        beside = position ^ 1
        if beside < len(level):
            siblings.append(level[beside])
        pairs = (level[index : index + 2] for index in range(0, len(level), 2))
        level = [
            pair[0] if len(pair) == 1 else sha256(b"\1" + b"".join(pair)).digest() for pair in pairs
        ]
        position //= 2
    return siblings, level[0]


def _chain(*certificates: x509.Certificate) -> JsonObject:
    encoded = (b64encode(one.public_bytes(Encoding.DER)).decode() for one in certificates)
    return {
        "certChain": {"certificates": [{"rawBytes": text} for text in encoded]},
        "validFor": {"start": "2020-01-01T00:00:00Z"},
    }


def _log(key: ec.EllipticCurvePrivateKey, valid: JsonObject) -> JsonObject:
    return {
        "hashAlgorithm": "SHA2_256",
        "logId": {"keyId": b64encode(log_id(key)).decode()},
        "publicKey": {"rawBytes": b64encode(key_bytes(key)).decode(), "validFor": valid},
    }
