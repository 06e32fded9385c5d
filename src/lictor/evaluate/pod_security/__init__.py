"""Does a pod meet the Pod Security Standards of Kubernetes?

A pod is read once, typed, and then shown to the checks of the level. Nothing here knows of
policies, rules or requests.
"""

from collections.abc import Callable, Sequence

from lictor.errors import CompileError
from lictor.evaluate.pod_security.exclusion import (
    Exclusion,
    PodSecurityExclude,
    check_exclude,
    compile_exclusion,
)
from lictor.evaluate.pod_security.message import (
    Standard,
    describe_violations,
    format_checks,
    format_violations,
)
from lictor.evaluate.pod_security.pod import read_pod
from lictor.evaluate.pod_security.standard import (
    CONTROL_NAMES,
    CONTROLS,
    Level,
    parse_level,
    parse_version,
    select_checks,
)
from lictor.evaluate.pod_security.violation import FieldError, Violation
from lictor.raw import Json

__all__ = [
    "CONTROL_NAMES",
    "Exclusion",
    "FieldError",
    "PodSecurityExclude",
    "Standard",
    "Violation",
    "check_exclude",
    "compile_pod_security",
    "compile_tolerance",
    "describe_violations",
    "format_checks",
    "format_violations",
]


def _check_level(level: Level, exclude: Sequence[PodSecurityExclude]) -> None:
    if level is not Level.BASELINE:
        return
    known = {control.name for control in CONTROLS if control.level is Level.BASELINE}
    for each in exclude:
        if each.control_name in CONTROL_NAMES - known:
            raise CompileError(f"{each.control_name} is not a control of the level baseline")


def compile_pod_security(
    level: str, version: str = "", exclude: Sequence[PodSecurityExclude] = ()
) -> Callable[[Json], tuple[Violation, ...]]:
    """A check of a Pod, or of a resource that makes pods; no violations where all is well."""
    parsed = parse_level(level)
    checks = select_checks(parsed, parse_version(version))
    _check_level(parsed, exclude)
    tolerances = [compile_exclusion(each, checks) for each in exclude]
    bare = tuple(check for _, check in checks)

    def judge(resource: Json) -> tuple[Violation, ...]:
        pod = read_pod(resource)
        found = [violation for check in bare if (violation := check(pod)) is not None]
        if found:
            for tolerate in tolerances:
                found = tolerate(pod, found)
        return tuple(found)

    return judge


def compile_tolerance(
    level: str, version: str, exclude: Sequence[PodSecurityExclude]
) -> Callable[[Json, Sequence[Violation]], tuple[Violation, ...]]:
    """What is left of a resource's violations once an exception is heard."""
    checks = select_checks(parse_level(level), parse_version(version))
    tolerances = [compile_exclusion(each, checks) for each in exclude]

    def hear(resource: Json, violations: Sequence[Violation]) -> tuple[Violation, ...]:
        pod = read_pod(resource)
        left = list(violations)
        for tolerate in tolerances:
            left = tolerate(pod, left)
        return tuple(left)

    return hear
