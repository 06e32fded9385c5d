"""Checks of what policies say of images: which ones, which signers, and what is not supported."""

from collections.abc import Iterator

from lictor.families.registry import registry
from lictor.lint.catalog import flag
from lictor.lint.field import Field
from lictor.load.fields import suggest
from lictor.model.finding import FieldPath, Finding
from lictor.model.program import Phase
from lictor.raw import JsonObject

_ROOT_FILE = "files and URLs of roots are not read: put the root metadata into data"


def find_unsupported(document: JsonObject) -> Iterator[tuple[FieldPath, str]]:
    """Fields that are not supported yet, and what happens to requests meanwhile."""
    policy = Field(document)
    kind = registry().find(policy["apiVersion"].text.rpartition("/")[0], policy["kind"].text)
    if kind is None or kind.phases != (Phase.VERIFY_IMAGES,):
        return
    for attestor in policy["spec"]["attestors"].each():
        path = attestor["cosign"]["tuf"]["root"]["path"]
        if path.text:
            yield path.path, _ROOT_FILE


_SIGNERS = ("keys", "certificates", "keyless", "attestor")
_ALGORITHMS = ("sha224", "sha256", "sha384", "sha512")
_MAX_NESTING = 20


def check_images(rule: Field, *, is_audit: bool) -> Iterator[Finding]:
    """A verifyImages rule; `is_audit` is what the policy says where the rule says nothing."""
    for verification in rule["verifyImages"].each():
        yield from _check_references(verification)
        yield from _check_digest(verification, is_audit=is_audit)
        yield from _check_signers(verification["attestors"])
        for attestation in verification["attestations"].each():
            yield from _check_signers(attestation["attestors"])
            yield from _check_attestation(attestation)
        if verification["type"].text == "Notary":
            yield from _check_notary(verification)
    yield from _check_extractors(rule)


def _check_references(verification: Field) -> Iterator[Finding]:
    references = verification["imageReferences"]
    if not references.texts and not verification["image"].text:
        message = "imageReferences are missing: say which images"
        yield flag("bad-images", verification.path, message)
    for reference in references.each():
        if "{{" in reference.text:
            message = "variables are not filled in here"
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
