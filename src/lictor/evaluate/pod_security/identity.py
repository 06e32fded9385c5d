"""Could a container run as root?"""

from lictor.evaluate.pod_security.pod import Subject
from lictor.evaluate.pod_security.violation import (
    FieldError,
    Violation,
    forbid,
    name_containers,
    name_setters,
    require,
)


def check_non_root(pod: Subject) -> Violation | None:
    """Every container says, by itself or through the pod, that it must not run as root."""
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


def _refuse_root(pod: Subject, refusing: list[int], silent: list[int]) -> Violation:
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


def check_root_user(pod: Subject) -> Violation | None:
    """Neither the pod nor a container asks for user 0."""
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
