"""Tells violations of the Pod Security Standards in the words that users of Kyverno know."""

import json
from collections.abc import Mapping, Sequence

import msgspec

from lictor.evaluate.pod_security.pod import TEMPLATED_KINDS
from lictor.evaluate.pod_security.violation import FORBIDDEN, FieldError, Found, Violation


class Standard(msgspec.Struct, frozen=True):
    """What a rule asks for, in its author's words."""

    level: str
    version: str


def locate_error(path: str, kind: str) -> str:
    """The path of a field of the pod, as seen in the resource of this kind that makes the pod."""
    if kind in TEMPLATED_KINDS:
        path = path.replace("spec", "spec.template.spec")
    elif kind == "CronJob":
        path = path.replace("spec", "spec.jobTemplate.spec.template.spec")
    # Kyverno says so for a Pod as well.
    return path.replace("metadata", "spec.template.metadata")


def _format_found(found: Found) -> str:
    if isinstance(found, tuple):
        return f"[{' '.join(found)}]"
    if isinstance(found, bool):
        return "true" if found else "false"
    return str(found)


def _format_error(error: FieldError, kind: str) -> str:
    path = locate_error(error.path, kind)
    if error.problem == FORBIDDEN and error.found != "":
        return f"{path} is forbidden, forbidden values found: {_format_found(error.found)}"
    return f"{path}: {error.problem}"


def format_checks(violations: Sequence[Violation], kind: str) -> str:
    """Each reason with its fields."""
    parts = []
    for violation in violations:
        errors = ", ".join(_format_error(error, kind) for error in violation.errors)
        parts.append(f"(Forbidden reason: {violation.reason}, field error list: [{errors}])")
    return "".join(parts)


def format_violations(
    rule: str, standard: Standard, violations: Sequence[Violation], kind: str
) -> str:
    """The whole message of a rule that a resource of this kind fails."""
    return (
        f"Validation rule '{rule}' failed. It violates PodSecurity"
        f' "{standard.level}:{standard.version}": {format_checks(violations, kind)}'
    )


def describe_violations(
    standard: Standard, violations: Sequence[Violation], images: Mapping[str, str]
) -> dict[str, str]:
    """The properties of a report's result; `images` is container name -> full image reference."""
    if not violations:
        return {}
    controls = [
        {
            "ID": violation.check,
            "Name": violation.control,
            "Images": [images.get(name, name) for name in violation.containers] or None,
        }
        for violation in violations
    ]
    return {
        "standard": standard.level,
        "version": standard.version,
        "controls": ",".join(violation.check for violation in violations),
        "controlsJSON": json.dumps(controls, separators=(",", ":"), ensure_ascii=False),
    }
