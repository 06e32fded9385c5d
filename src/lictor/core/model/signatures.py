"""The required signers of an image or a manifest in classic policies."""

from typing import Annotated

import msgspec

from lictor.core.model.matching import shaped_like
from lictor.core.model.metadata import Strings
from lictor.core.raw import Json


class SecretReference(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """A Secret that holds a key."""

    name: str
    namespace: str


class Rekor(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """A transparency log."""

    url: str = ""
    pubkey: str = ""
    ignore_tlog: bool = False


class CtLog(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """A certificate transparency log."""

    ignore_sct: bool = msgspec.field(default=False, name="ignoreSCT")
    pubkey: str = ""
    tsa_cert_chain: str = ""


class StaticKeys(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """Signed with one of these keys."""

    public_keys: str = ""
    signature_algorithm: str = "sha256"
    kms: str = ""
    secret: SecretReference | None = None
    rekor: Rekor | None = None
    ctlog: CtLog | None = None


class Certificates(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """Signed with this certificate."""

    cert: str = ""
    cert_chain: str = ""
    rekor: Rekor | None = None
    ctlog: CtLog | None = None


class Keyless(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """Signed by this identity."""

    issuer: str = ""
    issuer_reg_exp: str = ""
    subject: str = ""
    subject_reg_exp: str = ""
    roots: str = ""
    additional_extensions: dict[str, str] = {}
    rekor: Rekor | None = None
    ctlog: CtLog | None = None


class Attestor(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """A required signer; `attestor` nests an AttestorSet."""

    keys: StaticKeys | None = None
    certificates: Certificates | None = None
    keyless: Keyless | None = None
    attestor: Annotated[Json, shaped_like("AttestorSet")] = None
    annotations: dict[str, str] = {}
    repository: str = ""
    signature_algorithm: str = "sha256"


class AttestorSet(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """How many of these must have signed; default: all."""

    count: int | None = None
    entries: tuple[Attestor, ...] = ()


class ManifestsDryRun(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """Whether the API server's defaults may differ from what was signed."""

    enable: bool = False
    namespace: str = ""


class ManifestsIgnore(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """Fields that may differ from what was signed."""

    fields: Strings = ()
    objects: Json = None


class Manifests(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """A signed manifest (k8s-manifest-sigstore)."""

    attestors: tuple[AttestorSet, ...] = ()
    annotation_domain: str = ""
    ignore_fields: tuple[ManifestsIgnore, ...] = ()
    dry_run: ManifestsDryRun | None = None
    repository: str = ""
