"""Does a certificate lead to one that is trusted, at a given time and for a given purpose?"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network
from typing import TYPE_CHECKING, TypeVar
from urllib.parse import urlsplit

from lictor.core.crypto.pem import list_pem_blocks
from lictor.core.errors import SignatureRefusedError
from lictor.core.raw import Json

# Loading the library takes a while, and few policies hold keys: it is imported where it is used.
if TYPE_CHECKING:
    from cryptography import x509

ExtensionType = TypeVar("ExtensionType", bound="x509.ExtensionType")

# Certificates between the first and the trusted one, with both of these.
_LONGEST = 8
# Signatures tested for one chain: many certificates of one name would make this grow otherwise.
_MOST_TESTS = 64
_MOST_CERTIFICATES = 64
_LARGEST = 64 * 1024
CODE_SIGNING = "1.3.6.1.5.5.7.3.3"
TIME_STAMPING = "1.3.6.1.5.5.7.3.8"
_ANY_PURPOSE = "2.5.29.37.0"
_HASHES = frozenset(("sha256", "sha384", "sha512"))
# Basic and name constraints, key usage, extended key usage, names, policies: all that we look at,
# or that only names things.
_KNOWN_CRITICAL = frozenset(f"2.5.29.{number}" for number in (15, 17, 19, 30, 32, 37))


@dataclass(frozen=True, slots=True)
class Anchors:
    """Certificates that are trusted, and such as only help to reach them."""

    roots: "tuple[x509.Certificate, ...]"
    intermediates: "tuple[x509.Certificate, ...]" = ()


def load_certificate(data: bytes) -> "x509.Certificate":
    """Read a certificate in DER; ValueError where it is none."""
    from cryptography import x509
    from cryptography.exceptions import UnsupportedAlgorithm

    if len(data) > _LARGEST:
        raise ValueError(f"a certificate of more than {_LARGEST} bytes")
    try:
        certificate = x509.load_der_x509_certificate(data)
        # Parsed here once, so that later code does not meet an invalid one.
        _ = certificate.extensions, certificate.public_key()
    except (
        UnsupportedAlgorithm,
        x509.DuplicateExtension,
        x509.InvalidVersion,
        x509.UnsupportedGeneralNameType,
    ) as error:
        raise ValueError(f"a certificate that cannot be read: {error}") from error
    return certificate


def read_certificates(text: str) -> "tuple[x509.Certificate, ...]":
    """The certificates in PEM blocks; ValueError where there is none, or something else."""
    certificates = []
    for label, data in list_pem_blocks(text):
        if label != "CERTIFICATE":
            raise ValueError(f"a certificate is expected, not {label}")
        certificates.append(load_certificate(data))
    if not 0 < len(certificates) <= _MOST_CERTIFICATES:
        raise ValueError(f"between one and {_MOST_CERTIFICATES} certificates in PEM are expected")
    return tuple(certificates)


def build_chain(
    leaf: "x509.Certificate", anchors: Anchors, time: datetime, purpose: str
) -> "tuple[x509.Certificate, ...]":
    """The certificates from `leaf` to a trusted one; SignatureRefusedError where there are none.

    An empty purpose is any.
    """
    if purpose:
        _check_leaf_usage(leaf, purpose)
    return find_chain(leaf, anchors, time, purpose)


def find_chain(
    leaf: "x509.Certificate", anchors: Anchors, time: datetime, purpose: str
) -> "tuple[x509.Certificate, ...]":
    """As `build_chain`, with any key usage of the leaf."""
    check_validity(leaf, time)
    check_extensions(leaf)
    search = _Search(anchors, time, purpose)
    found = next(search.extend((leaf,)), None)
    if found is None:
        why = search.reasons[0] if search.reasons else "no trusted certificate issued it"
        raise SignatureRefusedError(f"the certificate leads to no trusted authority: {why}")
    return found


def _is_self_issued(certificate: "x509.Certificate") -> bool:
    """Does it name itself as issuer, as roots do?"""
    return certificate.issuer == certificate.subject


class _Search:
    """Walks from certificate to issuer, with bounds."""

    def __init__(self, anchors: Anchors, time: datetime, purpose: str) -> None:
        self._anchors = anchors
        self._time = time
        self._purpose = purpose
        self._tests_left = _MOST_TESTS
        self.reasons: list[str] = []

    def extend(
        self, chain: "tuple[x509.Certificate, ...]"
    ) -> "Iterator[tuple[x509.Certificate, ...]]":
        if chain[-1] in self._anchors.roots:
            yield chain
            return
        if len(chain) >= _LONGEST:
            self.reasons.append(f"more than {_LONGEST} certificates")
            return
        for root in self._anchors.roots:
            if self._issues(root, chain):
                yield (*chain, root)
        for issuer in self._anchors.intermediates:
            if issuer not in chain and self._issues(issuer, chain):
                yield from self.extend((*chain, issuer))

    def _issues(self, issuer: "x509.Certificate", chain: "tuple[x509.Certificate, ...]") -> bool:
        if issuer.subject != chain[-1].issuer:
            return False
        if not self._tests_left:
            self.reasons.append("too many certificates of one name")
            return False
        self._tests_left -= 1
        try:
            _check_issuer(issuer, chain, self._purpose)
            check_validity(issuer, self._time)
            check_issued_by(issuer, chain[-1])
        except SignatureRefusedError as error:
            self.reasons.append(str(error))
            return False
        return True


def check_issued_by(issuer: "x509.Certificate", certificate: "x509.Certificate") -> None:
    """SignatureRefusedError unless the issuer signed the certificate, with a strong hash."""
    from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm

    try:
        algorithm = certificate.signature_hash_algorithm
        certificate.verify_directly_issued_by(issuer)
    except (InvalidSignature, UnsupportedAlgorithm, ValueError, TypeError) as error:
        raise SignatureRefusedError(
            f"{name_certificate(issuer)} did not sign {name_certificate(certificate)}"
        ) from error
    if algorithm is not None and algorithm.name not in _HASHES:
        raise SignatureRefusedError(f"certificates signed with {algorithm.name} are not trusted")


def _check_issuer(
    issuer: "x509.Certificate", chain: "tuple[x509.Certificate, ...]", purpose: str
) -> None:
    from cryptography import x509

    name = name_certificate(issuer)
    check_extensions(issuer)
    basic = find_extension(issuer, x509.BasicConstraints)
    if basic is None or not basic.ca:
        raise SignatureRefusedError(f"{name} is no certificate authority")
    # The path length counts what stands between, without those that a CA issued to itself.
    between = sum(not _is_self_issued(certificate) for certificate in chain[1:])
    if basic.path_length is not None and between > basic.path_length:
        raise SignatureRefusedError(f"{name} allows only {basic.path_length} authorities below it")
    usage = find_extension(issuer, x509.KeyUsage)
    if usage is not None and not usage.key_cert_sign:
        raise SignatureRefusedError(f"{name} may not sign certificates")
    extended = find_extension(issuer, x509.ExtendedKeyUsage)
    if purpose and extended is not None and not _allows(extended, purpose):
        raise SignatureRefusedError(f"{name} may not issue certificates for this purpose")
    constraints = find_extension(issuer, x509.NameConstraints)
    if constraints is not None:
        for below in chain:
            _check_names(constraints, find_extension(below, x509.SubjectAlternativeName) or ())


def _check_leaf_usage(leaf: "x509.Certificate", purpose: str) -> None:
    from cryptography import x509

    usage = find_extension(leaf, x509.KeyUsage)
    if usage is not None and not usage.digital_signature:
        raise SignatureRefusedError("the certificate's key may not make signatures")
    extended = find_extension(leaf, x509.ExtendedKeyUsage)
    if extended is None or not _allows(extended, purpose):
        word = "time stamps" if purpose == TIME_STAMPING else "code signing"
        raise SignatureRefusedError(f"the certificate is not for {word} (extended key usage)")


def _allows(extended: "x509.ExtendedKeyUsage", purpose: str) -> bool:
    return any(usage.dotted_string in (purpose, _ANY_PURPOSE) for usage in extended)


def check_extensions(certificate: "x509.Certificate") -> None:
    """SignatureRefusedError for a critical extension that is not supported here."""
    for extension in certificate.extensions:
        identifier = extension.oid.dotted_string
        if extension.critical and identifier not in _KNOWN_CRITICAL:
            raise SignatureRefusedError(
                f"{name_certificate(certificate)} has the critical extension {identifier}, "
                "which lictor does not know"
            )


def check_validity(certificate: "x509.Certificate", time: datetime) -> None:
    """SignatureRefusedError unless the certificate was valid at that time."""
    start, end = certificate.not_valid_before_utc, certificate.not_valid_after_utc
    if start <= time <= end:
        return
    word = "expired" if time > end else "was not valid yet"
    raise SignatureRefusedError(
        f"{name_certificate(certificate)} {word}: valid from {start:%Y-%m-%dT%H:%M:%SZ} "
        f"until {end:%Y-%m-%dT%H:%M:%SZ}, signed at {time:%Y-%m-%dT%H:%M:%SZ}"
    )


def name_certificate(certificate: "x509.Certificate") -> str:
    """How messages call a certificate."""
    name = certificate.subject.rfc4514_string() or f"serial {certificate.serial_number:x}"
    return f"certificate {name!r}"


def find_extension(
    certificate: "x509.Certificate", kind: "type[ExtensionType]"
) -> "ExtensionType | None":
    """The extension of that kind, where the certificate has one."""
    from cryptography import x509

    try:
        return certificate.extensions.get_extension_for_class(kind).value
    except x509.ExtensionNotFound:
        return None


# --- name constraints (RFC 5280, 4.2.1.10): may an authority vouch for these names?

_MOST_NAMES = 256


def _check_names(constraints: "x509.NameConstraints", names: "Iterable[x509.GeneralName]") -> None:
    """SignatureRefusedError for a name outside of what the constraints permit."""
    permitted = list(constraints.permitted_subtrees or ())
    excluded = list(constraints.excluded_subtrees or ())
    tests = _list_tests()
    for subtree in (*permitted, *excluded):
        if type(subtree) not in tests or len(permitted) + len(excluded) > _MOST_NAMES:
            # What cannot be enforced must not be taken for allowed.
            raise SignatureRefusedError(
                "its name constraints are of a kind that lictor cannot test"
            )
    for name in names:
        fits = tests.get(type(name))
        if fits is None:
            continue
        limits = [subtree.value for subtree in permitted if type(subtree) is type(name)]
        if limits and not any(fits(limit, name.value) for limit in limits):
            raise SignatureRefusedError(f"its name constraints do not permit {name.value!s}")
        forbidden = (subtree.value for subtree in excluded if type(subtree) is type(name))
        if any(fits(limit, name.value) for limit in forbidden):
            raise SignatureRefusedError(f"its name constraints exclude {name.value!s}")


def _list_tests() -> "Mapping[type[x509.GeneralName], Callable[[Json, Json], bool]]":
    from cryptography import x509

    return {
        x509.DNSName: _fits_domain,
        x509.RFC822Name: _fits_mailbox,
        x509.UniformResourceIdentifier: _fits_url,
        x509.IPAddress: _fits_address,
    }


def _fits_domain(limit: str, name: str) -> bool:
    """The domain itself and all below it; only those below where the limit begins with a dot."""
    limit, name = limit.lower(), name.lower().rstrip(".")
    if not limit or limit.startswith("."):
        return name.endswith(limit)
    return name == limit or name.endswith(f".{limit}")


def _fits_host(limit: str, host: str) -> bool:
    """The host itself; those below it only where the limit begins with a dot."""
    limit, host = limit.lower(), host.lower().rstrip(".")
    return host.endswith(limit) if limit.startswith(".") else host == limit


def _fits_mailbox(limit: str, name: str) -> bool:
    if "@" in limit:
        # The part before the sign can be case-sensitive.
        mailbox, _, host = name.rpartition("@")
        wanted, _, domain = limit.rpartition("@")
        return (mailbox, host.lower()) == (wanted, domain.lower())
    return not limit or _fits_host(limit, name.rpartition("@")[2])


def _fits_url(limit: str, name: str) -> bool:
    try:
        host = urlsplit(name).hostname or ""
    except ValueError:
        host = ""
    if not host:
        raise SignatureRefusedError(f"name constraints cannot be tested on {name!r}")
    return not limit or _fits_host(limit, host)


def _fits_address(limit: IPv4Network | IPv6Network, address: IPv4Address | IPv6Address) -> bool:
    return address in limit
