"""X.509 certificates and requests in PEM, as JSON in the shape that Go's own records give."""

import warnings
from base64 import b64encode
from collections.abc import Callable, Iterable
from datetime import datetime
from ipaddress import IPv4Network, IPv6Network
from typing import TypeVar

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePublicKey
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from cryptography.utils import CryptographyDeprecationWarning
from cryptography.x509.oid import AuthorityInformationAccessOID, NameOID

from lictor.core.crypto.pem import read_pem, read_request_attributes
from lictor.core.raw import Json, JsonObject

Extension = TypeVar("Extension", bound=x509.ExtensionType)

_RSA = 1
# Numbers that Go gives to algorithms of signatures, by their object identifiers.
_SIGNATURES = {
    "1.2.840.113549.1.1.2": 1,
    "1.2.840.113549.1.1.4": 2,
    "1.2.840.113549.1.1.5": 3,
    "1.2.840.113549.1.1.11": 4,
    "1.2.840.113549.1.1.12": 5,
    "1.2.840.113549.1.1.13": 6,
    "1.2.840.10040.4.3": 7,
    "2.16.840.1.101.3.4.3.2": 8,
    "1.2.840.10045.4.1": 9,
    "1.2.840.10045.4.3.2": 10,
    "1.2.840.10045.4.3.3": 11,
    "1.2.840.10045.4.3.4": 12,
    "1.3.101.112": 16,
}
_EXTENDED_USAGES = {
    "2.5.29.37.0": 0,
    **{f"1.3.6.1.5.5.7.3.{number}": number for number in range(1, 10)},
    "1.3.6.1.4.1.311.10.3.3": 10,
    "2.16.840.1.113730.4.1": 11,
    "1.3.6.1.4.1.311.2.1.22": 12,
    "1.3.6.1.4.1.311.61.1.1": 13,
}
_USAGES = (
    "digital_signature",
    "content_commitment",
    "key_encipherment",
    "data_encipherment",
    "key_agreement",
    "key_cert_sign",
    "crl_sign",
)
_NAME_LISTS = {
    "Country": NameOID.COUNTRY_NAME,
    "Organization": NameOID.ORGANIZATION_NAME,
    "OrganizationalUnit": NameOID.ORGANIZATIONAL_UNIT_NAME,
    "Locality": NameOID.LOCALITY_NAME,
    "Province": NameOID.STATE_OR_PROVINCE_NAME,
    "StreetAddress": NameOID.STREET_ADDRESS,
    "PostalCode": NameOID.POSTAL_CODE,
}
_KNOWN_EXTENSIONS = frozenset(
    f"2.5.29.{number}" for number in (14, 15, 17, 19, 30, 31, 32, 33, 35, 36, 37, 54)
)
# What the library raises for bytes that are no certificate, besides ValueError.
_FAULTS = (
    UnsupportedAlgorithm,
    x509.DuplicateExtension,
    x509.InvalidVersion,
    x509.UnsupportedGeneralNameType,
)


def decode_certificate(text: str) -> JsonObject:
    """Read the first PEM block: a certificate or a request for one, with an RSA key."""
    label, data = read_pem(text)
    with warnings.catch_warnings():
        # Old certificates violate current rules; a policy may inspect them all the same.
        warnings.simplefilter("ignore", CryptographyDeprecationWarning)
        try:
            return _describe(label, data)
        except _FAULTS as error:
            raise ValueError(str(error)) from error


def _describe(label: str, data: bytes) -> JsonObject:
    if label == "CERTIFICATE":
        certificate = x509.load_der_x509_certificate(data)
        return {**describe_certificate(certificate), **_describe_rsa(certificate)}
    if label == "CERTIFICATE REQUEST":
        request = x509.load_der_x509_csr(data)
        return {**describe_request(request), **_describe_rsa(request)}
    raise ValueError("PEM block neither contains a CERTIFICATE or CERTIFICATE REQUEST")


def _describe_rsa(document: x509.Certificate | x509.CertificateSigningRequest) -> JsonObject:
    key = document.public_key()
    if not isinstance(key, RSAPublicKey):
        raise ValueError("certificate should use rsa algorithm")
    numbers = key.public_numbers()
    return {"PublicKey": {"N": str(numbers.n), "E": numbers.e}}


def _describe_key(document: x509.Certificate | x509.CertificateSigningRequest) -> JsonObject:
    try:
        key = document.public_key()
    except UnsupportedAlgorithm:
        return {"PublicKeyAlgorithm": 0, "PublicKey": None}
    if isinstance(key, RSAPublicKey):
        rsa = key.public_numbers()
        return {"PublicKeyAlgorithm": _RSA, "PublicKey": {"N": rsa.n, "E": rsa.e}}
    if isinstance(key, EllipticCurvePublicKey):
        point = key.public_numbers()
        return {"PublicKeyAlgorithm": 3, "PublicKey": {"Curve": {}, "X": point.x, "Y": point.y}}
    if isinstance(key, Ed25519PublicKey):
        return {"PublicKeyAlgorithm": 4, "PublicKey": _encode(key.public_bytes_raw())}
    return {"PublicKeyAlgorithm": 0, "PublicKey": None}


def describe_certificate(certificate: x509.Certificate) -> JsonObject:
    """What Go's record of a certificate looks like in JSON, with a key of any kind."""
    extensions = _Extensions(certificate.extensions)
    return {
        **_describe_common(certificate, extensions),
        "NotBefore": _write_time(certificate.not_valid_before_utc),
        "NotAfter": _write_time(certificate.not_valid_after_utc),
        **_describe_constraints(extensions),
        **_describe_usages(extensions),
        **_describe_places(extensions),
        **_describe_policies(extensions),
        "Raw": _encode(certificate.public_bytes(Encoding.DER)),
        "RawTBSCertificate": _encode(certificate.tbs_certificate_bytes),
        "RawIssuer": _encode(certificate.issuer.public_bytes()),
        "Issuer": _describe_name(certificate.issuer),
        "SerialNumber": certificate.serial_number,
        "Version": certificate.version.value + 1,
        "UnhandledCriticalExtensions": _list(
            _identifier(extension.oid)
            for extension in certificate.extensions
            if extension.critical and extension.oid.dotted_string not in _KNOWN_EXTENSIONS
        ),
    }


def describe_request(request: x509.CertificateSigningRequest) -> JsonObject:
    """What Go's record of a request looks like in JSON, with a key of any kind."""
    return {
        **_describe_common(request, _Extensions(request.extensions)),
        "Raw": _encode(request.public_bytes(Encoding.DER)),
        "RawTBSCertificateRequest": _encode(request.tbs_certrequest_bytes),
        "Attributes": read_request_attributes(request.tbs_certrequest_bytes),
        "Version": 0,
    }


class _Extensions:
    """The extensions of a certificate, by kind."""

    def __init__(self, extensions: x509.Extensions) -> None:
        self.all = extensions

    def find(self, kind: type[Extension]) -> Extension | None:
        try:
            return self.all.get_extension_for_class(kind).value
        except x509.ExtensionNotFound:
            return None

    def is_critical(self, kind: type[Extension]) -> bool:
        try:
            return self.all.get_extension_for_class(kind).critical
        except x509.ExtensionNotFound:
            return False


def _describe_common(
    document: x509.Certificate | x509.CertificateSigningRequest, extensions: _Extensions
) -> JsonObject:
    info = document.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    return {
        **_describe_key(document),
        "Signature": _encode(document.signature),
        "SignatureAlgorithm": _SIGNATURES.get(document.signature_algorithm_oid.dotted_string, 0),
        "RawSubject": _encode(document.subject.public_bytes()),
        "RawSubjectPublicKeyInfo": _encode(info),
        "Subject": _describe_name(document.subject),
        "Extensions": _list(
            {
                "Id": _identifier(extension.oid),
                "Critical": extension.critical,
                "Value": _encode(extension.value.public_bytes()),
            }
            for extension in extensions.all
        ),
        "ExtraExtensions": None,
        **_describe_alternatives(extensions.find(x509.SubjectAlternativeName)),
    }


def _describe_name(name: x509.Name) -> JsonObject:
    def values(identifier: x509.ObjectIdentifier) -> list[Json] | None:
        return _list(attribute.value for attribute in name.get_attributes_for_oid(identifier))

    def last(identifier: x509.ObjectIdentifier) -> Json:
        return (values(identifier) or [""])[-1]

    return {
        **{key: values(identifier) for key, identifier in _NAME_LISTS.items()},
        "SerialNumber": last(NameOID.SERIAL_NUMBER),
        "CommonName": last(NameOID.COMMON_NAME),
        "Names": _list({"Type": _identifier(item.oid), "Value": item.value} for item in name),
        "ExtraNames": None,
    }


def _describe_alternatives(names: x509.SubjectAlternativeName | None) -> JsonObject:
    found = list(names or ())
    return {
        "DNSNames": _pick(found, x509.DNSName),
        "EmailAddresses": _pick(found, x509.RFC822Name),
        "IPAddresses": _pick(found, x509.IPAddress),
        "URIs": _pick(found, x509.UniformResourceIdentifier, _describe_url),
    }


def _pick(
    names: list[x509.GeneralName],
    kind: type[x509.GeneralName],
    show: Callable[[Json], Json] = str,
) -> Json:
    return _list(show(name.value) for name in names if isinstance(name, kind))


def _describe_url(url: str) -> JsonObject:
    from urllib.parse import unquote, urlsplit

    parts = urlsplit(url)
    _, _, host = parts.netloc.rpartition("@")
    return {
        "Scheme": parts.scheme,
        "Opaque": "" if parts.netloc or parts.path.startswith("/") else parts.path,
        # Go's record keeps the user to itself: an object without fields.
        "User": {} if "@" in parts.netloc else None,
        "Host": host,
        "Path": unquote(parts.path) if parts.netloc or parts.path.startswith("/") else "",
        "RawPath": "",
        "OmitHost": False,
        "ForceQuery": False,
        "RawQuery": parts.query,
        "Fragment": unquote(parts.fragment),
        "RawFragment": "",
    }


def _describe_constraints(extensions: _Extensions) -> JsonObject:
    basic = extensions.find(x509.BasicConstraints)
    length = basic.path_length if basic is not None else None
    absent = 0 if basic is None else -1
    return {
        "BasicConstraintsValid": basic is not None,
        "IsCA": basic is not None and basic.ca,
        "MaxPathLen": absent if length is None else length,
        "MaxPathLenZero": length == 0,
        **_describe_name_constraints(extensions),
    }


def _describe_name_constraints(extensions: _Extensions) -> JsonObject:
    limits = extensions.find(x509.NameConstraints)
    permitted, excluded = (
        (limits.permitted_subtrees, limits.excluded_subtrees) if limits else (None, None)
    )
    return {
        "PermittedDNSDomainsCritical": extensions.is_critical(x509.NameConstraints),
        **_describe_subtrees("Permitted", permitted or []),
        **_describe_subtrees("Excluded", excluded or []),
    }


def _describe_subtrees(word: str, names: list[x509.GeneralName]) -> JsonObject:
    return {
        f"{word}DNSDomains": _pick(names, x509.DNSName),
        f"{word}EmailAddresses": _pick(names, x509.RFC822Name),
        f"{word}IPRanges": _pick(names, x509.IPAddress, _describe_network),
        f"{word}URIDomains": _pick(names, x509.UniformResourceIdentifier),
    }


def _describe_network(network: IPv4Network | IPv6Network) -> JsonObject:
    return {"IP": str(network.network_address), "Mask": _encode(network.netmask.packed)}


def _describe_usages(extensions: _Extensions) -> JsonObject:
    usage = extensions.find(x509.KeyUsage)
    extended = extensions.find(x509.ExtendedKeyUsage)
    identifiers = list(extended) if extended is not None else []
    known = [_EXTENDED_USAGES.get(identifier.dotted_string) for identifier in identifiers]
    return {
        "KeyUsage": _read_usage(usage) if usage is not None else 0,
        "ExtKeyUsage": _list(number for number in known if number is not None),
        "UnknownExtKeyUsage": _list(
            _identifier(identifier)
            for identifier, number in zip(identifiers, known, strict=True)
            if number is None
        ),
    }


def _read_usage(usage: x509.KeyUsage) -> int:
    bits = [getattr(usage, name) for name in _USAGES]
    # What a key may do in an agreement is only defined where it may agree at all.
    bits += [usage.encipher_only, usage.decipher_only] if usage.key_agreement else [False, False]
    return sum(1 << position for position, allowed in enumerate(bits) if allowed)


def _describe_places(extensions: _Extensions) -> JsonObject:
    subject = extensions.find(x509.SubjectKeyIdentifier)
    authority = extensions.find(x509.AuthorityKeyIdentifier)
    access = extensions.find(x509.AuthorityInformationAccess)
    points = extensions.find(x509.CRLDistributionPoints)

    def reach(method: x509.ObjectIdentifier) -> Json:
        return _list(
            entry.access_location.value
            for entry in access or ()
            if entry.access_method == method
            and isinstance(entry.access_location, x509.UniformResourceIdentifier)
        )

    return {
        "SubjectKeyId": _encode(subject.digest) if subject is not None else None,
        "AuthorityKeyId": _encode(authority.key_identifier)
        if authority is not None and authority.key_identifier is not None
        else None,
        "OCSPServer": reach(AuthorityInformationAccessOID.OCSP),
        "IssuingCertificateURL": reach(AuthorityInformationAccessOID.CA_ISSUERS),
        "CRLDistributionPoints": _list(
            name.value
            for point in points or ()
            for name in point.full_name or ()
            if isinstance(name, x509.UniformResourceIdentifier)
        ),
    }


def _describe_policies(extensions: _Extensions) -> JsonObject:
    policies = extensions.find(x509.CertificatePolicies)
    limits = extensions.find(x509.PolicyConstraints)
    inhibit = extensions.find(x509.InhibitAnyPolicy)
    identifiers = [policy.policy_identifier for policy in policies or ()]
    mapping = limits.inhibit_policy_mapping if limits is not None else None
    explicit = limits.require_explicit_policy if limits is not None else None
    any_policy = inhibit.skip_certs if inhibit is not None else None
    return {
        "PolicyIdentifiers": _list(map(_identifier, identifiers)),
        "Policies": _list(identifier.dotted_string for identifier in identifiers),
        "PolicyMappings": None,
        "InhibitAnyPolicy": any_policy or 0,
        "InhibitAnyPolicyZero": any_policy == 0,
        "InhibitPolicyMapping": mapping or 0,
        "InhibitPolicyMappingZero": mapping == 0,
        "RequireExplicitPolicy": explicit or 0,
        "RequireExplicitPolicyZero": explicit == 0,
    }


def _list(items: Iterable[Json]) -> list[Json] | None:
    """Go's empty lists are null in JSON."""
    return list(items) or None


def _identifier(identifier: x509.ObjectIdentifier) -> list[int]:
    return [int(number) for number in identifier.dotted_string.split(".")]


def _encode(data: bytes) -> str:
    return b64encode(data).decode()


def _write_time(moment: datetime) -> str:
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")
