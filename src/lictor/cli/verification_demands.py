"""Whose signatures count? The flags of `verify`, and the files they name, as attestors."""

from collections.abc import Iterator

import msgspec

from lictor.cli.image_verification import Demand, NamedAttestor
from lictor.core.errors import LoadError, UsageError
from lictor.core.files import read_bytes
from lictor.core.lang.signed_payload import expand_predicate_type
from lictor.core.ports import RegistryAccess
from lictor.core.signatures.keys import split_keys
from lictor.core.signatures.records import (
    Identity,
    LogTrust,
    SignatureLocation,
    TrustedCertificate,
    TrustedIdentity,
    TrustedKey,
    TrustedNotary,
)


class VerifyFlags(msgspec.Struct, frozen=True):
    """The flags of `verify` that define what must be proved; most are paths of files."""

    key: str = ""
    certificate: str = ""
    certificate_chain: str = ""
    certificate_identity: str = ""
    certificate_identity_regexp: str = ""
    certificate_oidc_issuer: str = ""
    certificate_oidc_issuer_regexp: str = ""
    ca_roots: str = ""
    notary_certificate: tuple[str, ...] = ()
    rekor_key: str = ""
    ct_log_key: str = ""
    timestamp_certificate_chain: str = ""
    insecure_ignore_tlog: bool = False
    insecure_ignore_sct: bool = False
    signature_digest_algorithm: str = "sha256"
    annotations: tuple[str, ...] = ()
    attestation_type: str = ""
    signature_repository: str = ""
    allow_insecure_registry: bool = False

    @property
    def identity(self) -> Identity:
        return Identity(
            issuer=self.certificate_oidc_issuer,
            issuer_regexp=self.certificate_oidc_issuer_regexp,
            subject=self.certificate_identity,
            subject_regexp=self.certificate_identity_regexp,
        )


def read_demand(flags: VerifyFlags) -> Demand:
    """Return the demands of the flags. Raises UsageError if they contradict each other."""
    _check(flags)
    wanted = flags.attestation_type
    return Demand(
        attestors=tuple(_list_attestors(flags)),
        annotations=dict(map(_split_annotation, flags.annotations)),
        predicate_type=expand_predicate_type(wanted),
        location=SignatureLocation(
            access=RegistryAccess(allow_insecure=flags.allow_insecure_registry),
            repository=flags.signature_repository,
            oci11=True,
        ),
    )


def _check(flags: VerifyFlags) -> None:
    has_certificate = bool(flags.certificate or flags.certificate_chain)
    has_identity = flags.identity != Identity()
    if sum((bool(flags.key), has_certificate, has_identity)) > 1:
        raise UsageError(
            "give one of --key, --certificate with --certificate-chain, and --certificate-identity "
            "with --certificate-oidc-issuer"
        )
    if has_identity:
        # Anyone can have a certificate of the public Sigstore: half an identity trusts strangers.
        if not (flags.certificate_identity or flags.certificate_identity_regexp):
            raise UsageError("--certificate-identity or --certificate-identity-regexp is missing")
        if not (flags.certificate_oidc_issuer or flags.certificate_oidc_issuer_regexp):
            raise UsageError(
                "--certificate-oidc-issuer or --certificate-oidc-issuer-regexp is missing"
            )


def _split_annotation(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise UsageError(f"--annotations {text}: write NAME=VALUE")
    return name, value


def _list_attestors(flags: VerifyFlags) -> Iterator[NamedAttestor]:
    log = _read_log(flags)
    algorithm = flags.signature_digest_algorithm
    for key in _read_keys(flags.key):
        yield NamedAttestor(f"the key in {flags.key}", TrustedKey(key, algorithm, log))
    if flags.certificate or flags.certificate_chain:
        trusted = TrustedCertificate(
            _read_text(flags.certificate), _read_text(flags.certificate_chain), algorithm, log
        )
        named = flags.certificate or flags.certificate_chain
        yield NamedAttestor(f"the certificate in {named}", trusted)
    if flags.identity != Identity():
        roots = _read_text(flags.ca_roots)
        yield NamedAttestor(
            _name_identity(flags), TrustedIdentity((flags.identity,), roots, log=log)
        )
    if flags.notary_certificate:
        certificates = "\n".join(map(_read_text, flags.notary_certificate))
        stamps = _read_text(flags.timestamp_certificate_chain)
        name = f"a certificate in {', '.join(flags.notary_certificate)}"
        yield NamedAttestor(name, TrustedNotary(certificates, stamps))


def _name_identity(flags: VerifyFlags) -> str:
    subject = flags.certificate_identity or f"/{flags.certificate_identity_regexp}/"
    issuer = flags.certificate_oidc_issuer or f"/{flags.certificate_oidc_issuer_regexp}/"
    return f"{subject} of {issuer}"


def _read_log(flags: VerifyFlags) -> LogTrust:
    return LogTrust(
        public_keys=_read_text(flags.rekor_key),
        ignore_log=flags.insecure_ignore_tlog,
        certificate_log_keys=_read_text(flags.ct_log_key),
        ignore_certificate_log=flags.insecure_ignore_sct,
        timestamp_chain=_read_text(flags.timestamp_certificate_chain),
    )


def _read_keys(path: str) -> list[str]:
    """Return the keys of a file separately, or the URI of a key management service."""
    if not path:
        return []
    if "://" in path:
        return [path]
    return split_keys(_read_text(path))


def _read_text(path: str) -> str:
    if not path:
        return ""
    try:
        return read_bytes(path).decode()
    except UnicodeDecodeError as error:
        raise LoadError("is no text: PEM is expected", where=path) from error
