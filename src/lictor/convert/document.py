"""The parts of a CEL policy: grouped rules, metadata, constraints, conditions, expressions."""

import re
from collections.abc import Iterable, Iterator

import msgspec
from msgspec.structs import replace

from lictor.convert.cel_tests import FALSE, TRUE, Test, render
from lictor.convert.cel_values import ResourceRoot, find_shape
from lictor.convert.condition import translate_conditions
from lictor.convert.context import bind_context
from lictor.convert.plan import ConversionContext, RulePlan, plan_validate
from lictor.convert.selection import ResolvedKind, resource_rules, select, translate_match
from lictor.convert.value import ExpressionScope
from lictor.convert.writing import PolicyVariables
from lictor.errors import CompileError
from lictor.families.classic.autogen import expand_rules
from lictor.families.classic.autogen.controllers import ANNOTATION
from lictor.families.classic.autogen.pod_template import IN_CRON_JOB, IN_TEMPLATE
from lictor.model.policy import Policy, Rule
from lictor.model.result import Action
from lictor.raw import JsonObject

_VARIABLE = re.compile(r"\bvariables\.([A-Za-z_][A-Za-z0-9_]*)")
_MADE = "autogen-"


class RuleGroup(msgspec.Struct, frozen=True):
    """The parts of one CEL policy."""

    rules: tuple[str, ...]
    kinds: tuple[ResolvedKind, ...]
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


def group_rules(context: ConversionContext) -> tuple[list[RuleGroup], tuple[str, ...]]:
    """The validate rules of a policy, with those for pod controllers, in groups."""
    plans, hoisted = _plan_all(context)
    groups: list[RuleGroup] = []
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
    context: ConversionContext,
) -> tuple[list[RulePlan], dict[tuple[str, ...] | None, PolicyVariables]]:
    hoisted: dict[tuple[str, ...] | None, PolicyVariables] = {}
    plans = []
    for rule, pod in list_rules(context):
        if rule.validate is None:
            continue
        try:
            plans.append(
                plan_validate(rule, pod, hoisted.setdefault(pod, PolicyVariables()), context)
            )
        except CompileError as error:
            raise CompileError(error.message, where=f"rule {rule.name}") from error
    return plans, hoisted


def list_rules(context: ConversionContext) -> Iterator[tuple[Rule, tuple[str, ...] | None]]:
    """All rules, each with the path of the Pod that it is about; None if it is about none."""
    written = context.policy.spec.rules
    rules = expand_rules(context.policy)
    made = [rule for rule in rules if rule not in written]
    for rule in rules:
        if rule not in made:
            has_twins = any(each.name.endswith(rule.name) for each in made)
            yield rule, () if has_twins else None
        elif rule.name.startswith(f"{_MADE}cronjob-"):
            yield rule, IN_CRON_JOB.path
        else:
            yield rule, IN_TEMPLATE.path


def _used(plan: RulePlan, known: list[tuple[str, str]]) -> Iterable[tuple[str, str]]:
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


def _agree(one: RuleGroup, other: RuleGroup) -> bool:
    fields = ("kinds", "operations", "pod", "namespace_selector", "conditions", "params", "action")
    if any(getattr(one, field) != getattr(other, field) for field in fields):
        return False
    mine = dict(one.variables)
    keys = {each["key"] for each in one.audit_annotations}
    return all(mine.get(name, text) == text for name, text in other.variables) and not any(
        each["key"] in keys for each in other.audit_annotations
    )


def _merge(one: RuleGroup, other: RuleGroup) -> RuleGroup:
    variables = {**dict(one.variables), **dict(other.variables)}
    return msgspec.structs.replace(
        one,
        rules=(*one.rules, *other.rules),
        variables=tuple(variables.items()),
        validations=(*one.validations, *other.validations),
        audit_annotations=(*one.audit_annotations, *other.audit_annotations),
    )


_ROLES = "rbac.authorization.k8s.io"
_USUAL = ("CREATE", "UPDATE")


class RuleTrigger(msgspec.Struct, frozen=True):
    """What a rule concerns, and the scope of its expressions."""

    kinds: tuple[ResolvedKind, ...]
    operations: tuple[str, ...]
    conditions: tuple[tuple[str, str], ...]
    namespace_selector: JsonObject | None
    scope: ExpressionScope

    @property
    def constraints(self) -> JsonObject:
        """`matchConstraints`."""
        made: JsonObject = {"resourceRules": resource_rules(self.kinds, self.operations)}
        if self.namespace_selector is not None:
            made["namespaceSelector"] = self.namespace_selector
        return made


def find_trigger(
    rule: Rule, pod: tuple[str, ...] | None, hoisted: PolicyVariables, context: ConversionContext
) -> RuleTrigger:
    """The trigger of a rule; CompileError says what has no equivalent."""
    selection = select(rule, context.names, context.groups)
    kinds = [(kind.api_version, kind.kind) for kind in selection.kinds]
    subject = ResourceRoot(shape=find_shape(kinds), pod=pod, inline=True)

    def scope_of(operation: str, names: PolicyVariables) -> ExpressionScope:
        scope = ExpressionScope(
            replace(subject, operation=operation),
            names,
            wildcards=all(kind.group == _ROLES for kind in selection.kinds),
        )
        return bind_context(rule.context, scope)

    def ask(operation: str) -> Test:
        return translate_conditions(
            rule.preconditions, scope_of(operation, PolicyVariables(inline=True))
        )

    wanted = selection.operations or _USUAL
    operations = tuple(op for op in wanted if op in _USUAL and ask(op) != FALSE)
    if not operations:
        raise CompileError("a rule that concerns no request")
    asked = [ask(operation) for operation in operations]
    condition = asked[0] if all(test == asked[0] for test in asked) else ask("")
    match = translate_match(rule, selection.kinds, subject)
    return RuleTrigger(
        selection.kinds,
        operations,
        tuple(_name(match, condition, rule)),
        selection.namespace_selector,
        scope_of("", hoisted),
    )


def _name(match: Test, asked: Test, rule: Rule) -> Iterable[tuple[str, str]]:
    for name, test in (("match", match), ("preconditions", asked)):
        if test != TRUE:
            yield name, render(test)
    for condition in rule.cel_preconditions:
        yield condition.name, condition.expression


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


def name_group(policy: Policy, group: RuleGroup, groups: Iterable[RuleGroup]) -> str:
    """The name of a group's policy: the old name, with a suffix if there are several groups."""
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


def write_constraints(group: RuleGroup) -> JsonObject:
    """`matchConstraints`."""
    constraints: JsonObject = {"resourceRules": resource_rules(group.kinds, group.operations)}
    if group.namespace_selector is not None:
        constraints["namespaceSelector"] = group.namespace_selector
    return constraints


def write_expressions(policy: Policy, group: RuleGroup) -> JsonObject:
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
    """Break a long expression at its outermost `&&` and `||`."""
    if len(text) <= _LONG_LINE or "\n" in text:
        return text
    depth, made = 0, []
    for piece in _TOKEN.findall(text):
        depth += (piece in "([{") - (piece in ")]}")
        made.append(f"{piece.rstrip()}\n" if depth == 0 and piece in _BREAKS else piece)
    return "".join(made)
