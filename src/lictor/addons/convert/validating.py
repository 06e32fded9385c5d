"""Validate rules as ValidatingPolicies, or as ValidatingAdmissionPolicies with their bindings."""

import re
from collections.abc import Iterable, Iterator, Sequence

from msgspec.structs import replace

from lictor.addons.convert.document import (
    RuleInPod,
    list_rules,
    split_made_name,
    write_actions,
    write_constraints,
    write_expressions,
    write_failure_policy,
    write_metadata,
    write_timeout,
)
from lictor.addons.convert.plan import ConversionContext, plan_validate
from lictor.addons.convert.rule_group import (
    EXPRESSIONS,
    RulePlan,
    agree,
    merge_alike,
    merge_groups,
    name_document,
)
from lictor.addons.convert.writing import PolicyVariables
from lictor.core.errors import CompileError
from lictor.core.families.admission_policy import VALIDATING_KIND
from lictor.core.model.policy import Policy, Rule
from lictor.core.model.result import Action
from lictor.core.raw import JsonObject

_API_VERSION = "admissionregistration.k8s.io/v1"
_NAME_LABEL = "kubernetes.io/metadata.name"


def convert_to_admission(
    context: ConversionContext,
) -> tuple[tuple[JsonObject, ...], tuple[str, ...]]:
    """The documents and the notes."""
    if not context.policy.spec.admission:
        raise CompileError("admission: false: the API server only knows admission")
    groups, notes = _group_rules(replace(context, kyverno=False))
    return tuple(_write_admission_policies(context.policy, groups)), notes


def _write_admission_policies(policy: Policy, groups: list[RulePlan]) -> Iterator[JsonObject]:
    for group in groups:
        name = _name(policy, group, groups)
        yield _write_policy(policy, group, name)
        yield _write_binding(policy, group, name)


def _name(policy: Policy, group: RulePlan, groups: Iterable[RulePlan]) -> str:
    return name_document(policy, group.rules[0], group.pod, [each.pod for each in groups])


def _write_policy(policy: Policy, group: RulePlan, name: str) -> JsonObject:
    metadata = write_metadata(policy, name)
    metadata.pop("namespace", None)
    spec: JsonObject = {
        **write_failure_policy(policy),
        "matchConstraints": write_constraints(group),
        **write_expressions(policy, group),
    }
    if group.params is not None:
        spec["paramKind"] = group.params["paramKind"]
    kind = VALIDATING_KIND
    return {"apiVersion": _API_VERSION, "kind": kind, "metadata": metadata, "spec": spec}


def _write_binding(policy: Policy, group: RulePlan, name: str) -> JsonObject:
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
        "kind": f"{VALIDATING_KIND}Binding",
        "metadata": {"name": f"{name}-binding"},
        "spec": spec,
    }


API_VERSION = "policies.kyverno.io/v1"
_POD_PATHS = frozenset(("pods", "pods/ephemeralcontainers"))


def convert_to_validating(
    context: ConversionContext,
) -> tuple[tuple[JsonObject, ...], tuple[str, ...]]:
    """The documents and the notes."""
    groups, notes = _group_rules(context)
    for group in groups:
        if group.params is not None:
            raise CompileError("paramKind: a ValidatingPolicy has no parameters")
    return tuple(_write_all(context.policy, groups)), notes


def _write_all(policy: Policy, groups: Sequence[RulePlan]) -> Iterator[JsonObject]:
    for group in groups:
        name = _name(policy, group, groups)
        if {kind.path for kind in group.kinds} != _POD_PATHS or "UPDATE" in group.operations:
            yield _write(policy, group, name)
            continue
        # Ephemeral containers are added by updates.
        pods = tuple(kind for kind in group.kinds if not kind.subresource)
        document = _write(policy, replace(group, kinds=pods), name)
        if group.namespace_selector is None:
            # Kyverno would apply a policy for Pods alone to their controllers, too.
            document["spec"]["autogen"] = {"podControllers": {"controllers": []}}
        yield document


def _write(policy: Policy, group: RulePlan, name: str) -> JsonObject:
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


# --- rules, with those for Pod controllers, in groups that share a policy

_VARIABLE = re.compile(r"\bvariables\.([A-Za-z_][A-Za-z0-9_]*)")
# Names of rules are cut where they would become longer.
_LONGEST_NAME = 63


def _group_rules(context: ConversionContext) -> tuple[list[RulePlan], tuple[str, ...]]:
    """The validate rules of a policy, with those for pod controllers, in groups."""
    plans, hoisted = _plan_all(context)
    groups: list[RulePlan] = []
    for plan in plans:
        known = [*hoisted[plan.pod].expressions.items(), *plan.variables]
        made = replace(plan, variables=tuple(_used(plan, known)))
        position = next((i for i, each in enumerate(groups) if agree(each, made)), None)
        if position is None:
            groups.append(made)
        else:
            groups[position] = merge_alike(groups[position], made)
    if context.short:
        groups = merge_groups(groups)
    notes = [f"rule {plan.rules[0]}: {note}" for plan in plans for note in plan.notes]
    guesses = {kind.kind: kind for plan in plans for kind in plan.kinds if kind.guessed}
    notes += [
        f"the resource name of {kind.kind} is unknown: {kind.resource} is the usual plural"
        for kind in guesses.values()
    ]
    return groups, tuple(dict.fromkeys(notes))


def _plan_all(
    context: ConversionContext,
) -> tuple[list[RulePlan], dict[tuple[str, ...] | None, PolicyVariables]]:
    hoisted: dict[tuple[str, ...] | None, PolicyVariables] = {}
    plans: list[RulePlan] = []
    for family in _list_families(context):
        try:
            plans += _plan_family(family, hoisted, context)
        except CompileError as error:
            raise CompileError(error.message, where=f"rule {family[0][0].name}") from error
    return plans, hoisted


def _list_families(context: ConversionContext) -> list[list[RuleInPod]]:
    """The validate rules, each with those that are made of it for Pod controllers."""
    families: list[list[RuleInPod]] = []
    for rule, pod in list_rules(context):
        if rule.validate is None:
            continue
        written = [family for family in families if pod and _is_made_of(rule, family[0][0])]
        if written:
            written[0].append((rule, pod))
        else:
            families.append([(rule, pod)])
    return families


def _is_made_of(rule: Rule, written: Rule) -> bool:
    name = split_made_name(rule.name)
    is_cut = len(rule.name.encode()) == _LONGEST_NAME
    return written.name == name or (is_cut and written.name.startswith(name))


def _plan_family(
    family: list[RuleInPod],
    hoisted: dict[tuple[str, ...] | None, PolicyVariables],
    context: ConversionContext,
) -> list[RulePlan]:
    if context.short and len(family) > 1:
        shared = _plan_as_one(family, hoisted.setdefault((), PolicyVariables()), context)
        if shared is not None:
            return [shared]
    return [
        plan_validate(rule, pod, hoisted.setdefault(pod, PolicyVariables()), context)
        for rule, pod in family
    ]


def _plan_as_one(
    family: list[RuleInPod], hoisted: PolicyVariables, context: ConversionContext
) -> RulePlan | None:
    """One rule for Pods and all pod controllers; None if it would differ between them."""
    try:
        plans = [plan_validate(rule, pod, hoisted, context, shared=True) for rule, pod in family]
    except CompileError:
        return None
    first = plans[0]
    if any(replace(plan, **_own(first)) != first for plan in plans):
        return None
    kinds = tuple(dict.fromkeys(kind for plan in plans for kind in plan.kinds))
    return replace(first, kinds=kinds, notes=tuple(note for plan in plans for note in plan.notes))


def _own(plan: RulePlan) -> JsonObject:
    """What may differ between the rules of a family."""
    return {"rules": plan.rules, "kinds": plan.kinds, "pod": plan.pod, "notes": plan.notes}


def _used(plan: RulePlan, known: list[tuple[str, str]]) -> Iterable[tuple[str, str]]:
    texts = [str(each.get(k, "")) for each in plan.validations for k in EXPRESSIONS]
    texts += [text for _, text in plan.variables]
    texts += [str(each["valueExpression"]) for each in plan.audit_annotations]
    wanted: set[str] = set()
    pending = {name for text in texts for name in _VARIABLE.findall(text)}
    expressions = dict(known)
    while pending:
        name = pending.pop()
        wanted.add(name)
        pending |= set(_VARIABLE.findall(expressions.get(name, ""))) - wanted
    return [(name, text) for name, text in known if name in wanted]
