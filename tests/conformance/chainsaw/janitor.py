"""After a test: whatever it left behind goes, so that those after it start from the same cluster."""

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from chainsaw.api import Api, ApiError, Key, NotFoundError, Object, key_of

# First what could refuse or undo the removal of the rest.
_POLICY_GROUPS = ("kyverno.io", "policies.kyverno.io")
_REGISTRATION = "admissionregistration.k8s.io"
_NATIVE = (
    ("v1", "ValidatingAdmissionPolicyBinding"),
    ("v1", "ValidatingAdmissionPolicy"),
    ("v1beta1", "MutatingAdmissionPolicyBinding"),
    ("v1beta1", "MutatingAdmissionPolicy"),
)
_HOOKS = (("v1", "ValidatingWebhookConfiguration"), ("v1", "MutatingWebhookConfiguration"))
_ORDINARY = (
    ("apps/v1", "Deployment"), ("apps/v1", "StatefulSet"), ("apps/v1", "DaemonSet"),
    ("apps/v1", "ReplicaSet"), ("batch/v1", "CronJob"), ("batch/v1", "Job"), ("v1", "Pod"),
    ("v1", "ConfigMap"), ("v1", "Secret"), ("v1", "Service"), ("v1", "PersistentVolumeClaim"),
    ("v1", "LimitRange"), ("v1", "ResourceQuota"),
    ("networking.k8s.io/v1", "Ingress"), ("networking.k8s.io/v1", "NetworkPolicy"),
    ("rbac.authorization.k8s.io/v1", "RoleBinding"), ("rbac.authorization.k8s.io/v1", "Role"),
    ("v1", "ServiceAccount"), ("policy/v1", "PodDisruptionBudget"),
    ("rbac.authorization.k8s.io/v1", "ClusterRoleBinding"),
    ("rbac.authorization.k8s.io/v1", "ClusterRole"),
    ("v1", "PersistentVolume"), ("storage.k8s.io/v1", "StorageClass"),
    ("networking.k8s.io/v1", "IngressClass"), ("scheduling.k8s.io/v1", "PriorityClass"),
    ("apiextensions.k8s.io/v1", "CustomResourceDefinition"), ("v1", "Node"),
)  # fmt: skip
# These come and go by themselves; reports and the like follow what they speak of.
_FLEETING = frozenset(("PolicyReport", "ClusterPolicyReport", "EphemeralReport"))
_MANAGED = "webhook.kyverno.io/managed-by"
_PATIENCE = 10.0


@dataclass
class Janitor:
    """Knows what was there before the tests, and removes what came since."""

    api: Api
    namespace: str
    config_map: str
    leave_namespace: Callable[[str], None]
    _baseline: set[Key] = field(default_factory=set)
    _settings: Object | None = None

    def remember(self) -> None:
        """Take what is there now as what belongs there."""
        self._baseline = {key_of(body) for body in self._list_all()}
        try:
            self._settings = self.api.get(self._settings_key())
        except NotFoundError:
            self._settings = None

    def sweep(self) -> list[str]:
        """Remove what came since; returns what could not be removed, in words."""
        troubles: list[str] = []
        for kinds in (self._list_policy_kinds(), _native_kinds(), _hook_kinds()):
            troubles += self._remove(self._list_new(kinds))
        troubles += self._remove(self._list_new(_ORDINARY))
        troubles += self._leave_namespaces()
        troubles += self._restore_settings()
        return troubles

    def _settings_key(self) -> Key:
        return Key("v1", "ConfigMap", self.namespace, self.config_map)

    def _list_policy_kinds(self) -> list[tuple[str, str]]:
        """Each kind once, in the version that its group prefers where it has it."""
        found: dict[tuple[str, str], str] = {}
        for group in self.api.call("GET", "/apis")["groups"]:
            if group["name"] in _POLICY_GROUPS:
                preferred = group["preferredVersion"]["groupVersion"]
                for version in (preferred, *(e["groupVersion"] for e in group["versions"])):
                    for kind in self.api.list_kinds(version):
                        found.setdefault((group["name"], kind), version)
        return [(version, kind) for (_, kind), version in found.items() if kind not in _FLEETING]

    def _list_all(self) -> Iterator[Object]:
        kinds = [*self._list_policy_kinds(), *_native_kinds(), *_hook_kinds(), *_ORDINARY]
        for version, kind in [*kinds, ("v1", "Namespace")]:
            yield from self._list_kind(version, kind)

    def _list_kind(self, version: str, kind: str) -> list[Object]:
        try:
            return self.api.list(Key(version, kind, "", ""))
        except ApiError:
            return []

    def _list_new(self, kinds: Sequence[tuple[str, str]]) -> list[Object]:
        return [
            body
            for version, kind in kinds
            for body in self._list_kind(version, kind)
            if key_of(body) not in self._baseline and not self._belongs(body)
        ]

    def _belongs(self, body: Object) -> bool:
        """Tell whether someone else looks after an object: its namespace, its owner, or lictor."""
        key = key_of(body)
        metadata = body["metadata"]
        if metadata.get("deletionTimestamp"):
            return not metadata.get("finalizers")
        if key.name == "kube-root-ca.crt" or (key.kind, key.name) == ("ServiceAccount", "default"):
            return True
        if metadata.get("ownerReferences") or _MANAGED in (metadata.get("labels") or {}):
            return True
        inside = key.namespace and Key("v1", "Namespace", "", key.namespace) not in self._baseline
        own = key.namespace == self.namespace and key.kind == "Secret"
        return bool(inside or own or key.namespace == "kube-system")

    def _remove(self, bodies: Sequence[Object]) -> list[str]:
        troubles = []
        deadline = time.monotonic() + _PATIENCE
        keys = [key_of(body) for body in bodies]
        for key in keys:
            if trouble := self._delete(key, deadline):
                troubles.append(trouble)
        for key in keys:
            try:
                self.api.wait_gone(key, min(deadline, time.monotonic() + 2))
            except (TimeoutError, ApiError):
                self._drop_finalizers(key)
        return troubles

    def _delete(self, key: Key, deadline: float) -> str | None:
        """Delete with patience: a webhook of a policy that just went may still refuse."""
        while True:
            try:
                self.api.delete(key)
            except NotFoundError:
                return None
            except ApiError as error:
                if time.monotonic() > deadline:
                    return f"{key}: {error}"
                time.sleep(0.3)
            else:
                return None

    def _drop_finalizers(self, key: Key) -> None:
        try:
            body = {"apiVersion": key.version, "kind": key.kind}
            metadata = {"name": key.name, "namespace": key.namespace, "finalizers": None}
            self.api.merge({**body, "metadata": metadata})
        except ApiError:
            pass

    def _leave_namespaces(self) -> list[str]:
        troubles = []
        for body in self._list_kind("v1", "Namespace"):
            key = key_of(body)
            if key in self._baseline or body["metadata"].get("deletionTimestamp"):
                continue
            try:
                self.leave_namespace(key.name)
            except ApiError as error:
                troubles.append(f"{key}: {error}")
        return troubles

    def _restore_settings(self) -> list[str]:
        """Put the ConfigMap back as it was: some tests change it and leave it so."""
        if self._settings is None:
            return []
        key = self._settings_key()
        try:
            now = self.api.get(key)
            if now.get("data") == self._settings.get("data"):
                return []
            self.api.update({**now, "data": self._settings.get("data")})
        except NotFoundError:
            made = {"apiVersion": "v1", "kind": "ConfigMap", "data": self._settings.get("data")}
            labels = self._settings["metadata"].get("labels")
            metadata = {"name": key.name, "namespace": key.namespace, "labels": labels}
            self.api.create({**made, "metadata": metadata})
        return []


def _native_kinds() -> list[tuple[str, str]]:
    return [(f"{_REGISTRATION}/{version}", kind) for version, kind in _NATIVE]


def _hook_kinds() -> list[tuple[str, str]]:
    return [(f"{_REGISTRATION}/{version}", kind) for version, kind in _HOOKS]
