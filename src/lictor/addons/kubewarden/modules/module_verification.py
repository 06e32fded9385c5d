"""`verification.yml`: whose signatures a policy module must carry before it is run."""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import TypeAlias
from urllib.parse import urlsplit

import msgspec
import orjson

from lictor.addons.kubewarden.modules.module_sources import read_single_document
from lictor.core.errors import EvaluationError, LoadError, SignatureRefusedError
from lictor.core.files import read_bytes
from lictor.core.ports import DEFAULT_ACCESS, Registries, RegistryAccess
from lictor.core.records import convert_record
from lictor.core.signatures.records import (
    CosignAttestor,
    FoundSignature,
    Identity,
    LogTrust,
    SignatureLocation,
    SignedImage,
    TrustedIdentity,
    TrustedKey,
)

_GITHUB = "https://token.actions.githubusercontent.com"
_NAME = re.compile(r"[A-Za-z0-9._-]+")
_MOST_REASONS = 5


class SubjectRule(
    msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True, omit_defaults=True
):
    """A signer: an exact subject, or all subjects below a URL."""

    equal: str | None = None
    url_prefix: str | None = None


class KeyRule(
    msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="pubKey", tag_field="kind"
):
    """A signature by a key."""

    key: str
    owner: str | None = None
    annotations: dict[str, str] | None = None


class IssuerRule(
    msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="genericIssuer", tag_field="kind"
):
    """A keyless signature of someone whom an identity provider knows."""

    issuer: str
    subject: SubjectRule
    annotations: dict[str, str] | None = None


class GithubRule(
    msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="githubAction", tag_field="kind"
):
    """A keyless signature by a workflow of a GitHub owner or repository."""

    owner: str
    repo: str | None = None
    annotations: dict[str, str] | None = None


SignatureRule: TypeAlias = KeyRule | IssuerRule | GithubRule


class AnyRule(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """So many of these signatures."""

    signatures: tuple[SignatureRule, ...]
    minimum_matches: int = 1


class VerificationConfig(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """Which signatures a module must carry: all of the first, and enough of the second."""

    api_version: str = "v1"
    all_of: tuple[SignatureRule, ...] | None = None
    any_of: AnyRule | None = None


def read_verification(path: str) -> VerificationConfig:
    """Read the file; LoadError if it contains nothing to verify."""
    return parse_verification(read_bytes(path), path)


def parse_verification(content: bytes, where: str) -> VerificationConfig:
    """The same for what was read already."""
    body = read_single_document(content, where)
    try:
        config = convert_record({} if body is None else body, VerificationConfig)
    except msgspec.ValidationError as error:
        raise LoadError(f"no verification configuration: {error}", where=where) from error
    check_verification(config, where)
    return config


def check_verification(config: VerificationConfig, where: str) -> None:
    """LoadError for a configuration that would verify nothing, or cannot be met."""
    if config.api_version != "v1":
        raise LoadError(f"apiVersion {config.api_version!r} is not known: v1 is", where=where)
    wanted = config.any_of
    # Kubewarden takes an empty list, or a minimum of 0, for "verified", without any signature.
    if not config.all_of and (wanted is None or not wanted.signatures):
        raise LoadError("neither allOf nor anyOf names a signature", where=where)
    if wanted is not None and not 1 <= wanted.minimum_matches <= len(wanted.signatures):
        raise LoadError(
            f"anyOf wants {wanted.minimum_matches} of {len(wanted.signatures)} signatures",
            where=where,
        )
    for rule in (*(config.all_of or ()), *(wanted.signatures if wanted else ())):
        try:
            build_attestor(rule)
        except EvaluationError as error:
            raise LoadError(str(error), where=where) from error


def build_attestor(rule: SignatureRule) -> CosignAttestor:
    """The signer that a rule requires; EvaluationError if it requires none."""
    match rule:
        case KeyRule():
            # Kubewarden verifies the log entry of a key's signature only if the signature has one.
            return TrustedKey(rule.key, log=LogTrust(ignore_log=True))
        case IssuerRule():
            return TrustedIdentity((_read_subject(rule),))
        case GithubRule():
            return TrustedIdentity((_read_github(rule),))


def _read_subject(rule: IssuerRule) -> Identity:
    equal, prefix = rule.subject.equal, rule.subject.url_prefix
    if not rule.issuer or bool(equal) == bool(prefix):
        raise EvaluationError(
            "genericIssuer wants an issuer, and a subject with equal or urlPrefix"
        )
    if equal:
        return Identity(issuer=rule.issuer, subject=equal)
    parts = urlsplit(prefix or "")
    if not parts.scheme or not parts.netloc:
        raise EvaluationError(f"urlPrefix {prefix!r} is no URL such as https://HOST/PATH/")
    return Identity(issuer=rule.issuer, subject_regexp=_match_below(prefix or ""))


def _read_github(rule: GithubRule) -> Identity:
    names = [rule.owner] if rule.repo is None else [rule.owner, rule.repo]
    if not all(_NAME.fullmatch(name) for name in names):
        raise EvaluationError("githubAction wants the name of an owner, and of a repository if any")
    return Identity(
        issuer=_GITHUB, subject_regexp=_match_below("https://github.com/" + "/".join(names))
    )


def _match_below(prefix: str) -> str:
    """`https://host/team` means what is below it, not `https://host/team-of-others`."""
    return "^" + re.escape(prefix.rstrip("/") + "/")


def verify_module(
    image: SignedImage,
    config: VerificationConfig,
    registries: Registries,
    access: RegistryAccess = DEFAULT_ACCESS,
) -> None:
    """SignatureRefusedError where the artifact does not carry the signatures that are wanted."""
    check_verification(config, "verification")
    found = find_module_signatures(image, registries, access)
    if not found:
        raise SignatureRefusedError(f"no signatures found for {image.repository}@{image.digest}")
    checker = _Checker(image, registries, found)
    missing = [rule for rule in config.all_of or () if checker.explain(rule)]
    if missing:
        raise SignatureRefusedError(f"missing signatures: {checker.describe(missing)}")
    if config.any_of is not None:
        rules = config.any_of.signatures
        unmet = [rule for rule in rules if checker.explain(rule)]
        met, needed = len(rules) - len(unmet), config.any_of.minimum_matches
        if met < needed:
            raise SignatureRefusedError(
                f"minimum number of signatures not reached: needed {needed}, got {met}: "
                f"{checker.describe(unmet)}"
            )


def find_module_signatures(
    image: SignedImage, registries: Registries, access: RegistryAccess = DEFAULT_ACCESS
) -> list[FoundSignature]:
    """All signatures beside an artifact, of either format of cosign's."""
    from lictor.core.signatures.discovery import find_bundles, find_signatures

    location = SignatureLocation(access)
    return [
        *find_signatures(registries, image, location),
        *find_bundles(registries, image, location),
    ]


class _Checker(msgspec.Struct, frozen=True):
    """Looks for signatures of one artifact."""

    image: SignedImage
    registries: Registries
    found: Sequence[FoundSignature]

    def explain(self, rule: SignatureRule) -> list[str]:
        """Why no signature is what the rule wants; empty where one is."""
        from lictor.core.signatures.verification import check_annotations, verify_signature

        reasons = []
        for one in self.found:
            attestor = _follow_log(build_attestor(rule), one)
            try:
                signed = verify_signature(one, self.image, attestor, self.registries)
                check_annotations(signed.annotations, rule.annotations or {})
            except SignatureRefusedError as error:
                reasons.append(f"{one.origin}: {error}")
                continue
            return []
        return reasons

    def describe(self, rules: Sequence[SignatureRule]) -> str:
        return "; ".join(self._describe(rules))

    def _describe(self, rules: Sequence[SignatureRule]) -> Iterator[str]:
        for rule in rules[:_MOST_REASONS]:
            reasons = ", ".join(self.explain(rule)[:_MOST_REASONS])
            yield f"{describe_rule(rule)} ({reasons})"


def _follow_log(attestor: CosignAttestor, found: FoundSignature) -> CosignAttestor:
    """The log entry of a signature must be valid, also where none is required."""
    if isinstance(attestor, TrustedKey) and found.log_entries:
        return msgspec.structs.replace(attestor, log=LogTrust())
    return attestor


def describe_rule(rule: SignatureRule) -> str:
    """The rule in one line, as the file writes it."""
    written: Mapping[str, object] = msgspec.to_builtins(rule)
    return orjson.dumps({key: value for key, value in written.items() if value}).decode()


def read_trust_config(path: str) -> bytes:
    """`trusted_root.json` from a file that holds it, or a client's trust configuration."""
    return parse_trust_config(read_bytes(path), path)


def parse_trust_config(content: bytes, where: str) -> bytes:
    """The same for what was read already."""
    try:
        document = orjson.loads(content)
    except orjson.JSONDecodeError as error:
        raise LoadError(f"no trust root of a Sigstore: {error}", where=where) from error
    root = document.get("trustedRoot", document) if isinstance(document, dict) else None
    if not isinstance(root, dict):
        raise LoadError("no trust root of a Sigstore", where=where)
    return content if root is document else orjson.dumps(root)
