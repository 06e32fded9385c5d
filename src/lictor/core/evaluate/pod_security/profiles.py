"""Checks kernel security profiles: seccomp, AppArmor and SELinux."""

from collections.abc import Callable

from lictor.core.evaluate.pod_security.pod import CheckedPod, Profile, SELinuxOptions
from lictor.core.evaluate.pod_security.violation import (
    FieldError,
    Violation,
    count_noun,
    forbid,
    name_containers,
    name_setters,
    quote,
    require,
)

SAFE_PROFILES = frozenset({"RuntimeDefault", "Localhost"})
SECCOMP_FIELD = "securityContext.seccompProfile.type"
SECCOMP_POD_ANNOTATION = "seccomp.security.alpha.kubernetes.io/pod"
SECCOMP_CONTAINER_ANNOTATION = "container.seccomp.security.alpha.kubernetes.io/"
SECCOMP_ANNOTATION_VALUES = frozenset({"runtime/default", "docker/default"})
APPARMOR_FIELD = "securityContext.appArmorProfile.type"
APPARMOR_ANNOTATION = "container.apparmor.security.beta.kubernetes.io/"
SELINUX_TYPES = frozenset({"container_t", "container_init_t", "container_kvm_t"})
SELINUX_ENGINE_TYPES = SELINUX_TYPES | {"container_engine_t"}


def check_seccomp_annotations(pod: CheckedPod) -> Violation | None:
    """No deprecated annotation disables seccomp."""
    if not pod.annotations:
        return None
    keys = {SECCOMP_POD_ANNOTATION}
    keys.update(SECCOMP_CONTAINER_ANNOTATION + each.name for each in pod.containers)
    bad = sorted(key for key in keys if _unconfines(pod.annotations.get(key)))
    if not bad:
        return None
    settings = [f'{key}="{pod.annotations[key]}"' for key in bad]
    return Violation(
        "seccompProfile_baseline",
        "Seccomp",
        "seccompProfile",
        f"forbidden {count_noun('annotation', settings)} {', '.join(settings)}",
        tuple(forbid(f"metadata.annotations[{key}]", pod.annotations[key]) for key in bad),
    )


def _unconfines(value: str | None) -> bool:
    if value is None or value in SECCOMP_ANNOTATION_VALUES:
        return False
    return not value.startswith("localhost/")


def check_seccomp_unconfined(pod: CheckedPod) -> Violation | None:
    """Neither the pod nor a container disables seccomp."""
    profile = pod.context.seccomp_profile
    by_pod = profile is not None and profile.type not in SAFE_PROFILES
    bad = [
        at
        for at, context in enumerate(pod.contexts)
        if context.seccomp_profile is not None and context.seccomp_profile.type not in SAFE_PROFILES
    ]
    if not by_pod and not bad:
        return None
    return _refuse_seccomp("seccompProfile_baseline", pod, bad)


def check_seccomp_set(pod: CheckedPod) -> Violation | None:
    """Every container has, itself or through the pod, a seccomp profile that is not disabled."""
    profile = pod.context.seccomp_profile
    by_pod = profile is not None and profile.type in SAFE_PROFILES
    bad: list[int] = []
    silent: list[int] = []
    for at, context in enumerate(pod.contexts):
        own = context.seccomp_profile
        if own is None:
            if not by_pod:
                silent.append(at)
        elif own.type not in SAFE_PROFILES:
            bad.append(at)
    if bad or (profile is not None and not by_pod):
        return _refuse_seccomp("seccompProfile_restricted", pod, bad)
    return _require_seccomp(pod, silent) if silent else None


def _type_of(profile: Profile | None) -> str:
    return profile.type or "" if profile is not None else ""


def _refuse_seccomp(check: str, pod: CheckedPod, bad: list[int]) -> Violation:
    profile = pod.context.seccomp_profile
    by_pod = profile is not None and profile.type not in SAFE_PROFILES
    names = tuple(pod.containers[at].name for at in bad)
    found = [(f"spec.{SECCOMP_FIELD}", _type_of(profile))] if by_pod else []
    found.extend(
        (f"{pod.path(at)}.{SECCOMP_FIELD}", _type_of(pod.contexts[at].seccomp_profile))
        for at in bad
    )
    values = sorted({value for _, value in found})
    return Violation(
        check,
        "Seccomp",
        "seccompProfile",
        f"{name_setters(names, pod=by_pod)} must not set {SECCOMP_FIELD} to {quote(values)}",
        tuple(forbid(path, value) for path, value in found),
        names,
    )


def _require_seccomp(pod: CheckedPod, silent: list[int]) -> Violation:
    names = tuple(pod.containers[at].name for at in silent)
    return Violation(
        "seccompProfile_restricted",
        "Seccomp",
        "seccompProfile",
        f"pod or {name_containers(names)} must set {SECCOMP_FIELD}"
        ' to "RuntimeDefault" or "Localhost"',
        tuple(require(f"{pod.path(at)}.{SECCOMP_FIELD}") for at in silent),
        names,
    )


def check_app_armor(pod: CheckedPod) -> Violation | None:
    """Neither a field nor an annotation disables AppArmor."""
    if pod.is_plain and not pod.annotations:
        return None
    profile = pod.context.app_armor_profile
    by_pod = profile is not None and profile.type not in SAFE_PROFILES
    bad = [
        at
        for at, context in enumerate(pod.contexts)
        if context.app_armor_profile is not None
        and context.app_armor_profile.type not in SAFE_PROFILES
    ]
    noted = [
        key
        for key, value in pod.annotations.items()
        if key.startswith(APPARMOR_ANNOTATION)
        and value not in ("", "runtime/default")
        and not value.startswith("localhost/")
    ]
    if not by_pod and not bad and not noted:
        return None
    return _refuse_app_armor(pod, bad, sorted(noted))


def _refuse_app_armor(pod: CheckedPod, bad: list[int], noted: list[str]) -> Violation:
    profile = pod.context.app_armor_profile
    by_pod = profile is not None and profile.type not in SAFE_PROFILES
    names = tuple(pod.containers[at].name for at in bad)
    found = [(f"spec.{APPARMOR_FIELD}", _type_of(profile))] if by_pod else []
    found.extend(
        (f"{pod.path(at)}.{APPARMOR_FIELD}", _type_of(pod.contexts[at].app_armor_profile))
        for at in bad
    )
    values = sorted({value for _, value in found})
    values.extend(f'{key}="{pod.annotations[key]}"' for key in noted)
    found.extend((f"metadata.annotations[{key}]", pod.annotations[key]) for key in noted)
    setters = [name_setters(names, pod=by_pod)] if by_pod or names else []
    if noted:
        setters.append(count_noun("annotation", noted))
    return Violation(
        "appArmorProfile",
        "AppArmor",
        count_noun("forbidden AppArmor profile", values),
        f"{' and '.join(setters)} must not set AppArmor profile type to {quote(values)}",
        tuple(forbid(path, value) for path, value in found),
        names,
    )


def compile_se_linux_check(allowed: frozenset[str]) -> Callable[[CheckedPod], Violation | None]:
    """A check that the SELinux type is one of these, and that user and role are not set."""

    def breaks(options: SELinuxOptions | None) -> bool:
        return options is not None and bool(
            (options.type and options.type not in allowed) or options.user or options.role
        )

    def check_se_linux(pod: CheckedPod) -> Violation | None:
        if pod.is_plain:
            return None
        by_pod = breaks(pod.context.se_linux_options)
        bad = [
            at
            for at, context in enumerate(pod.contexts)
            if context.se_linux_options is not None and breaks(context.se_linux_options)
        ]
        return _refuse_se_linux(pod, bad, allowed) if by_pod or bad else None

    return check_se_linux


def _explain_se_linux(
    place: str, options: SELinuxOptions | None, allowed: frozenset[str]
) -> list[FieldError]:
    path = f"{place}.securityContext.seLinuxOptions"
    errors = []
    if options is not None and options.type and options.type not in allowed:
        errors.append(forbid(f"{path}.type", options.type))
    if options is not None and options.user:
        errors.append(forbid(f"{path}.user", options.user))
    if options is not None and options.role:
        errors.append(forbid(f"{path}.role", options.role))
    return errors


def _refuse_se_linux(pod: CheckedPod, bad: list[int], allowed: frozenset[str]) -> Violation:
    by_pod = _explain_se_linux("spec", pod.context.se_linux_options, allowed)
    errors = list(by_pod)
    for at in bad:
        errors.extend(_explain_se_linux(pod.path(at), pod.contexts[at].se_linux_options, allowed))
    types = sorted({str(error.found) for error in errors if error.path.endswith(".type")})
    problems = [f"{count_noun('type', types)} {quote(types)}"] if types else []
    for part in ("user", "role"):
        if any(error.path.endswith(f".{part}") for error in errors):
            problems.append(f"{part} may not be set")
    names = [pod.containers[at].name for at in bad]
    return Violation(
        "seLinuxOptions",
        "SELinux",
        "seLinuxOptions",
        f"{name_setters(names, pod=bool(by_pod))} set forbidden securityContext.seLinuxOptions:"
        f" {'; '.join(problems)}",
        tuple(errors),
    )
