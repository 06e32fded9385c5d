"""Parses `trusted_root.json` of a Sigstore, and combines it with a policy's own roots and keys."""

from base64 import b64decode
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache
from typing import TYPE_CHECKING

import msgspec

from lictor.core.crypto.certificate_chain import Anchors, load_certificate, read_certificates
from lictor.core.crypto.log_key import (
    ALWAYS,
    LogKey,
    Period,
    fingerprint,
    load_public_key,
    read_log_keys,
)
from lictor.core.crypto.timestamp import TimestampAuthority
from lictor.core.errors import EvaluationError, LookupFailedError
from lictor.core.ports import Registries
from lictor.core.signatures.records import CosignAttestor, TrustedCertificate, TrustedKey

# Slow import, and few policies have keys: imported on demand.
if TYPE_CHECKING:
    from cryptography import x509

_LARGEST = 4 * 1024 * 1024
_MOST = 256


@dataclass(frozen=True, slots=True)
class CertificateAuthority:
    """Issues certificates for code signing; trusted for signatures within the period."""

    anchors: Anchors
    period: Period = ALWAYS


@dataclass(frozen=True, slots=True)
class TrustRoot:
    """All trusted certificate authorities, logs and timestamp authorities."""

    authorities: tuple[CertificateAuthority, ...] = ()
    logs: tuple[LogKey, ...] = ()
    certificate_logs: tuple[LogKey, ...] = ()
    timestamp_authorities: tuple[TimestampAuthority, ...] = ()


# --- the file's own shape (protobuf-specs, TrustedRoot)


class _Period(msgspec.Struct, frozen=True):
    start: datetime | None = None
    end: datetime | None = None


class _Key(msgspec.Struct, frozen=True, rename="camel"):
    raw_bytes: str
    valid_for: _Period = _Period()


class _LogId(msgspec.Struct, frozen=True, rename="camel"):
    key_id: str = ""


class _Log(msgspec.Struct, frozen=True, rename="camel"):
    public_key: _Key
    log_id: _LogId = _LogId()


class _Certificate(msgspec.Struct, frozen=True, rename="camel"):
    raw_bytes: str


class _Chain(msgspec.Struct, frozen=True):
    certificates: list[_Certificate]


class _Authority(msgspec.Struct, frozen=True, rename="camel"):
    cert_chain: _Chain
    valid_for: _Period = _Period()


class _File(msgspec.Struct, frozen=True, rename="camel"):
    certificate_authorities: list[_Authority] = []
    tlogs: list[_Log] = []
    ctlogs: list[_Log] = []
    timestamp_authorities: list[_Authority] = []


# Built now: msgspec would crash if threads built it on first use at the same time.
_DECODER = msgspec.json.Decoder(_File)


@lru_cache(maxsize=16)
def read_trust_root(content: bytes) -> TrustRoot:
    """Parse a `trusted_root.json`; raises LookupFailedError if it is invalid."""
    if len(content) > _LARGEST:
        raise LookupFailedError(f"a trusted_root.json of more than {_LARGEST} bytes")
    try:
        file = _DECODER.decode(content)
        return TrustRoot(
            authorities=tuple(
                _read_authority(item) for item in file.certificate_authorities[:_MOST]
            ),
            logs=tuple(_read_log(item) for item in file.tlogs[:_MOST]),
            certificate_logs=tuple(_read_log(item) for item in file.ctlogs[:_MOST]),
            timestamp_authorities=tuple(
                TimestampAuthority(_read_chain(item), _read_period(item.valid_for))
                for item in file.timestamp_authorities[:_MOST]
            ),
        )
    except (ValueError, msgspec.MsgspecError) as error:
        raise LookupFailedError(f"trusted_root.json cannot be read: {error}") from error


def _read_period(period: _Period) -> Period:
    return Period(period.start, period.end)


def _read_log(log: _Log) -> LogKey:
    key = load_public_key(b64decode(log.public_key.raw_bytes))
    identifier = b64decode(log.log_id.key_id) or fingerprint(key)
    return LogKey(identifier, key, _read_period(log.public_key.valid_for))


def _read_chain(authority: _Authority) -> "tuple[x509.Certificate, ...]":
    chain = authority.cert_chain.certificates[:_MOST]
    if not chain:
        raise ValueError("an authority without certificates")
    return tuple(load_certificate(b64decode(certificate.raw_bytes)) for certificate in chain)


def _read_authority(authority: _Authority) -> CertificateAuthority:
    *intermediates, root = _read_chain(authority)
    return CertificateAuthority(
        Anchors((root,), tuple(intermediates)), _read_period(authority.valid_for)
    )


# --- what a policy trusts


def gather_trust(
    attestor: CosignAttestor, registries: Registries, *, is_stamped: bool = False
) -> TrustRoot:
    """The attestor's roots and keys, completed with those of its Sigstore.

    The Sigstore's root is only read if it is needed; `is_stamped`: a timestamp of the signature may
    be by one of the Sigstore's authorities.
    """
    log = attestor.log
    own = _read_own_trust(
        getattr(attestor, "roots", ""),
        getattr(attestor, "chain", ""),
        (log.public_keys, log.certificate_log_keys, log.timestamp_chain),
    )
    needs_stamps = is_stamped and log.ignore_log and not own.timestamp_authorities
    if not needs_stamps and not _needs_sigstore(attestor, own):
        return own
    tuf = attestor.tuf
    content = tuf.trusted_root or registries.trusted_root(tuf.mirror, tuf.root, tuf.namespace)
    shared = read_trust_root(content)
    return TrustRoot(
        _lend_intermediates(attestor, own.authorities, shared) or shared.authorities,
        own.logs or shared.logs,
        own.certificate_logs or shared.certificate_logs,
        own.timestamp_authorities or shared.timestamp_authorities,
    )


def _lend_intermediates(
    attestor: CosignAttestor, own: tuple[CertificateAuthority, ...], shared: TrustRoot
) -> tuple[CertificateAuthority, ...]:
    """The attestor's authorities; those of the Sigstore are not trusted, but may lead to a root."""
    if not getattr(attestor, "borrows_intermediates", False):
        return own
    lent = tuple(each for one in shared.authorities for each in one.anchors.intermediates)
    return tuple(
        CertificateAuthority(
            Anchors(one.anchors.roots, one.anchors.intermediates + lent), one.period
        )
        for one in own
    )


def _needs_sigstore(attestor: CosignAttestor, own: TrustRoot) -> bool:
    log = attestor.log
    if getattr(attestor, "borrows_intermediates", False):
        return True
    if not (log.ignore_log or own.logs):
        return True
    if isinstance(attestor, TrustedKey):
        return False
    if isinstance(attestor, TrustedCertificate):
        # A certificate without its chain is trusted directly; its issuer is unknown.
        needs_logs = bool(attestor.chain) and not log.ignore_certificate_log
        return needs_logs and not own.certificate_logs
    return not (own.authorities and (log.ignore_certificate_log or own.certificate_logs))


@lru_cache(maxsize=64)
def _read_own_trust(roots: str, chain: str, keys: tuple[str, str, str]) -> TrustRoot:
    logs, certificate_logs, stamps = keys
    try:
        return TrustRoot(
            _read_roots(roots) + _read_pem_chain(chain),
            read_log_keys(logs) if logs else (),
            read_log_keys(certificate_logs) if certificate_logs else (),
            (TimestampAuthority(read_certificates(stamps)),) if stamps else (),
        )
    except ValueError as error:
        raise EvaluationError(
            f"the attestor's roots, chain or log keys cannot be read: {error}"
        ) from error


def _read_roots(text: str) -> tuple[CertificateAuthority, ...]:
    """Each is trusted, even if another authority issued it: the policy names it as a root."""
    return (CertificateAuthority(Anchors(read_certificates(text))),) if text else ()


def _read_pem_chain(text: str) -> tuple[CertificateAuthority, ...]:
    """The last certificate of a chain is trusted."""
    if not text:
        return ()
    *others, root = read_certificates(text)
    return (CertificateAuthority(Anchors((root,), tuple(others))),)
