"""The status of classic policies: conditions, numbers of rules, and the rules of autogen."""

from collections.abc import Iterable

from lictor.core.families.classic.autogen import expand_rules
from lictor.core.families.policy_status import (
    LONGEST_MESSAGE,
    GeneratedPolicyState,
    PolicyFacts,
    format_problems,
    list_or_empty,
    set_conditions,
    write_record,
)
from lictor.core.model.policy import Policy, Rule
from lictor.core.raw import JsonObject


def build_classic_status(
    policy: Policy | None, old: JsonObject, facts: PolicyFacts, now: str
) -> JsonObject:
    """The status that a policy should have."""
    is_ready, message = _find_readiness(facts)
    status: JsonObject = {
        "conditions": set_conditions(
            list_or_empty(old.get("conditions")), {"Ready": (is_ready, message)}, now
        ),
        "autogen": {},
        "rulecount": {"validate": 0, "generate": 0, "mutate": 0, "verifyimages": 0},
        "validatingadmissionpolicy": _describe_native(facts.native, old),
    }
    if policy is not None:
        status["rulecount"] = _count_rules(policy.spec.rules)
        made = _expand(policy)
        if made:
            status["autogen"] = {"rules": made}
    return status


def _describe_native(native: GeneratedPolicyState | None, old: JsonObject) -> JsonObject:
    if native is not None:
        return {"generated": native.generated, "message": native.message}
    before = old.get("validatingadmissionpolicy")
    return before if isinstance(before, dict) and before else {"generated": False, "message": ""}


def _count_rules(rules: Iterable[Rule]) -> JsonObject:
    written = [rule for rule in rules if not rule.name.startswith("autogen-")]
    return {
        "validate": sum(rule.validate is not None for rule in written),
        "generate": sum(rule.generate is not None for rule in written),
        "mutate": sum(rule.mutate is not None for rule in written),
        "verifyimages": sum(bool(rule.verify_images) for rule in written),
    }


def _expand(policy: Policy) -> list[JsonObject]:
    rules = expand_rules(policy)
    return [_write_rule(rule) for rule in rules if rule.name.startswith("autogen-")]


def _write_rule(rule: Rule) -> JsonObject:
    """The rule with those defaults that the API server would write into it."""
    made = write_record(rule)
    made["match"] = {"resources": {}, **made.get("match", {})}
    if rule.exclude is not None:
        made["exclude"] = {"resources": {}, **made.get("exclude", {})}
    made["skipBackgroundRequests"] = rule.skip_background_requests
    if rule.validate is not None:
        made["validate"]["allowExistingViolations"] = rule.validate.allow_existing_violations
    return made


def _find_readiness(facts: PolicyFacts) -> tuple[bool, str]:
    if facts.problems:
        return False, format_problems(facts.problems)
    if facts.refusal:
        return False, facts.refusal[:LONGEST_MESSAGE]
    return (False, "Not Ready") if facts.webhook is False else (True, "Ready")
