"""Signs images with real cosign and notation: keys, certificates, attestations, both formats."""

import json
import os
import subprocess
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

# Nothing leaves the machine: no transparency log, no service that says how to sign.
_ALONE = ("--tlog-upload=false", "--use-signing-config=false", "--yes")
_YEAR = timedelta(days=365)


@dataclass(frozen=True)
class CosignKey:
    """A key pair that cosign made."""

    private: Path
    public: str


@dataclass(frozen=True)
class CosignSigner:
    """cosign, with a folder of its own."""

    program: Path
    folder: Path

    def make_key(self, name: str) -> CosignKey:
        self._run("generate-key-pair", "--output-key-prefix", name)
        return CosignKey(self.folder / f"{name}.key", (self.folder / f"{name}.pub").read_text())

    def import_key(self, name: str, pem: bytes) -> CosignKey:
        """A key that was made elsewhere, such as that of a certificate."""
        path = self.folder / f"{name}.pem"
        path.write_bytes(pem)
        self._run("import-key-pair", "--key", str(path), "--output-key-prefix", name)
        return CosignKey(self.folder / f"{name}.key", (self.folder / f"{name}.pub").read_text())

    def sign(self, image: str, key: CosignKey, *words: str, bundle: bool = False) -> None:
        form = f"--new-bundle-format={str(bundle).lower()}"
        self._run("sign", "--key", str(key.private), form, *_ALONE, *words, image)

    def attest(
        self, image: str, key: CosignKey, kind: str, predicate: object, *, bundle: bool = False
    ) -> None:
        form = f"--new-bundle-format={str(bundle).lower()}"
        path = self.folder / "predicate.json"
        path.write_text(json.dumps(predicate))
        words = ("--type", kind, "--predicate", str(path), form, *_ALONE)
        self._run("attest", "--key", str(key.private), *words, image)

    def _run(self, *words: str) -> None:
        surroundings = {"COSIGN_PASSWORD": "", "HOME": str(self.folder)}
        _call([str(self.program), *words], self.folder, surroundings)


@dataclass(frozen=True)
class Certified:
    """A certificate, its key, and the certificates above it."""

    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey
    above: tuple[x509.Certificate, ...] = ()

    @property
    def pem(self) -> str:
        return self.certificate.public_bytes(Encoding.PEM).decode()

    @property
    def chain(self) -> str:
        """The certificates above."""
        return "".join(each.public_bytes(Encoding.PEM).decode() for each in self.above)

    @property
    def key_pem(self) -> bytes:
        return self.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


def make_authority(name: str) -> Certified:
    """A root of certificates for signers."""
    return _issue(name, None, datetime.now(UTC) - _YEAR, _YEAR * 20)


def make_signer(
    name: str, authority: Certified, age: timedelta = timedelta(hours=1), life: timedelta = _YEAR
) -> Certified:
    """A certificate that is so old and good for so long."""
    return _issue(name, authority, datetime.now(UTC) - age, life)


def _issue(name: str, issuer: Certified | None, begin: datetime, life: timedelta) -> Certified:
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name(
        [
            x509.NameAttribute(NameOID.COUNTRY_NAME, "DE"),
            x509.NameAttribute(NameOID.STATE_OR_PROVINCE_NAME, "BE"),
            x509.NameAttribute(NameOID.ORGANIZATION_NAME, "example.com"),
            x509.NameAttribute(NameOID.COMMON_NAME, name),
        ]
    )
    made = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer.certificate.subject if issuer else subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(begin)
        .not_valid_after(begin + life)
        .add_extension(x509.BasicConstraints(ca=issuer is None, path_length=None), critical=True)
        .add_extension(_usage(signs_certificates=issuer is None), critical=True)
    )
    if issuer is not None:
        purpose = x509.ExtendedKeyUsage([ExtendedKeyUsageOID.CODE_SIGNING])
        email = x509.SubjectAlternativeName([x509.RFC822Name(f"{name}@example.com")])
        made = made.add_extension(purpose, critical=False).add_extension(email, critical=False)
    certificate = made.sign(issuer.key if issuer else key, hashes.SHA256())
    above = (issuer.certificate, *issuer.above) if issuer else ()
    return Certified(certificate, key, above)


def _usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        encipher_only=False,
        decipher_only=False,
    )


@dataclass
class NotationSigner:
    """notation, with a configuration folder of its own."""

    program: Path
    folder: Path
    names: list[str] = field(default_factory=list)

    def add(self, name: str, signer: Certified) -> str:
        """Make a signer known by a name."""
        keys = self.folder / "config" / "notation"
        keys.mkdir(parents=True, exist_ok=True)
        (keys / f"{name}.key").write_bytes(signer.key_pem)
        (keys / f"{name}.key").chmod(0o600)
        (keys / f"{name}.crt").write_text(signer.pem + signer.chain)
        self.names.append(name)
        known = [
            {
                "name": each,
                "keyPath": str(keys / f"{each}.key"),
                "certPath": str(keys / f"{each}.crt"),
            }
            for each in self.names
        ]
        (keys / "signingkeys.json").write_text(json.dumps({"default": name, "keys": known}))
        return name

    def sign(self, image: str, name: str, form: str = "jws", *words: str) -> None:
        """Sign as `jws` or `cose`."""
        command = ["sign", "--key", name, "--signature-format", form, "--insecure-registry"]
        surroundings = {"XDG_CONFIG_HOME": str(self.folder / "config"), "HOME": str(self.folder)}
        _call([str(self.program), *command, *words, image], self.folder, surroundings)


def _call(command: list[str], folder: Path, surroundings: dict[str, str]) -> None:
    done = subprocess.run(
        command,
        cwd=folder,
        env={**os.environ, **surroundings},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, f"{' '.join(command)}: {done.stderr[-2000:]}"
