"""The parts of a CEL policy written down: metadata, constraints, conditions, expressions."""

import re
from collections.abc import Iterable

from lictor.compile.autogen.controllers import ANNOTATION
from lictor.convert.groups import Group
from lictor.convert.kinds import resource_rules
from lictor.model.policy import Policy
from lictor.model.result import Action
from lictor.raw import JsonObject

_NOT_COPIED = frozenset((ANNOTATION, "kubectl.kubernetes.io/last-applied-configuration"))
_LONG_LINE = 90
_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|[()\[\]{}]| && | \|\| | \+ |.', re.DOTALL)
_BREAKS = (" && ", " || ", " + ")


def write_metadata(policy: Policy, name: str) -> JsonObject:
    """The metadata of a policy, under another name."""
    metadata: JsonObject = {"name": name}
    if policy.kind == "Policy":
        metadata["namespace"] = policy.metadata.namespace or "default"
    if policy.metadata.labels:
        metadata["labels"] = dict(policy.metadata.labels)
    kept = {k: v for k, v in policy.metadata.annotations.items() if k not in _NOT_COPIED}
    if kept:
        metadata["annotations"] = kept
    return metadata


def name_group(policy: Policy, group: Group, groups: Iterable[Group]) -> str:
    """The name of a group's policy: the old one's, and what tells it from its siblings."""
    name = policy.metadata.name
    siblings = [each for each in groups if each.pod == group.pod or not (each.pod and group.pod)]
    alike = [each for each in siblings if bool(each.pod) == bool(group.pod)]
    parts = [name]
    if len(alike) > 1:
        rule = group.rules[0]
        parts.append(rule.removeprefix("autogen-cronjob-").removeprefix("autogen-"))
    if group.pod:
        parts.append("cronjobs" if "jobTemplate" in group.pod else "controllers")
    made = "-".join(parts).lower()
    return re.sub(r"[^a-z0-9.-]+", "-", made)[:253].strip("-.")


def write_constraints(group: Group) -> JsonObject:
    """`matchConstraints`."""
    constraints: JsonObject = {"resourceRules": resource_rules(group.kinds, group.operations)}
    if group.namespace_selector is not None:
        constraints["namespaceSelector"] = group.namespace_selector
    return constraints


def write_expressions(policy: Policy, group: Group) -> JsonObject:
    """Conditions, variables, validations and audit annotations."""
    spec: JsonObject = {}
    configuration = policy.spec.webhook_configuration
    conditions = [{"name": name, "expression": fold(text)} for name, text in group.conditions]
    if configuration is not None:
        conditions += [
            {"name": each.name, "expression": each.expression}
            for each in configuration.match_conditions
        ]
    if conditions:
        spec["matchConditions"] = conditions
    if group.variables:
        spec["variables"] = [{"name": n, "expression": fold(t)} for n, t in group.variables]
    spec["validations"] = [_fold_all(each) for each in group.validations]
    if group.audit_annotations:
        spec["auditAnnotations"] = list(group.audit_annotations)
    return spec


def write_failure_policy(policy: Policy) -> JsonObject:
    """`failurePolicy`, where the author chose one."""
    configuration = policy.spec.webhook_configuration
    chosen = configuration.failure_policy if configuration is not None else None
    chosen = chosen or policy.spec.failure_policy
    return {"failurePolicy": chosen} if chosen else {}


def write_timeout(policy: Policy) -> JsonObject:
    """`webhookConfiguration`, where the author chose a timeout."""
    configuration = policy.spec.webhook_configuration
    seconds = configuration.timeout_seconds if configuration is not None else None
    seconds = seconds or policy.spec.webhook_timeout_seconds
    return {"webhookConfiguration": {"timeoutSeconds": seconds}} if seconds else {}


def write_actions(policy: Policy, action: Action) -> list[str]:
    """`validationActions`."""
    actions = ["Deny"] if action is Action.ENFORCE else ["Audit"]
    return [*actions, "Warn"] if policy.spec.emit_warning else actions


def _fold_all(validation: JsonObject) -> JsonObject:
    return {
        key: fold(value) if key in ("expression", "messageExpression") else value
        for key, value in validation.items()
    }


def fold(text: str) -> str:
    """Break a long expression where the outermost `&&` or `||` stand."""
    if len(text) <= _LONG_LINE or "\n" in text:
        return text
    depth, made = 0, []
    for piece in _TOKEN.findall(text):
        depth += (piece in "([{") - (piece in ")]}")
        made.append(f"{piece.rstrip()}\n" if depth == 0 and piece in _BREAKS else piece)
    return "".join(made)
