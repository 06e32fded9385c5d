"""Violations of Pod Security checks, and their messages."""

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import TypeAlias

import msgspec

from lictor.core.evaluate.pod_security.pod import TEMPLATED_KINDS

FORBIDDEN = "Forbidden"
REQUIRED = "Required value"

# The empty text if nothing was found.
Found: TypeAlias = str | bool | int | tuple[str, ...]


class FieldError(msgspec.Struct, frozen=True):
    """One field of the pod that violates a control."""

    path: str
    problem: str = FORBIDDEN
    found: Found = ""


class Violation(msgspec.Struct, frozen=True):
    """One check that a pod fails.

    `containers` names those whose images a report shows. Paths are those in a Pod, even if another
    resource creates the pod.
    """

    check: str
    control: str
    reason: str
    detail: str
    errors: tuple[FieldError, ...] = ()
    containers: tuple[str, ...] = ()


def forbid(path: str, found: Found = "") -> FieldError:
    """An error for a field that must not exist, or not with this value."""
    return FieldError(path, FORBIDDEN, found)


def require(path: str) -> FieldError:
    """An error for a missing field."""
    return FieldError(path, REQUIRED)


def quote(names: Iterable[str]) -> str:
    """`"a", "b"`."""
    return ", ".join(f'"{name}"' for name in names)


def count_noun(noun: str, things: Sequence[object]) -> str:
    """The noun, plural unless there is exactly one."""
    return noun if len(things) == 1 else f"{noun}s"


def name_containers(names: Sequence[str]) -> str:
    """`container "a"`, or `containers "a", "b"`."""
    return f"{count_noun('container', names)} {quote(names)}"


def name_setters(names: Sequence[str], *, pod: bool) -> str:
    """What set something: the pod, containers, or both."""
    setters = ["pod"] if pod else []
    if names:
        setters.append(name_containers(names))
    return " and ".join(setters)


class Standard(msgspec.Struct, frozen=True):
    """The level and version of a rule, as written."""

    level: str
    version: str


def locate_error(path: str, kind: str) -> str:
    """The path of a pod's field in the resource of this kind."""
    if kind in TEMPLATED_KINDS:
        path = path.replace("spec", "spec.template.spec")
    elif kind == "CronJob":
        path = path.replace("spec", "spec.jobTemplate.spec.template.spec")
    # Kyverno writes this for a Pod as well.
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
    """The complete message of a rule for a resource of this kind."""
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
