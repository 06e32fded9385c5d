"""Checks of image rules: images and signers."""

from collections.abc import Iterator

from lictor.core.load.fields import suggest
from lictor.core.model.finding import Finding
from lictor.lint.catalog import flag
from lictor.lint.field import Field

_SIGNERS = ("keys", "certificates", "keyless", "attestor")
_ALGORITHMS = ("sha224", "sha256", "sha384", "sha512")
_MAX_NESTING = 20


def check_images(rule: Field, *, is_audit: bool) -> Iterator[Finding]:
    """A verifyImages rule; `is_audit` is the policy's default."""
    for verification in rule["verifyImages"].each():
        yield from _check_references(verification)
        yield from _check_digest(verification, is_audit=is_audit)
        yield from _check_signers(verification["attestors"])
        for attestation in verification["attestations"].each():
            yield from _check_signers(attestation["attestors"])
            yield from _check_attestation(attestation)
        if verification["type"].text == "Notary":
            yield from _check_notary(verification)
        yield from _check_strength(verification)
    yield from _check_extractors(rule)


def _check_references(verification: Field) -> Iterator[Finding]:
    references = verification["imageReferences"]
    if not references.texts and not verification["image"].text:
        message = "imageReferences are missing"
        yield flag("bad-images", verification.path, message)
    for reference in references.each():
        if "{{" in reference.text:
            message = "variables are not resolved here"
            yield flag("misplaced-variable", reference.path, message)


def _check_digest(verification: Field, *, is_audit: bool) -> Iterator[Finding]:
    own = verification["failureAction"].text
    audits = own.lower() == "audit" if own else is_audit
    if audits and verification["mutateDigest"].value is not False:
        at = verification["mutateDigest"] if verification["mutateDigest"] else verification
        message = "a rule that only audits cannot change images: set mutateDigest to false"
        yield flag("bad-images", at.path, message)


def _check_attestation(attestation: Field) -> Iterator[Finding]:
    if attestation["predicateType"].text:
        message = "predicateType is replaced by type"
        yield flag("deprecated", attestation["predicateType"].path, message, "type")


def _check_signers(sets: Field) -> Iterator[Finding]:
    for each in sets.each():
        yield from _check_set(each, 0)


def _check_set(signers: Field, depth: int) -> Iterator[Finding]:
    entries = list(signers["entries"].each())
    count = signers["count"].value
    if not entries:
        yield flag("bad-images", signers.path, "attestors without entries")
    elif isinstance(count, int) and count < 1:
        yield flag("bad-images", signers["count"].path, f"count is {count}: at least 1 must sign")
    elif isinstance(count, int) and count > len(entries):
        message = f"count is {count}, but there are only {len(entries)} entries"
        yield flag("bad-images", signers["count"].path, message)
    for entry in entries:
        yield from _check_signer(entry, depth)


def _check_signer(entry: Field, depth: int) -> Iterator[Finding]:
    found = entry.present(*_SIGNERS)
    if len(found) != 1:
        shown = " and ".join(found) or "none"
        message = f"expected exactly one of {', '.join(_SIGNERS)}, found {shown}"
        yield flag("bad-images", entry.path, message)
    yield from _check_keys(entry["keys"])
    certificates, keyless = entry["certificates"], entry["keyless"]
    if certificates and not (certificates["cert"].text or certificates["certChain"].text):
        yield flag("bad-images", certificates.path, "cert or certChain is missing")
    if keyless:
        yield from _check_keyless(keyless)
    if entry["attestor"] and depth < _MAX_NESTING:
        yield from _check_set(entry["attestor"], depth + 1)


def _check_keys(keys: Field) -> Iterator[Finding]:
    if not keys:
        return
    if not (keys["publicKeys"].text or keys["kms"].text or keys["secret"]):
        yield flag("bad-images", keys.path, "publicKeys, kms or secret is missing")
    algorithm = keys["signatureAlgorithm"]
    if algorithm.text and algorithm.text not in _ALGORITHMS:
        message = f'expected one of {", ".join(_ALGORITHMS)}, found "{algorithm.text}"'
        yield flag("bad-images", algorithm.path, message, suggest(algorithm.text, _ALGORITHMS))


def _check_keyless(keyless: Field) -> Iterator[Finding]:
    rekor = keyless["rekor"]
    if not rekor and not keyless["roots"].text:
        yield flag("bad-images", keyless.path, "rekor or roots is missing")
    elif rekor and not rekor["url"].text:
        yield flag("bad-images", rekor.path, '"url" of rekor is missing')


def _check_notary(verification: Field) -> Iterator[Finding]:
    for signers in verification["attestors"].each():
        for entry in signers["entries"].each():
            for name in entry.present("keys", "keyless"):
                message = f"Notary knows no {name}: give certificates"
                yield flag("bad-images", entry[name].path, message)


def _check_extractors(rule: Field) -> Iterator[Finding]:
    changes = any(v["mutateDigest"].value is not False for v in rule["verifyImages"].each())
    for _, extractors in rule["imageExtractors"].entries():
        for extractor in extractors.each():
            if changes and extractor["jmesPath"].text:
                message = "an image behind a jmesPath cannot be changed: set mutateDigest to false"
                yield flag("bad-images", extractor["jmesPath"].path, message)


# --- ImageValidatingPolicy


def check_image_policy(spec: Field) -> Iterator[Finding]:
    """Attestors and attestations that could not verify anything."""
    for attestor in spec["attestors"].each():
        yield from _require_one(attestor, "cosign", "notary")
        if attestor["cosign"]:
            yield from _check_cosign(attestor["cosign"])
        notary = attestor["notary"]
        if notary and not notary["certs"].present("value", "expression"):
            yield flag("bad-images", notary.path, "certs are missing: no signer could be trusted")
    for attestation in spec["attestations"].each():
        yield from _require_one(attestation, "intoto", "referrer")
    yield from _check_debug_containers(spec)


def _check_debug_containers(spec: Field) -> Iterator[Finding]:
    """Whether a policy about Pods verifies what `kubectl debug` adds."""
    rules = spec["matchConstraints"]["resourceRules"].each()
    is_about_pods = any("pods" in each.text for rule in rules for each in rule["resources"].each())
    is_required = spec["validationConfigurations"]["required"].value is not False
    parts = (*spec["validations"].each(), *spec["variables"].each())
    texts = " ".join(part["expression"].text for part in parts)
    if not is_about_pods or is_required or "images.containers" not in texts:
        return
    if "ephemeralContainers" not in texts:
        message = (
            "debug containers (pods/ephemeralcontainers) are let in unverified: verify "
            "images.ephemeralContainers too, or set validationConfigurations.required to true"
        )
        yield flag("unverified-debug-containers", spec["validations"].path, message)


def _require_one(part: Field, *names: str) -> Iterator[Finding]:
    found = part.present(*names)
    if len(found) != 1:
        shown = " and ".join(found) or "none"
        message = f"expected exactly one of {', '.join(names)}, found {shown}"
        yield flag("bad-images", part.path, message)


def _check_cosign(cosign: Field) -> Iterator[Finding]:
    yield from _require_one(cosign, "key", "keyless", "certificate")
    key, keyless, certificate = cosign["key"], cosign["keyless"], cosign["certificate"]
    if key and not key.present("data", "kms", "expression"):
        yield flag("bad-images", key.path, "data, kms or expression is missing")
    if certificate and not certificate.present("cert", "certChain"):
        yield flag("bad-images", certificate.path, "cert or certChain is missing")
    if keyless:
        yield from _check_identities(cosign)
    path = cosign["tuf"]["root"]["path"]
    if path.text:
        message = "files and URLs of roots are not read: put the root metadata into data"
        yield flag("bad-images", path.path, message)


def _check_identities(cosign: Field) -> Iterator[Finding]:
    keyless = cosign["keyless"]
    # With a private authority, that is everyone to whom it issues certificates.
    is_public = not keyless["roots"].text and not cosign["tuf"]["mirror"].text
    identities = list(keyless["identities"].each())
    words = ("issuer", "issuerRegExp", "subject", "subjectRegExp")
    for part in identities or [keyless]:
        is_empty = not identities or not any(part[word].text for word in words)
        if is_empty and (is_public or not identities):
            message = "an identity without issuer and subject would accept everyone"
            yield flag("bad-images", part.path, message)


def _check_strength(verification: Field) -> Iterator[Finding]:
    """Valid settings that do not do what their author thinks."""
    for reference in verification["imageReferences"].each():
        yield from _check_tag(reference)
    yield from _check_required(verification)
    for attestation in verification["attestations"].each():
        yield from _check_attested(attestation)
    if verification["type"].text == "SigstoreBundle":
        for entry in _list_entries(verification):
            yield from _check_bundle(entry["keyless"])


def _check_tag(reference: Field) -> Iterator[Finding]:
    name = reference.text.rpartition("/")[2]
    repository, colon, tag = name.partition(":")
    if colon and tag != "*" and "@" not in name and not repository.endswith("*"):
        message = (
            "an image that is given by its digest alone (app@sha256:...) has no tag, and is not "
            f'meant: "{reference.text.rpartition(":")[0]}*" means it as well'
        )
        yield flag("weak-images", reference.path, message)


def _check_required(verification: Field) -> Iterator[Finding]:
    older = verification.present("key", "issuer", "subject")
    is_verified = verification["attestors"] or verification["attestations"] or older
    if not is_verified and verification["required"].value is not False:
        message = "no attestor is given: images fail, unless required is false"
        yield flag("weak-images", verification.path, message)


def _check_attested(attestation: Field) -> Iterator[Finding]:
    if attestation["attestors"].is_empty:
        message = "attestors are missing: no attestation is accepted, and images fail"
        yield flag("weak-images", attestation.path, message)
    for signers in attestation["attestors"].each():
        for entry in signers["entries"].each():
            if not entry["annotations"].is_empty:
                message = "attestations carry no annotations: images fail"
                yield flag("weak-images", entry["annotations"].path, message)


def _list_entries(verification: Field) -> Iterator[Field]:
    sets = [*verification["attestors"].each()]
    for attestation in verification["attestations"].each():
        sets += attestation["attestors"].each()
    for signers in sets:
        yield from signers["entries"].each()


def _check_bundle(keyless: Field) -> Iterator[Finding]:
    if not keyless:
        return
    for who in ("issuer", "subject"):
        if not (keyless[who].text or keyless[f"{who}RegExp"].text):
            message = f"SigstoreBundle needs {who} or {who}RegExp: images fail"
            yield flag("weak-images", keyless.path, message)
    if keyless["ctlog"]["ignoreSCT"].is_true:
        message = "SigstoreBundle excludes ignoreSCT: images fail"
        yield flag("weak-images", keyless["ctlog"]["ignoreSCT"].path, message)
