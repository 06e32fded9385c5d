"""Removes the violations that a policy or an exception tolerates."""

import re
from collections.abc import Callable, Sequence
from typing import Protocol, TypeAlias

import msgspec
from msgspec.structs import replace

from lictor.core.errors import CompileError
from lictor.core.evaluate.pod_security.pod import CheckedPod, PodContainer, PodSpec
from lictor.core.evaluate.pod_security.standard import CONTROL_NAMES, Check
from lictor.core.evaluate.pod_security.violation import FieldError, Found, Violation
from lictor.core.lang.wildcard import compile_wildcard

Tolerate: TypeAlias = Callable[[CheckedPod, list[Violation]], list[Violation]]

CONTAINER_CONTROLS = frozenset(
    {
        "Capabilities",
        "Privileged Containers",
        "Host Ports",
        "/proc Mount Type",
        "Privilege Escalation",
    }
)
POD_CONTROLS = frozenset({"Host Namespaces", "HostPath Volumes", "Sysctls", "Volume Types"})
NUMBER = re.compile(r"[0-9]+")
CONTAINER_PATH = re.compile(r"spec\.(containers|initContainers|ephemeralContainers)\[([0-9]+)\]")


class PodSecurityExclude(Protocol):
    """What is tolerated, as written in a policy or an exception."""

    @property
    def control_name(self) -> str: ...

    @property
    def images(self) -> Sequence[str] | None: ...

    @property
    def restricted_field(self) -> str | None: ...

    @property
    def values(self) -> Sequence[str] | None: ...


class ControlExclusion(msgspec.Struct, frozen=True):
    """A PodSecurityExclude created in code: for tests and library users."""

    control_name: str
    images: tuple[str, ...] = ()
    restricted_field: str = ""
    values: tuple[str, ...] = ()


def check_exclude(exclude: PodSecurityExclude) -> None:
    """Raise CompileError for an invalid exclusion."""
    name = exclude.control_name
    if name not in CONTROL_NAMES:
        allowed = ", ".join(sorted(CONTROL_NAMES))
        raise CompileError(f"unknown Pod Security control {name!r}: use one of {allowed}")
    if name in CONTAINER_CONTROLS and not exclude.images:
        message = f"{name} is about containers: exclude.images must be specified"
        raise CompileError(message, code="images-required", arguments=(name,))
    if name in POD_CONTROLS and exclude.images:
        raise CompileError(f"{name} is about the pod: exclude.images must not be specified")
    if exclude.restricted_field and not exclude.values:
        raise CompileError(f"{name}: restrictedField needs values", code="values-required")
    if exclude.values and not exclude.restricted_field:
        message = f"{name}: values need a restrictedField"
        raise CompileError(message, code="restricted-field-required")


def _compile_any(patterns: Sequence[str]) -> Callable[[str], bool]:
    tests = [compile_wildcard(pattern) for pattern in patterns]
    return lambda text: any(test(text) for test in tests)


def _list_found(found: Found) -> tuple[str, ...]:
    """The found values, as texts that values of an exclusion can match."""
    if isinstance(found, tuple):
        return found
    if isinstance(found, bool):
        return ("true",) if found else ("false",)
    return (str(found),) if found != "" else ()


def _compile_error_test(exclude: PodSecurityExclude) -> Callable[[FieldError], bool]:
    field = exclude.restricted_field
    allows = _compile_any(exclude.values) if exclude.values else None

    def tolerates(error: FieldError) -> bool:
        if field and NUMBER.sub("*", error.path) != field:
            return False
        # An error without a found value (a missing field) is tolerated with any values.
        return allows is None or all(allows(value) for value in _list_found(error.found))

    return tolerates


def _strip_containers(pod: CheckedPod) -> CheckedPod:
    """The pod with one empty container: any remaining violation is the pod's."""
    spec = pod.spec
    bare = PodSpec(
        containers=[PodContainer(name="fake")],
        volumes=spec.volumes,
        security_context=spec.security_context,
        host_network=spec.host_network,
        host_pid=spec.host_pid,
        host_ipc=spec.host_ipc,
        os=spec.os,
    )
    return CheckedPod(bare, pod.annotations)


def _compile_picker(images: Sequence[str]) -> Callable[[CheckedPod], CheckedPod]:
    """Build a function that reduces a pod to the containers with these images."""
    chosen = _compile_any(images)

    def pick(containers: list[PodContainer] | None) -> list[PodContainer]:
        return [each for each in containers or () if chosen(each.image or "")]

    def pick_containers(pod: CheckedPod) -> CheckedPod:
        spec = pod.spec
        return CheckedPod(
            PodSpec(
                containers=pick(spec.containers),
                init_containers=pick(spec.init_containers),
                ephemeral_containers=pick(spec.ephemeral_containers),
            ),
            {},
        )

    return pick_containers


def _name_container(pod: CheckedPod, path: str) -> str | None:
    match = CONTAINER_PATH.match(path)
    if match is None:
        return None
    at = int(match.group(2))
    if match.group(1) != "initContainers":
        at += pod.initials
    if match.group(1) == "ephemeralContainers":
        at += pod.regulars
    return pod.containers[at].name


def _identify(pod: CheckedPod, error: FieldError, *, by_container: bool) -> tuple[str, str | None]:
    """What equal errors have in common: the field, and the container if there is one."""
    field = NUMBER.sub("*", error.path)
    return field, (_name_container(pod, error.path) if by_container else None)


def _remove_first(
    errors: list[FieldError], wanted: tuple[str, str | None], pod: CheckedPod, *, by_container: bool
) -> None:
    for at, error in enumerate(errors):
        if _identify(pod, error, by_container=by_container) == wanted:
            # The last error replaces the removed one: Kyverno's order.
            errors[at] = errors[-1]
            errors.pop()
            return


def compile_exclusion(exclude: PodSecurityExclude, checks: Sequence[tuple[str, Check]]) -> Tolerate:
    """Applies one exclusion to the violations that these checks found.

    The control is evaluated again on a smaller pod: without its containers, or only with the
    containers of the images. Each error found there that the exclusion names cancels one of the
    same field (and container) in the real pod.
    """
    check_exclude(exclude)
    own = [check for name, check in checks if name == exclude.control_name]
    tolerates = _compile_error_test(exclude)
    by_container = bool(exclude.images)
    shrink = _compile_picker(exclude.images) if exclude.images else _strip_containers

    def lift(
        pod: CheckedPod, violation: Violation, smaller: Violation, part: CheckedPod
    ) -> Violation:
        errors = list(violation.errors)
        for error in smaller.errors:
            if tolerates(error):
                wanted = _identify(part, error, by_container=by_container)
                _remove_first(errors, wanted, pod, by_container=by_container)
        return replace(violation, errors=tuple(errors))

    def tolerate(pod: CheckedPod, violations: list[Violation]) -> list[Violation]:
        if not any(violation.control == exclude.control_name for violation in violations):
            return violations
        part = shrink(pod)
        lifted = {found.check: found for check in own if (found := check(part)) is not None}
        kept = []
        for violation in violations:
            smaller = lifted.get(violation.check)
            if smaller is not None:
                changed = lift(pod, violation, smaller, part)
                if changed.errors:
                    kept.append(changed)
            else:
                kept.append(violation)
        return kept

    return tolerate
