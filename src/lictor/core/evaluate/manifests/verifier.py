"""Verifies manifest signatures that need more than a key: certificates, logs, Secrets, images."""

import msgspec

from lictor.core.errors import EvaluationError, LookupFailedError, SignatureRefusedError
from lictor.core.evaluate.manifests.evidence import Signature
from lictor.core.evaluate.manifests.message import MAX_SIZE, decode_base64, unpack_gzip
from lictor.core.evaluate.verify_images.attestors import (
    SecretKey,
    TrustedSigner,
    UnusableAttestor,
    compile_signer,
    read_secret_keys,
)
from lictor.core.lang.image_reference import parse_image
from lictor.core.model.signatures import Attestor
from lictor.core.ports import Descriptor, Lookups, RegistryAccess
from lictor.core.signatures.records import (
    CosignAttestor,
    FoundSignature,
    SignatureLocation,
    SignedImage,
    TrustedNotary,
)

_NAMES = "dev.cosignproject.cosign/signature", "dev.sigstore.cosign"


class ManifestVerifier(msgspec.Struct, frozen=True):
    """Reads registries and Secrets for one policy."""

    lookups: Lookups
    # The namespace of a namespaced policy; empty for the others.
    namespace: str

    def compile(self, entry: Attestor) -> tuple[str, TrustedSigner]:
        """The field that names the signer, and the trusted signer."""
        return compile_signer(entry, self.namespace)

    def try_signature(
        self, signature: Signature, message: bytes, signer: TrustedSigner
    ) -> str | None:
        """Why this signature is refused; None if it is accepted."""
        from lictor.core.signatures.verification import verify_signer

        why = "no signer is trusted"
        try:
            found = _read_signature(signature, message)
            for trusted in self._list_trusted(signer):
                try:
                    verify_signer(found, trusted, self.lookups.registries())
                except SignatureRefusedError as error:
                    why = str(error)
                else:
                    return None
        except (LookupFailedError, SignatureRefusedError, EvaluationError, ValueError) as error:
            why = str(error)
        return why

    def fetch(self, image: str, signer: TrustedSigner) -> bytes:
        """The manifest in an image, after the image's signature was verified."""
        from lictor.core.signatures.discovery import find_signatures
        from lictor.core.signatures.layer_formats import read_manifest
        from lictor.core.signatures.verification import accept_signature

        try:
            parsed = parse_image(image)
            repository = f"{parsed.registry}/{parsed.path}"
            access = RegistryAccess(namespace=self.namespace, named=frozenset())
            registries = self.lookups.registries()
            stored = registries.manifest(repository, parsed.digest or parsed.tag, access)
            signed = SignedImage(repository, stored.digest)
            found = find_signatures(registries, signed, SignatureLocation(access))
            refusals = []
            for trusted in self._list_trusted(signer):
                try:
                    accept_signature(found, signed, trusted, registries)
                    break
                except SignatureRefusedError as error:
                    refusals.append(str(error))
            else:
                raise SignatureRefusedError("; ".join(refusals))
            layers = read_manifest(stored.content).layers
            if len(layers) != 1 or layers[0].size > MAX_SIZE:
                raise ValueError("it must hold the manifest as its one layer")
            return registries.blob(repository, layers[0].digest, access)
        except (LookupFailedError, SignatureRefusedError, ValueError) as error:
            raise EvaluationError(f"the manifest in {image}: {error}") from error

    def _list_trusted(self, signer: TrustedSigner) -> tuple[CosignAttestor, ...]:
        if isinstance(signer, UnusableAttestor):
            raise SignatureRefusedError(signer.reason)
        if isinstance(signer, TrustedNotary):
            raise SignatureRefusedError("manifests are not signed with notation")
        if isinstance(signer, SecretKey):
            return read_secret_keys(signer, self.lookups)
        return (signer,)


def _read_signature(signature: Signature, message: bytes) -> FoundSignature:
    """Convert to the form of an image's signature: the parts are the same, but compressed."""
    from lictor.core.signatures.layer_formats import read_signature_layer

    own, prefix = _NAMES
    annotations = {own: signature.text}
    if signature.certificate:
        annotations[f"{prefix}/certificate"] = _unpack(signature.certificate)
    if signature.bundle:
        annotations[f"{prefix}/bundle"] = _unpack(signature.bundle)
    described = Descriptor("", "", len(message), annotations)
    return read_signature_layer(described, message, "annotations")


def _unpack(text: str) -> str:
    packed = decode_base64(text)
    try:
        return unpack_gzip(packed).decode()
    except ValueError:
        return packed.decode()
