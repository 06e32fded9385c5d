"""Pod Security: namespaces say by labels what their Pods may do, as in Kubernetes."""

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Final

from lictor.apiserver.admission.submission import Submission
from lictor.apiserver.json_fields import read_list, read_object, read_text
from lictor.apiserver.object_reader import ObjectReader
from lictor.errors import CompileError
from lictor.raw import Json, JsonObject

if TYPE_CHECKING:
    from lictor.evaluate.pod_security.violation import Violation


_PREFIX: Final = "pod-security.kubernetes.io/"
_PRIVILEGED: Final = "privileged"
_PODS: Final = ("", "pods")
_WORKLOADS: Final = frozenset(
    (
        ("", "replicationcontrollers"), ("", "podtemplates"), ("apps", "daemonsets"),
        ("apps", "deployments"), ("apps", "replicasets"), ("apps", "statefulsets"),
        ("batch", "cronjobs"), ("batch", "jobs"),
    )
)  # fmt: skip
_RESTRICTED: Final = frozenset(
    (
        "allowPrivilegeEscalation", "capabilities_restricted", "restrictedVolumes", "runAsNonRoot",
        "runAsUser", "seccompProfile_restricted",
    )
)  # fmt: skip
# Checks that a stricter one of the higher level makes superfluous.
_OVERRIDDEN: Final = frozenset(
    ("capabilities_baseline", "hostPathVolumes", "seccompProfile_baseline")
)


class PodSecurityAdmission:
    """Refuses Pods, and warns of them and of what makes Pods."""

    def __init__(self, reader: ObjectReader) -> None:
        self._reader = reader

    def validate(self, submission: Submission, warnings: list[str]) -> None:
        """Raise RefusedRequestError for a Pod that its namespace does not want."""
        document, kind = submission.document, submission.attributes.kind
        is_pod = (kind.group, kind.plural) == _PODS
        if document is None or not (is_pod or (kind.group, kind.plural) in _WORKLOADS):
            return
        labels = self._labels(submission.namespace)
        if not any(name.startswith(_PREFIX) for name in labels) or _is_trifle(submission):
            return
        told = _judge(labels, "enforce", document) if is_pod else ""
        if told:
            raise submission.forbid(f"violates PodSecurity {told}")
        told = _judge(labels, "warn", document)
        if told:
            warnings.append(f"would violate PodSecurity {told}")

    def _labels(self, namespace: str) -> Mapping[str, str]:
        found = self._reader.get("", "namespaces", "", namespace)
        return read_object(read_object(found, "metadata"), "labels")


def _judge(labels: Mapping[str, str], mode: str, document: JsonObject) -> str:
    """What is wrong with a Pod, or a Pod to be; empty where nothing is."""
    level = labels.get(f"{_PREFIX}{mode}", _PRIVILEGED)
    version = labels.get(f"{_PREFIX}{mode}-version", "latest")
    if level == _PRIVILEGED:
        return ""
    # Most namespaces have no such labels.
    from lictor.evaluate.pod_security.pod import read_pod
    from lictor.evaluate.pod_security.standard import parse_level, parse_version, select_checks

    try:
        checks = select_checks(parse_level(level), parse_version(version))
    except CompileError:
        # Kubernetes takes what it cannot read for the strictest.
        level, version = "restricted", "latest"
        checks = select_checks(parse_level(level), parse_version(version))
    pod = read_pod(document)
    found = [violation for _, check in checks if (violation := check(pod)) is not None]
    if level == "restricted":
        found = [violation for violation in found if violation.check not in _OVERRIDDEN]
    return f'"{level}:{version}": {_describe(found)}' if found else ""


def _describe(violations: "Iterable[Violation]") -> str:
    ordered = sorted(violations, key=lambda each: (each.check in _RESTRICTED, each.check))
    return ", ".join(
        f"{each.reason} ({each.detail})" if each.detail else each.reason for each in ordered
    )


def _is_trifle(submission: Submission) -> bool:
    """Of what may change in a Pod, only images and ephemeral containers matter."""
    if submission.attributes.subresource not in ("", "ephemeralcontainers"):
        return True
    document, old = submission.document, submission.old
    if document is None or old is None or submission.attributes.kind.plural != "pods":
        return False
    return _list_images(document) == _list_images(old)


def _list_images(pod: JsonObject) -> list[tuple[str, Json]]:
    spec = read_object(pod, "spec")
    return [
        (field, (read_text(each, "name"), read_text(each, "image")))
        for field in ("containers", "initContainers", "ephemeralContainers")
        for each in read_list(spec, field)
    ]
