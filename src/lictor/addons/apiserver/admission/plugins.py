"""Kubernetes' own admission plugins that people notice: namespaces, accounts, Pod Security."""

import secrets
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Final

from lictor.addons.apiserver.json_fields import read_list, read_object, read_text
from lictor.addons.apiserver.kind import ObjectReader
from lictor.addons.apiserver.resources.pod_defaults import SYSTEM_PRIORITIES, add_tolerations
from lictor.addons.apiserver.status_errors import missing_namespace
from lictor.addons.apiserver.submission import Submission
from lictor.core.errors import CompileError, EvaluationError, RefusedRequestError
from lictor.core.model.request import Operation
from lictor.core.raw import Json, JsonObject

if TYPE_CHECKING:
    from lictor.core.evaluate.pod_security.violation import Violation


_LABEL_PREFIX: Final = "pod-security.kubernetes.io/"
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
        if not any(name.startswith(_LABEL_PREFIX) for name in labels) or _is_trifle(submission):
            return
        pod = document if is_pod else _find_template(document)
        detail = _find_violations(labels, "enforce", pod) if is_pod else ""
        if detail:
            raise submission.forbid(f"violates PodSecurity {detail}")
        detail = _find_violations(labels, "warn", pod)
        if detail:
            warnings.append(f"would violate PodSecurity {detail}")

    def _labels(self, namespace: str) -> Mapping[str, str]:
        found = self._reader.get("", "namespaces", "", namespace)
        return read_object(read_object(found, "metadata"), "labels")


def _find_template(workload: JsonObject) -> JsonObject:
    """The Pod that a workload makes."""
    holder = workload if "template" in workload else read_object(workload, "spec")
    if "jobTemplate" in holder:
        holder = read_object(read_object(holder, "jobTemplate"), "spec")
    template = read_object(holder, "template")
    return {
        "kind": "Pod",
        "metadata": read_object(template, "metadata"),
        "spec": read_object(template, "spec"),
    }


def _find_violations(labels: Mapping[str, str], mode: str, document: JsonObject) -> str:
    """What is wrong with a Pod, or a Pod to be; empty where nothing is."""
    level = labels.get(f"{_LABEL_PREFIX}{mode}", _PRIVILEGED)
    version = labels.get(f"{_LABEL_PREFIX}{mode}-version", "latest")
    if level == _PRIVILEGED:
        return ""
    # Most namespaces have no such labels.
    from lictor.core.evaluate.pod_security.pod import read_pod
    from lictor.core.evaluate.pod_security.standard import parse_level, parse_version, select_checks

    try:
        checks = select_checks(parse_level(level), parse_version(version))
    except CompileError:
        # Kubernetes takes what it cannot read for the strictest.
        level, version = "restricted", "latest"
        checks = select_checks(parse_level(level), parse_version(version))
    try:
        pod = read_pod(document)
    except EvaluationError as error:
        return f'"{level}:{version}": {error}'
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


_PLACE = "/var/run/secrets/kubernetes.io/serviceaccount"
_PREFIX = "kube-api-access-"
# Without vowels and digits that look like letters, as the API server names things.
_LETTERS = "bcdfghjklmnpqrstvwxz2456789"
# Slightly more than an hour, so that kubelets can distinguish it from a requested token.
_SECONDS = 3607
_MODE = 0o644


def add_token_volume(spec: JsonObject, account: JsonObject) -> JsonObject:
    """The spec of a Pod with its account's token where containers look for it."""
    wanted = spec.get("automountServiceAccountToken")
    if wanted is None:
        wanted = account.get("automountServiceAccountToken")
    if wanted is False:
        return spec
    name = _find_volume(spec) or _PREFIX + "".join(secrets.choice(_LETTERS) for _ in range(5))
    mounted = {
        field: [_mount(container, name) for container in read_list(spec, field)]
        for field in ("initContainers", "containers")
        if spec.get(field)
    }
    if all(mounted[field] == spec[field] for field in mounted):
        return spec
    volumes = read_list(spec, "volumes")
    if not any(read_text(each, "name") == name for each in volumes):
        volumes = [*volumes, _build_volume(name)]
    return {**spec, **mounted, "volumes": volumes}


def add_pull_secrets(spec: JsonObject, account: JsonObject) -> JsonObject:
    """The spec with its account's pull secrets where it names none."""
    own = read_list(account, "imagePullSecrets")
    return spec if not own or spec.get("imagePullSecrets") else {**spec, "imagePullSecrets": own}


def _find_volume(spec: JsonObject) -> str:
    names = (read_text(each, "name") for each in read_list(spec, "volumes"))
    return next((name for name in names if name.startswith(_PREFIX)), "")


def _mount(container: Json, name: str) -> Json:
    if not isinstance(container, dict):
        return container
    mounts = read_list(container, "volumeMounts")
    if any(read_text(each, "mountPath") == _PLACE for each in mounts):
        return container
    mount = {"name": name, "readOnly": True, "mountPath": _PLACE}
    return {**container, "volumeMounts": [*mounts, mount]}


def _build_volume(name: str) -> JsonObject:
    place = {"apiVersion": "v1", "fieldPath": "metadata.namespace"}
    return {
        "name": name,
        "projected": {
            "defaultMode": _MODE,
            "sources": [
                {"serviceAccountToken": {"expirationSeconds": _SECONDS, "path": "token"}},
                {
                    "configMap": {
                        "name": "kube-root-ca.crt",
                        "items": [{"key": "ca.crt", "path": "ca.crt"}],
                    }
                },
                {"downwardAPI": {"items": [{"path": "namespace", "fieldRef": place}]}},
            ],
        },
    }


_UNDELETABLE = frozenset(("default", "kube-system", "kube-public"))
_REVIEWS = ("authorization.k8s.io", "localsubjectaccessreviews")


class BuiltinPlugins:
    """NamespaceLifecycle, ServiceAccount, DefaultTolerationSeconds and Priority."""

    def __init__(self, reader: ObjectReader) -> None:
        self._reader = reader

    def mutate(self, submission: Submission) -> None:
        """Refuse what may not be, and complete Pods."""
        self._check_namespace(submission)
        attributes = submission.attributes
        document = submission.document
        if (
            document is not None
            and submission.operation is Operation.CREATE
            and attributes.kind.plural == "pods"
            and not attributes.kind.group
            and not attributes.subresource
        ):
            self._complete_pod(submission, document)

    # --- namespaces

    def _check_namespace(self, submission: Submission) -> None:
        kind, name = submission.attributes.kind, submission.attributes.name
        if kind.is_namespace:
            if submission.operation is Operation.DELETE and name in _UNDELETABLE:
                raise submission.forbid("this namespace may not be deleted")
            return
        if not submission.namespace or submission.operation is Operation.DELETE:
            return
        if (kind.group, kind.plural) == _REVIEWS:
            return
        namespace = self._reader.get("", "namespaces", "", submission.namespace)
        if namespace is None:
            raise missing_namespace(submission.namespace)
        phase = read_text(read_object(namespace, "status"), "phase")
        if submission.operation is Operation.CREATE and phase == "Terminating":
            raise _terminating(submission)

    # --- Pods

    def _complete_pod(self, submission: Submission, document: JsonObject) -> None:
        spec = dict(read_object(document, "spec"))
        account = read_text(spec, "serviceAccountName") or read_text(spec, "serviceAccount")
        account = account or "default"
        found = self._find_account(submission, account)
        spec["serviceAccountName"] = spec["serviceAccount"] = account
        spec = dict(add_token_volume(add_pull_secrets(spec, found), found))
        add_tolerations(spec)
        self._set_priority(submission, spec)
        submission.replace({**document, "spec": spec})

    def _find_account(self, submission: Submission, account: str) -> JsonObject:
        namespace = submission.namespace
        found = self._reader.get("", "serviceaccounts", namespace, account)
        if found is None:
            raise submission.forbid(
                f"error looking up service account {namespace}/{account}: "
                f'serviceaccount "{account}" not found'
            )
        return found

    def _set_priority(self, submission: Submission, spec: JsonObject) -> None:
        name = read_text(spec, "priorityClassName")
        found = self._find_priority(name)
        if found is None:
            raise submission.forbid(f"no PriorityClass with name {name} was found")
        spec["priority"], spec["preemptionPolicy"] = found

    def _find_priority(self, name: str) -> tuple[int, str] | None:
        usual = "PreemptLowerPriority"
        if name in SYSTEM_PRIORITIES:
            return SYSTEM_PRIORITIES[name], usual
        for each in self._reader.list("scheduling.k8s.io", "priorityclasses"):
            named = read_text(read_object(each, "metadata"), "name") == name
            if named if name else each.get("globalDefault") is True:
                return int(each.get("value", 0)), read_text(each, "preemptionPolicy") or usual
        return None if name else (0, usual)


def _terminating(submission: Submission) -> RefusedRequestError:
    namespace = submission.namespace
    error = submission.forbid(
        f"unable to create new content in namespace {namespace} because it is being terminated"
    )
    cause = {
        "reason": "NamespaceTerminating",
        "message": f"namespace {namespace} is being terminated",
        "field": "metadata.namespace",
    }
    return RefusedRequestError(
        error.message,
        code=error.code,
        reason=error.reason,
        details={**(error.details or {}), "causes": [cause]},
    )
