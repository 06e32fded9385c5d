"""The status of policies as `kubectl get` shows it: conditions from what is known of a policy."""

import msgspec

from lictor.core.raw import Json, JsonObject

LONGEST_MESSAGE = 2048
_MOST_PROBLEMS = 3


class GeneratedPolicyState(msgspec.Struct, frozen=True):
    """Is an admission policy of Kubernetes made from this one? Where not, why not."""

    generated: bool = False
    message: str = ""


class PolicyFacts(msgspec.Struct, frozen=True):
    """What is known of a policy beside its text."""

    # Is it in the webhook configuration? None where it need not be.
    webhook: bool | None = None
    # Why the API server takes no webhook for it.
    refusal: str = ""
    # Why it cannot be used at all.
    problems: tuple[str, ...] = ()
    # What those who report may not read, each as the verb and the resource.
    lacking: tuple[str, ...] = ()
    # None if unknown: the status before stays.
    native: GeneratedPolicyState | None = None


def build_condition_status(
    old: JsonObject, facts: PolicyFacts, now: str, *, has_native_form: bool
) -> JsonObject:
    """The status of policies without named rules: is it in force, and what is missing?"""
    before = old.get("conditionStatus")
    before = before if isinstance(before, dict) else {}
    wanted = _list_conditions(facts)
    conditions = set_conditions(list_or_empty(before.get("conditions")), wanted, now)
    message = facts.native.message if facts.native else before.get("message")
    status: JsonObject = {
        **{name: value for name, value in old.items() if name == "lastExecutionTime"},
        "conditionStatus": {
            "ready": all(is_met for is_met, _ in wanted.values()),
            "message": message if isinstance(message, str) else "",
            "conditions": conditions,
        },
    }
    if has_native_form:
        generated = facts.native.generated if facts.native else old.get("generated")
        status["generated"] = generated is True
    return status


def _list_conditions(facts: PolicyFacts) -> dict[str, tuple[bool, str]]:
    wanted: dict[str, tuple[bool, str]] = {}
    if facts.problems:
        wanted["PolicyCached"] = (False, format_problems(facts.problems))
    if facts.webhook is True:
        wanted["WebhookConfigured"] = (True, "Webhook configured.")
    elif facts.webhook is False:
        said = facts.refusal or "Policy is not configured in the webhook."
        wanted["WebhookConfigured"] = (False, said[:LONGEST_MESSAGE])
    if facts.lacking:
        lacking = "; ".join(facts.lacking)
        said = f"Policy is not ready for reporting, missing permissions: {lacking}."
        wanted["RBACPermissionsGranted"] = (False, said)
    else:
        wanted["RBACPermissionsGranted"] = (True, "Policy is ready for reporting.")
    return wanted


def format_problems(problems: tuple[str, ...]) -> str:
    """The first problems as one line."""
    shown = "; ".join(problems[:_MOST_PROBLEMS])
    more = len(problems) - _MOST_PROBLEMS
    return (f"{shown}; and {more} more" if more > 0 else shown)[:LONGEST_MESSAGE]


def set_conditions(
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


def write_record(record: msgspec.Struct) -> JsonObject:
    """The record as the API server returns it: with lists, where records have tuples."""
    written: JsonObject = msgspec.json.decode(msgspec.json.encode(record))
    return written


def list_or_empty(value: Json) -> list[Json]:
    """The value if it is a list."""
    return value if isinstance(value, list) else []
