"""Evaluates the Pod Security Standards of Kubernetes.

A pod is decoded once and passed to the checks of the level. Nothing here depends on policies,
rules or requests.
"""

from collections.abc import Callable, Sequence

from lictor.core.errors import CompileError, EvaluationError
from lictor.core.evaluate.guard import Exempt, Exempted, skip_exempted
from lictor.core.evaluate.images import extract_images
from lictor.core.evaluate.pod_security.exclusion import (
    ControlExclusion,
    PodSecurityExclude,
    check_exclude,
    compile_exclusion,
)
from lictor.core.evaluate.pod_security.pod import read_pod
from lictor.core.evaluate.pod_security.standard import (
    CONTROL_NAMES,
    CONTROLS,
    Level,
    parse_level,
    parse_version,
    select_checks,
)
from lictor.core.evaluate.pod_security.violation import (
    FieldError,
    Standard,
    Violation,
    describe_violations,
    format_checks,
    format_violations,
    locate_error,
)
from lictor.core.evaluate.rule_context import RuleContext, RuleOutcome
from lictor.core.model.policy import PodSecurity
from lictor.core.model.program import Case, Check
from lictor.core.model.result import Failure, Result, Status
from lictor.core.raw import Json, JsonObject


def compile_pod_security_check(
    wanted: PodSecurity, exempt: Exempt | None, setting: RuleContext
) -> Check:
    """The check of a rule with `podSecurity`."""
    evaluate = compile_pod_security(wanted.level, wanted.version, wanted.exclude)
    text = f"Validation rule '{setting.rule}' passed."
    passed = setting.fixed(Status.PASS, text)

    def check(case: Case) -> tuple[Result, ...]:
        resource = case.request.object
        if resource is None:
            return ()
        found = exempt(case) if exempt is not None else ()
        full = tuple(each for each in found if not each.pod_security)
        if full:
            return (skip_exempted(case, full[:1], setting),)
        violations = evaluate(resource)
        if not violations:
            return passed or (setting.result(case, RuleOutcome(Status.PASS, text)),)
        if found:
            violations = _tolerate(wanted, found, resource, violations)
            if not violations:
                return (skip_exempted(case, found, setting),)
        return (setting.result(case, _describe(wanted, resource, violations, setting)),)

    return check


def _tolerate(
    wanted: PodSecurity,
    found: tuple[Exempted, ...],
    resource: JsonObject,
    violations: tuple[Violation, ...],
) -> tuple[Violation, ...]:
    excluded = [control for each in found for control in each.pod_security]
    return compile_tolerance(wanted.level, wanted.version, excluded)(resource, violations)


def _describe(
    wanted: PodSecurity,
    resource: JsonObject,
    violations: tuple[Violation, ...],
    setting: RuleContext,
) -> RuleOutcome:
    standard = Standard(wanted.level, wanted.version)
    kind = str(resource.get("kind", ""))
    text = format_violations(setting.rule, standard, violations, kind)
    properties = describe_violations(standard, violations, _name_images(resource))
    return RuleOutcome(Status.FAIL, text, _locate(violations, kind), properties)


def _name_images(resource: JsonObject) -> dict[str, str]:
    """Container name -> its image in full."""
    try:
        found = extract_images(resource)
    except EvaluationError:
        return {}  # additional report properties never change a verdict
    return {name: each["reference"] for images in found.values() for name, each in images.items()}


def _locate(violations: tuple[Violation, ...], kind: str) -> Failure:
    first = violations[0]
    errors = [error for violation in violations for error in violation.errors]
    if not errors:
        return Failure(path="", reason=first.detail)
    error = errors[0]
    found = list(error.found) if isinstance(error.found, tuple) else error.found
    path = locate_error(error.path, kind)
    return Failure(path, found=found, reason=f"{first.control}: {first.detail}")


__all__ = [
    "CONTROL_NAMES",
    "ControlExclusion",
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


# Kyverno 1.19 has the checks of Kubernetes 1.36; `latest` and newer versions mean these.
_NEWEST = 36


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
    """A check of a Pod, or of a pod controller; returns the violations."""
    parsed = parse_level(level)
    checks = select_checks(parsed, min(parse_version(version), _NEWEST))
    _check_level(parsed, exclude)
    tolerances = [compile_exclusion(each, checks) for each in exclude]
    bare = tuple(check for _, check in checks)

    def evaluate(resource: Json) -> tuple[Violation, ...]:
        pod = read_pod(resource)
        found = [violation for check in bare if (violation := check(pod)) is not None]
        if found:
            for tolerate in tolerances:
                found = tolerate(pod, found)
        return tuple(found)

    return evaluate


def compile_tolerance(
    level: str, version: str, exclude: Sequence[PodSecurityExclude]
) -> Callable[[Json, Sequence[Violation]], tuple[Violation, ...]]:
    """The remaining violations of a resource after an exception."""
    checks = select_checks(parse_level(level), min(parse_version(version), _NEWEST))
    tolerances = [compile_exclusion(each, checks) for each in exclude]

    def remove_exempted(resource: Json, violations: Sequence[Violation]) -> tuple[Violation, ...]:
        pod = read_pod(resource)
        left = list(violations)
        for tolerate in tolerances:
            left = tolerate(pod, left)
        return tuple(left)

    return remove_exempted
