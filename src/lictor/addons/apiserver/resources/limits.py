"""Kinds that limit others: quotas, budgets, priorities, and requests for certificates."""

from itertools import pairwise

from lictor.addons.apiserver.field_checks import CheckedField
from lictor.addons.apiserver.json_fields import read_list, read_object, read_text
from lictor.addons.apiserver.kind import STATUS, ObjectPart
from lictor.addons.apiserver.name_rules import check_qualified
from lictor.addons.apiserver.resources.pod_defaults import SYSTEM_PRIORITIES
from lictor.addons.apiserver.table_columns import NONE, format_duration, join_words
from lictor.core.lang.quantity import Quantity, parse_quantity
from lictor.core.raw import Json, JsonObject

_LIMIT_KINDS = ("max", "default", "defaultRequest")


def set_limits_defaults(limit: JsonObject) -> None:
    """The maximum is the default limit, and the default limit is the default request."""
    for source, target in pairwise(_LIMIT_KINDS):
        missing = {**read_object(limit, source), **read_object(limit, target)}
        if missing:
            limit[target] = missing
    requests = {**read_object(limit, "min"), **read_object(limit, "defaultRequest")}
    if requests:
        limit["defaultRequest"] = requests


def check_budget(budget: CheckedField) -> None:
    """A budget has one limit."""
    spec = budget.at("spec")
    if spec.get("minAvailable") is not None and spec.get("maxUnavailable") is not None:
        fields = ("minAvailable", "selector", "maxUnavailable", "unhealthyPodEvictionPolicy")
        shown = {f"{field[0].upper()}{field[1:]}": spec.get(field) for field in fields}
        budget.invalid("spec", "minAvailable and maxUnavailable cannot be both set", shown)


def check_priority_name(priority_class: CheckedField) -> None:
    """Some names are reserved."""
    name = priority_class.at("metadata").text("name")
    if name.startswith("system-") and name not in SYSTEM_PRIORITIES:
        why = (
            "priority class names with 'system-' prefix are reserved for system use only. "
            f"error: {name} is not a known system priority class"
        )
        priority_class.forbid("metadata.name", why)


def check_limit(item: CheckedField) -> None:
    """One item of a LimitRange."""
    for why in check_qualified(item.text("type")):
        item.invalid("type", why, item.text("type"))
    most = item.at("max")
    for name, amount in item.at("min").value.items():
        limit = most.get(name)
        if limit is not None and _read(amount) > _read(limit):
            why = f"min value {amount} is greater than max value {limit}"
            item.at("min").entry(name).invalid("", why)


def check_amounts(hard: CheckedField) -> None:
    """The amounts of a quota."""
    for name, amount in hard.value.items():
        if _read(amount) < Quantity(0):
            hard.entry(name).invalid("", "must be greater than or equal to 0")


def _read(amount: Json) -> Quantity:
    try:
        return parse_quantity(str(amount))
    except ValueError:
        return Quantity(0)


def list_quota_cells(quota: JsonObject) -> list[Json]:
    """What is used of requests and of limits."""
    status = read_object(quota, "status")
    used = read_object(status, "used")
    requests: list[str] = []
    limits: list[str] = []
    for name, amount in sorted(read_object(status, "hard").items()):
        detail = f"{name}: {used.get(name, '0')}/{amount}"
        (limits if name.startswith("limits.") else requests).append(detail)
    return [", ".join(requests), ", ".join(limits)]


def list_certificate_request_cells(request: JsonObject) -> list[Json]:
    """The requested duration and the decision."""
    seconds = read_object(request, "spec").get("expirationSeconds")
    return [NONE if seconds is None else format_duration(seconds), _format_decision(request)]


def _format_decision(request: JsonObject) -> str:
    status = read_object(request, "status")
    types = {each.get("type") for each in read_list(status, "conditions")}
    decisions = [word for word in ("Approved", "Denied") if word in types] or ["Pending"]
    failed = ["Failed"] if "Failed" in types else []
    issued = ["Issued"] if status.get("certificate") else []
    return join_words([*decisions, *failed, *issued])


def list_flow_schema_cells(schema: JsonObject) -> list[Json]:
    """Whether the priority level is missing."""
    conditions = read_list(read_object(schema, "status"), "conditions")
    found = [each.get("status") for each in conditions if each.get("type") == "Dangling"]
    return [found[-1] if found else "?"]


def _carry_approval(old: JsonObject, sent: JsonObject) -> JsonObject:
    conditions = read_list(read_object(sent, "status"), "conditions")
    return {**old, "status": {**read_object(old, "status"), "conditions": conditions}}


def _check_approval(request: CheckedField) -> None:
    conditions = request.at("status")
    if all(_list_conditions(request.value, kind) for kind in _DECISIONS):
        why = "Approved and Denied conditions are mutually exclusive"
        conditions.invalid("conditions", why, "Denied")
    for kind in (*_DECISIONS, "Failed"):
        before = _list_conditions(request.old, kind)
        if len(_list_conditions(request.value, kind)) < len(before):
            why = f'updates may not remove a condition of type "{kind}"'
            conditions.forbid("conditions", why)


def _check_signing(request: CheckedField) -> None:
    """A signer does not approve, and signs once."""
    _check_approval(request)
    status = request.at("status")
    for kind in _DECISIONS:
        mine, before = (_list_conditions(each, kind) for each in (request.value, request.old))
        if mine != before and len(mine) >= len(before):
            verb = "add" if len(mine) > len(before) else "modify"
            status.forbid("conditions", f'updates may not {verb} a condition of type "{kind}"')
    signed = read_text(status.old, "certificate")
    if signed and signed != status.text("certificate"):
        status.forbid("certificate", "updates may not modify existing certificate content")


def _list_conditions(request: JsonObject | None, kind: str) -> list[Json]:
    conditions = read_list(read_object(request, "status"), "conditions")
    return [each for each in conditions if each.get("type") == kind]


_DECISIONS = ("Approved", "Denied")
REQUEST_PARTS = {
    "": ObjectPart(lambda old, _: old, changes_metadata=True),
    "status": ObjectPart(STATUS.carry, _check_signing, changes_metadata=True),
    "approval": ObjectPart(_carry_approval, _check_approval, changes_metadata=True),
}
