"""`validate.podSecurity`: a Pod, or what makes Pods, must keep a Pod Security Standard."""

from lictor.errors import EvaluationError
from lictor.evaluate.guard import Exempt, Exempted, skip_exempted
from lictor.evaluate.images import extract_images
from lictor.evaluate.pod_security import (
    Standard,
    Violation,
    compile_pod_security,
    compile_tolerance,
    format_violations,
)
from lictor.evaluate.pod_security.message import describe_violations, locate_error
from lictor.evaluate.setting import Outcome, Setting
from lictor.model.policy import PodSecurity
from lictor.model.program import Case, Check
from lictor.model.result import Failure, Result, Status
from lictor.raw import JsonObject


def compile_pod_security_check(
    wanted: PodSecurity, exempt: Exempt | None, setting: Setting
) -> Check:
    """The check of a rule with `podSecurity`."""
    judge = compile_pod_security(wanted.level, wanted.version, wanted.exclude)
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
        violations = judge(resource)
        if not violations:
            return passed or (setting.result(case, Outcome(Status.PASS, text)),)
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
    setting: Setting,
) -> Outcome:
    standard = Standard(wanted.level, wanted.version)
    kind = str(resource.get("kind", ""))
    text = format_violations(setting.rule, standard, violations, kind)
    properties = describe_violations(standard, violations, _name_images(resource))
    return Outcome(Status.FAIL, text, _locate(violations, kind), properties)


def _name_images(resource: JsonObject) -> dict[str, str]:
    """Container name -> its image in full."""
    try:
        found = extract_images(resource)
    except EvaluationError:
        return {}  # extra columns of a report never change a verdict
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
