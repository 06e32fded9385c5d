"""The checks of a level of the Pod Security Standards at a version of Kubernetes."""

import re
import sys
from collections.abc import Callable
from enum import StrEnum
from typing import TypeAlias

import msgspec

from lictor.core.errors import CompileError
from lictor.core.evaluate.pod_security import host, privileges, profiles
from lictor.core.evaluate.pod_security.pod import CheckedPod
from lictor.core.evaluate.pod_security.violation import Violation

Check: TypeAlias = Callable[[CheckedPod], Violation | None]
VERSION = re.compile(r"v1\.(0|[1-9][0-9]{0,8})", re.ASCII)


class Level(StrEnum):
    """A level of the Pod Security Standards."""

    PRIVILEGED = "privileged"
    BASELINE = "baseline"
    RESTRICTED = "restricted"


class Control(msgspec.Struct, frozen=True):
    """A check in all its variants: the minor version from which each applies, ascending."""

    name: str
    level: Level
    variants: tuple[tuple[int, Check], ...]

    def choose(self, minor: int) -> Check:
        """The variant for a version.

        A version older than the first variant gets that one, the stricter choice, as in Kyverno.
        """
        check = self.variants[0][1]
        for first, variant in self.variants[1:]:
            if minor >= first:
                check = variant
        return check


def _exempt_windows(check: Check) -> Check:
    """The check, skipped for Windows pods, to which it does not apply."""

    def check_unless_windows(pod: CheckedPod) -> Violation | None:
        system = pod.spec.os
        if system is not None and system.name == "windows":
            return None
        return check(pod)

    return check_unless_windows


def _since_first(check: Check) -> tuple[tuple[int, Check], ...]:
    return ((0, check),)


# In Kyverno's order.
CONTROLS: tuple[Control, ...] = (
    Control(
        "Privilege Escalation",
        Level.RESTRICTED,
        (
            (8, privileges.check_escalation),
            (25, _exempt_windows(privileges.check_escalation)),
        ),
    ),
    Control("AppArmor", Level.BASELINE, _since_first(profiles.check_app_armor)),
    Control("Capabilities", Level.BASELINE, _since_first(privileges.check_default_capabilities)),
    Control(
        "Capabilities",
        Level.RESTRICTED,
        (
            (22, privileges.check_dropped_capabilities),
            (25, _exempt_windows(privileges.check_dropped_capabilities)),
        ),
    ),
    Control("Host Namespaces", Level.BASELINE, _since_first(host.check_host_namespaces)),
    Control("HostPath Volumes", Level.BASELINE, _since_first(host.check_host_paths)),
    Control("Host Ports", Level.BASELINE, _since_first(host.check_host_ports)),
    # Kyverno has no name for it, so no exclusion can match it.
    Control("", Level.BASELINE, ((34, host.check_probe_hosts),)),
    Control("Privileged Containers", Level.BASELINE, _since_first(privileges.check_privileged)),
    Control("/proc Mount Type", Level.BASELINE, _since_first(privileges.check_proc_mount)),
    Control("Volume Types", Level.RESTRICTED, _since_first(host.check_volume_types)),
    Control("Running as Non-root", Level.RESTRICTED, _since_first(privileges.check_non_root)),
    Control("Running as Non-root user", Level.RESTRICTED, ((23, privileges.check_root_user),)),
    Control(
        "SELinux",
        Level.BASELINE,
        (
            (0, profiles.compile_se_linux_check(profiles.SELINUX_TYPES)),
            (31, profiles.compile_se_linux_check(profiles.SELINUX_ENGINE_TYPES)),
        ),
    ),
    Control(
        "Seccomp",
        Level.BASELINE,
        (
            (0, profiles.check_seccomp_annotations),
            (19, profiles.check_seccomp_unconfined),
        ),
    ),
    Control(
        "Seccomp",
        Level.RESTRICTED,
        (
            (19, profiles.check_seccomp_set),
            (25, _exempt_windows(profiles.check_seccomp_set)),
        ),
    ),
    Control(
        "Sysctls",
        Level.BASELINE,
        (
            (0, host.compile_sysctl_check(host.SYSCTLS)),
            (27, host.compile_sysctl_check(host.SYSCTLS_1_27)),
            (29, host.compile_sysctl_check(host.SYSCTLS_1_29)),
            (32, host.compile_sysctl_check(host.SYSCTLS_1_32)),
            (37, host.compile_sysctl_check(host.SYSCTLS_1_37)),
        ),
    ),
    Control("HostProcess", Level.BASELINE, _since_first(privileges.check_host_process)),
)

CONTROL_NAMES = frozenset(control.name for control in CONTROLS if control.name)


def parse_level(text: str) -> Level:
    """The level of that name; the strictest where a policy names none, as in Kyverno."""
    try:
        return Level(text or Level.RESTRICTED)
    except ValueError:
        allowed = ", ".join(Level)
        raise CompileError(f"unknown Pod Security level {text!r}: use one of {allowed}") from None


def parse_version(text: str) -> int:
    """The minor version; the latest is newer than any other."""
    if text in ("", "latest"):
        return sys.maxsize
    match = VERSION.fullmatch(text)
    if match is None:
        raise CompileError(
            f"unknown Pod Security version {text!r}: use v1.19, v1.20, ... or latest"
        )
    return int(match.group(1))


def select_checks(level: Level, minor: int) -> tuple[tuple[str, Check], ...]:
    """The checks of a level, each with the name of its control."""
    match level:
        case Level.PRIVILEGED:
            # The standard also calls this level unrestricted.
            return ()
        case Level.BASELINE:
            chosen = [control for control in CONTROLS if control.level is Level.BASELINE]
        case Level.RESTRICTED:
            chosen = list(CONTROLS)
    return tuple((control.name, control.choose(minor)) for control in chosen)
