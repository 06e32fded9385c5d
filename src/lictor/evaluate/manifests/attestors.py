"""Who must have signed, and how many of them? What needs more than a key answers with an error."""

from collections.abc import Callable, Iterator, Mapping
from typing import TypeAlias

import msgspec
from msgspec.structs import replace

from lictor.errors import CompileError, EvaluationError
from lictor.evaluate.manifests.difference import Difference
from lictor.evaluate.manifests.evidence import Evidence
from lictor.evaluate.manifests.message import decode_base64
from lictor.lang.go_json import dump_go_json
from lictor.lang.signature import Verify, compile_key
from lictor.model.policy import Attestor, AttestorSet, StaticKeys
from lictor.raw import Json

_BEGIN, _END = "-----BEGIN PUBLIC KEY-----", "-----END PUBLIC KEY-----"
_NO_MANIFEST = "YAML manifest not found for this resource"
_NOT_VERIFIED = "failed to verify signature"


class Finding(msgspec.Struct, frozen=True):
    """What one attestor, or a set of them, says of a resource."""

    verified: bool
    text: str


# EvaluationError where it cannot be told.
Attest: TypeAlias = Callable[[Evidence], Finding]
# EvaluationError where this signer has not signed.
_Check: TypeAlias = Callable[[Evidence], None]


def compile_attestors(wanted: AttestorSet, where: str) -> Attest:
    """Enough of these must have signed: all, where no count is given."""
    entries = [
        _compile_attestor(entry, f"{where}.entries[{index}]")
        for index, entry in enumerate(_expand(wanted.entries))
    ]
    required = wanted.count or len(entries)
    if required < 0:
        raise CompileError(f"{where}.count: expected a positive number")

    def attest(evidence: Evidence) -> Finding:
        verified, failed, errors = list[str](), list[str](), list[str]()
        for entry in entries:
            try:
                finding = entry(evidence)
            except EvaluationError as error:
                errors.append(str(error))
                continue
            (verified if finding.verified else failed).append(finding.text)
            if len(verified) >= required:
                return _sum_up("succeeded", verified, len(verified), required)
        if errors:
            raise EvaluationError("; ".join(errors))
        return _sum_up("failed", failed, len(verified), required)

    return attest


def _sum_up(what: str, texts: list[str], count: int, required: int) -> Finding:
    text = (
        f"manifest verification {what}; verifiedCount {count}; requiredCount {required}; "
        f"message {','.join(texts)}"
    )
    return Finding(what == "succeeded", text)


def _expand(entries: tuple[Attestor, ...]) -> Iterator[Attestor]:
    """Several keys in one text are as many attestors."""
    for entry in entries:
        parts = entry.keys.public_keys.split(_END)[:-1] if entry.keys is not None else []
        if entry.keys is None or len(parts) < 2:
            yield entry
            continue
        for part in parts:
            yield replace(entry, keys=replace(entry.keys, public_keys=f"{part.lstrip()}{_END}"))


def _compile_attestor(entry: Attestor, where: str) -> Attest:
    if entry.attestor is not None:
        return _compile_nested(entry.attestor, f"{where}.attestor")
    field, check = _compile_source(entry)
    where += field

    def attest(evidence: Evidence) -> Finding:
        _check_annotations(entry.annotations, evidence.annotations)
        try:
            return _judge(evidence, check, where)
        except EvaluationError as error:
            raise EvaluationError(f"{where}: {error}") from error

    return attest


def _judge(evidence: Evidence, check: _Check, where: str) -> Finding:
    if evidence.fault:
        raise EvaluationError(f"{_NO_MANIFEST}: {evidence.fault}")
    if evidence.absence:
        return Finding(verified=False, text=f"{where}: {_NO_MANIFEST}: {evidence.absence}")
    if not evidence.signatures and not evidence.image:
        return Finding(verified=False, text=f"{where}: {_NOT_VERIFIED}: signature not found")
    check(evidence)
    if evidence.differences:
        text = f"{where}: {_NOT_VERIFIED}. diff found; {_tell(evidence.differences)}"
        return Finding(verified=False, text=text)
    return Finding(verified=True, text="singed by a valid signer: ")


def _compile_nested(entry: Json, where: str) -> Attest:
    try:
        nested = msgspec.convert(entry, AttestorSet)
    except msgspec.ValidationError as error:
        raise CompileError(f"{where}: {error}") from error
    attest = compile_attestors(nested, where)

    def attest_nested(evidence: Evidence) -> Finding:
        try:
            return attest(evidence)
        except EvaluationError as error:
            raise EvaluationError(f"failed to verify signature; {where}: {error}") from error

    return attest_nested


def _check_annotations(wanted: Mapping[str, str], found: Mapping[str, str]) -> None:
    for key, value in wanted.items():
        actual = found.get(key, "")
        if actual != value:
            text = f"{actual} does not match expected value {value} for key {key}"
            raise EvaluationError(f"annotations mismatch: {text}")


def _compile_source(entry: Attestor) -> tuple[str, _Check]:
    """The field that names the signer, and the check of what they signed."""
    if entry.keys is not None:
        if entry.repository:
            return ".keys", _refuse("a manifest in an image needs a registry, which")
        return ".keys", _compile_keys(entry.keys)
    if entry.certificates is not None:
        return ".certificates", _refuse("signing with certificates")
    if entry.keyless is not None:
        return ".keyless", _refuse("keyless signing needs a transparency log, which")
    return "", _refuse("an attestor without keys means keyless signing, which")


def _compile_keys(keys: StaticKeys) -> _Check:
    if keys.kms or keys.secret is not None:
        return _refuse("a key in a KMS or a Secret")
    if "PGP PUBLIC KEY" in keys.public_keys:
        return _refuse("a key for PGP")
    if not keys.public_keys.startswith(_BEGIN):
        return _refuse("publicKeys holds no key in PEM; one that is elsewhere")
    try:
        verify: Verify | None = compile_key(keys.public_keys)
    except ValueError:
        verify = None

    def check(evidence: Evidence) -> None:
        if evidence.image:
            _refuse(f"the manifest in {evidence.image} needs a registry, which")(evidence)
        _check_signatures(verify, evidence)

    return check


def _refuse(what: str) -> _Check:
    def check(_: Evidence) -> None:
        raise EvaluationError(f"{what} comes with a later release")

    return check


def _tell(differences: tuple[Difference, ...]) -> str:
    items = [
        {"key": each.key, "values": {"before": each.before, "after": each.after}}
        for each in differences
    ]
    return dump_go_json({"items": items})


def _check_signatures(verify: Verify | None, evidence: Evidence) -> None:
    """One of the signatures must be by this key; EvaluationError where none is."""
    if verify is None:
        raise EvaluationError(
            f"{_NOT_VERIFIED}: failed to judge signature type from public key configuration"
        )
    count, trials = len(evidence.signatures), []
    for index, signature in enumerate(evidence.signatures, 1):
        if signature.is_logged:
            why: str | None = "a signature in a transparency log comes with a later release"
        else:
            why = _try_signature(verify, signature.text, evidence.message)
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
