"""Makes images, signatures, attestations and bundles with real keys, in a registry in memory."""

from base64 import b64encode
from dataclasses import dataclass, field
from hashlib import sha256, sha512

import orjson
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, padding, rsa
from cryptography.hazmat.primitives.asymmetric.types import PrivateKeyTypes
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from lictor.core.errors import CorruptContentError, ImageNotFoundError, LookupFailedError
from lictor.core.ports import Descriptor, ImageManifest, RegistryAccess
from lictor.core.raw import Json, JsonObject
from lictor.core.signatures.records import LogTrust, SignedImage, TrustedKey

MANIFEST = "application/vnd.oci.image.manifest.v1+json"
SIMPLE_SIGNING = "application/vnd.dev.cosign.simplesigning.v1+json"
ENVELOPE = "application/vnd.dsse.envelope.v1+json"
BUNDLE = "application/vnd.dev.sigstore.bundle.v0.3+json"
IN_TOTO = "application/vnd.in-toto+json"
SIGNED = "https://sigstore.dev/cosign/sign/v1"
REVIEW = "https://example.com/review/v1"


def digest_of(content: bytes) -> str:
    return f"sha256:{sha256(content).hexdigest()}"


@dataclass
class MemoryRegistries:
    """What was pushed, served as a registry would; `down` makes every call fail."""

    manifests: dict[tuple[str, str], ImageManifest] = field(default_factory=dict)
    blobs: dict[tuple[str, str], bytes] = field(default_factory=dict)
    # trusted_root.json by mirror.
    trust_roots: dict[str, bytes] = field(default_factory=dict)
    down: bool = False
    calls: list[tuple[str, ...]] = field(default_factory=list)

    def manifest(self, repository: str, tag_or_digest: str, access: RegistryAccess):
        self._note("manifest", repository, tag_or_digest)
        found = self.manifests.get((repository, tag_or_digest))
        if found is None:
            raise ImageNotFoundError(f"{repository} has no {tag_or_digest}")
        return found

    def blob(self, repository: str, digest: str, access: RegistryAccess) -> bytes:
        self._note("blob", repository, digest)
        found = self.blobs.get((repository, digest))
        if found is None:
            raise ImageNotFoundError(f"{repository} has no {digest}")
        if digest_of(found) != digest:
            raise CorruptContentError(f"{repository}: content of {digest} is {digest_of(found)}")
        return found

    def referrers(self, repository: str, digest: str, access: RegistryAccess):
        self._note("referrers", repository, digest)
        return tuple(
            _describe(one, document)
            for (place, name), one in self.manifests.items()
            if place == repository and name == one.digest
            for document in [_read_object(one.content)]
            if document.get("subject", {}).get("digest") == digest
        )

    def trusted_root(self, mirror: str, root: bytes, namespace: str = "") -> bytes:
        self._note("trusted_root", mirror)
        if mirror not in self.trust_roots:
            raise LookupFailedError(f"no trust root at {mirror}")
        return self.trust_roots[mirror]

    def _note(self, *call: str) -> None:
        self.calls.append(call)
        if self.down:
            raise LookupFailedError("the registry does not answer")

    # --- pushing

    def push_blob(self, repository: str, content: bytes, media_type: str) -> JsonObject:
        digest = digest_of(content)
        self.blobs[repository, digest] = content
        return {"mediaType": media_type, "digest": digest, "size": len(content)}

    def push_manifest(self, repository: str, document: Json, *tags: str) -> str:
        content = document if isinstance(document, bytes) else orjson.dumps(document)
        stored = ImageManifest(media_type=MANIFEST, digest=digest_of(content), content=content)
        for name in (stored.digest, *tags):
            self.manifests[repository, name] = stored
        return stored.digest


def _read_object(content: bytes) -> JsonObject:
    try:
        document = orjson.loads(content)
    except orjson.JSONDecodeError:
        return {}
    return document if isinstance(document, dict) else {}


def _describe(manifest: ImageManifest, document: JsonObject) -> Descriptor:
    return Descriptor(
        media_type=manifest.media_type,
        digest=manifest.digest,
        size=len(manifest.content),
        annotations=document.get("annotations", {}),
        artifact_type=document.get("artifactType") or document["config"]["mediaType"],
    )


# --- keys


def make_key(kind: str = "p256") -> PrivateKeyTypes:
    curves = {"p256": ec.SECP256R1(), "p384": ec.SECP384R1(), "p521": ec.SECP521R1()}
    if kind in curves:
        return ec.generate_private_key(curves[kind])
    if kind == "ed25519":
        return ed25519.Ed25519PrivateKey.generate()
    return rsa.generate_private_key(65537, int(kind.removeprefix("rsa")))


def pem_of(key: PrivateKeyTypes) -> str:
    public = key.public_key()
    return public.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo).decode()


def trust(key: PrivateKeyTypes, hash_name: str = "sha256") -> TrustedKey:
    """The key of an attestor that wants no transparency log."""
    return TrustedKey(public_key=pem_of(key), hash_name=hash_name, log=LogTrust(ignore_log=True))


def sign(key: PrivateKeyTypes, message: bytes, hash_name: str = "sha256", *, pss: bool = False):
    algorithm = getattr(hashes, hash_name.upper())()
    if isinstance(key, ec.EllipticCurvePrivateKey):
        return key.sign(message, ec.ECDSA(algorithm))
    if isinstance(key, rsa.RSAPrivateKey):
        salted = padding.PSS(padding.MGF1(algorithm), padding.PSS.DIGEST_LENGTH)
        return key.sign(message, salted if pss else padding.PKCS1v15(), algorithm)
    assert isinstance(key, ed25519.Ed25519PrivateKey)
    return key.sign(message)


# --- images and what lies beside them


def push_image(
    registries: MemoryRegistries, repository: str = "registry.test/app", seed: str = "one"
) -> SignedImage:
    config = registries.push_blob(
        repository, seed.encode(), "application/vnd.oci.image.config.v1+json"
    )
    document = {"schemaVersion": 2, "mediaType": MANIFEST, "config": config, "layers": []}
    return SignedImage(repository, registries.push_manifest(repository, document, "v1"))


@dataclass
class Layer:
    """A layer beside an image, before it is pushed."""

    content: bytes
    annotations: dict[str, str] = field(default_factory=dict)
    media_type: str = SIMPLE_SIGNING


def make_payload(image: SignedImage, annotations: Json = None, **critical: Json) -> bytes:
    """A simple-signing payload; `critical` overwrites parts of it."""
    return orjson.dumps(
        {
            "critical": {
                "identity": {"docker-reference": image.repository},
                "image": {"docker-manifest-digest": image.digest},
                "type": "cosign container image signature",
                **critical,
            },
            "optional": annotations,
        }
    )


def make_signature(
    key: PrivateKeyTypes, payload: bytes, hash_name: str = "sha256", **annotations: str
) -> Layer:
    signature = b64encode(sign(key, payload, hash_name)).decode()
    return Layer(payload, {"dev.cosignproject.cosign/signature": signature, **annotations})


def make_statement(
    image: SignedImage,
    predicate: Json = None,
    predicate_type: str = REVIEW,
    **fields: Json,
) -> bytes:
    """An in-toto statement; `fields` overwrite parts of it."""
    digest = image.digest.removeprefix("sha256:")
    return orjson.dumps(
        {
            "_type": "https://in-toto.io/Statement/v1",
            "subject": [{"name": image.repository, "digest": {"sha256": digest}}],
            "predicateType": predicate_type,
            "predicate": predicate or {},
            **fields,
        }
    )


def encode_for_signing(payload_type: str, payload: bytes) -> bytes:
    parts = ["DSSEv1", str(len(payload_type)), payload_type, str(len(payload)), ""]
    return " ".join(parts).encode() + payload


def make_envelope(
    payload: bytes, *keys: PrivateKeyTypes, payload_type: str = IN_TOTO
) -> JsonObject:
    message = encode_for_signing(payload_type, payload)
    return {
        "payload": b64encode(payload).decode(),
        "payloadType": payload_type,
        "signatures": [
            {"keyid": "", "sig": b64encode(sign(key, message)).decode()} for key in keys
        ],
    }


def make_attestation(payload: bytes, *keys: PrivateKeyTypes, **annotations: str) -> Layer:
    content = orjson.dumps(make_envelope(payload, *keys))
    return Layer(content, {"dev.cosignproject.cosign/signature": "", **annotations}, ENVELOPE)


def push_layers(
    registries: MemoryRegistries,
    image: SignedImage,
    layers: list[Layer],
    *,
    suffix: str = "sig",
    repository: str = "",
    prefix: str = "",
) -> str:
    """Push what lies under the tag `sha256-….sig` or `.att`; answers with its digest."""
    place = repository or image.repository
    tag = f"{prefix}{image.digest.replace(':', '-')}.{suffix}"
    return registries.push_manifest(place, _make_manifest(registries, place, layers), tag)


def push_referrer(
    registries: MemoryRegistries, image: SignedImage, layers: list[Layer], artifact_type: str
) -> str:
    """Push what refers to an image as OCI 1.1 has it."""
    document = _make_manifest(registries, image.repository, layers, artifact_type)
    document["subject"] = {"mediaType": MANIFEST, "digest": image.digest, "size": 1}
    return registries.push_manifest(image.repository, document)


def _make_manifest(
    registries: MemoryRegistries, repository: str, layers: list[Layer], artifact_type: str = ""
) -> JsonObject:
    kind = artifact_type or "application/vnd.oci.image.config.v1+json"
    return {
        "schemaVersion": 2,
        "mediaType": MANIFEST,
        "config": registries.push_blob(repository, b"{}", kind),
        "layers": [
            {
                **registries.push_blob(repository, layer.content, layer.media_type),
                "annotations": layer.annotations,
            }
            for layer in layers
        ],
    }


def sign_prehashed(key: ed25519.Ed25519PrivateKey, message: bytes) -> bytes:
    """Ed25519ph (RFC 8032), which the library cannot make: by the book, slowly."""
    prime, order = 2**255 - 19, 2**252 + 27742317777372353535851937790883648493
    d = -121665 * pow(121666, -1, prime) % prime

    def add(p: tuple[int, int], q: tuple[int, int]) -> tuple[int, int]:
        product = d * p[0] * q[0] * p[1] * q[1] % prime
        x = (p[0] * q[1] + q[0] * p[1]) * pow(1 + product, -1, prime)
        y = (p[1] * q[1] + p[0] * q[0]) * pow(1 - product, -1, prime)
        return x % prime, y % prime

    def multiply(scalar: int) -> bytes:
        x = 15112221349535400772501151409588531511454012693041857206046113283949847762202
        point, result = (x, 4 * pow(5, -1, prime) % prime), (0, 1)
        for bit in bin(scalar)[:1:-1]:
            result = add(result, point) if bit == "1" else result
            point = add(point, point)
        return (result[1] | (result[0] & 1) << 255).to_bytes(32, "little")

    domain = b"SigEd25519 no Ed25519 collisions\x01\x00"
    seed = bytearray(sha512(key.private_bytes_raw()).digest())
    secret = int.from_bytes(seed[:32], "little") & ((1 << 254) - 8) | 1 << 254
    hashed = sha512(message).digest()
    nonce = int.from_bytes(sha512(domain + bytes(seed[32:]) + hashed).digest(), "little") % order
    commitment, public = multiply(nonce), key.public_key().public_bytes_raw()
    challenge = sha512(domain + commitment + public + hashed).digest()
    response = (nonce + int.from_bytes(challenge, "little") * secret) % order
    return commitment + response.to_bytes(32, "little")


def make_bundle(
    content: JsonObject, material: JsonObject | None = None, media_type: str = BUNDLE
) -> Layer:
    """A bundle around an envelope (`make_envelope`) or a message signature (`make_message`)."""
    kind = "dsseEnvelope" if "payload" in content else "messageSignature"
    document = {
        "mediaType": media_type,
        "verificationMaterial": material or {"publicKey": {"hint": ""}},
        kind: content,
    }
    return Layer(orjson.dumps(document), media_type=media_type)


def make_message(key: PrivateKeyTypes, message: bytes, hash_name: str = "sha256") -> JsonObject:
    return {
        "messageDigest": {
            "algorithm": "SHA2_256",
            "digest": b64encode(sha256(message).digest()).decode(),
        },
        "signature": b64encode(sign(key, message, hash_name)).decode(),
    }


def push_bundle(registries: MemoryRegistries, image: SignedImage, bundle: Layer) -> str:
    return push_referrer(registries, image, [bundle], bundle.media_type)
