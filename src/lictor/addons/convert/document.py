"""The parts of a CEL policy: triggers of rules, metadata, constraints, conditions, expressions."""

import re
from collections.abc import Iterable, Iterator
from typing import TypeAlias

import msgspec
from msgspec.structs import replace

from lictor.addons.convert.cel_tests import FALSE, TRUE, Test, render
from lictor.addons.convert.cel_values import ResourceRoot, find_shape
from lictor.addons.convert.condition import translate_conditions
from lictor.addons.convert.context import bind_context
from lictor.addons.convert.plan import ConversionContext
from lictor.addons.convert.rule_group import RulePlan
from lictor.addons.convert.selection import (
    ResolvedKind,
    build_for,
    resource_rules,
    select,
    translate_match_for,
)
from lictor.addons.convert.value import ExpressionScope
from lictor.addons.convert.writing import PolicyVariables
from lictor.core.errors import CompileError
from lictor.core.families.classic.autogen import expand_rules
from lictor.core.families.classic.autogen.controllers import ANNOTATION
from lictor.core.families.classic.autogen.pod_template import IN_CRON_JOB, IN_TEMPLATE
from lictor.core.model.policy import Policy, Rule
from lictor.core.model.result import Action
from lictor.core.raw import JsonObject

_MADE = "autogen-"


RuleInPod: TypeAlias = tuple[Rule, tuple[str, ...] | None]


def list_rules(context: ConversionContext) -> Iterator[RuleInPod]:
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


def split_made_name(rule: str) -> str:
    """The name of the rule from which a rule for Pod controllers was made."""
    return rule.removeprefix(f"{_MADE}cronjob-").removeprefix(_MADE)


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
    """The trigger of a rule; raises CompileError if it has no equivalent."""
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

    def check(operation: str) -> Test:
        return translate_conditions(
            rule.preconditions, scope_of(operation, PolicyVariables(inline=True))
        )

    wanted = selection.operations or _USUAL
    operations = tuple(op for op in wanted if op in _USUAL and check(op) != FALSE)
    if not operations:
        raise CompileError("a rule that concerns no request")
    condition = build_for(operations, check)
    match = translate_match_for(rule, selection.kinds, subject, operations)
    return RuleTrigger(
        selection.kinds,
        operations,
        tuple(_name(match, condition, rule)),
        selection.namespace_selector,
        scope_of("", hoisted),
    )


def _name(match: Test, tested: Test, rule: Rule) -> Iterable[tuple[str, str]]:
    for name, test in (("match", match), ("preconditions", tested)):
        if test != TRUE:
            yield name, render(test)
    for condition in rule.cel_preconditions:
        yield condition.name, condition.expression


_NOT_COPIED = frozenset((ANNOTATION, "kubectl.kubernetes.io/last-applied-configuration"))
_LONG_LINE = 90
# re: trusted - our own CEL, in which every text is closed
_TOKEN = re.compile(
    r""""(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*'|[()\[\]{}]| && | \|\| | \+ | : |.""", re.DOTALL
)
_BREAKS = (" && ", " || ", " + ", " : ")


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


def write_constraints(group: RulePlan) -> JsonObject:
    """`matchConstraints`."""
    constraints: JsonObject = {"resourceRules": resource_rules(group.kinds, group.operations)}
    if group.namespace_selector is not None:
        constraints["namespaceSelector"] = group.namespace_selector
    return constraints


def write_expressions(policy: Policy, group: RulePlan) -> JsonObject:
    """Conditions, variables, validations and audit annotations."""
    spec: JsonObject = {}
    configuration = policy.spec.webhook_configuration
    conditions: list[JsonObject] = [
        {"name": name, "expression": fold(render(test))} for name, test in group.conditions
    ]
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
    """Break a long expression at its outermost `&&`, `||`, `+` and `:`, and what is left again."""
    return text if "\n" in text else "\n".join(_fold_lines(text, ""))


def _fold_lines(text: str, indent: str) -> Iterator[str]:
    pieces, depth = _break(text) if len(text) > _LONG_LINE else ([text], 0)
    inner = f"{indent}  " if depth else indent
    for index, piece in enumerate(pieces):
        at = inner if index else indent
        if len(pieces) == 1:
            yield f"{at}{piece}"
        else:
            yield from _fold_lines(piece, at)


def _break(text: str) -> tuple[list[str], int]:
    """The pieces, and how many brackets are open around them."""
    depth, found = 0, []
    at = 0
    for piece in _TOKEN.findall(text):
        at += len(piece)
        depth += (piece in "([{") - (piece in ")]}")
        if piece in _BREAKS:
            found.append((depth, at))
    if not found:
        return [text], 0
    least = min(level for level, _ in found)
    ends = [end for level, end in found if level == least]
    starts = [0, *ends]
    pieces = [text[a:b].rstrip() for a, b in zip(starts, [*ends, len(text)], strict=True)]
    return pieces, least
