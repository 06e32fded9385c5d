"""Rules that can share one CEL policy, because they concern the same requests."""

import re
from collections.abc import Iterable, Iterator

import msgspec

from lictor.compile.autogen import expand_rules
from lictor.compile.autogen.pod_template import IN_CRON_JOB, IN_TEMPLATE
from lictor.convert.kinds import Meant
from lictor.convert.plan import Ground, Plan, plan_validate
from lictor.convert.scope import Hoisted
from lictor.errors import CompileError
from lictor.model.policy import Rule
from lictor.model.result import Action
from lictor.raw import JsonObject

_VARIABLE = re.compile(r"\bvariables\.([A-Za-z_][A-Za-z0-9_]*)")
_MADE = "autogen-"


class Group(msgspec.Struct, frozen=True):
    """The parts of one CEL policy."""

    rules: tuple[str, ...]
    kinds: tuple[Meant, ...]
    operations: tuple[str, ...]
    pod: tuple[str, ...] | None
    namespace_selector: JsonObject | None
    conditions: tuple[tuple[str, str], ...]
    variables: tuple[tuple[str, str], ...]
    validations: tuple[JsonObject, ...]
    audit_annotations: tuple[JsonObject, ...]
    params: JsonObject | None
    action: Action

    @property
    def texts(self) -> list[str]:
        """All expressions, in order."""
        return [
            *(text for _, text in self.conditions),
            *(text for _, text in self.variables),
            *(str(each.get(k, "")) for each in self.validations for k in _EXPRESSIONS),
            *(str(each["valueExpression"]) for each in self.audit_annotations),
        ]


_EXPRESSIONS = ("expression", "messageExpression")


def group_rules(ground: Ground) -> tuple[list[Group], tuple[str, ...]]:
    """The validate rules of a policy, with those for pod controllers, in groups."""
    plans, hoisted = _plan_all(ground)
    groups: list[Group] = []
    for plan in plans:
        known = [*hoisted[plan.pod].expressions.items(), *plan.variables]
        made = _group(plan, tuple(_used(plan, known)))
        place = next((i for i, each in enumerate(groups) if _agree(each, made)), None)
        if place is None:
            groups.append(made)
        else:
            groups[place] = _merge(groups[place], made)
    notes = [f"rule {plan.rule}: {note}" for plan in plans for note in plan.notes]
    guesses = {kind.kind: kind for plan in plans for kind in plan.kinds if kind.guessed}
    notes += [
        f"nobody told the resource name of {kind.kind}: {kind.resource} is the usual plural"
        for kind in guesses.values()
    ]
    return groups, tuple(dict.fromkeys(notes))


def _plan_all(
    ground: Ground,
) -> tuple[list[Plan], dict[tuple[str, ...] | None, Hoisted]]:
    hoisted: dict[tuple[str, ...] | None, Hoisted] = {}
    plans = []
    for rule, pod in list_rules(ground):
        if rule.validate is None:
            continue
        try:
            plans.append(plan_validate(rule, pod, hoisted.setdefault(pod, Hoisted()), ground))
        except CompileError as error:
            raise CompileError(error.message, where=f"rule {rule.name}") from error
    return plans, hoisted


def list_rules(ground: Ground) -> Iterator[tuple[Rule, tuple[str, ...] | None]]:
    """All rules, each with where the Pod is that it speaks of; None where it speaks of none."""
    written = ground.policy.spec.rules
    rules = expand_rules(ground.policy)
    made = [rule for rule in rules if rule not in written]
    for rule in rules:
        if rule not in made:
            has_twins = any(each.name.endswith(rule.name) for each in made)
            yield rule, () if has_twins else None
        elif rule.name.startswith(f"{_MADE}cronjob-"):
            yield rule, IN_CRON_JOB.path
        else:
            yield rule, IN_TEMPLATE.path


def _used(plan: Plan, known: list[tuple[str, str]]) -> Iterable[tuple[str, str]]:
    texts = [str(each.get(k, "")) for each in plan.validations for k in _EXPRESSIONS]
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


def _group(plan: Plan, variables: tuple[tuple[str, str], ...]) -> Group:
    return Group(
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


def _agree(one: Group, other: Group) -> bool:
    fields = ("kinds", "operations", "pod", "namespace_selector", "conditions", "params", "action")
    if any(getattr(one, field) != getattr(other, field) for field in fields):
        return False
    mine = dict(one.variables)
    keys = {each["key"] for each in one.audit_annotations}
    return all(mine.get(name, text) == text for name, text in other.variables) and not any(
        each["key"] in keys for each in other.audit_annotations
    )


def _merge(one: Group, other: Group) -> Group:
    variables = {**dict(one.variables), **dict(other.variables)}
    return msgspec.structs.replace(
        one,
        rules=(*one.rules, *other.rules),
        variables=tuple(variables.items()),
        validations=(*one.validations, *other.validations),
        audit_annotations=(*one.audit_annotations, *other.audit_annotations),
    )
