"""Host calls of policies: requests as records, by their names in calls and in sessions."""

from collections.abc import Mapping
from typing import Annotated, TypeAlias

import msgspec

from lictor.core.errors import HostCallError

Bytes: TypeAlias = list[Annotated[int, msgspec.Meta(ge=0, le=255)]]
_Fields: TypeAlias = Mapping[str, str]
_LARGEST_PAYLOAD = 4 * 1024 * 1024


class GetObject(msgspec.Struct, frozen=True, kw_only=True):
    """One object of the cluster."""

    api_version: str
    kind: str
    name: str
    namespace: str | None = None
    disable_cache: bool
    field_masks: tuple[str, ...] | None = None


class ListNamespaceObjects(msgspec.Struct, frozen=True, kw_only=True):
    """The objects of a kind in one namespace."""

    api_version: str
    kind: str
    namespace: str
    label_selector: str | None = None
    field_selector: str | None = None
    field_masks: tuple[str, ...] | None = None


class ListAllObjects(msgspec.Struct, frozen=True, kw_only=True):
    """The objects of a kind, in all namespaces."""

    api_version: str
    kind: str
    label_selector: str | None = None
    field_selector: str | None = None
    field_masks: tuple[str, ...] | None = None


class GetPluralName(msgspec.Struct, frozen=True):
    """The resource of a kind; used for policies in Rego."""

    api_version: str
    kind: str


class AccessAttributes(msgspec.Struct, frozen=True, kw_only=True):
    """An action of a user."""

    group: str | None = None
    name: str | None = None
    namespace: str | None = None
    resource: str | None = None
    subresource: str | None = None
    verb: str | None = None
    version: str | None = None


class AccessSubject(msgspec.Struct, frozen=True, kw_only=True):
    """Who wants to do what."""

    groups: tuple[str, ...] | None = None
    resource_attributes: AccessAttributes = AccessAttributes()
    user: str | None = None


class CheckAccess(msgspec.Struct, frozen=True):
    """May they?"""

    request: AccessSubject
    disable_cache: bool


class LookUpHost(msgspec.Struct, frozen=True):
    """The addresses of a host."""

    host: str


class GetManifestDigest(msgspec.Struct, frozen=True):
    """The digest that a reference stands for."""

    image: str


class GetManifest(msgspec.Struct, frozen=True):
    """The manifest or index behind a reference."""

    image: str


class GetManifestAndConfig(msgspec.Struct, frozen=True):
    """The manifest of an image, its digest and its configuration."""

    image: str


class VerifyKeys(msgspec.Struct, frozen=True):
    """Is an image signed with all of these keys?"""

    image: str
    pub_keys: tuple[str, ...]
    annotations: _Fields | None = None


class KeylessSubject(msgspec.Struct, frozen=True):
    """Whom a certificate must be for."""

    issuer: str
    subject: str


class VerifyKeyless(msgspec.Struct, frozen=True):
    """Is an image signed by all of these?"""

    image: str
    keyless: tuple[KeylessSubject, ...]
    annotations: _Fields | None = None


class KeylessPrefix(msgspec.Struct, frozen=True):
    """How the URL must begin that a certificate is for."""

    issuer: str
    url_prefix: str


class VerifyKeylessPrefixes(msgspec.Struct, frozen=True):
    """Is an image signed by all of these?"""

    image: str
    keyless_prefix: tuple[KeylessPrefix, ...]
    annotations: _Fields | None = None


class VerifyGithubActions(msgspec.Struct, frozen=True):
    """Is an image signed by a workflow of this owner, or of this repository?"""

    image: str
    owner: str
    repo: str | None = None
    annotations: _Fields | None = None


class VerifyCertificate(msgspec.Struct, frozen=True, kw_only=True):
    """Is an image signed with the key of this certificate?"""

    image: str
    certificate: Bytes
    certificate_chain: list[Bytes] | None = None
    require_rekor_bundle: bool
    annotations: _Fields | None = None


class EncodedCertificate(msgspec.Struct, frozen=True):
    """A certificate in `Pem` or `Der`."""

    encoding: str
    data: Bytes


class CertificateRequest(msgspec.Struct, frozen=True):
    """A certificate, and those that lead to the one that is trusted: the last."""

    cert: EncodedCertificate
    cert_chain: list[EncodedCertificate] | None = None
    not_after: str | None = None


class TrustCertificate(msgspec.Struct, frozen=True):
    """Is a certificate trusted?"""

    request: CertificateRequest


ImageVerification: TypeAlias = (
    VerifyKeys | VerifyKeyless | VerifyKeylessPrefixes | VerifyGithubActions | VerifyCertificate
)
ImageRequest: TypeAlias = GetManifestDigest | GetManifest | GetManifestAndConfig | ImageVerification
HostRequest: TypeAlias = (
    GetObject
    | ListNamespaceObjects
    | ListAllObjects
    | GetPluralName
    | CheckAccess
    | LookUpHost
    | ImageRequest
    | TrustCertificate
)

# Requests by their names in recorded sessions; those of verifications are also in calls.
VERIFICATIONS: Mapping[str, type[ImageVerification]] = {
    "SigstorePubKeyVerify": VerifyKeys,
    "SigstoreKeylessVerify": VerifyKeyless,
    "SigstoreKeylessPrefixVerify": VerifyKeylessPrefixes,
    "SigstoreGithubActionsVerify": VerifyGithubActions,
    "SigstoreCertificateVerify": VerifyCertificate,
}
_FIRST_VERIFICATIONS = ("SigstorePubKeyVerify", "SigstoreKeylessVerify")
SESSION_NAMES: Mapping[str, type[HostRequest]] = {
    "KubernetesGetResource": GetObject,
    "KubernetesListResourceNamespace": ListNamespaceObjects,
    "KubernetesListResourceAll": ListAllObjects,
    "KubernetesGetResourcePluralName": GetPluralName,
    "KubernetesCanI": CheckAccess,
    "DNSLookupHost": LookUpHost,
    "OciManifestDigest": GetManifestDigest,
    "OciManifest": GetManifest,
    "OciManifestAndConfig": GetManifestAndConfig,
    "CryptoIsCertificateTrusted": TrustCertificate,
    **VERIFICATIONS,
}


class _AccessPayload(msgspec.Struct, frozen=True):
    subject_access_review: AccessSubject
    disable_cache: bool


_PLAIN: Mapping[str, type[HostRequest]] = {
    "kubernetes/get_resource": GetObject,
    "kubernetes/list_resources_by_namespace": ListNamespaceObjects,
    "kubernetes/list_resources_all": ListAllObjects,
}
_TEXTS: Mapping[str, type[LookUpHost | GetManifestDigest | GetManifest | GetManifestAndConfig]] = {
    "net/v1/dns_lookup_host": LookUpHost,
    "oci/v1/manifest_digest": GetManifestDigest,
    "oci/v1/oci_manifest": GetManifest,
    "oci/v1/oci_manifest_config": GetManifestAndConfig,
}


def read_request(capability: str, payload: bytes) -> HostRequest:
    """The request in a call; HostCallError where it cannot be read."""
    if len(payload) > _LARGEST_PAYLOAD:
        raise HostCallError(f"a request of more than {_LARGEST_PAYLOAD} bytes")
    try:
        if capability in _TEXTS:
            return _TEXTS[capability](msgspec.json.decode(payload, type=str))
        if capability in _PLAIN:
            return msgspec.json.decode(payload, type=_PLAIN[capability])
        return _read_wrapped(capability, payload)
    except msgspec.MsgspecError as error:
        raise HostCallError(str(error)) from error


def _read_wrapped(capability: str, payload: bytes) -> HostRequest:
    match capability:
        case "kubernetes/can_i":
            asked = msgspec.json.decode(payload, type=_AccessPayload)
            return CheckAccess(asked.subject_access_review, asked.disable_cache)
        case "crypto/v1/is_certificate_trusted":
            return TrustCertificate(msgspec.json.decode(payload, type=CertificateRequest))
        case "oci/v1/verify":
            return _read_first_verification(payload)
        case "oci/v2/verify":
            return _read_second_verification(payload)
        case _:
            raise HostCallError(f"unknown operation: {capability[:200]}")


def _read_first_verification(payload: bytes) -> HostRequest:
    tagged = msgspec.json.decode(payload, type=dict[str, msgspec.Raw])
    if len(tagged) != 1 or not set(tagged) <= set(_FIRST_VERIFICATIONS):
        raise HostCallError(f"one of {', '.join(_FIRST_VERIFICATIONS)} is expected")
    ((name, fields),) = tagged.items()
    return msgspec.json.decode(fields, type=VERIFICATIONS[name])


class _Tagged(msgspec.Struct, frozen=True):
    type: str


# Made now, not when threads first read one at the same time: msgspec would crash.
for _each in (*SESSION_NAMES.values(), _AccessPayload, _Tagged):
    msgspec.json.Decoder(_each)


def _read_second_verification(payload: bytes) -> HostRequest:
    name = msgspec.json.decode(payload, type=_Tagged).type
    if name not in VERIFICATIONS:
        raise HostCallError(
            f"unknown variant `{name[:100]}`, expected one of {', '.join(VERIFICATIONS)}"
        )
    return msgspec.json.decode(payload, type=VERIFICATIONS[name])
