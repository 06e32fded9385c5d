"""Compiles the attestors and attestations of an ImageValidatingPolicy for verification."""

import json
from base64 import b64decode
from binascii import Error as Base64Error
from collections.abc import Callable, Mapping
from hashlib import sha256
from typing import TypeAlias

import msgspec
from msgspec.structs import replace

from lictor.core.errors import CompileError, EvaluationError
from lictor.core.evaluate.cel.expressions import ExpressionCompiler
from lictor.core.lang.cel.expression import Activation, make_activation
from lictor.core.lang.image_reference import list_named_registries
from lictor.core.lang.signed_payload import expand_predicate_type
from lictor.core.model.cel_policy import ImageValidatingSpec
from lictor.core.model.image_validation import (
    Cosign,
    ImageAttestation,
    ImageAttestor,
    KeylessSigner,
    Notary,
    SignerCertificate,
    SignerIdentity,
    SignerKey,
    StringOrExpression,
    TransparencyLog,
    Tuf,
)
from lictor.core.ports import RegistryAccess
from lictor.core.signatures.records import (
    CosignAttestor,
    Identity,
    LogTrust,
    SignatureLocation,
    TrustedCertificate,
    TrustedIdentity,
    TrustedKey,
    TrustedNotary,
    TufSource,
)

# As in Kyverno: 1 MiB.
_LARGEST_ROOT = 1024 * 1024
_NO_ROOT = f"expected the JSON of a trusted root, at most {_LARGEST_ROOT} bytes"


class CosignSigner(msgspec.Struct, frozen=True):
    """Requirements for cosign signatures: signers, location and annotations."""

    attestor: CosignAttestor
    location: SignatureLocation
    annotations: Mapping[str, str] = {}
    # Identifies all of this in the outcome cache.
    fingerprint: str = ""


class NotarySigner(msgspec.Struct, frozen=True):
    """Requirements for notation signatures: signers and location."""

    attestor: TrustedNotary
    location: SignatureLocation
    fingerprint: str = ""


ImageSigner: TypeAlias = CosignSigner | NotarySigner
# A key or certificate may come from an expression.
FindSigner: TypeAlias = Callable[[Activation], ImageSigner]
_FindText: TypeAlias = Callable[[Activation], str]


class WantedAttestation(msgspec.Struct, frozen=True):
    """A type of attestation, by predicate type or artifact type."""

    name: str
    predicate_type: str = ""
    artifact_type: str = ""


def build_access(spec: ImageValidatingSpec, namespace: str) -> RegistryAccess:
    """The registry credentials of a policy."""
    globs = (each.glob for each in spec.match_image_references)
    sources = (each.cosign.source for each in spec.attestors if each.cosign is not None)
    repositories = (each.repository for each in sources if each is not None)
    named = list_named_registries((*globs, *repositories))
    credentials = spec.credentials
    if credentials is None:
        return RegistryAccess(namespace=namespace, named=named)
    return RegistryAccess(
        tuple(credentials.providers),
        credentials.secrets,
        namespace,
        allow_insecure=credentials.allow_insecure_registry,
        named=named,
    )


def compile_attestors(
    spec: ImageValidatingSpec, access: RegistryAccess, language: ExpressionCompiler
) -> dict[str, FindSigner]:
    """The attestors by name."""
    return {
        attestor.name: _compile_attestor(attestor, f"attestors[{index}]", access, language)
        for index, attestor in enumerate(spec.attestors)
    }


def compile_attestations(spec: ImageValidatingSpec) -> dict[str, WantedAttestation]:
    """The attestations by name."""
    return {
        attestation.name: _compile_attestation(attestation, f"attestations[{index}]")
        for index, attestation in enumerate(spec.attestations)
    }


def _compile_attestation(attestation: ImageAttestation, where: str) -> WantedAttestation:
    if attestation.intoto is not None:
        written = attestation.intoto.type
        return WantedAttestation(attestation.name, predicate_type=expand_predicate_type(written))
    if attestation.referrer is not None:
        return WantedAttestation(attestation.name, artifact_type=attestation.referrer.type)
    raise CompileError("either intoto or referrer must be set", where=where)


def _compile_attestor(
    attestor: ImageAttestor, where: str, access: RegistryAccess, language: ExpressionCompiler
) -> FindSigner:
    if attestor.cosign is not None:
        find = _compile_cosign(attestor.cosign, f"{where}.cosign", access, language)
    elif attestor.notary is not None:
        find = _compile_notary(attestor.notary, f"{where}.notary", access, language)
    else:
        raise CompileError("either cosign or notary must be set", where=where)
    if b'xpression":' in msgspec.json.encode(attestor):
        return lambda activation: _mark(find(activation))
    signer = _mark(find(make_activation({})))
    return lambda _: signer


def _mark(signer: ImageSigner) -> ImageSigner:
    written = f"{type(signer).__name__} ".encode() + msgspec.json.encode(signer)
    return replace(signer, fingerprint=sha256(written).hexdigest())


def _compile_notary(
    notary: Notary, where: str, access: RegistryAccess, language: ExpressionCompiler
) -> FindSigner:
    if notary.certs is None:
        raise CompileError("certs are missing: no signer could be trusted", where=where)
    certificates = _compile_text(notary.certs, f"{where}.certs", language)
    stamps = _compile_text(notary.tsa_certs, f"{where}.tsaCerts", language)
    location = SignatureLocation(access)
    return lambda activation: NotarySigner(
        TrustedNotary(certificates(activation), stamps(activation)), location
    )


def _compile_cosign(
    cosign: Cosign, where: str, access: RegistryAccess, language: ExpressionCompiler
) -> FindSigner:
    written = [name for name in ("key", "keyless", "certificate") if getattr(cosign, name)]
    if len(written) != 1:
        found = " and ".join(written) or "none"
        raise CompileError(
            f"expected exactly one of key, keyless, certificate, found {found}", where=where
        )
    log, tuf = _read_log(cosign.ctlog), _read_tuf(cosign.tuf, f"{where}.tuf", access.namespace)
    given = cosign.trusted_root
    root = _compile_text(given, f"{where}.trustedRoot", language)
    if given is not None and not given.expression and not _is_trusted_root(given.value):
        raise CompileError(_NO_ROOT, where=f"{where}.trustedRoot")
    location = _locate(cosign, access)
    annotations = cosign.annotations
    find = _compile_signer(cosign, where, language)

    def find_signer(activation: Activation) -> CosignSigner:
        source = tuf
        if given is not None:
            text = root(activation)
            if not _is_trusted_root(text):
                # Without this, an empty text would mean the public Sigstore.
                raise EvaluationError(f"{where}.trustedRoot: {_NO_ROOT}")
            source = TufSource(trusted_root=text.encode())
        return CosignSigner(replace(find(activation), log=log, tuf=source), location, annotations)

    return find_signer


def _is_trusted_root(text: str) -> bool:
    return bool(text.strip()) and len(text.encode()) <= _LARGEST_ROOT


def _compile_signer(
    cosign: Cosign, where: str, language: ExpressionCompiler
) -> Callable[[Activation], CosignAttestor]:
    if cosign.key is not None:
        return _compile_key(cosign.key, f"{where}.key", language)
    if cosign.keyless is not None:
        has_mirror = cosign.tuf is not None and bool(cosign.tuf.mirror)
        is_private = bool(cosign.keyless.roots) or has_mirror or cosign.trusted_root is not None
        return _compile_keyless(
            cosign.keyless, f"{where}.keyless", language, is_public=not is_private
        )
    certificate = cosign.certificate or SignerCertificate()
    return _compile_certificate(certificate, f"{where}.certificate", language)


def _compile_key(
    key: SignerKey, where: str, language: ExpressionCompiler
) -> Callable[[Activation], CosignAttestor]:
    hash_name = key.hash_algorithm.lower() or "sha256"
    if key.expression:
        find = language.evaluator(key.expression, ("string", "dyn"), f"{where}.expression")
        return lambda activation: TrustedKey(str(find(activation)), hash_name)
    if not key.data and not key.kms:
        raise CompileError("expected one of data, kms, expression", where=where)
    trusted = TrustedKey(key.data or key.kms, hash_name)
    return lambda _: trusted


def _compile_keyless(
    keyless: KeylessSigner, where: str, language: ExpressionCompiler, *, is_public: bool
) -> Callable[[Activation], CosignAttestor]:
    """Kyverno 1.19 ignores `additionalExtensions` and `subjectExpression`; here they count."""
    finds = [
        _compile_identity(each, f"{where}.identities[{index}]", language)
        for index, each in enumerate(keyless.identities)
    ]
    # Empty would accept everyone with a login at any provider; with a private authority, everyone
    # to whom that authority issues certificates.
    if not finds or (is_public and SignerIdentity() in keyless.identities):
        raise CompileError(
            "an identity without issuer and subject would accept everyone: give issuer or "
            "issuerRegExp, and subject or subjectRegExp",
            where=f"{where}.identities",
        )
    roots, extensions = keyless.roots, keyless.additional_extensions
    return lambda activation: TrustedIdentity(
        tuple(find(activation) for find in finds), roots, extensions=extensions
    )


def _compile_identity(
    identity: SignerIdentity, where: str, language: ExpressionCompiler
) -> Callable[[Activation], Identity]:
    fixed = Identity(
        identity.issuer, identity.issuer_reg_exp, identity.subject, identity.subject_reg_exp
    )
    if not identity.subject_expression:
        return lambda _: fixed
    if identity.subject or identity.subject_reg_exp:
        raise CompileError("subjectExpression excludes subject and subjectRegExp", where=where)
    find = language.evaluator(
        identity.subject_expression, ("string", "dyn"), f"{where}.subjectExpression"
    )

    def find_identity(activation: Activation) -> Identity:
        subject = find(activation)
        if not isinstance(subject, str) or not subject:
            # An empty subject would accept every signer.
            raise EvaluationError(f"{where}.subjectExpression: expected a text, found none")
        return replace(fixed, subject=subject)

    return find_identity


def _compile_certificate(
    certificate: SignerCertificate, where: str, language: ExpressionCompiler
) -> Callable[[Activation], CosignAttestor]:
    if certificate.cert is None and certificate.cert_chain is None:
        raise CompileError("cert or certChain is missing", where=where)
    cert = _compile_text(certificate.cert, f"{where}.cert", language)
    chain = _compile_text(certificate.cert_chain, f"{where}.certChain", language)
    return lambda activation: TrustedCertificate(cert(activation), chain(activation))


def _compile_text(
    given: StringOrExpression | None, where: str, language: ExpressionCompiler
) -> _FindText:
    if given is None:
        return lambda _: ""
    if given.expression:
        find = language.evaluator(given.expression, ("string", "dyn"), f"{where}.expression")
        return lambda activation: str(find(activation))
    if not given.value:
        raise CompileError("either value or expression must be set", where=where)
    value = given.value
    return lambda _: value


def _read_log(log: TransparencyLog | None) -> LogTrust:
    if log is None:
        return LogTrust()
    return LogTrust(
        public_keys=log.rekor_pub_key,
        ignore_log=log.insecure_ignore_tlog,
        certificate_log_keys=log.ct_log_pub_key,
        ignore_certificate_log=log.insecure_ignore_sct,
        timestamp_chain=log.tsa_cert_chain,
        url=log.url,
    )


def _read_tuf(tuf: Tuf | None, where: str, namespace: str) -> TufSource:
    if tuf is None:
        return TufSource()
    if tuf.root.path:
        raise CompileError(
            "files and URLs of roots are not read: put the root metadata into root.data",
            where=f"{where}.root.path",
        )
    return TufSource(tuf.mirror, _decode_root(tuf.root.data, f"{where}.root.data"), namespace)


def _decode_root(data: str, where: str) -> bytes:
    """The root metadata: JSON, or JSON in base64."""
    try:
        compact = "".join(data.split())
        root = data.encode() if compact[:1] == "{" else b64decode(compact, validate=True)
        if root:
            json.loads(root)
    except (Base64Error, ValueError, RecursionError) as error:
        raise CompileError("expected JSON, or JSON in base64", where=where) from error
    return root


def _locate(cosign: Cosign, access: RegistryAccess) -> SignatureLocation:
    source = cosign.source
    if source is None:
        return SignatureLocation(access)
    secrets = tuple(each.name for each in source.pull_secrets if each.name)
    return SignatureLocation(
        replace(access, secrets=(*access.secrets, *secrets)) if secrets else access,
        source.repository,
        tag_prefix=source.tag_prefix,
    )
