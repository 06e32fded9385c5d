"""What a policy says of images: which ones, who signed them, what they attest."""

import msgspec

from lictor.core.model.matching import CredentialProvider
from lictor.core.model.metadata import Strings


class MatchImageReference(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """Images to look at: a wildcard, or a CEL expression."""

    glob: str = ""
    expression: str = ""


class ImagesExpression(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """Where a resource keeps images: a CEL expression, and the name of its answer."""

    name: str
    expression: str


class ValidationConfiguration(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """What is done with every image, with any signature."""

    mutate_digest: bool = True
    verify_digest: bool = True
    required: bool = True


class ImageCredentials(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """How to log in to the registry."""

    allow_insecure_registry: bool = False
    providers: tuple[CredentialProvider, ...] = ()
    secrets: Strings = ()


class StringOrExpression(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """A text, or a CEL expression that makes one."""

    value: str = ""
    expression: str = ""


class SignerKey(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """A public key."""

    data: str = ""
    kms: str = ""
    hash_algorithm: str = ""
    expression: str = ""


class SignerIdentity(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """Who signed, as an identity provider says."""

    issuer: str = ""
    subject: str = ""
    issuer_reg_exp: str = ""
    subject_reg_exp: str = ""


class KeylessSigner(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """Signatures without a lasting key."""

    identities: tuple[SignerIdentity, ...]
    roots: str = ""


class SignerCertificate(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """A certificate, and what leads from it to a root."""

    cert: StringOrExpression | None = None
    cert_chain: StringOrExpression | None = None


class PullSecret(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """A Secret with credentials of a registry."""

    name: str = ""


class SignatureSource(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """Where the signatures lie, if not beside the image."""

    repository: str = ""
    # The one field that Kyverno writes with a capital.
    pull_secrets: tuple[PullSecret, ...] = msgspec.field(default=(), name="PullSecrets")
    tag_prefix: str = ""


class TransparencyLog(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """The logs that must know the signature."""

    url: str = ""
    rekor_pub_key: str = ""
    ct_log_pub_key: str = ""
    tsa_cert_chain: str = ""
    insecure_ignore_tlog: bool = False
    insecure_ignore_sct: bool = msgspec.field(default=False, name="insecureIgnoreSCT")


class TufRoot(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """The first trusted metadata of a repository of keys."""

    path: str = ""
    data: str = ""


class Tuf(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """A repository of keys."""

    root: TufRoot = TufRoot()
    mirror: str = ""


class Cosign(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """What a signature made with cosign must be."""

    key: SignerKey | None = None
    keyless: KeylessSigner | None = None
    certificate: SignerCertificate | None = None
    source: SignatureSource | None = None
    ctlog: TransparencyLog | None = None
    tuf: Tuf | None = None
    annotations: dict[str, str] = {}


class Notary(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """What a signature made with notation must be."""

    certs: StringOrExpression | None = None
    tsa_certs: StringOrExpression | None = None


class ImageAttestor(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """Someone whose signature counts."""

    name: str
    cosign: Cosign | None = None
    notary: Notary | None = None


class PredicateType(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """What kind of statement."""

    type: str


class ImageAttestation(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """A statement about an image."""

    name: str
    intoto: PredicateType | None = None
    referrer: PredicateType | None = None
