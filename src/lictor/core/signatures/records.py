"""Records of signed content, signatures, trusted signers, and verification results."""

from collections.abc import Mapping
from datetime import datetime
from typing import TypeAlias

import msgspec

from lictor.core.ports import RegistryAccess
from lictor.core.raw import Json


class SignedImage(msgspec.Struct, frozen=True):
    """The image; `repository` includes its registry: `localhost:5005/team/app`."""

    repository: str
    digest: str


class SignatureLocation(msgspec.Struct, frozen=True):
    """The location of an image's signatures."""

    access: RegistryAccess = RegistryAccess()
    # Another repository than the image's; empty: the image's.
    repository: str = ""
    # By OCI 1.1 referrers instead of the tags `sha256-….sig`.
    oci11: bool = False
    tag_prefix: str = ""


# --- what was found beside an image, as it is


class LogEntry(msgspec.Struct, frozen=True):
    """An entry of a transparency log, with its proofs."""

    # As stored in the log: decoded, but otherwise unchanged.
    body: bytes
    # SHA-256 of the log's public key, hex.
    log_id: str
    log_index: int
    integrated_time: int
    # The log's signature ("SET"); empty if there is only the proof of inclusion.
    signed_entry_timestamp: bytes = b""
    # As in the bundle formats: logIndex, rootHash, treeSize, hashes, checkpoint.
    inclusion_proof: Mapping[str, Json] | None = None


class FoundSignature(msgspec.Struct, frozen=True):
    """One cosign signature, of either format: nothing in it is trusted yet.

    `signed` are the signed bytes: a simple-signing payload, or the DSSE pre-authentication encoding
    of `payload`.
    """

    # Its location for messages: tag or digest, and the number of the layer.
    origin: str
    payload: bytes
    signed: bytes
    signature: bytes
    # PEM; empty if the key is not included.
    certificate: bytes = b""
    chain: tuple[bytes, ...] = ()
    log_entries: tuple[LogEntry, ...] = ()
    # RFC 3161 responses, DER.
    timestamps: tuple[bytes, ...] = ()
    # Of the layer in the manifest: not signed.
    layer_annotations: Mapping[str, str] = {}
    # application/vnd.in-toto+json and the like for DSSE; empty for a simple-signing payload.
    payload_type: str = ""
    # The stored DSSE envelope, which old log entries and timestamps refer to.
    envelope: bytes = b""
    is_bundle: bool = False
    # Why it cannot be read; it proves nothing then, and does not hide the others.
    fault: str = ""


class FoundEnvelope(msgspec.Struct, frozen=True):
    """One notation signature: a JWS or COSE envelope."""

    origin: str
    media_type: str
    content: bytes


# --- whose signature counts


class LogTrust(msgspec.Struct, frozen=True):
    """The transparency logs that must contain a signature."""

    # PEM of the logs' keys; empty: those of the Sigstore trust root.
    public_keys: str = ""
    ignore_log: bool = False
    # Keys of certificate logs (PEM); empty: those of the trust root.
    certificate_log_keys: str = ""
    ignore_certificate_log: bool = False
    # PEM of a timestamp authority's chain.
    timestamp_chain: str = ""
    url: str = ""


class TufSource(msgspec.Struct, frozen=True):
    """The Sigstore whose trust root is used; default: the public one, or that of TUF_ROOT."""

    mirror: str = ""
    root: bytes = b""
    # The namespace of a namespaced policy, whose mirror must not be internal; empty for others.
    namespace: str = ""
    # The content of a trusted_root.json, which replaces the TUF repository.
    trusted_root: bytes = b""

    @property
    def is_private(self) -> bool:
        """Whether the policy chose the Sigstore."""
        return bool(self.mirror or self.trusted_root)


class TrustedKey(msgspec.Struct, frozen=True):
    """Signatures by a public key (PEM, one block)."""

    public_key: str
    # sha224, sha256, sha384, sha512.
    hash_name: str = "sha256"
    log: LogTrust = LogTrust()
    tuf: TufSource = TufSource()


class Identity(msgspec.Struct, frozen=True):
    """An identity from an identity provider; empty means any. Wildcards if `wildcards` is set."""

    issuer: str = ""
    issuer_regexp: str = ""
    subject: str = ""
    subject_regexp: str = ""
    wildcards: bool = False


class TrustedIdentity(msgspec.Struct, frozen=True):
    """Signatures with short-lived certificates, by one of these identities."""

    identities: tuple[Identity, ...]
    # PEM; empty: the authorities of the trust root.
    roots: str = ""
    # Whether authorities of the trust root may link a certificate to `roots`: bundles have none.
    borrows_intermediates: bool = False
    # Extensions of Fulcio's certificates, by name or object identifier.
    extensions: Mapping[str, str] = {}
    log: LogTrust = LogTrust()
    tuf: TufSource = TufSource()


class TrustedCertificate(msgspec.Struct, frozen=True):
    """Signatures by the key of a certificate, or by any that leads to a chain (PEM)."""

    certificate: str = ""
    chain: str = ""
    hash_name: str = "sha256"
    log: LogTrust = LogTrust()
    tuf: TufSource = TufSource()


class TrustedNotary(msgspec.Struct, frozen=True):
    """Signatures made with notation whose certificates lead to one of these (PEM)."""

    certificates: str
    timestamp_certificates: str = ""


CosignAttestor: TypeAlias = TrustedKey | TrustedIdentity | TrustedCertificate


# --- what a signature proved


class Signer(msgspec.Struct, frozen=True):
    """The verified facts about a signer."""

    # SHA-256 of the public key (SubjectPublicKeyInfo), hex.
    key: str = ""
    issuer: str = ""
    subject: str = ""
    extensions: Mapping[str, str] = {}
    # The time from a log or a timestamp authority; None if neither was checked.
    signed_at: datetime | None = None


class VerifiedSignature(msgspec.Struct, frozen=True):
    """An accepted signature: signer, signed content, and signed annotations."""

    origin: str
    digest: str
    signer: Signer
    annotations: Mapping[str, Json] = {}
    layer_annotations: Mapping[str, str] = {}


class VerifiedStatement(msgspec.Struct, frozen=True):
    """An accepted attestation: an in-toto statement about the image, and its signer."""

    origin: str
    predicate_type: str
    # The whole statement: _type, subject, predicateType, predicate.
    statement: Mapping[str, Json]
    signer: Signer
