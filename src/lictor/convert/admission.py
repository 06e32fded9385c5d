"""Validate rules as Kubernetes' own ValidatingAdmissionPolicies, each with its binding."""

from collections.abc import Iterator

from msgspec.structs import replace

from lictor.convert.document import (
    name_group,
    write_actions,
    write_constraints,
    write_expressions,
    write_failure_policy,
    write_metadata,
)
from lictor.convert.groups import Group, group_rules
from lictor.convert.plan import Ground
from lictor.errors import CompileError
from lictor.model.policy import Policy
from lictor.model.result import Action
from lictor.raw import JsonObject

_API_VERSION = "admissionregistration.k8s.io/v1"
_NAME_LABEL = "kubernetes.io/metadata.name"


def convert_to_admission(ground: Ground) -> tuple[tuple[JsonObject, ...], tuple[str, ...]]:
    """The documents and the notes."""
    if not ground.policy.spec.admission:
        raise CompileError("admission: false: the API server only knows admission")
    groups, notes = group_rules(replace(ground, kyverno=False))
    return tuple(_write_all(ground.policy, groups)), notes


def _write_all(policy: Policy, groups: list[Group]) -> Iterator[JsonObject]:
    for group in groups:
        name = name_group(policy, group, groups)
        yield _write_policy(policy, group, name)
        yield _write_binding(policy, group, name)


def _write_policy(policy: Policy, group: Group, name: str) -> JsonObject:
    metadata = write_metadata(policy, name)
    metadata.pop("namespace", None)
    spec: JsonObject = {
        **write_failure_policy(policy),
        "matchConstraints": write_constraints(group),
        **write_expressions(policy, group),
    }
    if group.params is not None:
        spec["paramKind"] = group.params["paramKind"]
    kind = "ValidatingAdmissionPolicy"
    return {"apiVersion": _API_VERSION, "kind": kind, "metadata": metadata, "spec": spec}


def _write_binding(policy: Policy, group: Group, name: str) -> JsonObject:
    actions = write_actions(policy, group.action)
    if group.action is Action.ENFORCE:
        # The API server takes either Deny or Warn: who is refused needs no warning.
        actions = ["Deny"]
    spec: JsonObject = {"policyName": name, "validationActions": actions}
    if policy.kind == "Policy":
        labels = {_NAME_LABEL: policy.metadata.namespace or "default"}
        spec["matchResources"] = {"namespaceSelector": {"matchLabels": labels}}
    if group.params is not None:
        spec["paramRef"] = group.params["paramRef"]
    return {
        "apiVersion": _API_VERSION,
        "kind": "ValidatingAdmissionPolicyBinding",
        "metadata": {"name": f"{name}-binding"},
        "spec": spec,
    }
