"""Keys, certificates and kubeconfig files of a control plane that lives for one run."""

import base64
import ipaddress
import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

ADMIN = ("kubernetes-admin", "system:masters")
CONTROLLER_MANAGER = ("system:kube-controller-manager", "system:kube-controller-manager")
_LIFETIME = timedelta(days=2)


@dataclass(frozen=True)
class Pair:
    """A certificate and its key, as files."""

    certificate: Path
    key: Path


class Authority:
    """Signs the certificates of one control plane; all files go to its folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = _subject("lictor-tests", "")
        builder = _builder(self._name, self._name, self._key.public_key())
        builder = builder.add_extension(
            x509.BasicConstraints(ca=True, path_length=None), critical=True
        )
        signed = builder.sign(self._key, hashes.SHA256())
        self.pair = _write_pair(folder, "ca", signed, self._key)

    def sign_client(self, name: str, group: str) -> Pair:
        """A certificate that makes its owner this user of this group."""
        return self._sign(name.replace(":", "-"), _subject(name, group), names=())

    def sign_server(self, names: Sequence[str]) -> Pair:
        """A serving certificate for these host names and addresses."""
        return self._sign("server", _subject("kube-apiserver", ""), names=names)

    def _sign(self, file: str, subject: x509.Name, *, names: Sequence[str]) -> Pair:
        key = ec.generate_private_key(ec.SECP256R1())
        builder = _builder(subject, self._name, key.public_key())
        usage = ExtendedKeyUsageOID.SERVER_AUTH if names else ExtendedKeyUsageOID.CLIENT_AUTH
        builder = builder.add_extension(x509.ExtendedKeyUsage([usage]), critical=False)
        if names:
            alternatives = [_alternative(name) for name in names]
            builder = builder.add_extension(
                x509.SubjectAlternativeName(alternatives), critical=False
            )
        return _write_pair(self._folder, file, builder.sign(self._key, hashes.SHA256()), key)


def make_service_account_key(folder: Path) -> Path:
    """The key that signs the tokens of service accounts."""
    path = folder / "service-accounts.key"
    _write_private(path, ec.generate_private_key(ec.SECP256R1()))
    return path


def write_kubeconfig(path: Path, *, server: str, authority: Path, user: Pair | str) -> Path:
    """A kubeconfig with everything in it; the user is a certificate, or a token."""
    if isinstance(user, Pair):
        credentials = {
            "client-certificate-data": _encode(user.certificate),
            "client-key-data": _encode(user.key),
        }
    else:
        credentials = {"token": user}
    cluster = {"server": server, "certificate-authority-data": _encode(authority)}
    content = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "tests", "cluster": cluster}],
        "users": [{"name": "user", "user": credentials}],
        "contexts": [{"name": "tests", "context": {"cluster": "tests", "user": "user"}}],
        "current-context": "tests",
    }
    path.touch(mode=0o600)
    path.write_text(json.dumps(content), encoding="utf-8")
    return path


def _encode(path: Path) -> str:
    return base64.b64encode(path.read_bytes()).decode()


def _subject(name: str, organisation: str) -> x509.Name:
    parts = [x509.NameAttribute(NameOID.COMMON_NAME, name)]
    if organisation:
        parts.insert(0, x509.NameAttribute(NameOID.ORGANIZATION_NAME, organisation))
    return x509.Name(parts)


def _alternative(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey
) -> x509.CertificateBuilder:
    # A clock that runs a little behind must not find the certificate to be of tomorrow.
    start = datetime.now(UTC) - timedelta(minutes=5)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(start)
        .not_valid_after(start + _LIFETIME)
    )


def _write_pair(
    folder: Path, name: str, certificate: x509.Certificate, key: ec.EllipticCurvePrivateKey
) -> Pair:
    pair = Pair(folder / f"{name}.crt", folder / f"{name}.key")
    pair.certificate.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    _write_private(pair.key, key)
    return pair


def _write_private(path: Path, key: ec.EllipticCurvePrivateKey) -> None:
    path.touch(mode=0o600)
    path.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.TraditionalOpenSSL,
            serialization.NoEncryption(),
        )
    )
