"""Kinds that limit others: quotas, budgets, priorities, and requests for certificates."""

from itertools import pairwise

from lictor.addons.apiserver.field_checks import CheckedField, check_qualified, take_any_name
from lictor.addons.apiserver.json_fields import read_list, read_object, read_text
from lictor.addons.apiserver.kind import STATUS, BuiltinResource, ObjectPart, select_by
from lictor.addons.apiserver.resources.pod_defaults import SYSTEM_PRIORITIES
from lictor.addons.apiserver.table_columns import build_columns, format_duration, join_words
from lictor.core.lang.quantity import Quantity, parse_quantity
from lictor.core.raw import Json, JsonObject

_LIMIT_KINDS = ("max", "default", "defaultRequest")


def _set_limits_defaults(limit_range: JsonObject) -> None:
    for item in read_list(read_object(limit_range, "spec"), "limits"):
        if item.get("type") != "Container":
            continue
        # The maximum is the default limit, and the default limit is the default request.
        for source, target in pairwise(_LIMIT_KINDS):
            missing = {**read_object(item, source), **read_object(item, target)}
            if missing:
                item[target] = missing
        requests = {**read_object(item, "min"), **read_object(item, "defaultRequest")}
        if requests:
            item["defaultRequest"] = requests


def _set_priority_class_defaults(priority_class: JsonObject) -> None:
    priority_class.setdefault("preemptionPolicy", "PreemptLowerPriority")


def _set_budget_defaults(budget: JsonObject) -> None:
    status = budget.setdefault("status", {})
    for field in ("currentHealthy", "desiredHealthy", "disruptionsAllowed", "expectedPods"):
        status.setdefault(field, 0)


def _set_flow_schema_defaults(schema: JsonObject) -> None:
    schema.setdefault("spec", {}).setdefault("matchingPrecedence", 1000)


def _validate_budget(budget: CheckedField) -> None:
    spec = budget.at("spec")
    if spec.get("minAvailable") is not None and spec.get("maxUnavailable") is not None:
        fields = ("minAvailable", "selector", "maxUnavailable", "unhealthyPodEvictionPolicy")
        shown = {f"{field[0].upper()}{field[1:]}": spec.get(field) for field in fields}
        budget.invalid("spec", "minAvailable and maxUnavailable cannot be both set", shown)
    spec.selector("selector")


def _validate_priority_class(priority_class: CheckedField) -> None:
    name = priority_class.at("metadata").text("name")
    if name.startswith("system-") and name not in SYSTEM_PRIORITIES:
        why = (
            "priority class names with 'system-' prefix are reserved for system use only. "
            f"error: {name} is not a known system priority class"
        )
        priority_class.forbid("metadata.name", why)
    priority_class.choice("preemptionPolicy", ("PreemptLowerPriority", "Never"))
    old = priority_class.old
    if old is not None and priority_class.get("value") != old.get("value"):
        priority_class.forbid("value", "may not be changed in an update.")


def _validate_limits(limit_range: CheckedField) -> None:
    for item in limit_range.at("spec").items("limits"):
        for why in check_qualified(item.text("type")):
            item.invalid("type", why, item.text("type"))
        most = item.at("max")
        for name, amount in item.at("min").value.items():
            limit = most.get(name)
            if limit is not None and _read(amount) > _read(limit):
                why = f"min value {amount} is greater than max value {limit}"
                item.at("min").entry(name).invalid("", why)


def _validate_quota(quota: CheckedField) -> None:
    hard = quota.at("spec").at("hard")
    for name, amount in hard.value.items():
        if _read(amount) < Quantity(0):
            hard.entry(name).invalid("", "must be greater than or equal to 0")


def _read(amount: Json) -> Quantity:
    try:
        return parse_quantity(str(amount))
    except ValueError:
        return Quantity(0)


def _list_budget_cells(budget: JsonObject) -> list[Json]:
    spec, status = read_object(budget, "spec"), read_object(budget, "status")
    limits = (spec.get(field) for field in ("minAvailable", "maxUnavailable"))
    return [
        *("N/A" if limit is None else str(limit) for limit in limits),
        status.get("disruptionsAllowed") or 0,
    ]


def _list_quota_cells(quota: JsonObject) -> list[Json]:
    status = read_object(quota, "status")
    used = read_object(status, "used")
    requests: list[str] = []
    limits: list[str] = []
    for name, amount in sorted(read_object(status, "hard").items()):
        detail = f"{name}: {used.get(name, '0')}/{amount}"
        (limits if name.startswith("limits.") else requests).append(detail)
    return [", ".join(requests), ", ".join(limits)]


def _list_certificate_request_cells(request: JsonObject) -> list[Json]:
    spec = read_object(request, "spec")
    seconds = spec.get("expirationSeconds")
    return [
        "<none>" if seconds is None else format_duration(seconds),
        _format_decision(request),
    ]


def _format_decision(request: JsonObject) -> str:
    status = read_object(request, "status")
    types = {each.get("type") for each in read_list(status, "conditions")}
    decisions = [word for word in ("Approved", "Denied") if word in types] or ["Pending"]
    failed = ["Failed"] if "Failed" in types else []
    issued = ["Issued"] if status.get("certificate") else []
    return join_words([*decisions, *failed, *issued])


def _list_priority_class_cells(priority_class: JsonObject) -> list[Json]:
    return [priority_class.get("value") or 0, priority_class.get("globalDefault") is True]


def _list_flow_schema_cells(schema: JsonObject) -> list[Json]:
    spec = read_object(schema, "spec")
    missing = "?"
    for condition in read_list(read_object(schema, "status"), "conditions"):
        if condition.get("type") == "Dangling":
            missing = condition.get("status")
    return [
        spec.get("matchingPrecedence"),
        read_text(read_object(spec, "distinguisherMethod"), "type") or "<none>",
        missing,
    ]


BUDGET = build_columns(
    "Name | Min Available | Max Unavailable | Allowed Disruptions:integer | Age", _list_budget_cells
)
QUOTA = build_columns("Name | Request | Limit | Age", _list_quota_cells)
CERTIFICATE_REQUEST = build_columns(
    "Name | Age | SignerName=spec.signerName?<none> | Requestor=spec.username | RequestedDuration "
    "| Condition",
    _list_certificate_request_cells,
)
PRIORITY_CLASS = build_columns(
    "Name | Value:integer | Global-Default:boolean | Age | PreemptionPolicy=preemptionPolicy",
    _list_priority_class_cells,
)
FLOW_SCHEMA = build_columns(
    "Name | PriorityLevel=spec.priorityLevelConfiguration.name | MatchingPrecedence "
    "| DistinguisherMethod | Age | MissingPL",
    _list_flow_schema_cells,
)
_QUEUING = "spec.limited.limitResponse.queuing"
PRIORITY_LEVEL = build_columns(
    "Name | Type=spec.type "
    "| NominalConcurrencyShares=spec.limited.nominalConcurrencyShares?<none> "
    f"| Queues={_QUEUING}.queues?<none> | HandSize={_QUEUING}.handSize?<none> "
    f"| QueueLengthLimit={_QUEUING}.queueLengthLimit?<none> | Age"
)


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
_FLOW_CONTROL = "flowcontrol.apiserver.k8s.io"
RESOURCES = (
    BuiltinResource(
        "",
        "LimitRange",
        set_defaults=_set_limits_defaults,
        validate=_validate_limits,
        created_by_update=True,
    ),
    BuiltinResource(
        "", "ResourceQuota", validate=_validate_quota, columns=QUOTA, returned_when_deleted=True
    ),
    BuiltinResource(
        "policy",
        "PodDisruptionBudget",
        set_defaults=_set_budget_defaults,
        validate=_validate_budget,
        columns=BUDGET,
        counts_generations=True,
        needs_version=True,
    ),
    BuiltinResource(
        "scheduling.k8s.io",
        "PriorityClass",
        set_defaults=_set_priority_class_defaults,
        validate=_validate_priority_class,
        columns=PRIORITY_CLASS,
        counts_generations=True,
    ),
    BuiltinResource(
        _FLOW_CONTROL,
        "FlowSchema",
        set_defaults=_set_flow_schema_defaults,
        columns=FLOW_SCHEMA,
        counts_generations=True,
    ),
    BuiltinResource(
        _FLOW_CONTROL,
        "PriorityLevelConfiguration",
        columns=PRIORITY_LEVEL,
        counts_generations=True,
    ),
    BuiltinResource(
        "certificates.k8s.io",
        "CertificateSigningRequest",
        validate_name=take_any_name,
        columns=CERTIFICATE_REQUEST,
        selectable_fields=select_by("spec.signerName"),
        parts={
            "": ObjectPart(lambda old, _: old, changes_metadata=True),
            "status": ObjectPart(STATUS.carry, _check_signing, changes_metadata=True),
            "approval": ObjectPart(_carry_approval, _check_approval, changes_metadata=True),
        },
    ),
)
