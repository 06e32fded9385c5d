"""Sign Kubernetes manifests for `validate.manifests`, with a key in a file.

    python scripts/sign_manifest.py --key release.key manifest.yaml > signed.yaml

The text of the manifest, its signature and nothing else go into annotations of each object in it. A
key that is not there yet is made, and its public half, which goes into a policy, is told on stderr.
Signing what is signed already adds a signature by another key to the same text.
"""

import argparse
import base64
import gzip
import io
import sys
import tarfile
from collections.abc import Callable
from pathlib import Path

import yaml
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, padding, rsa
from cryptography.hazmat.primitives.asymmetric.types import PrivateKeyTypes

DOMAIN = "cosign.sigstore.dev"
MAKERS: dict[str, Callable[[], PrivateKeyTypes]] = {
    "ecdsa": lambda: ec.generate_private_key(ec.SECP256R1()),
    "rsa": lambda: rsa.generate_private_key(public_exponent=65537, key_size=2048),
    "ed25519": ed25519.Ed25519PrivateKey.generate,
}


def main() -> None:
    """Read the manifest, sign it, and write it with its annotations."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("manifest", type=Path)
    parser.add_argument("--key", type=Path, required=True, help="private key in PEM")
    parser.add_argument("--kind", choices=sorted(MAKERS), default="ecdsa", help="of a new key")
    parser.add_argument("--domain", default=DOMAIN, help="of the annotations")
    parser.add_argument("--tarball", action="store_true", help="wrap the text as older signers did")
    arguments = parser.parse_args()
    key = load_key(arguments.key, arguments.kind)
    print(write_public_key(key), file=sys.stderr, end="")
    text = arguments.manifest.read_text(encoding="utf-8")
    signed = sign_text(text, key, domain=arguments.domain, tarball=arguments.tarball)
    yaml.safe_dump_all(signed, sys.stdout, width=10_000)


def load_key(path: Path, kind: str) -> PrivateKeyTypes:
    """The private key in a file; a new one where there is no such file."""
    if path.exists():
        return serialization.load_pem_private_key(path.read_bytes(), None)
    key = MAKERS[kind]()
    path.touch(mode=0o600)
    path.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )
    return key


def write_public_key(key: PrivateKeyTypes) -> str:
    """The public half in PEM."""
    form = serialization.PublicFormat.SubjectPublicKeyInfo
    return key.public_key().public_bytes(serialization.Encoding.PEM, form).decode()


def sign_text(text: str, key: PrivateKeyTypes, *, domain: str, tarball: bool) -> list[dict]:
    """The objects of a manifest with their signature."""
    objects = [body for body in yaml.safe_load_all(text) if body]
    annotations = objects[0].get("metadata", {}).get("annotations") or {}
    message = annotations.get(f"{domain}/message")
    if message is None:
        payload = pack(text) if tarball else text.encode()
        message = base64.b64encode(gzip.compress(payload, mtime=0)).decode()
    signature = base64.b64encode(sign(gzip.decompress(base64.b64decode(message)), key)).decode()
    for body in objects:
        notes = body.setdefault("metadata", {}).setdefault("annotations", {})
        notes[f"{domain}/message"] = message
        notes[name_signature(notes, domain)] = signature
    return objects


def name_signature(notes: dict, domain: str) -> str:
    """The first annotation that no other signature has."""
    name, count = f"{domain}/signature", 0
    while name in notes:
        count += 1
        name = f"{domain}/signature_{count}"
    return name


def pack(text: str) -> bytes:
    """The text as the only file of a compressed archive."""
    data, made = text.encode(), io.BytesIO()
    with tarfile.open(fileobj=made, mode="w:gz", format=tarfile.USTAR_FORMAT) as archive:
        entry = tarfile.TarInfo("manifest.yaml")
        entry.size = len(data)
        archive.addfile(entry, io.BytesIO(data))
    return made.getvalue()


def sign(message: bytes, key: PrivateKeyTypes) -> bytes:
    """The signature of some bytes."""
    if isinstance(key, rsa.RSAPrivateKey):
        return key.sign(message, padding.PKCS1v15(), hashes.SHA256())
    if isinstance(key, ec.EllipticCurvePrivateKey):
        return key.sign(message, ec.ECDSA(hashes.SHA256()))
    if isinstance(key, ed25519.Ed25519PrivateKey):
        return key.sign(message)
    raise SystemExit(f"cannot sign with {type(key).__name__}")


if __name__ == "__main__":
    main()
