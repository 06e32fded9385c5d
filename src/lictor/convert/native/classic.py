"""A ClusterPolicy with one CEL rule as a ValidatingAdmissionPolicy and its binding."""

from collections.abc import Iterable

from lictor.convert.native.constraints import build_constraints
from lictor.convert.native.objects import (
    FindResources,
    NativePair,
    Owner,
    make_pair,
    name_conditions,
    write,
)
from lictor.convert.native.refusals import check_exceptions, check_policy
from lictor.lang.wildcard import match_wildcard
from lictor.model.exception import PolicyException
from lictor.model.policy import Cel, Policy, Rule
from lictor.raw import JsonObject


def build_classic(
    policy: Policy, owner: Owner, exceptions: Iterable[PolicyException], find: FindResources
) -> NativePair:
    """Both objects; CompileError says why a policy cannot be made native."""
    rule, cel = check_policy(policy)
    concerned = [each for each in exceptions if _concerns(each, policy, rule)]
    check_exceptions(concerned)
    excluded = [each.spec.match for each in concerned]
    if rule.exclude is not None:
        excluded.insert(0, rule.exclude)
    constraints, conditions = build_constraints(rule.match, excluded, find)
    conditions = [(each.name, each.expression) for each in rule.cel_preconditions] + conditions
    spec: JsonObject = {
        "failurePolicy": owner.failure_policy,
        "matchConstraints": constraints,
        "validations": _write_validations(cel, rule),
        **_write_optional(cel),
    }
    if conditions:
        spec["matchConditions"] = name_conditions(conditions)
    return make_pair("cpol", "Validating", owner, spec, _bind(policy, rule, cel), "v1")


def _concerns(exception: PolicyException, policy: Policy, rule: Rule) -> bool:
    return any(
        entry.policy_name == policy.metadata.name
        and any(match_wildcard(name, rule.name) for name in entry.rule_names)
        for entry in exception.spec.exceptions
    )


def _write_validations(cel: Cel, rule: Rule) -> list[JsonObject]:
    written: list[JsonObject] = [write(each) for each in cel.expressions]
    message = rule.validate.message if rule.validate is not None else ""
    for each in written:
        if message and "{{" not in message and not each.get("messageExpression"):
            each.setdefault("message", message)
    return written


def _write_optional(cel: Cel) -> JsonObject:
    parts: JsonObject = {
        "paramKind": cel.param_kind,
        "variables": cel.variables,
        "auditAnnotations": cel.audit_annotations,
    }
    return {name: write(part) for name, part in parts.items() if part}


def _bind(policy: Policy, rule: Rule, cel: Cel) -> JsonObject:
    own = rule.validate.failure_action if rule.validate is not None else None
    action = own or policy.spec.validation_failure_action
    binding: JsonObject = {
        "validationActions": ["Deny"] if action.lower() == "enforce" else ["Audit", "Warn"]
    }
    if cel.param_ref is not None:
        binding["paramRef"] = write(cel.param_ref)
    return binding
