"""Signs as notation does, with certificates made here; each part can be given wrongly."""

import hashlib
import json
from base64 import b64encode, urlsafe_b64encode
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import cbor2
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from lictor.core.errors import ImageNotFoundError
from lictor.core.ports import Descriptor, ImageManifest, RegistryAccess

NOW = datetime(2026, 6, 1, 12, tzinfo=UTC)
SIGNED = NOW - timedelta(days=1)
JWS, COSE = "application/jose+json", "application/cose"
SIGNATURE_TYPE = "application/vnd.cncf.notary.signature"
_MANIFEST = "application/vnd.oci.image.manifest.v1+json"
_PAYLOAD = "application/vnd.cncf.notary.payload.v1+json"
_HASHES = {"256": hashes.SHA256(), "384": hashes.SHA384(), "512": hashes.SHA512()}
_NUMBERS = {"ES256": -7, "ES384": -35, "ES512": -36, "PS256": -37, "PS384": -38, "PS512": -39}
_LABELS = {"alg": 1, "crit": 2, "cty": 3}
_USAGES = (
    "digital_signature",
    "content_commitment",
    "key_encipherment",
    "data_encipherment",
    "key_agreement",
    "key_cert_sign",
    "crl_sign",
    "encipher_only",
    "decipher_only",
)
Key = ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey


def usage_of(*names: str) -> x509.KeyUsage:
    return x509.KeyUsage(**{name: name in names for name in _USAGES})


class Issued:
    """A certificate with its key, and those above it."""

    def __init__(self, certificate: x509.Certificate, key: Key, above: "Issued | None") -> None:
        self.certificate, self.key, self.above = certificate, key, above

    @property
    def pem(self) -> str:
        return self.certificate.public_bytes(Encoding.PEM).decode()

    @property
    def chain(self) -> list[bytes]:
        own = self.certificate.public_bytes(Encoding.DER)
        return [own, *(self.above.chain if self.above else [])]


def issue(
    name: str,
    above: Issued | None = None,
    *,
    key: Key | None = None,
    authority: bool = False,
    usage: x509.KeyUsage | None = None,
    purposes: Sequence[x509.ObjectIdentifier] = (ExtendedKeyUsageOID.CODE_SIGNING,),
    valid: tuple[datetime, datetime] = (NOW - timedelta(days=30), NOW + timedelta(days=30)),
    path_length: int | None = None,
    extensions: Sequence[tuple[x509.ExtensionType, bool]] = (),
    critical_usage: bool = True,
) -> Issued:
    """Make a certificate; without an issuer it is its own."""
    key = key or ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(above.certificate.subject if above else subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(valid[0])
        .not_valid_after(valid[1])
        .add_extension(
            usage or usage_of("key_cert_sign" if authority else "digital_signature"),
            critical_usage,
        )
    )
    if authority:
        builder = builder.add_extension(
            x509.BasicConstraints(ca=True, path_length=path_length), critical=True
        )
    elif purposes:
        builder = builder.add_extension(x509.ExtendedKeyUsage(purposes), critical=False)
    for extension, critical in extensions:
        builder = builder.add_extension(extension, critical)
    signer = above.key if above else key
    return Issued(builder.sign(signer, hashes.SHA256()), key, above)


def algorithm_of(key: Key) -> str:
    if isinstance(key, rsa.RSAPrivateKey):
        return {2048: "PS256", 3072: "PS384", 4096: "PS512"}[key.key_size]
    return {256: "ES256", 384: "ES384", 521: "ES512"}[key.curve.key_size]


def sign_bytes(key: Key, content: bytes, algorithm: str = "") -> bytes:
    digest = _HASHES[(algorithm or algorithm_of(key))[2:]]
    if isinstance(key, rsa.RSAPrivateKey):
        return key.sign(
            content, padding.PSS(padding.MGF1(digest), padding.PSS.DIGEST_LENGTH), digest
        )
    size = (key.curve.key_size + 7) // 8
    pair = decode_dss_signature(key.sign(content, ec.ECDSA(digest)))
    return b"".join(number.to_bytes(size) for number in pair)


def headers_of(signer: Issued, **changes: Any) -> dict[str, Any]:
    """The protected headers that notation writes; a change to None leaves one out."""
    headers: dict[str, Any] = {
        "alg": algorithm_of(signer.key),
        "crit": ["io.cncf.notary.signingScheme"],
        "cty": _PAYLOAD,
        "io.cncf.notary.signingScheme": "notary.x509",
        "io.cncf.notary.signingTime": SIGNED,
    }
    headers.update({name.replace("__", "io.cncf.notary."): item for name, item in changes.items()})
    return {name: value for name, value in headers.items() if value is not None}


def payload_of(digest: str, annotations: Mapping[str, str] | None = None) -> bytes:
    target: dict[str, Any] = {"mediaType": _MANIFEST, "digest": digest, "size": 100}
    if annotations:
        target["annotations"] = annotations
    return json.dumps({"targetArtifact": target}).encode()


def envelope_of(
    media_type: str,
    signer: Issued,
    payload: bytes,
    *,
    headers: Mapping[str, Any] | None = None,
    chain: Sequence[bytes] | None = None,
    unprotected: Mapping[str, Any] | None = None,
    key: Key | None = None,
) -> bytes:
    """Sign a payload; every part may be another than the signer's own."""
    wrap = _wrap_jws if media_type == JWS else _wrap_cose
    return wrap(
        headers_of(signer) if headers is None else headers,
        payload,
        signer.chain if chain is None else chain,
        unprotected or {},
        key or signer.key,
    )


def _wrap_jws(
    headers: Mapping[str, Any],
    payload: bytes,
    chain: Sequence[bytes],
    unprotected: Mapping[str, Any],
    key: Key,
) -> bytes:
    written = {
        name: value.isoformat() if isinstance(value, datetime) else value
        for name, value in headers.items()
    }
    protected, body = _url(json.dumps(written).encode()), _url(payload)
    return json.dumps(
        {
            "payload": body,
            "protected": protected,
            "header": {"x5c": [b64encode(data).decode() for data in chain], **unprotected},
            "signature": _url(sign_bytes(key, f"{protected}.{body}".encode())),
        }
    ).encode()


def _wrap_cose(
    headers: Mapping[str, Any],
    payload: bytes,
    chain: Sequence[bytes],
    unprotected: Mapping[str, Any],
    key: Key,
) -> bytes:
    protected = cbor2.dumps(
        {_LABELS.get(name, name): _number(name, value) for name, value in headers.items()}
    )
    signature = sign_bytes(key, cbor2.dumps(["Signature1", protected, b"", payload]))
    others = {_LABELS.get(name, name): _number(name, value) for name, value in unprotected.items()}
    parts = [protected, {33: list(chain), **others}, payload, signature]
    return cbor2.dumps(cbor2.CBORTag(18, parts))


def _number(name: str, value: Any) -> Any:
    if isinstance(value, datetime):
        return cbor2.CBORTag(1, int(value.timestamp()))
    return _NUMBERS.get(value, value) if name == "alg" else value


def _url(data: bytes) -> str:
    return urlsafe_b64encode(data).rstrip(b"=").decode()


class MemoryRegistry:
    """Manifests and blobs by their digests; referrers by the subject that a manifest names."""

    def __init__(self) -> None:
        self.contents: dict[str, bytes] = {}
        self.referring: dict[str, list[Descriptor]] = {}

    def push(self, content: bytes) -> str:
        digest = f"sha256:{hashlib.sha256(content).hexdigest()}"
        self.contents[digest] = content
        return digest

    def push_referrer(
        self, subject: str, artifact_type: str, layers: Sequence[tuple[str, bytes]]
    ) -> str:
        """Push an artifact that refers to a manifest."""
        manifest = {
            "schemaVersion": 2,
            "mediaType": _MANIFEST,
            "config": {"mediaType": artifact_type, "digest": self.push(b"{}"), "size": 2},
            "layers": [
                {"mediaType": kind, "digest": self.push(content), "size": len(content)}
                for kind, content in layers
            ],
            "subject": {"mediaType": _MANIFEST, "digest": subject, "size": 100},
        }
        digest = self.push(json.dumps(manifest).encode())
        self.refer(subject, digest, artifact_type)
        return digest

    def refer(self, subject: str, digest: str, artifact_type: str) -> None:
        found = Descriptor(_MANIFEST, digest, len(self.contents[digest]), {}, artifact_type)
        self.referring.setdefault(subject, []).append(found)

    def manifest(
        self, repository: str, tag_or_digest: str, access: RegistryAccess
    ) -> ImageManifest:
        return ImageManifest(_MANIFEST, tag_or_digest, self.blob(repository, tag_or_digest, access))

    def blob(self, repository: str, digest: str, access: RegistryAccess) -> bytes:
        if digest not in self.contents:
            raise ImageNotFoundError(f"{repository}@{digest} is not there")
        return self.contents[digest]

    def referrers(
        self, repository: str, digest: str, access: RegistryAccess
    ) -> tuple[Descriptor, ...]:
        return tuple(self.referring.get(digest, ()))

    def trusted_root(self, mirror: str, root: bytes, namespace: str = "") -> bytes:
        raise NotImplementedError
