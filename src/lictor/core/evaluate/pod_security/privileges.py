"""Checks the rights of containers: privileges, capabilities, users, Windows."""

from lictor.core.evaluate.pod_security.pod import NO_CONTEXT, Capabilities, CheckedPod
from lictor.core.evaluate.pod_security.violation import (
    FieldError,
    Violation,
    forbid,
    name_containers,
    name_setters,
    quote,
    require,
)


def check_non_root(pod: CheckedPod) -> Violation | None:
    """Every container, itself or through the pod, must not run as root."""
    by_pod = pod.context.run_as_non_root
    refusing: list[int] = []
    silent: list[int] = []
    for at, context in enumerate(pod.contexts):
        if context.run_as_non_root is None:
            if not by_pod:
                silent.append(at)
        elif not context.run_as_non_root:
            refusing.append(at)
    if not refusing and not silent and by_pod is not False:
        return None
    return _refuse_root(pod, refusing, silent)


def _refuse_root(pod: CheckedPod, refusing: list[int], silent: list[int]) -> Violation:
    by_pod = pod.context.run_as_non_root is False
    refusers = tuple(pod.containers[at].name for at in refusing)
    silents = tuple(pod.containers[at].name for at in silent)
    field = "securityContext.runAsNonRoot"
    details = []
    errors: list[FieldError] = []
    if by_pod or refusers:
        details.append(f"{name_setters(refusers, pod=by_pod)} must not set {field}=false")
        errors.extend([forbid(f"spec.{field}", found=False)] if by_pod else [])
        errors.extend(forbid(f"{pod.path(at)}.{field}", found=False) for at in refusing)
    if silents:
        details.append(f"pod or {name_containers(silents)} must set {field}=true")
        errors.extend(require(f"{pod.path(at)}.{field}") for at in silent)
    return Violation(
        "runAsNonRoot",
        "Running as Non-root",
        "runAsNonRoot != true",
        "\n".join(details),
        tuple(errors),
        refusers or silents,
    )


def check_root_user(pod: CheckedPod) -> Violation | None:
    """Neither the pod nor a container runs as user 0."""
    by_pod = pod.context.run_as_user == 0
    bad = [at for at, context in enumerate(pod.contexts) if context.run_as_user == 0]
    if not by_pod and not bad:
        return None
    names = tuple(pod.containers[at].name for at in bad)
    errors = [forbid("spec.securityContext.runAsUser", 0)] if by_pod else []
    errors.extend(forbid(f"{pod.path(at)}.securityContext.runAsUser", 0) for at in bad)
    return Violation(
        "runAsUser",
        "Running as Non-root user",
        "runAsUser=0",
        f"{name_setters(names, pod=by_pod)} must not set runAsUser=0",
        tuple(errors),
        names,
    )


DEFAULT_CAPABILITIES = frozenset(
    {
        "AUDIT_WRITE",
        "CHOWN",
        "DAC_OVERRIDE",
        "FOWNER",
        "FSETID",
        "KILL",
        "MKNOD",
        "NET_BIND_SERVICE",
        "SETFCAP",
        "SETGID",
        "SETPCAP",
        "SETUID",
        "SYS_CHROOT",
    }
)


def check_privileged(pod: CheckedPod) -> Violation | None:
    """No container is privileged."""
    bad = [at for at, context in enumerate(pod.contexts) if context.privileged]
    if not bad:
        return None
    names = tuple(pod.containers[at].name for at in bad)
    return Violation(
        "privileged",
        "Privileged Containers",
        "privileged",
        f"{name_containers(names)} must not set securityContext.privileged=true",
        tuple(forbid(f"{pod.path(at)}.securityContext.privileged", found=True) for at in bad),
        names,
    )


def _explain_escalation(pod: CheckedPod, at: int) -> FieldError:
    path = f"{pod.path(at)}.securityContext.allowPrivilegeEscalation"
    if pod.contexts[at] is NO_CONTEXT:
        return require(path)
    return forbid(path, pod.contexts[at].allow_privilege_escalation or "nil")


def check_escalation(pod: CheckedPod) -> Violation | None:
    """Every container disallows privilege escalation."""
    bad = [
        at
        for at, context in enumerate(pod.contexts)
        if context.allow_privilege_escalation is not False
    ]
    if not bad:
        return None
    names = tuple(pod.containers[at].name for at in bad)
    return Violation(
        "allowPrivilegeEscalation",
        "Privilege Escalation",
        "allowPrivilegeEscalation != false",
        f"{name_containers(names)} must set securityContext.allowPrivilegeEscalation=false",
        tuple(_explain_escalation(pod, at) for at in bad),
        names,
    )


def check_default_capabilities(pod: CheckedPod) -> Violation | None:
    """No container adds a capability that container runtimes do not grant by default."""
    bad = [
        at
        for at, context in enumerate(pod.contexts)
        if context.capabilities is not None
        and context.capabilities.add
        and not DEFAULT_CAPABILITIES.issuperset(context.capabilities.add)
    ]
    if not bad:
        return None
    return _refuse_additions(pod, bad)


def _find_additions(capabilities: Capabilities | None, allowed: frozenset[str]) -> tuple[str, ...]:
    added = capabilities.add if capabilities is not None else None
    return tuple(sorted(set(added) - allowed)) if added else ()


def _refuse_additions(pod: CheckedPod, bad: list[int]) -> Violation:
    names = tuple(pod.containers[at].name for at in bad)
    found = {at: _find_additions(pod.contexts[at].capabilities, DEFAULT_CAPABILITIES) for at in bad}
    every = sorted({capability for values in found.values() for capability in values})
    return Violation(
        "capabilities_baseline",
        "Capabilities",
        "non-default capabilities",
        f"{name_containers(names)} must not include {quote(every)}"
        " in securityContext.capabilities.add",
        tuple(
            forbid(f"{pod.path(at)}.securityContext.capabilities.add", values)
            for at, values in found.items()
        ),
        names,
    )


ONLY_PORT_BINDING = frozenset({"NET_BIND_SERVICE"})


def check_dropped_capabilities(pod: CheckedPod) -> Violation | None:
    """Every container drops all capabilities, and adds at most binding to low ports."""
    keeping: list[int] = []
    adding: list[int] = []
    for at, context in enumerate(pod.contexts):
        capabilities = context.capabilities
        if capabilities is None or not capabilities.drop or "ALL" not in capabilities.drop:
            keeping.append(at)
        if capabilities is not None and not ONLY_PORT_BINDING.issuperset(capabilities.add or ()):
            adding.append(at)
    if not keeping and not adding:
        return None
    return _refuse_capabilities(pod, keeping, adding)


def _explain_kept(pod: CheckedPod, at: int) -> FieldError:
    path = f"{pod.path(at)}.securityContext.capabilities.drop"
    capabilities = pod.contexts[at].capabilities
    if capabilities is None or not capabilities.drop:
        return require(path)
    return forbid(path, tuple(sorted(set(capabilities.drop))))


def _refuse_capabilities(pod: CheckedPod, keeping: list[int], adding: list[int]) -> Violation:
    keepers = tuple(pod.containers[at].name for at in keeping)
    adders = tuple(pod.containers[at].name for at in adding)
    found = {at: _find_additions(pod.contexts[at].capabilities, ONLY_PORT_BINDING) for at in adding}
    details = []
    if keepers:
        details.append(
            f'{name_containers(keepers)} must set securityContext.capabilities.drop=["ALL"]'
        )
    if adders:
        every = sorted({capability for values in found.values() for capability in values})
        details.append(
            f"{name_containers(adders)} must not include {quote(every)}"
            " in securityContext.capabilities.add"
        )
    errors = [_explain_kept(pod, at) for at in keeping]
    for at, values in found.items():
        errors.append(forbid(f"{pod.path(at)}.securityContext.capabilities.add", values))
    return Violation(
        "capabilities_restricted",
        "Capabilities",
        "unrestricted capabilities",
        "; ".join(details),
        tuple(errors),
        keepers or adders,
    )


def check_proc_mount(pod: CheckedPod) -> Violation | None:
    """No container requests an unmasked /proc."""
    found = {
        at: context.proc_mount
        for at, context in enumerate(pod.contexts)
        if context.proc_mount is not None and context.proc_mount != "Default"
    }
    if not found:
        return None
    names = tuple(pod.containers[at].name for at in found)
    return Violation(
        "procMount",
        "/proc Mount Type",
        "procMount",
        f"{name_containers(names)} must not set securityContext.procMount to"
        f" {quote(sorted(set(found.values())))}",
        tuple(forbid(f"{pod.path(at)}.securityContext.procMount", v) for at, v in found.items()),
        names,
    )


def check_host_process(pod: CheckedPod) -> Violation | None:
    """Neither the pod nor a container is a Windows HostProcess."""
    if pod.is_plain:
        return None
    options = pod.context.windows_options
    by_pod = options is not None and options.host_process is True
    bad = [
        at
        for at, context in enumerate(pod.contexts)
        if context.windows_options is not None and context.windows_options.host_process
    ]
    if not by_pod and not bad:
        return None
    names = tuple(pod.containers[at].name for at in bad)
    field = "securityContext.windowsOptions.hostProcess"
    errors = [forbid(f"spec.{field}", found=True)] if by_pod else []
    errors.extend(forbid(f"{pod.path(at)}.{field}", found=True) for at in bad)
    return Violation(
        "windowsHostProcess",
        "HostProcess",
        "hostProcess",
        f"{name_setters(names, pod=by_pod)} must not set {field}=true",
        tuple(errors),
        names,
    )
