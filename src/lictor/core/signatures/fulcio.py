"""Reads the identity in a certificate, and compares it with those of a policy."""

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING

import msgspec

from lictor.core.crypto.certificate_chain import find_extension
from lictor.core.errors import SignatureRefusedError, SyntaxFaultError
from lictor.core.lang.regex import compile_regex
from lictor.core.lang.wildcard import match_wildcard
from lictor.core.signatures.records import Identity, TrustedIdentity

# Slow import, and few policies have keys: imported on demand.
if TYPE_CHECKING:
    from cryptography import x509

_FULCIO = "1.3.6.1.4.1.57264.1."
_ISSUER, _ISSUER_DER = f"{_FULCIO}1", f"{_FULCIO}8"
_USER_NAME = "1.3.6.1.4.1.57264.1.7"
# The numbers below `_FULCIO`, by their names in policies. The first seven are plain text, all later
# ones a UTF8String.
_NAMES = {
    "oidcIssuer": 1,
    "githubWorkflowTrigger": 2,
    "githubWorkflowSha": 3,
    "githubWorkflowName": 4,
    "githubWorkflowRepository": 5,
    "githubWorkflowRef": 6,
    "oidcIssuerV2": 8,
    "buildSignerURI": 9,
    "buildSignerDigest": 10,
    "runnerEnvironment": 11,
    "sourceRepositoryURI": 12,
    "sourceRepositoryDigest": 13,
    "sourceRepositoryRef": 14,
    "sourceRepositoryIdentifier": 15,
    "sourceRepositoryOwnerURI": 16,
    "sourceRepositoryOwnerIdentifier": 17,
    "buildConfigURI": 18,
    "buildConfigDigest": 19,
    "buildTrigger": 20,
    "runInvocationURI": 21,
    "sourceRepositoryVisibilityAtSigning": 22,
}
_LAST_PLAIN = 7
_UTF8_STRING = 0x0C


class CertificateIdentity(msgspec.Struct, frozen=True):
    """What an identity provider asserted to the certificate authority about a signer."""

    issuer: str
    subjects: tuple[str, ...]
    # By name and by object identifier.
    extensions: Mapping[str, str]


def read_identity(certificate: "x509.Certificate") -> CertificateIdentity:
    """The identity in a certificate; raises SignatureRefusedError if it cannot be read."""
    found = {
        extension.oid.dotted_string: extension.value.public_bytes()
        for extension in certificate.extensions
        if extension.oid.dotted_string.startswith(_FULCIO)
    }
    texts = {identifier: _read_text(identifier, data) for identifier, data in found.items()}
    if _ISSUER in texts and texts.get(_ISSUER_DER, texts[_ISSUER]) != texts[_ISSUER]:
        raise SignatureRefusedError("the certificate names two different issuers of the identity")
    named = {
        name: texts[f"{_FULCIO}{number}"]
        for name, number in _NAMES.items()
        if f"{_FULCIO}{number}" in texts
    }
    issuer = texts.get(_ISSUER) or texts.get(_ISSUER_DER) or ""
    return CertificateIdentity(issuer, tuple(_list_subjects(certificate)), {**texts, **named})


def _read_text(identifier: str, data: bytes) -> str:
    number = identifier.removeprefix(_FULCIO)
    plain = number.isdecimal() and int(number) <= _LAST_PLAIN
    try:
        return data.decode() if plain else _read_utf8_string(data)
    except (UnicodeDecodeError, ValueError, IndexError) as error:
        raise SignatureRefusedError(
            f"the certificate's extension {identifier} cannot be read"
        ) from error


def _read_utf8_string(data: bytes) -> str:
    """A UTF8String in DER, and nothing after it."""
    if not data or data[0] != _UTF8_STRING:
        raise ValueError("not a UTF8String")
    length, start = data[1], 2
    if length & 0x80:
        start += length & 0x7F
        length = int.from_bytes(data[2:start], "big")
    if len(data) != start + length:
        raise ValueError("invalid length")
    return data[start:].decode()


def _list_subjects(certificate: "x509.Certificate") -> Iterator[str]:
    from cryptography import x509

    names = find_extension(certificate, x509.SubjectAlternativeName)
    for name in names or ():
        if isinstance(name, x509.RFC822Name | x509.UniformResourceIdentifier | x509.DNSName):
            yield name.value
        elif isinstance(name, x509.OtherName) and name.type_id.dotted_string == _USER_NAME:
            yield _read_text("", name.value)
        elif isinstance(name, x509.IPAddress):
            yield str(name.value)


# --- is it one of those that a policy names?


def check_identity(found: CertificateIdentity, attestor: TrustedIdentity) -> str:
    """The subject that matches a policy's identity; raises SignatureRefusedError if none does."""
    reasons = ["the policy names no identity"]
    for identity in attestor.identities:
        if identity == Identity(wildcards=identity.wildcards):
            if _is_own_authority(attestor):
                return next(iter(found.subjects), "")
            reasons.insert(0, "an identity without issuer and subject would trust everyone")
            continue
        try:
            _check_issuer(found, identity)
            return _find_subject(found, identity)
        except SignatureRefusedError as error:
            reasons.insert(0, str(error))
    raise SignatureRefusedError(reasons[0])


def _is_own_authority(attestor: TrustedIdentity) -> bool:
    """Anyone can get a certificate of the public Sigstore; a private one chooses its users."""
    return bool(attestor.roots or attestor.tuf.is_private)


def _check_issuer(found: CertificateIdentity, identity: Identity) -> None:
    compare = match_wildcard if identity.wildcards else _is_equal
    if identity.issuer and not compare(identity.issuer, found.issuer):
        raise SignatureRefusedError(
            f"issuer mismatch: expected {identity.issuer}, received {found.issuer}"
        )
    if identity.issuer_regexp and not _search(identity.issuer_regexp, found.issuer):
        raise SignatureRefusedError(
            f"issuer mismatch: expected {identity.issuer_regexp}, received {found.issuer}"
        )


def _find_subject(found: CertificateIdentity, identity: Identity) -> str:
    """The first name that matches the subject or its expression; without names, none does."""
    tests = list(_list_subject_tests(identity))
    for subject in found.subjects:
        if not tests or any(test(subject) for test in tests):
            return subject
    if not tests:
        return ""
    expected = " or ".join(text for text in (identity.subject, identity.subject_regexp) if text)
    received = ", ".join(found.subjects) or "a certificate without subject alternative names"
    raise SignatureRefusedError(f"subject mismatch: expected {expected}, received {received}")


def _list_subject_tests(identity: Identity) -> Iterator[Callable[[str], bool]]:
    if identity.subject:
        compare = match_wildcard if identity.wildcards else _is_equal
        yield lambda subject: compare(identity.subject, subject)
    if identity.subject_regexp:
        yield partial(_search, identity.subject_regexp)


def _search(expression: str, text: str) -> bool:
    """Whether the expression, which is not anchored, matches somewhere in the text."""
    try:
        return compile_regex(expression).search(text) is not None
    except SyntaxFaultError as error:
        raise SignatureRefusedError(f"invalid regexp {expression}: {error}") from error


def _is_equal(expected: str, received: str) -> bool:
    return expected == received


def check_extensions(found: CertificateIdentity, wanted: Mapping[str, str]) -> None:
    """Each extension must exist and match its wildcard; an empty one must not exist."""
    for name, pattern in wanted.items():
        if name not in _NAMES and not name.startswith(_FULCIO):
            raise SignatureRefusedError(
                f"invalid certificate extension {name}; known are {', '.join(_NAMES)}"
            )
        value = found.extensions.get(name, "")
        if not (match_wildcard(pattern, value) and bool(pattern) == bool(value)):
            raise SignatureRefusedError(
                f"extension mismatch: expected {pattern} for key {name}, received {value}"
            )
