"""Checks who has signed a manifest, and how many."""

from collections.abc import Callable, Iterator, Mapping
from typing import TypeAlias

import msgspec
from msgspec.structs import replace

from lictor.core.crypto.signature import Verify, compile_key
from lictor.core.errors import CompileError, EvaluationError
from lictor.core.evaluate.manifests.difference import SignedDifference
from lictor.core.evaluate.manifests.evidence import NO_MANIFEST, Evidence
from lictor.core.evaluate.manifests.message import decode_base64
from lictor.core.evaluate.manifests.verifier import ManifestVerifier
from lictor.core.evaluate.verify_images.attestors import TrustedSigner
from lictor.core.lang.go_number import dump_go_json
from lictor.core.model.signatures import Attestor, AttestorSet
from lictor.core.raw import Json
from lictor.core.records import convert_record

_BEGIN, _END = "-----BEGIN PUBLIC KEY-----", "-----END PUBLIC KEY-----"
_NOT_VERIFIED = "failed to verify signature"


class SignatureFinding(msgspec.Struct, frozen=True):
    """The result of one attestor, or of a set of them."""

    verified: bool
    text: str
    difference: SignedDifference | None = None


# Raises EvaluationError if it cannot be determined.
Attest: TypeAlias = Callable[[Evidence], SignatureFinding]
# Raises EvaluationError if this signer has not signed.
_Check: TypeAlias = Callable[[Evidence], None]


def compile_attestors(
    wanted: AttestorSet, repository: str, where: str, verifier: ManifestVerifier
) -> Attest:
    """Enough of these must have signed: all by default."""
    entries = [
        _compile_attestor(entry, repository, f"{where}.entries[{index}]", verifier)
        for index, entry in enumerate(_expand(wanted.entries))
    ]
    required = wanted.count or len(entries)
    if required < 0:
        raise CompileError(f"{where}.count: expected a positive number")

    def attest(evidence: Evidence) -> SignatureFinding:
        verified, failed, errors = list[SignatureFinding](), list[SignatureFinding](), list[str]()
        for entry in entries:
            try:
                finding = entry(evidence)
            except EvaluationError as error:
                errors.append(str(error))
                continue
            (verified if finding.verified else failed).append(finding)
            if len(verified) >= required:
                return _sum_up(verified, f"succeeded; verifiedCount {len(verified)}", required)
        if errors:
            raise EvaluationError("; ".join(errors))
        return _sum_up(failed, f"failed; verifiedCount {len(verified)}", required)

    return attest


def _sum_up(findings: list[SignatureFinding], what: str, required: int) -> SignatureFinding:
    texts = ",".join(finding.text for finding in findings)
    return SignatureFinding(
        verified=any(finding.verified for finding in findings),
        text=f"manifest verification {what}; requiredCount {required}; message {texts}",
        difference=next((each.difference for each in findings if each.difference), None),
    )


def _expand(entries: tuple[Attestor, ...]) -> Iterator[Attestor]:
    """Several keys in one text are separate attestors."""
    for entry in entries:
        parts = entry.keys.public_keys.split(_END)[:-1] if entry.keys is not None else []
        if entry.keys is None or len(parts) < 2:
            yield entry
            continue
        for part in parts:
            yield replace(entry, keys=replace(entry.keys, public_keys=f"{part.lstrip()}{_END}"))


def _compile_attestor(
    entry: Attestor, repository: str, where: str, verifier: ManifestVerifier
) -> Attest:
    if entry.attestor is not None:
        return _compile_nested(entry.attestor, repository, f"{where}.attestor", verifier)
    field, signer = verifier.compile(entry)
    check = _compile_source(entry, signer, verifier)
    where, repository = where + field, entry.repository or repository

    def attest(evidence: Evidence) -> SignatureFinding:
        _check_annotations(entry.annotations, evidence.annotations)
        image = evidence.image or repository
        try:
            if image:
                message = verifier.fetch(image, signer)
                return _compare(evidence.compare(message), where)
            return _evaluate_signature(evidence, check, where)
        except EvaluationError as error:
            raise EvaluationError(f"{where}: {error}") from error

    return attest


def _compile_nested(entry: Json, repository: str, where: str, verifier: ManifestVerifier) -> Attest:
    try:
        nested = convert_record(entry, AttestorSet)
    except msgspec.ValidationError as error:
        raise CompileError(f"{where}: {error}") from error
    attest = compile_attestors(nested, repository, where, verifier)

    def attest_nested(evidence: Evidence) -> SignatureFinding:
        try:
            return attest(evidence)
        except EvaluationError as error:
            raise EvaluationError(f"{_NOT_VERIFIED}; {where}: {error}") from error

    return attest_nested


def _evaluate_signature(evidence: Evidence, check: _Check, where: str) -> SignatureFinding:
    """Nothing of a message is read before its signature is verified."""
    if not evidence.has_message:
        return SignatureFinding(verified=False, text=f"{where}: {NO_MANIFEST}: message not found")
    if not evidence.signatures:
        return SignatureFinding(
            verified=False, text=f"{where}: {_NOT_VERIFIED}: signature not found"
        )
    check(evidence)
    return _compare(evidence.differences, where)


def _compare(differences: tuple[SignedDifference, ...] | None, where: str) -> SignatureFinding:
    if differences is None:
        text = "failed to find a YAML manifest in the gzipped message"
        return SignatureFinding(verified=False, text=f"{where}: {NO_MANIFEST}: {text}")
    if differences:
        text = f"{where}: {_NOT_VERIFIED}. diff found; {_format_differences(differences)}"
        return SignatureFinding(verified=False, text=text, difference=differences[0])
    return SignatureFinding(verified=True, text="singed by a valid signer: ")


def _check_annotations(wanted: Mapping[str, str], found: Mapping[str, str]) -> None:
    for key, value in wanted.items():
        actual = found.get(key, "")
        if actual != value:
            text = f"{actual} does not match expected value {value} for key {key}"
            raise EvaluationError(f"annotations mismatch: {text}")


def _compile_source(entry: Attestor, signer: TrustedSigner, verifier: ManifestVerifier) -> _Check:
    """The check of a signer's signature."""
    keys = entry.keys
    if keys is None or keys.kms or keys.secret is not None or "://" in keys.public_keys:
        return lambda evidence: _check_signatures(None, signer, evidence, verifier)
    if "PGP PUBLIC KEY" in keys.public_keys:
        return _refuse("PGP keys are not supported: sign with cosign's keys")
    if not keys.public_keys.startswith(_BEGIN):
        return _refuse("publicKeys contains no PEM key")
    try:
        verify: Verify = compile_key(keys.public_keys)
    except ValueError:
        return _refuse(
            f"{_NOT_VERIFIED}: failed to judge signature type from public key configuration"
        )
    return lambda evidence: _check_signatures(verify, signer, evidence, verifier)


def _refuse(why: str) -> _Check:
    def check(_: Evidence) -> None:
        raise EvaluationError(why)

    return check


def _format_differences(differences: tuple[SignedDifference, ...]) -> str:
    items = [
        {"key": each.key, "values": {"before": each.before, "after": each.after}}
        for each in differences
    ]
    return dump_go_json({"items": items})


def _check_signatures(
    verify: Verify | None, signer: TrustedSigner, evidence: Evidence, verifier: ManifestVerifier
) -> None:
    """One of the signatures must be by this signer; raises EvaluationError otherwise.

    `verify` checks those made with a plain key without a transparency log.
    """
    message, count, trials = evidence.message, len(evidence.signatures), []
    for index, signature in enumerate(evidence.signatures, 1):
        if verify is None or signature.is_logged:
            why = verifier.try_signature(signature, message, signer)
        else:
            why = _try_signature(verify, signature.text, message)
        if why is None:
            return
        trials.append(f"[publickey 1/1] [signature {index}/{count}] error: {why}")
    tried = f"verification failed for {count} signature. all trials: {dump_go_json(trials)}"
    raise EvaluationError(f"{_NOT_VERIFIED}: {tried}")


def _try_signature(verify: Verify, text: str, message: bytes) -> str | None:
    if not text:
        why: str | None = "missing flag '--signature'"
    else:
        try:
            signature = decode_base64(text)
        except ValueError:
            signature = text.encode("utf-8", "replace")
        why = verify(signature, message)
    return None if why is None else f"cosign.VerifyBlobCmd.Exec() returned an error: {why}"
