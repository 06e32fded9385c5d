"""Writes a first generate rule, with a trigger, what it makes, the rights for it and a test."""

import re
import textwrap

import msgspec

from lictor.cli.field_demands import FieldDemand
from lictor.cli.policy_drafts import (
    make_object,
    name_kind,
    place_values,
    write_classic_head,
    write_documents,
    write_test_head,
)
from lictor.core.errors import UsageError
from lictor.core.facts.resource_names import ResourceType
from lictor.core.raw import JsonObject
from lictor.core.report.yaml_text import render_scalar, render_yaml

_SYSTEM = "kube-system"
_TRIGGER = "example"
_NAME = "{{ request.object.metadata.name }}"
_NAMESPACE = "{{ request.object.metadata.namespace }}"
_AGGREGATE = "rbac.kyverno.io/aggregate-to-background-controller"
_VERBS = ("create", "delete", "get", "list", "update", "watch")
_NO_VALUE = re.compile(r"^[!<>]|[*?|]")
# What most people want of these kinds in every new namespace.
_USUAL: dict[str, JsonObject] = {
    "NetworkPolicy": {"spec": {"podSelector": {}, "policyTypes": ["Ingress", "Egress"]}},
    "ResourceQuota": {"spec": {"hard": {"requests.cpu": "4", "requests.memory": "16Gi"}}},
    "LimitRange": {
        "spec": {"limits": [{"type": "Container", "default": {"cpu": "1", "memory": "512Mi"}}]}
    },
}


class GenerateDraft(msgspec.Struct, frozen=True):
    """What the author asked for."""

    name: str
    # The kind whose creation is waited for, and the kind that is then made.
    trigger: ResourceType
    made: ResourceType
    # A field of what is made, with its value.
    field: FieldDemand | None = None

    @property
    def is_by_namespace(self) -> bool:
        return self.trigger.kind == "Namespace" and not self.trigger.group

    @property
    def made_name(self) -> str:
        # One in a namespace can have a name of its own; elsewhere others are beside it.
        return self.name if self.is_by_namespace else f"{_NAME}-{self.name}"

    @property
    def made_namespace(self) -> str:
        if self.is_by_namespace:
            return _NAME
        return _NAMESPACE if self.trigger.namespaced else "default"


def has_usual_fields(kind: ResourceType) -> bool:
    """Whether it is known what people want of the kind."""
    return kind.kind in _USUAL


def draft_generate_files(draft: GenerateDraft) -> dict[str, str]:
    """The texts of all files, by name."""
    if not draft.made.namespaced:
        # Test files compare what lies in namespaces only.
        raise UsageError(
            f"a {draft.made.kind} lies in no namespace: a draft can only make what lies in one"
        )
    body = _make_body(draft)
    trigger, system = _make_trigger(draft, _TRIGGER), _make_trigger(draft, _SYSTEM)
    return {
        "policy.yaml": _write_policy(draft, body),
        "resources.yaml": write_documents((trigger, system)),
        "generated.yaml": write_documents((_make_expected(draft, body, trigger),)),
        "cluster-role.yaml": write_documents((_make_role(draft),)),
        "kyverno-test.yaml": _write_test(draft),
    }


def _make_body(draft: GenerateDraft) -> JsonObject:
    body: JsonObject = msgspec.json.decode(msgspec.json.encode(_USUAL.get(draft.made.kind, {})))
    if draft.field is None:
        return body
    if _NO_VALUE.search(draft.field.pattern):
        raise UsageError(
            f'"{draft.field.pattern}" is a pattern: a rule that makes objects needs a value'
        )
    place_values(body, draft.field.steps, (draft.field.type_value(draft.field.pattern),))
    return body


def _write_policy(draft: GenerateDraft, body: JsonObject) -> str:
    system = f"namespaces: [{_SYSTEM}]" if draft.trigger.namespaced else f"names: [{_SYSTEM}]"
    # What is made there may stop the cluster.
    exclude = f"      exclude:\n        any:\n          - resources:\n              {system}\n"
    return (
        f"{write_classic_head(draft.name)}"
        f"  rules:\n    - name: {draft.name}\n      match:\n        any:\n"
        f"          - resources:\n              kinds: [{name_kind(draft.trigger)}]\n{exclude}"
        "      generate:\n        synchronize: true\n"
        f"        apiVersion: {draft.made.api_version}\n        kind: {draft.made.kind}\n"
        f"        name: {render_scalar(draft.made_name)}\n"
        f"        namespace: {render_scalar(draft.made_namespace)}\n"
        f"        data:\n{textwrap.indent(render_yaml(body), ' ' * 10)}"
    )


def _make_trigger(draft: GenerateDraft, place: str) -> JsonObject:
    """A trigger in this namespace, or, where it lies in none, of this name."""
    if not draft.trigger.namespaced:
        return make_object(draft.trigger, place)
    if place == _SYSTEM:
        return make_object(draft.trigger, "system", _SYSTEM)
    return make_object(draft.trigger, place, "default")


def _make_expected(draft: GenerateDraft, body: JsonObject, trigger: JsonObject) -> JsonObject:
    metadata = trigger["metadata"]

    def fill(text: str) -> str:
        filled = text.replace(_NAME, metadata["name"])
        return filled.replace(_NAMESPACE, metadata.get("namespace", ""))

    made: JsonObject = {
        "name": fill(draft.made_name),
        "namespace": fill(draft.made_namespace),
    }
    own = body.get("metadata", {})
    head = {"apiVersion": draft.made.api_version, "kind": draft.made.kind}
    return {**head, **body, "metadata": {**made, **own}}


def _make_role(draft: GenerateDraft) -> JsonObject:
    """The background controller may do nothing that nobody granted it."""
    made = draft.made
    return {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRole",
        "metadata": {"name": f"{draft.name}-background", "labels": {_AGGREGATE: "true"}},
        "rules": [{"apiGroups": [made.group], "resources": [made.resource], "verbs": list(_VERBS)}],
    }


def _write_test(draft: GenerateDraft) -> str:
    system = "system" if draft.trigger.namespaced else _SYSTEM
    return (
        f"{write_test_head(draft.name)}results:\n"
        f"  - policy: {draft.name}\n    rule: {draft.name}\n    kind: {draft.trigger.kind}\n"
        f"    resources: [{_TRIGGER}]\n    result: pass\n    generatedResource: generated.yaml\n"
        "# Nothing is made for Kubernetes' own.\nchecks:\n"
        f"  - match:\n      policy: {{metadata: {{name: {draft.name}}}}}\n"
        f"      resource: {{metadata: {{name: {system}}}}}\n    error: {{status: pass}}\n"
    )
