"""Tries every verb of every subresource, with rights on subresources of `grey` and nothing else.

What it sends would change images and privileges of what is there. Nothing of that may come true:
the oracle watches `grey` like all other namespaces, and discovery says which verbs may be answered.
"""

import itertools
import threading
from collections import Counter
from collections.abc import Iterator
from typing import Any

import httpx2
from resource_verbs import NAME, Call, list_calls
from violations import ViolationLog

Object = dict[str, Any]
NAMESPACE = "grey"
TARGET = "target"
_PAUSE = 0.02
_EVIL: Object = {
    "hostPID": True,
    "containers": [
        {"name": "main", "image": "evil:latest", "securityContext": {"privileged": True}}
    ],
}
_HONEST: Object = {"containers": [{"name": "main", "image": "registry.local/main:1"}]}
_FORMS = ("merge-patch+json", "strategic-merge-patch+json", "json-patch+json", "apply-patch+yaml")


def list_targets() -> list[Object]:
    """What is attacked; it runs nothing, so that nothing of it changes by itself."""
    template = {"metadata": {"labels": {"a": "b"}}, "spec": _HONEST}
    replicas = {"replicas": 0, "selector": {"matchLabels": {"a": "b"}}, "template": template}
    metadata = {"name": TARGET, "namespace": NAMESPACE}
    return [
        {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": _HONEST},
        {"apiVersion": "apps/v1", "kind": "ReplicaSet", "metadata": metadata, "spec": replicas},
    ]


def list_rights(subject: Object) -> list[Object]:
    """Everything on subresources that leave the object itself as it is, and nothing else."""
    parts = ["*/status", "*/scale", "pods/resize", "pods/ephemeralcontainers", "pods/log"]
    rule = {"apiGroups": ["*"], "resources": parts, "verbs": ["*"]}
    group = "rbac.authorization.k8s.io"
    metadata = {"name": "clerk", "namespace": NAMESPACE}
    role = {"apiGroup": group, "kind": "Role", "name": "clerk"}
    return [
        {"apiVersion": f"{group}/v1", "kind": "Role", "metadata": metadata, "rules": [rule]},
        {
            "apiVersion": f"{group}/v1",
            "kind": "RoleBinding",
            "metadata": metadata,
            "roleRef": role,
            "subjects": [subject],
        },
    ]


class SubresourceAttacker:
    """One who may write a status, and wants to write more."""

    def __init__(
        self, client: httpx2.Client, administrator: httpx2.Client, violations: ViolationLog
    ) -> None:
        self._client = client
        self._violations = violations
        self._calls = list(_list_paths(administrator))
        self.answers: Counter[int] = Counter()

    def run(self, enough: threading.Event) -> None:
        """Go through all of them again and again."""
        for call in itertools.cycle(self._calls):
            for body, form in _list_bodies(call):
                if enough.wait(_PAUSE):
                    return
                self._try(call, body, form)

    def _try(self, call: Call, body: Any, form: str) -> None:
        path = call.path.partition("?")[0].replace(NAME, TARGET)
        query = "?fieldManager=clerk&force=true" if form.startswith("apply") else ""
        try:
            answer = self._client.request(
                call.method,
                f"{path}{query}",
                json=body,
                headers={"content-type": f"application/{form}"},
            )
        except httpx2.HTTPError:
            self.answers[0] += 1
            return
        self.answers[answer.status_code] += 1
        if answer.status_code >= 500:
            self._violations.report(
                "internal error", f"{call.method} {path}", said=answer.text[:500]
            )
        if answer.is_success and not call.is_listed:
            self._violations.report("verb answered", f"{call.method} {path}")


def _list_paths(client: httpx2.Client) -> Iterator[Call]:
    groups = client.get("/apis").json()["groups"]
    named = [each["groupVersion"] for group in groups for each in group["versions"]]
    for version in ("/api/v1", *(f"/apis/{each}" for each in named)):
        resources = client.get(version).json()["resources"]
        inside = [each for each in resources if each["namespaced"] and "/" in each["name"]]
        yield from list_calls(version, inside, NAMESPACE)


def _list_bodies(call: Call) -> Iterator[tuple[Any, str]]:
    """The same wish in every form in which the method takes one."""
    if call.method in ("GET", "HEAD", "OPTIONS", "DELETE"):
        yield None, "json"
        return
    kinds = {"pods": ("v1", "Pod"), "replicasets": ("apps/v1", "ReplicaSet")}
    plural = call.path.partition(f"/{NAME}")[0].rpartition("/")[2]
    version, kind = kinds.get(plural, ("v1", "ConfigMap"))
    spec = _EVIL if kind == "Pod" else {"replicas": 0, "template": {"spec": _EVIL}}
    whole = {"apiVersion": version, "kind": kind, "metadata": {"name": TARGET}, "spec": spec}
    if call.method != "PATCH":
        yield whole, "json"
        return
    for form in _FORMS:
        operation = {"op": "replace", "path": "/spec", "value": spec}
        yield ([operation] if form.startswith("json") else whole), form
