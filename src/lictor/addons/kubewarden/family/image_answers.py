"""What do registries hold, and who signed it? Answers for policies, as JSON."""

import re
from collections.abc import Iterator, Mapping

import orjson

from lictor.addons.kubewarden.family.host_requests import (
    Bytes,
    GetManifest,
    GetManifestAndConfig,
    GetManifestDigest,
    ImageRequest,
    ImageVerification,
    VerifyCertificate,
    VerifyGithubActions,
    VerifyKeyless,
    VerifyKeylessPrefixes,
    VerifyKeys,
)
from lictor.core.errors import EvaluationError, HostCallError, SignatureRefusedError
from lictor.core.lang.image_reference import parse_image
from lictor.core.lang.url import parse_url
from lictor.core.ports import ImageManifest, Registries, RegistryAccess
from lictor.core.raw import Json, JsonObject
from lictor.core.signatures.discovery import find_bundles, find_signatures
from lictor.core.signatures.records import (
    CosignAttestor,
    Identity,
    LogTrust,
    SignatureLocation,
    SignedImage,
    TrustedCertificate,
    TrustedIdentity,
    TrustedKey,
    TufSource,
)
from lictor.core.signatures.verification import accept_signature

_GITHUB_ISSUER = "https://token.actions.githubusercontent.com"
_GITHUB_NAME = re.compile(r"[A-Za-z0-9_.-]+")
_INDEX_TYPES = (
    "application/vnd.oci.image.index.v1+json",
    "application/vnd.docker.distribution.manifest.list.v2+json",
)
# Of an image for several platforms, this one is described.
_PLATFORM = ("linux", "amd64")
_MOST_SIGNERS = 32
_KEY_BEGIN = "-----BEGIN "


class ImageAnswers:
    """Answers about images, read with the rights of one policy."""

    def __init__(self, registries: Registries, access: RegistryAccess) -> None:
        self._registries = registries
        self._access = access

    def answer(self, request: ImageRequest) -> bytes:
        match request:
            case GetManifestDigest():
                return self.get_digest(request)
            case GetManifest():
                return self.get_manifest(request)
            case GetManifestAndConfig():
                return self.get_manifest_and_config(request)
            case _:
                return self.verify(request)

    def get_digest(self, request: GetManifestDigest) -> bytes:
        _, manifest = self._fetch(request.image)
        return orjson.dumps({"digest": manifest.digest})

    def get_manifest(self, request: GetManifest) -> bytes:
        _, manifest = self._fetch(request.image)
        return orjson.dumps(_read_object(manifest.content, request.image))

    def get_manifest_and_config(self, request: GetManifestAndConfig) -> bytes:
        repository, manifest = self._fetch(request.image)
        document = _read_object(manifest.content, request.image)
        if manifest.media_type in _INDEX_TYPES:
            chosen = _choose_platform(document, request.image)
            manifest = self._registries.manifest(repository, chosen, self._access)
            document = _read_object(manifest.content, request.image)
        descriptor = document.get("config")
        digest = descriptor.get("digest") if isinstance(descriptor, dict) else None
        if not isinstance(digest, str):
            raise HostCallError(f"{request.image}: the manifest names no configuration")
        content = self._registries.blob(repository, digest, self._access)
        answer = {"manifest": document, "digest": manifest.digest, "config": _read_any(content)}
        return orjson.dumps(answer)

    def verify(self, request: ImageVerification) -> bytes:
        """Trusted, with its digest; HostCallError if a required signer has not signed."""
        attestors = tuple(_list_attestors(request, self._access.namespace))
        if len(attestors) > _MOST_SIGNERS:
            raise HostCallError(f"more than {_MOST_SIGNERS} signers")
        repository, manifest = self._fetch(request.image)
        image = SignedImage(repository, manifest.digest)
        for attestor in attestors:
            self._check(image, attestor, request.annotations or {})
        return orjson.dumps({"is_trusted": True, "digest": image.digest})

    def _check(
        self, image: SignedImage, attestor: CosignAttestor, annotations: Mapping[str, str]
    ) -> None:
        """Annotations count where this very signer signed them."""
        location = SignatureLocation(self._access)
        reasons = []
        for find in (find_signatures, find_bundles):
            found = find(self._registries, image, location)
            try:
                accept_signature(found, image, attestor, self._registries, annotations)
            except SignatureRefusedError as error:
                reasons.append(str(error))
            else:
                return
        raise HostCallError(f"{image.repository}@{image.digest}: {'; '.join(reasons)}")

    def _fetch(self, reference: str) -> tuple[str, ImageManifest]:
        try:
            parts = parse_image(reference)
        except EvaluationError as error:
            raise HostCallError(f"invalid reference format: {error}") from error
        wanted = parts.digest or parts.tag
        return parts.repository, self._registries.manifest(parts.repository, wanted, self._access)


# --- required signers


def _list_attestors(request: ImageVerification, namespace: str) -> Iterator[CosignAttestor]:
    tuf = TufSource(namespace=namespace)
    match request:
        case VerifyKeys():
            yield from map(_trust_key, request.pub_keys)
            _demand(bool(request.pub_keys), "Must provide at least one pub key")
        case VerifyKeyless():
            for each in request.keyless:
                _demand(bool(each.issuer and each.subject), "issuer and subject must be given")
                yield TrustedIdentity((Identity(each.issuer, subject=each.subject),), tuf=tuf)
            _demand(bool(request.keyless), "Must provide keyless info")
        case VerifyKeylessPrefixes():
            for prefix in request.keyless_prefix:
                yield _trust_prefix(prefix.issuer, prefix.url_prefix, tuf)
            _demand(bool(request.keyless_prefix), "Must provide keyless info")
        case VerifyGithubActions():
            yield _trust_workflows(request, tuf)
        case VerifyCertificate():
            yield _trust_certificate(request, tuf)


def _demand(is_good: bool, message: str) -> None:  # noqa: FBT001  (reads as a statement)
    if not is_good:
        raise HostCallError(message)


def _trust_key(text: str) -> TrustedKey:
    # A URI would call a key management service with lictor's rights.
    _demand(text.strip().startswith(_KEY_BEGIN), "a public key is given in PEM")
    # A key identifies the signer; a transparency log is not required, as in Kubewarden.
    return TrustedKey(text, log=LogTrust(ignore_log=True))


def _trust_prefix(issuer: str, prefix: str, tuf: TufSource) -> TrustedIdentity:
    """A URL that begins so; with a slash, or `…/acme` would also be the beginning of `…/acme2`."""
    try:
        url = parse_url(prefix)
    except ValueError as error:
        raise HostCallError(f"url_prefix {prefix[:200]!r} is no URL: {error}") from error
    _demand(bool(issuer and url.scheme and url.host), "issuer and url_prefix must be given")
    expression = f"^{re.escape(prefix.rstrip('/'))}/"
    return TrustedIdentity((Identity(issuer, subject_regexp=expression),), tuf=tuf)


def _trust_workflows(request: VerifyGithubActions, tuf: TufSource) -> TrustedIdentity:
    _demand(bool(request.owner), "Must provide owner info")
    # An empty name of a repository is no name, and not all of them.
    names = [request.owner] if request.repo is None else [request.owner, request.repo]
    for name in names:
        _demand(bool(_GITHUB_NAME.fullmatch(name)), f"{name[:100]!r} is no name on GitHub")
    return _trust_prefix(_GITHUB_ISSUER, f"https://github.com/{'/'.join(names)}", tuf)


def _trust_certificate(request: VerifyCertificate, tuf: TufSource) -> TrustedCertificate:
    chain = "\n".join(_read_text(each) for each in request.certificate_chain or ())
    # An empty chain is none that the certificate could lead to.
    _demand(request.certificate_chain is None or bool(chain), "the certificate chain is empty")
    certificate = _read_text(request.certificate)
    _demand(bool(certificate), "the certificate is empty")
    return TrustedCertificate(
        certificate,
        chain,
        log=LogTrust(ignore_log=not request.require_rekor_bundle, ignore_certificate_log=True),
        tuf=tuf,
    )


def _read_text(data: Bytes) -> str:
    try:
        return bytes(data).decode()
    except UnicodeDecodeError as error:
        raise HostCallError("a certificate is given in PEM") from error


# --- manifests


def _read_object(content: bytes, reference: str) -> JsonObject:
    document = _read_any(content)
    if not isinstance(document, dict):
        raise HostCallError(f"{reference}: the registry sent no manifest")
    return document


def _read_any(content: bytes) -> Json:
    try:
        return orjson.loads(content)
    except orjson.JSONDecodeError:
        return None


def _choose_platform(index: JsonObject, reference: str) -> str:
    listed = index.get("manifests")
    for entry in listed if isinstance(listed, list) else ():
        platform = entry.get("platform") if isinstance(entry, dict) else None
        if not isinstance(platform, dict) or not isinstance(entry.get("digest"), str):
            continue
        if (platform.get("os"), platform.get("architecture")) == _PLATFORM:
            return str(entry["digest"])
    raise HostCallError(f"{reference}: the index has no image for {'/'.join(_PLATFORM)}")
