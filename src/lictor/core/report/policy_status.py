"""A policy and what is known of it become its status, as people see it with kubectl."""

from collections.abc import Iterable

import msgspec

from lictor.core.families.registry import PolicyKind, resolve
from lictor.core.model.cel_policy import ImageValidatingSpec
from lictor.core.model.metadata import PolicyRecord
from lictor.core.model.policy import Policy, Rule
from lictor.core.raw import Json, JsonObject

_MOST_PROBLEMS = 3
_LONGEST_MESSAGE = 2048
_KINDS = {
    "daemonsets": "DaemonSet",
    "deployments": "Deployment",
    "replicasets": "ReplicaSet",
    "statefulsets": "StatefulSet",
    "jobs": "Job",
    "cronjobs": "CronJob",
}


class GeneratedPolicyState(msgspec.Struct, frozen=True):
    """Is an admission policy of Kubernetes made from this one? Where not, why not."""

    generated: bool = False
    message: str = ""


class PolicyFacts(msgspec.Struct, frozen=True):
    """What is known of a policy beside its text."""

    # Does the API server ask us about it? None where it need not.
    webhook: bool | None = None
    # Why the API server takes no webhook for it.
    refusal: str = ""
    # Why it cannot be used at all.
    problems: tuple[str, ...] = ()
    # What those who report may not read, each as the verb and the resource.
    lacking: tuple[str, ...] = ()
    # None where nobody has looked yet: what was said before stays.
    native: GeneratedPolicyState | None = None


def build_policy_status(
    kind: PolicyKind, record: PolicyRecord | None, old: JsonObject, facts: PolicyFacts, now: str
) -> JsonObject:
    """The status that a policy should have; `old` is the one it has.

    `now` becomes the time of a transition only where a condition changes its status.
    """
    made: JsonObject = resolve(kind.build_status)(record, kind, old, facts, now)
    return made


# --- classic policies


def build_classic_status(
    policy: Policy | None, _: PolicyKind, old: JsonObject, facts: PolicyFacts, now: str
) -> JsonObject:
    """The status of a policy whose rules have names."""
    is_ready, message = _judge(facts)
    status: JsonObject = {
        "conditions": _set_conditions(
            _list(old.get("conditions")), {"Ready": (is_ready, message)}, now
        ),
        "autogen": {},
        "rulecount": {"validate": 0, "generate": 0, "mutate": 0, "verifyimages": 0},
        "validatingadmissionpolicy": _tell_native(facts.native, old),
    }
    if policy is not None:
        status["rulecount"] = _count_rules(policy.spec.rules)
        made = _expand(policy)
        if made:
            status["autogen"] = {"rules": made}
    return status


def _judge(facts: PolicyFacts) -> tuple[bool, str]:
    if facts.problems:
        return False, _tell_problems(facts.problems)
    if facts.refusal:
        return False, facts.refusal[:_LONGEST_MESSAGE]
    return (False, "Not Ready") if facts.webhook is False else (True, "Ready")


def _tell_problems(problems: tuple[str, ...]) -> str:
    shown = "; ".join(problems[:_MOST_PROBLEMS])
    more = len(problems) - _MOST_PROBLEMS
    return (f"{shown}; and {more} more" if more > 0 else shown)[:_LONGEST_MESSAGE]


def _tell_native(native: GeneratedPolicyState | None, old: JsonObject) -> JsonObject:
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
    from lictor.core.families.classic.autogen import expand_rules

    rules = expand_rules(policy)
    return [_write_rule(rule) for rule in rules if rule.name.startswith("autogen-")]


def _write_rule(rule: Rule) -> JsonObject:
    """The rule with those defaults that the API server would write into it."""
    made = _write(rule)
    made["match"] = {"resources": {}, **made.get("match", {})}
    if rule.exclude is not None:
        made["exclude"] = {"resources": {}, **made.get("exclude", {})}
    made["skipBackgroundRequests"] = rule.skip_background_requests
    if rule.validate is not None:
        made["validate"]["allowExistingViolations"] = rule.validate.allow_existing_violations
    return made


# --- policies in CEL


def build_condition_status(
    _: PolicyRecord | None, kind: PolicyKind, old: JsonObject, facts: PolicyFacts, now: str
) -> JsonObject:
    """The status of any other policy: is it in force, and what is missing?"""
    before = old.get("conditionStatus")
    before = before if isinstance(before, dict) else {}
    wanted = _list_conditions(facts)
    conditions = _set_conditions(_list(before.get("conditions")), wanted, now)
    message = facts.native.message if facts.native else before.get("message")
    status: JsonObject = {
        **{name: value for name, value in old.items() if name == "lastExecutionTime"},
        "conditionStatus": {
            "ready": all(is_met for is_met, _ in wanted.values()),
            "message": message if isinstance(message, str) else "",
            "conditions": conditions,
        },
    }
    if kind.build_native:
        generated = facts.native.generated if facts.native else old.get("generated")
        status["generated"] = generated is True
    return status


def build_cel_status(
    policy: PolicyRecord | None, kind: PolicyKind, old: JsonObject, facts: PolicyFacts, now: str
) -> JsonObject:
    """The same, with what a policy about Pods says about their controllers."""
    status = build_condition_status(policy, kind, old, facts, now)
    if policy is not None and hasattr(policy.spec, "autogen"):
        configs = build_configs(policy)
        status["autogen"] = {"configs": configs} if configs else {}
    return status


def _list_conditions(facts: PolicyFacts) -> dict[str, tuple[bool, str]]:
    wanted: dict[str, tuple[bool, str]] = {}
    if facts.problems:
        wanted["PolicyCached"] = (False, _tell_problems(facts.problems))
    if facts.webhook is True:
        wanted["WebhookConfigured"] = (True, "Webhook configured.")
    elif facts.webhook is False:
        said = facts.refusal or "Policy is not configured in the webhook."
        wanted["WebhookConfigured"] = (False, said[:_LONGEST_MESSAGE])
    if facts.lacking:
        lacking = "; ".join(facts.lacking)
        said = f"Policy is not ready for reporting, missing permissions: {lacking}."
        wanted["RBACPermissionsGranted"] = (False, said)
    else:
        wanted["RBACPermissionsGranted"] = (True, "Policy is ready for reporting.")
    return wanted


def build_configs(policy: PolicyRecord) -> dict[str, JsonObject]:
    """What a policy about Pods says about the controllers that make Pods."""
    from lictor.core.families.kyverno_cel.autogen import list_variants

    configs: dict[str, JsonObject] = {}
    for variant in list_variants(policy):
        targets = [
            {"group": rule.api_groups[0], "version": "v1", "resource": name, "kind": _KINDS[name]}
            for rule in variant.constraints.resource_rules
            for name in rule.resources
        ]
        configs[variant.name] = {"targets": targets, "spec": _write_spec(variant.spec)}
    return configs


def _write_spec(spec: msgspec.Struct) -> JsonObject:
    made = _write(spec)
    if isinstance(spec, ImageValidatingSpec):
        each = spec.validation_configurations
        made["validationConfigurations"] = {
            "mutateDigest": each.mutate_digest,
            "verifyDigest": each.verify_digest,
            "required": each.required,
        }
    return made


# --- conditions


def _set_conditions(
    old: list[Json], wanted: dict[str, tuple[bool, str]], now: str
) -> list[JsonObject]:
    """The conditions; the time of one changes only together with its status."""
    before = {c.get("type"): c for c in old if isinstance(c, dict)}
    return [
        {
            "type": kind,
            "status": "True" if is_met else "False",
            "reason": "Succeeded" if is_met else "Failed",
            "message": message,
            "lastTransitionTime": _find_time(before.get(kind) or {}, is_met=is_met, now=now),
        }
        for kind, (is_met, message) in wanted.items()
    ]


def _find_time(before: JsonObject, *, is_met: bool, now: str) -> str:
    same = before.get("status") == ("True" if is_met else "False")
    time = before.get("lastTransitionTime")
    return time if same and isinstance(time, str) and time else now


def _write(record: msgspec.Struct) -> JsonObject:
    """As it comes back from the API server: with lists, where records have tuples."""
    written: JsonObject = msgspec.json.decode(msgspec.json.encode(record))
    return written


def _list(value: Json) -> list[Json]:
    return value if isinstance(value, list) else []
