"""Groups rules into one CEL policy, with separate conditions where they differ."""

import re
from collections.abc import Iterable

import msgspec
from msgspec.structs import replace

from lictor.addons.convert.cel_tests import TRUE, Atom, Test, all_of, compare, negate, render
from lictor.addons.convert.selection import ResolvedKind
from lictor.addons.convert.simplify import simplify
from lictor.addons.convert.writing import literal
from lictor.core.model.policy import Policy
from lictor.core.model.result import Action
from lictor.core.raw import JsonObject


class RulePlan(msgspec.Struct, frozen=True):
    """The parts of a CEL policy that one rule, or a group of rules, becomes."""

    rules: tuple[str, ...]
    kinds: tuple[ResolvedKind, ...]
    operations: tuple[str, ...]
    # The path of the Pod in the object; None if the rules are not about Pods.
    pod: tuple[str, ...] | None = None
    namespace_selector: JsonObject | None = None
    conditions: tuple[tuple[str, Test], ...] = ()
    variables: tuple[tuple[str, str], ...] = ()
    validations: tuple[JsonObject, ...] = ()
    audit_annotations: tuple[JsonObject, ...] = ()
    params: JsonObject | None = None
    action: Action = Action.AUDIT
    notes: tuple[str, ...] = ()

    @property
    def texts(self) -> list[str]:
        """All expressions, in order."""
        return [
            *(render(test) for _, test in self.conditions),
            *(text for _, text in self.variables),
            *(str(each.get(k, "")) for each in self.validations for k in EXPRESSIONS),
            *(str(each["valueExpression"]) for each in self.audit_annotations),
        ]


EXPRESSIONS = ("expression", "messageExpression")


def agree(one: RulePlan, other: RulePlan) -> bool:
    """Whether two groups concern the same requests, and can share a policy."""
    fields = ("kinds", "operations", "pod", "namespace_selector", "conditions", "params", "action")
    if any(getattr(one, field) != getattr(other, field) for field in fields):
        return False
    mine = dict(one.variables)
    keys = {each["key"] for each in one.audit_annotations}
    return all(mine.get(name, text) == text for name, text in other.variables) and not any(
        each["key"] in keys for each in other.audit_annotations
    )


def merge_alike(one: RulePlan, other: RulePlan) -> RulePlan:
    """One group of two that agree."""
    variables = {**dict(one.variables), **dict(other.variables)}
    return replace(
        one,
        rules=(*one.rules, *other.rules),
        variables=tuple(variables.items()),
        validations=(*one.validations, *other.validations),
        audit_annotations=(*one.audit_annotations, *other.audit_annotations),
    )


# --- rules that differ in what they concern


def merge_groups(groups: list[RulePlan]) -> list[RulePlan]:
    """As few groups as possible: each rule tests what not all of its group share."""
    families: list[list[RulePlan]] = []
    for group in _unite_kinds(groups):
        fitting = next((each for each in families if all(_can_join(m, group) for m in each)), None)
        if fitting is None:
            families.append([group])
        else:
            fitting.append(group)
    return [_merge_family(family) for family in families]


def _unite_kinds(groups: list[RulePlan]) -> list[RulePlan]:
    """Groups with the same tests for different kinds become one."""
    united: dict[str, RulePlan] = {}
    for group in groups:
        key = str(replace(group, rules=(), kinds=(), pod=None, notes=()))
        known = united.get(key)
        if known is None or group.audit_annotations:
            united[key if known is None else str(group)] = group
        else:
            kinds = tuple(dict.fromkeys((*known.kinds, *group.kinds)))
            united[key] = replace(known, kinds=kinds, rules=(*known.rules, *group.rules))
    return list(united.values())


def _can_join(one: RulePlan, other: RulePlan) -> bool:
    if one.action is not other.action or one.namespace_selector != other.namespace_selector:
        return False
    if any(group.params is not None or group.audit_annotations for group in (one, other)):
        return False
    mine = dict(one.variables)
    if any(mine.get(name, text) != text for name, text in other.variables):
        return False
    return are_distinct(one.kinds, other.kinds)


def are_distinct(some: tuple[ResolvedKind, ...], others: tuple[ResolvedKind, ...]) -> bool:
    """Whether the name of a kind identifies it."""
    if any("*" in kind.kind for kind in (*some, *others)):
        return some == others
    both = {kind.kind for kind in some} & {kind.kind for kind in others}
    return all(
        [kind for kind in some if kind.kind == name] == [k for k in others if k.kind == name]
        for name in both
    )


def _merge_family(family: list[RulePlan]) -> RulePlan:
    first, *rest = family
    if not rest:
        return first
    kinds = tuple(dict.fromkeys(kind for group in family for kind in group.kinds))
    operations = tuple(dict.fromkeys(op for group in family for op in group.operations))
    common = tuple(c for c in first.conditions if all(c in group.conditions for group in rest))
    whole = replace(first, kinds=kinds, operations=operations, conditions=common, validations=())
    variables: dict[str, str] = {}
    for group in family:
        variables |= dict(group.variables)
    return replace(
        whole,
        rules=tuple(rule for group in family for rule in group.rules),
        variables=tuple(variables.items()),
        validations=tuple(each for group in family for each in _guard_all(group, whole)),
    )


def _guard_all(group: RulePlan, whole: RulePlan) -> Iterable[JsonObject]:
    own = [test for name, test in group.conditions if (name, test) not in whole.conditions]
    condition = all_of((*_list_guards(group, whole), *own))
    for validation in group.validations:
        expression = guard_text(condition, str(validation["expression"]))
        yield {**validation, "expression": expression}


def _list_guards(group: RulePlan, whole: RulePlan) -> Iterable[Test]:
    yield from match_kind(group.kinds, whole.kinds)
    if set(group.operations) != set(whole.operations):
        yield is_one_of("request.operation", group.operations)


def match_kind(
    wanted: tuple[ResolvedKind, ...], others: tuple[ResolvedKind, ...]
) -> Iterable[Test]:
    """Whether a request is about one of the kinds, where there are others."""
    if {kind.kind for kind in wanted} != {kind.kind for kind in others}:
        yield is_one_of("request.kind.kind", [kind.kind for kind in wanted])


def is_one_of(text: str, names: Iterable[str]) -> Test:
    """Whether a text is one of the names."""
    known = list(dict.fromkeys(names))
    if len(known) == 1:
        return compare(text, "==", literal(known[0]))
    return Atom(f"{text} in {literal(known)}")


def guard_text(condition: Test, expression: str) -> str:
    """An expression that holds if the test does not."""
    if condition == TRUE:
        return expression
    if expression == "false":
        return render(simplify(negate(condition)))
    if condition.risky:
        # `||` would forget that the test could not be evaluated.
        return f"({render(condition)}) ? ({expression}) : true"
    otherwise = f"({expression})" if _holds_choice(expression) else expression
    unmatched = simplify(negate(condition))
    return f"{render(unmatched)} || {otherwise}"


def _holds_choice(text: str) -> bool:
    return re.search(r"\s\?\s", text) is not None


# --- names


def name_document(
    policy: Policy, rule: str, pod: tuple[str, ...] | None, pods: Iterable[tuple[str, ...] | None]
) -> str:
    """The old name, with suffixes if it becomes several policies (about `pods`)."""
    alike = [each for each in pods if each == pod or not (each or pod)]
    parts = [policy.metadata.name]
    if len(alike) > 1:
        parts.append(rule.removeprefix("autogen-cronjob-").removeprefix("autogen-"))
    if pod:
        parts.append("cronjobs" if "jobTemplate" in pod else "controllers")
    made = "-".join(parts).lower()
    return re.sub(r"[^a-z0-9.-]+", "-", made)[:253].strip("-.")
