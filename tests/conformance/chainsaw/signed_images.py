"""Images of the names that tests use, signed by keys of ours, and the tests with these instead.

A name gets the address of our registry before it: `ghcr.io/a/b` is `localhost:5000/ghcr.io/a/b`.
"""

import re
import sys
from base64 import b64decode, b64encode
from binascii import Error as Base64Error
from collections import defaultdict
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import orjson
from cryptography import x509
from image_tools.loopback_registry import Repository
from msgspec.structs import replace

sys.path.append(str(Path(__file__).parents[2] / "unit" / "core" / "signatures"))

from notation import JWS, envelope_of, headers_of, issue, payload_of
from private_sigstore import PrivateSigstore, Wish, describe, pem_of_certificates
from signing import (
    IN_TOTO,
    Layer,
    MemoryRegistries,
    make_key,
    make_payload,
    make_statement,
    pem_of,
    push_bundle,
    push_image,
    push_layers,
    push_referrer,
    sign,
)
from stored_signatures import store_attestation, store_bundle, store_signature

from lictor.core.signatures.records import FoundSignature, SignedImage

_MOVED = re.compile(r"(?<![\w./-])(ghcr\.io|public\.ecr\.aws)/")
# Tests that cannot run with a registry alone, and why.
NOT_HERE = {
    "verify-images/clusterpolicy/standard/notary-image-verification-secret-from-policy": (
        "needs a private registry and the password of its owner"
    ),
    "custom-sigstore/standard/basic-deprecated": (
        "needs a Sigstore that its pipeline sets up, and the image that it signs there"
    ),
    "namespaced-image-validating-policies/validation-rules/reject": (
        "uses a step template that is not there"
    ),
    "image-validating-policies/context/configmap": (
        "its policy verifies nothing, and lets the image pass all the same; here "
        "validationConfigurations.required, which is true unless told, refuses it"
    ),
    **dict.fromkeys(
        (
            "image-validating-policies/exceptions/regular",
            "image-validating-policies/match-conditions",
        ),
        "wants the image without its digest; here validationConfigurations.mutateDigest, which is "
        "true unless told, writes it",
    ),
}
_ISSUER = "https://token.actions.githubusercontent.com"
_GENERATOR = (
    "https://github.com/slsa-framework/slsa-github-generator/.github/workflows/"
    "generator_container_slsa3.yml@refs/heads/main"
)
_ZULU = "https://github.com/chipzoller/zulu/.github/workflows"
_EXAMPLE = "https://github.com/vishal-chdhry/artifact-attestation-example/.github/workflows"
_DEMO = "https://github.com/nirmata/github-signing-demo/.github/workflows"
_NOTATION = "application/vnd.cncf.notary.signature"
_OCI11 = "application/vnd.dev.cosign.artifact.sig.v1+json"
_INDEX = "application/vnd.oci.image.index.v1+json"
_KEY = re.compile(r"-----BEGIN PUBLIC KEY-----.*?-----END PUBLIC KEY-----", re.DOTALL)
_CERTIFICATES = re.compile(r"-----BEGIN CERTIFICATE-----.*-----END CERTIFICATE-----", re.DOTALL)


class SignedImages:
    """The images, made once; `upload` brings them to a registry, `rewrite` changes policies."""

    def __init__(self) -> None:
        self._address = ""
        self.sigstore = PrivateSigstore("conformance")
        self._stock = MemoryRegistries()
        self._key = make_key()
        year = timedelta(days=365)
        valid = datetime.now(UTC) - year, datetime.now(UTC) + year
        self._root = issue("root", authority=True, valid=valid)
        self._signer = issue("signer", self._root, valid=valid)
        # Digests that tests name, by ours.
        self._digests = dict(self._fill())

    # --- what there is

    def _fill(self) -> Iterator[tuple[str, str]]:
        verified = "ghcr.io/kyverno/test-verify-image"
        for tag in ("unsigned", "latest"):
            self._push(verified, tag)
        self._fill_signed(self._push(verified, "signed"))
        image = self._push(verified, "cosign-oci11")
        push_referrer(self._stock, image, [store_signature(self._sign(image))], _OCI11)
        image = self._push(verified, "tsa")
        signed = self._sign(image)
        stamped = replace(signed, timestamps=(self.sigstore.stamp(signed.signature),))
        push_layers(self._stock, image, [store_signature(stamped)])
        image = self._push(verified, "signed-keyless")
        yield "445a99db22e9add9bfb15ddb1980861a329e5dff5c88d7eec9cbf08b6b2f4eb1", image.digest
        for tag in ("6.3.3", "6.3.4", "6.3.5"):
            image = self._push("ghcr.io/stefanprodan/podinfo", tag)
            push_layers(self._stock, image, [store_signature(self._sign(image))])
        image = self._push("ghcr.io/kyverno/zulu", "v0.0.14", "latest")
        self._fill_zulu(image)
        yield "476b21f1a75dc90fac3579ee757f4607bb5546f476195cf645c54badf558c0db", image.digest
        name = "ghcr.io/vishal-chdhry/artifact-attestation-example"
        image = self._push(name, "artifact-attestation")
        build = {
            "buildDefinition": {"buildType": "https://actions.github.io/buildtypes/workflow/v1"}
        }
        statement = make_statement(image, build, "https://slsa.dev/provenance/v1")
        self._push_bundle(image, statement, f"{_EXAMPLE}/build.yaml@refs/heads/main")
        image = self._push("ghcr.io/nirmata/github-signing-demo", "latest")
        statement = make_statement(image, {}, "https://sigstore.dev/cosign/sign/v1")
        subject = f"{_DEMO}/build-attested-image.yaml@refs/heads/main"
        self._push_bundle(image, statement, subject)
        yield "072be10d1892bbf31e3c273ea5b2be9d7e5839c5a84f1daf5b4d90e766dd9343", image.digest

    def _fill_signed(self, image: SignedImage) -> None:
        """Signed by a key and with notation, and with two attestations."""
        push_layers(self._stock, image, [store_signature(self._sign(image))])
        self._notarize(image)
        scanned = "2024-01-01T00:00:00Z"
        bill = {
            "bomFormat": "CycloneDX",
            "metadata": {"timestamp": "2024-06-01T00:00:00Z"},
            "components": [{"licenses": [{"expression": "GPL-3.0"}]}],
        }
        found = [{"VulnerabilityID": "CVE-2024-1"}, {"VulnerabilityID": "CVE-2024-2"}]
        for kind, content in {
            "sbom/cyclone-dx": bill,
            "vulnerability-scan": {
                "source": {"type": "image"},
                "descriptor": {"timestamp": scanned},
            },
            "trivy/vulnerability-fail-test": {"Vulnerabilities": found},
            "vex/cyclone-dx": {"vulnerabilities": [{"id": "CVE-2024-1"}]},
        }.items():
            layer = Layer(orjson.dumps(content), media_type="application/json")
            digest = push_referrer(self._stock, image, [layer], kind)
            self._notarize(SignedImage(image.repository, digest))

    def _fill_zulu(self, image: SignedImage) -> None:
        """Signed and attested by workflows."""
        payload = make_payload(image)
        signed = self._sign_as(payload, f"{_ZULU}/slsa-generic-keyless.yaml@refs/tags/v0.0.14")
        push_layers(self._stock, image, [store_signature(signed)])
        made = make_statement(
            image, {"builder": {"id": _GENERATOR}}, "https://slsa.dev/provenance/v0.2"
        )
        scanned = make_statement(
            image,
            {"scanner": {"uri": "pkg:github/aquasecurity/trivy@0.34.0"}},
            "cosign.sigstore.dev/attestation/vuln/v1",
        )
        scanner = f"{_ZULU}/vulnerability-scan.yaml@refs/heads/main"
        found = [(made, _GENERATOR), (scanned, scanner)]
        layers = [store_attestation(self._sign_as(each, by, IN_TOTO)) for each, by in found]
        push_layers(self._stock, image, layers, suffix="att")

    def _push(self, repository: str, *tags: str) -> SignedImage:
        config = {"architecture": "amd64", "os": "linux", "config": {"Labels": {"tags": str(tags)}}}
        image = push_image(self._stock, repository, orjson.dumps(config).decode())
        manifest = self._stock.manifests.pop((repository, "v1"))
        for tag in tags:
            self._stock.manifests[repository, tag] = manifest
        return image

    def _sign(self, image: SignedImage) -> FoundSignature:
        """By the key, and known to the log."""
        payload = make_payload(image)
        found = FoundSignature("", payload, payload, sign(self._key, payload))
        body = describe(found, pem_of(self._key))
        return replace(found, log_entries=(self.sigstore.log_body(body),))

    def _sign_as(self, payload: bytes, subject: str, payload_type: str = "") -> FoundSignature:
        names = (x509.UniformResourceIdentifier(subject),)
        wish = Wish(issuer=_ISSUER, names=names)
        return self.sigstore.sign(payload, wish, payload_type=payload_type)

    def _push_bundle(self, image: SignedImage, statement: bytes, subject: str) -> None:
        found = self._sign_as(statement, subject, IN_TOTO)
        stamped = replace(found, timestamps=(self.sigstore.stamp(found.signature),))
        push_bundle(self._stock, image, store_bundle(stamped))

    def _notarize(self, image: SignedImage) -> None:
        headers = headers_of(self._signer, __signingTime=datetime.now(UTC).replace(microsecond=0))
        content = envelope_of(JWS, self._signer, payload_of(image.digest), headers=headers)
        push_referrer(self._stock, image, [Layer(content, media_type=JWS)], _NOTATION)

    # --- where it goes

    def upload(self, address: str, shown: str) -> None:
        """Push everything to a registry; tests are told the address that is shown."""
        self._address = shown
        for (repository, _), content in self._stock.blobs.items():
            Repository(address, repository).push_blob(content, "")
        referring: dict[tuple[str, str], list[dict[str, Any]]] = defaultdict(list)
        for (repository, name), manifest in self._stock.manifests.items():
            place = Repository(address, repository)
            place.push_content(name, manifest.content, manifest.media_type)
            document = orjson.loads(manifest.content)
            if name == manifest.digest and "subject" in document:
                entry = {
                    "mediaType": manifest.media_type,
                    "digest": manifest.digest,
                    "size": len(manifest.content),
                    "artifactType": document["config"]["mediaType"],
                }
                referring[repository, document["subject"]["digest"]].append(entry)
        for (repository, digest), entries in referring.items():
            index = {"schemaVersion": 2, "mediaType": _INDEX, "manifests": entries}
            Repository(address, repository).push_manifest(digest.replace(":", "-"), index)

    def write_trust_root(self, folder: Path) -> Path:
        """A folder that TUF_ROOT may name."""
        targets = folder / "targets"
        targets.mkdir(parents=True)
        (targets / "trusted_root.json").write_bytes(self.sigstore.trusted_root())
        return folder

    # --- what tests say

    def rewrite(self, body: Any) -> Any:
        """An object of a test with our keys, certificates and digests in the place of others."""
        if isinstance(body, dict):
            if body.get("kind") == "Secret":
                return {**body, "data": self._rewrite_data(body.get("data"))}
            return {key: self._rewrite_field(key, value) for key, value in body.items()}
        if isinstance(body, list):
            return [self.rewrite(each) for each in body]
        return self._rewrite_text(body) if isinstance(body, str) else body

    def _rewrite_field(self, key: str, value: Any) -> Any:
        if key == "tsaCertChain":
            stamps = self.sigstore.stamp_certificate, self.sigstore.stamp_root.certificate
            return pem_of_certificates(*stamps)
        return self.rewrite(value)

    def _rewrite_data(self, data: Any) -> Any:
        if not isinstance(data, dict):
            return data
        return {key: self._rewrite_base64(value) for key, value in data.items()}

    def _rewrite_base64(self, value: Any) -> Any:
        try:
            text = b64decode(value).decode()
        except (Base64Error, UnicodeDecodeError, TypeError, ValueError):
            return value
        return b64encode(self._rewrite_text(text).encode()).decode()

    def _rewrite_text(self, text: str) -> str:
        text = _MOVED.sub(rf"{self._address}/\1/", text)
        text = _KEY.sub(pem_of(self._key).strip(), text)
        text = _CERTIFICATES.sub(self._root.pem.strip(), text)
        for theirs, ours in self._digests.items():
            text = text.replace(theirs, ours.removeprefix("sha256:"))
        return text
