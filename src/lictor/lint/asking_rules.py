"""Every rule among the linted files that asks something of resources, with what it asks for."""

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

import msgspec

from lictor.families.registry import PolicyKind
from lictor.lint.cluster_requests import enforces
from lictor.lint.documents import LintObject
from lictor.lint.field import Field
from lictor.lint.field_constraints import (
    UNKNOWN,
    CheckConstraints,
    join_all,
    join_any,
    read_deny,
    read_pattern,
)
from lictor.lint.rule_matches import (
    KnownKinds,
    RuleMatch,
    is_written,
    read_classic_match,
    read_constraints_match,
    write_parts,
)
from lictor.model.finding import FieldPath
from lictor.model.program import Phase
from lictor.raw import JsonObject

if TYPE_CHECKING:
    from lictor.lang.cel.environment import Environment

# What a classic rule may check in one of the ways that are understood.
_CHECKS = ("pattern", "anyPattern", "deny", "cel")


class AskingRule(msgspec.Struct, frozen=True):
    """A validate rule, or a validation, by itself."""

    item: LintObject
    # Where it stands in the document, and how people are told of it.
    at: FieldPath
    title: str
    match: RuleMatch
    check: CheckConstraints
    # The check as it is written; empty where two of the same text need not mean the same.
    text: bytes
    enforces: bool
    # Others make it refuse less than it says: exceptions, overrides, bindings.
    is_weakened: bool
    # The policy, with nothing but this rule.
    document: JsonObject

    @property
    def identity(self) -> tuple[str, str, str, str]:
        """Of two with the same one, a cluster has only the one that came later."""
        return (self.item.group, self.item.kind, self.item.namespace, self.item.name)


class Surroundings(msgspec.Struct, frozen=True):
    """What belongs to policies and is among the linted files."""

    kinds: KnownKinds
    # The names of policies that an exception is made from.
    excepted: frozenset[str]
    # The names of policies of Kubernetes itself that a binding makes refuse everywhere.
    bound: frozenset[str]


def list_asking_rules(items: Iterable[LintObject], around: Surroundings) -> Iterator[AskingRule]:
    """The rules of all policies, as far as they are understood."""
    for item in items:
        kind = item.policy_kind
        if kind is None or (kind.phases and Phase.VALIDATE not in kind.phases):
            continue
        if kind.has_named_rules:
            yield from _list_classic(item, around)
        elif kind.phases == (Phase.VALIDATE,) and item.body.get("spec"):
            yield from _list_validations(item, kind, around)


def find_surroundings(items: Iterable[LintObject], kinds: KnownKinds) -> Surroundings:
    """What exceptions and bindings say of policies."""
    excepted: set[str] = set()
    bound: set[str] = set()
    for item in items:
        spec = Field(item.body)["spec"]
        if item.kind.endswith("PolicyException"):
            excepted.update(each["policyName"].text for each in spec["exceptions"].each())
            excepted.update(each["name"].text for each in spec["policyRefs"].each())
        elif item.kind == "ValidatingAdmissionPolicyBinding" and _refuses_everywhere(spec):
            bound.add(spec["policyName"].text)
    return Surroundings(kinds, frozenset(excepted), frozenset(bound))


def _refuses_everywhere(binding: Field) -> bool:
    return "Deny" in binding["validationActions"].texts and binding["matchResources"].is_empty


# --- classic rules


def _list_classic(item: LintObject, around: Surroundings) -> Iterator[AskingRule]:
    policy = Field(item.body)
    spec = policy["spec"]
    for rule in spec["rules"].each():
        validate = rule["validate"]
        if len(validate.present(*_CHECKS)) != 1 or validate["foreach"]:
            continue
        match = read_classic_match(policy, rule, around.kinds)
        if match is None or not is_written(match):
            continue
        overrides = (spec["validationFailureActionOverrides"], validate["failureActionOverrides"])
        weak = not all(each.is_empty for each in overrides) or spec["applyRules"].text == "One"
        limited = any(spec[name].value is False for name in ("background", "admission"))
        yield AskingRule(
            item,
            rule.path,
            f"rule {rule['name'].text!r} of {item.kind} {item.name}",
            match,
            _read_check(policy, validate),
            write_parts(*(validate[name] for name in _CHECKS), rule["context"]),
            enforces(policy, rule),
            weak or limited or item.name in around.excepted,
            {**item.body, "spec": {**spec.value, "rules": [_strip(rule)]}},
        )


def _strip(rule: Field) -> JsonObject:
    """The rule without what has no say: its name, and its message with variables."""
    validate = {**rule["validate"].value, "message": "no"}
    return {**rule.value, "name": "rule", "validate": validate}


def _read_check(policy: Field, validate: Field) -> CheckConstraints:
    if validate["pattern"]:
        return read_pattern(validate["pattern"])
    if validate["anyPattern"]:
        return join_any([read_pattern(each) for each in validate["anyPattern"].each()] or [UNKNOWN])
    if validate["deny"]:
        return read_deny(validate["deny"]["conditions"])
    cel = validate["cel"]
    if policy["spec"]["failurePolicy"].text == "Ignore" or cel["paramKind"]:
        return UNKNOWN
    from lictor.lang.cel.environment import kubernetes_environment

    environment = kubernetes_environment(has_params=False, has_patches=False)
    return join_all(_read_validations(cel["expressions"], cel["variables"], environment))


# --- policies in CEL


def _list_validations(
    item: LintObject, kind: PolicyKind, around: Surroundings
) -> Iterator[AskingRule]:
    from lictor.lint.cel_policies import choose_environment

    policy = Field(item.body)
    spec = policy["spec"]
    is_other = spec["evaluation"]["mode"].text not in ("", "Kubernetes")
    if is_other or spec["failurePolicy"].text == "Ignore" or spec["paramKind"]:
        return
    match = read_constraints_match(policy, around.kinds)
    if match is None or not is_written(match):
        return
    checks = _read_validations(
        spec["validations"], spec["variables"], choose_environment(policy, kind)
    )
    weak = item.name not in around.bound if kind.is_native else item.name in around.excepted
    for number, (each, check) in enumerate(zip(spec["validations"].each(), checks, strict=True), 1):
        place = "" if len(spec["validations"].value) == 1 else f"validation {number} of "
        yield AskingRule(
            item,
            each.path,
            f"{place}{item.kind} {item.name}",
            match,
            check,
            write_parts(each["expression"], spec["variables"]),
            kind.is_native or "Deny" in (spec["validationActions"].texts or ("Deny",)),
            weak or _is_half(spec["evaluation"]),
            {**item.body, "spec": {**spec.value, "validations": [each.value]}},
        )


def _is_half(evaluation: Field) -> bool:
    """Is a policy not asked when something is admitted, or not when it is scanned?"""
    return any(evaluation[name]["enabled"].value is False for name in ("admission", "background"))


def _read_validations(
    validations: Field, variables: Field, environment: "Environment"
) -> list[CheckConstraints]:
    from lictor.lint.cel_constraints import declare_variables, read_validation

    declared = declare_variables(variables, environment)
    if declared is None:
        return [UNKNOWN for _ in validations.each()]
    return [
        read_validation(each["expression"], environment, declared) for each in validations.each()
    ]
