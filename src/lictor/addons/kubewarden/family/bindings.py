"""Where a policy is served, under which name, and its entry in its server and its webhook.

Read from the document as it is stored: a policy whose record is wrong has a server all the same.
"""

import msgspec

from lictor.addons.kubewarden.family.entries import PolicyMode
from lictor.addons.kubewarden.family.policy_server import DEFAULT_SERVER
from lictor.addons.kubewarden.family.records import WasmRecord, describe_entry
from lictor.core.families.family import PolicyKind
from lictor.core.families.kind_facts import WebhookPath
from lictor.core.raw import Json, JsonObject

_NAMESPACE_NAME = "kubernetes.io/metadata.name"
_DEFAULT_TIMEOUT = 10


class PolicyBinding(msgspec.Struct, frozen=True):
    """A policy as its server and its webhook see it."""

    # That of its webhook configuration, and of its entry in policies.yml.
    unique_name: str
    name: str
    namespace: str
    is_group: bool
    server: str
    mode: PolicyMode
    is_mutating: bool
    spec: JsonObject
    record: WasmRecord | None

    def write_entry(self, namespaced_capabilities: tuple[str, ...] = ()) -> JsonObject | None:
        """The entry in policies.yml; None where the policy cannot be read.

        `namespaced_capabilities`: the host calls that the server allows policies of namespaces.
        """
        if self.record is None:
            return None
        entry = describe_entry(self.record, namespaced_capabilities)
        written: JsonObject = msgspec.to_builtins(entry)
        return {
            "namespacedName": {"Namespace": self.namespace, "Name": self.name},
            **written,
            # Written out: what is left out means the same, but people read it.
            "policyMode": self.mode.value,
            **({} if self.is_group else {"allowedToMutate": self.is_mutating}),
        }

    def write_webhook(self, client_config: JsonObject, own_namespace: str) -> JsonObject:
        """Its webhook, called through `client_config`."""
        spec = self.spec
        webhook: JsonObject = {
            "name": f"{self.unique_name}.kubewarden.admission",
            "admissionReviewVersions": ["v1"],
            "clientConfig": client_config,
            "failurePolicy": spec.get("failurePolicy") or "Fail",
            "matchPolicy": spec.get("matchPolicy") or "Equivalent",
            "namespaceSelector": self._select_namespaces(own_namespace),
            "objectSelector": spec.get("objectSelector") or {},
            "rules": [self._write_rule(rule) for rule in spec.get("rules") or ()],
            "sideEffects": spec.get("sideEffects") or "None",
            "timeoutSeconds": spec.get("timeoutSeconds") or _DEFAULT_TIMEOUT,
        }
        if spec.get("matchConditions"):
            webhook["matchConditions"] = spec["matchConditions"]
        return {**webhook, "reinvocationPolicy": "Never"} if self.is_mutating else webhook

    def _write_rule(self, rule: Json) -> Json:
        if not isinstance(rule, dict):
            return rule
        # No selector of namespaces keeps objects away that are in none.
        scope = "Namespaced" if self.namespace else rule.get("scope") or "*"
        return {**rule, "scope": scope}

    def _select_namespaces(self, own_namespace: str) -> JsonObject:
        if self.namespace:
            return {"matchLabels": {_NAMESPACE_NAME: self.namespace}}
        chosen = self.spec.get("namespaceSelector")
        selector: JsonObject = dict(chosen) if isinstance(chosen, dict) else {}
        if self.spec.get("allowInsideAdmissionControllerNamespace"):
            return selector
        outside = {"key": _NAMESPACE_NAME, "operator": "NotIn", "values": [own_namespace]}
        others = selector.get("matchExpressions") or ()
        return {**selector, "matchExpressions": [outside, *others]}


def read_binding(
    kind: PolicyKind, document: JsonObject, record: WasmRecord | None
) -> PolicyBinding:
    """The binding in a document of this kind; missing fields have Kubewarden's defaults."""
    metadata = document["metadata"]
    found = document.get("spec")
    spec: JsonObject = found if isinstance(found, dict) else {}
    name, namespace = str(metadata["name"]), str(metadata.get("namespace") or "")
    is_group = kind.kind.endswith("Group")
    path = kind.path or WebhookPath()
    is_monitor = spec.get("mode") == PolicyMode.MONITOR.value
    return PolicyBinding(
        path.name_policy(namespace, name),
        name,
        namespace,
        is_group,
        str(spec.get("policyServer") or DEFAULT_SERVER),
        PolicyMode.MONITOR if is_monitor else PolicyMode.PROTECT,
        spec.get("mutating") is True and not is_group,
        spec,
        record,
    )
