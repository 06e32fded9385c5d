"""The validate rules of a policy, with those for Pod controllers, in groups that share a policy."""

import re
from collections.abc import Iterable

from msgspec.structs import replace

from lictor.convert.document import RuleInPod, list_rules, split_made_name
from lictor.convert.plan import ConversionContext, RulePlan, plan_validate
from lictor.convert.rule_group import EXPRESSIONS, RuleGroup, agree, merge_alike, merge_groups
from lictor.convert.writing import PolicyVariables
from lictor.errors import CompileError
from lictor.model.policy import Rule
from lictor.raw import JsonObject

_VARIABLE = re.compile(r"\bvariables\.([A-Za-z_][A-Za-z0-9_]*)")
# Names of rules are cut where they would become longer.
_LONGEST_NAME = 63


def group_rules(context: ConversionContext) -> tuple[list[RuleGroup], tuple[str, ...]]:
    """The validate rules of a policy, with those for pod controllers, in groups."""
    plans, hoisted = _plan_all(context)
    groups: list[RuleGroup] = []
    for plan in plans:
        known = [*hoisted[plan.pod].expressions.items(), *plan.variables]
        made = _group(plan, tuple(_used(plan, known)))
        place = next((i for i, each in enumerate(groups) if agree(each, made)), None)
        if place is None:
            groups.append(made)
        else:
            groups[place] = merge_alike(groups[place], made)
    if context.short:
        groups = merge_groups(groups)
    notes = [f"rule {plan.rule}: {note}" for plan in plans for note in plan.notes]
    guesses = {kind.kind: kind for plan in plans for kind in plan.kinds if kind.guessed}
    notes += [
        f"nobody told the resource name of {kind.kind}: {kind.resource} is the usual plural"
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
    """One rule for Pods and all that makes Pods; None where it would not say the same of all."""
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
    return {"rule": plan.rule, "kinds": plan.kinds, "pod": plan.pod, "notes": plan.notes}


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


def _group(plan: RulePlan, variables: tuple[tuple[str, str], ...]) -> RuleGroup:
    return RuleGroup(
        (plan.rule,),
        plan.kinds,
        plan.operations,
        plan.pod,
        plan.namespace_selector,
        plan.conditions,
        variables,
        plan.validations,
        plan.audit_annotations,
        plan.params,
        plan.action,
    )
