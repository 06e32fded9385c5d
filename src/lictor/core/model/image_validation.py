"""Image policies as records: which images, who signed them, what they attest."""

import msgspec

from lictor.core.model.matching import CredentialProvider
from lictor.core.model.metadata import Strings


class MatchImageReference(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """Images to look at: a wildcard, or a CEL expression."""

    glob: str = ""
    expression: str = ""


class ImagesExpression(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """Where a resource has images: a CEL expression, and the name of its value."""

    name: str
    expression: str


class ValidationConfiguration(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """What applies to every image, with any signature."""

    mutate_digest: bool = True
    verify_digest: bool = True
    required: bool = True


class ImageCredentials(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """How to log in to the registry."""

    allow_insecure_registry: bool = False
    providers: tuple[CredentialProvider, ...] = ()
    secrets: Strings = ()


class StringOrExpression(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """A text, or a CEL expression that returns one."""

    value: str = ""
    expression: str = ""


class SignerKey(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """A public key."""

    data: str = ""
    kms: str = ""
    hash_algorithm: str = ""
    expression: str = ""


class SignerIdentity(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """The signer as an identity provider names it."""

    issuer: str = ""
    subject: str = ""
    issuer_reg_exp: str = ""
    subject_reg_exp: str = ""
    # A CEL expression that returns the subject.
    subject_expression: str = ""


class KeylessSigner(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """Keyless signatures."""

    identities: tuple[SignerIdentity, ...]
    roots: str = ""
    # Extensions that the certificate must have, by name or object identifier.
    additional_extensions: dict[str, str] = {}


class SignerCertificate(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """A certificate and its chain."""

    cert: StringOrExpression | None = None
    cert_chain: StringOrExpression | None = None


class PullSecret(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """A Secret with credentials of a registry."""

    name: str = ""


class SignatureSource(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """The repository of the signatures, if not the image's."""

    repository: str = ""
    # The one field that Kyverno writes with a capital.
    pull_secrets: tuple[PullSecret, ...] = msgspec.field(default=(), name="PullSecrets")
    tag_prefix: str = ""


class TransparencyLog(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """The logs that must contain the signature."""

    url: str = ""
    rekor_pub_key: str = ""
    ct_log_pub_key: str = ""
    tsa_cert_chain: str = ""
    insecure_ignore_tlog: bool = False
    insecure_ignore_sct: bool = msgspec.field(default=False, name="insecureIgnoreSCT")


class TufRoot(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """The initial trusted metadata of a TUF repository."""

    path: str = ""
    data: str = ""


class Tuf(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """A TUF repository."""

    root: TufRoot = TufRoot()
    mirror: str = ""


class Cosign(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """Requirements for a signature made with cosign."""

    key: SignerKey | None = None
    keyless: KeylessSigner | None = None
    certificate: SignerCertificate | None = None
    source: SignatureSource | None = None
    ctlog: TransparencyLog | None = None
    tuf: Tuf | None = None
    # The trust root itself (trusted_root.json); it replaces that of `tuf`.
    trusted_root: StringOrExpression | None = None
    annotations: dict[str, str] = {}


class Notary(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """Requirements for a signature made with notation."""

    certs: StringOrExpression | None = None
    tsa_certs: StringOrExpression | None = None


class ImageAttestor(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """A trusted signer."""

    name: str
    cosign: Cosign | None = None
    notary: Notary | None = None


class PredicateType(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """The type of a statement."""

    type: str


class ImageAttestation(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """A statement about an image."""

    name: str
    intoto: PredicateType | None = None
    referrer: PredicateType | None = None
