"""Validate rules as ValidatingPolicies; Kyverno's own twins for pod controllers where they fit."""

from collections.abc import Iterator, Sequence

from msgspec.structs import replace

from lictor.convert.document import (
    name_group,
    write_actions,
    write_constraints,
    write_expressions,
    write_failure_policy,
    write_metadata,
    write_timeout,
)
from lictor.convert.groups import Group, group_rules
from lictor.convert.kinds import Meant
from lictor.convert.plan import Ground
from lictor.errors import CompileError
from lictor.model.policy import Policy
from lictor.raw import JsonObject

API_VERSION = "policies.kyverno.io/v1"
# The controllers for which Kyverno makes twins of CEL policies.
_TWINNED = frozenset((
    "daemonsets", "deployments", "replicasets", "statefulsets", "jobs", "cronjobs",
))  # fmt: skip


def convert_to_validating(ground: Ground) -> tuple[tuple[JsonObject, ...], tuple[str, ...]]:
    """The documents and the notes."""
    groups, notes = group_rules(ground)
    for group in groups:
        if group.params is not None:
            raise CompileError("paramKind: a ValidatingPolicy has no parameters")
    return tuple(_write_all(ground.policy, groups)), notes


def _write_all(policy: Policy, groups: Sequence[Group]) -> Iterator[JsonObject]:
    folded: set[int] = set()
    for group in groups:
        if id(group) in folded:
            continue
        name = name_group(policy, group, groups)
        if not _is_about_pods(group):
            yield _write(policy, group, name)
            continue
        twins = [each for each in groups if _is_twin(group, each)]
        folded |= {id(each) for each in twins}
        yield from _write_with_twins(policy, group, twins, name)


def _is_about_pods(group: Group) -> bool:
    return {kind.path for kind in group.kinds} == {"pods", "pods/ephemeralcontainers"}


def _is_twin(group: Group, other: Group) -> bool:
    """Whether Kyverno would make the other's expressions out of the group's."""
    if not other.pod or group.namespace_selector is not None:
        return False
    named = tuple(
        rule.removeprefix("autogen-cronjob-").removeprefix("autogen-") for rule in other.rules
    )
    if [rule[:50] for rule in named] != [rule[:50] for rule in group.rules]:
        return False
    same = ("operations", "action", "namespace_selector")
    if any(getattr(group, field) != getattr(other, field) for field in same):
        return False
    return [move(text, other.pod) for text in group.texts] == other.texts


def move(text: str, pod: tuple[str, ...]) -> str:
    """An expression about a Pod, as Kyverno moves it into a template."""
    template = ".".join(pod)
    for part in ("spec", "metadata"):
        for variable in ("object", "oldObject"):
            text = text.replace(f"{variable}.{part}", f"{variable}.{template}.{part}")
    return text


def _write_with_twins(
    policy: Policy, group: Group, twins: list[Group], name: str
) -> Iterator[JsonObject]:
    pods = tuple(kind for kind in group.kinds if not kind.subresource)
    covered = sorted({kind.resource for twin in twins for kind in twin.kinds} & _TWINNED)
    main = _write(policy, replace(group, kinds=pods), name)
    if group.namespace_selector is None:
        main["spec"]["autogen"] = {"podControllers": {"controllers": covered}}
    yield main
    # What Kyverno makes no twins for.
    ephemeral = tuple(kind for kind in group.kinds if kind.subresource)
    updates = tuple(op for op in group.operations if op == "UPDATE")
    if updates:
        kinds = replace(group, kinds=ephemeral, operations=updates)
        yield _write(policy, kinds, f"{name}-ephemeralcontainers")
    for twin in twins:
        left = tuple(kind for kind in twin.kinds if kind.resource not in _TWINNED)
        if left:
            yield _write(policy, replace(twin, kinds=left), f"{name}-{_label(left)}")


def _label(kinds: tuple[Meant, ...]) -> str:
    return kinds[0].resource if len(kinds) == 1 else "controllers"


def _write(policy: Policy, group: Group, name: str) -> JsonObject:
    spec: JsonObject = {
        "validationActions": write_actions(policy, group.action),
        **write_failure_policy(policy),
        **write_timeout(policy),
        "matchConstraints": write_constraints(group),
        **write_expressions(policy, group),
    }
    evaluation: JsonObject = {}
    if not policy.spec.background:
        evaluation["background"] = {"enabled": False}
    if not policy.spec.admission:
        evaluation["admission"] = {"enabled": False}
    if evaluation:
        spec["evaluation"] = evaluation
    prefix = "Namespaced" if policy.kind == "Policy" else ""
    return {
        "apiVersion": API_VERSION,
        "kind": f"{prefix}ValidatingPolicy",
        "metadata": write_metadata(policy, name),
        "spec": spec,
    }
