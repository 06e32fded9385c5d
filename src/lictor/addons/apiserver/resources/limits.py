"""Kinds that limit others: quotas, budgets, priorities, and requests for certificates."""

from itertools import pairwise

from lictor.addons.apiserver.field_errors import Say, forbidden, invalid
from lictor.addons.apiserver.json_fields import read_list, read_object, read_text
from lictor.addons.apiserver.resources.columns import build_columns, join_words, tell_length
from lictor.addons.apiserver.resources.registry import (
    STATUS,
    BuiltinResource,
    ObjectPart,
    select_by,
)
from lictor.addons.apiserver.resources.validation import (
    check_choice,
    check_qualified,
    check_selector,
    say_all,
    take_any_name,
)
from lictor.core.lang.quantity import Quantity, parse_quantity
from lictor.core.raw import Json, JsonObject

_LIMIT_KINDS = ("max", "default", "defaultRequest")


def _set_limits_defaults(limit_range: JsonObject) -> None:
    for item in read_list(read_object(limit_range, "spec"), "limits"):
        if item.get("type") != "Container":
            continue
        # What may be had at most is what is given; what is given is what is asked for.
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


def validate_budget(budget: JsonObject, old: JsonObject | None, say: Say) -> None:
    """A PodDisruptionBudget."""
    del old
    spec = read_object(budget, "spec")
    if spec.get("minAvailable") is not None and spec.get("maxUnavailable") is not None:
        shown = {
            "MinAvailable": spec["minAvailable"],
            "Selector": spec.get("selector"),
            "MaxUnavailable": spec["maxUnavailable"],
            "UnhealthyPodEvictionPolicy": spec.get("unhealthyPodEvictionPolicy"),
        }
        say(invalid("spec", shown, "minAvailable and maxUnavailable cannot be both set"))
    check_selector(spec.get("selector"), "spec.selector", say)


def validate_priority_class(priority_class: JsonObject, old: JsonObject | None, say: Say) -> None:
    """A PriorityClass."""
    name = read_text(read_object(priority_class, "metadata"), "name")
    known = ("system-node-critical", "system-cluster-critical")
    if name.startswith("system-") and name not in known:
        told = (
            "priority class names with 'system-' prefix are reserved for system use only. "
            f"error: {name} is not a known system priority class"
        )
        say(forbidden("metadata.name", told))
    policies = ("PreemptLowerPriority", "Never")
    check_choice(priority_class.get("preemptionPolicy"), policies, "preemptionPolicy", say)
    if old is not None and priority_class.get("value") != old.get("value"):
        say(forbidden("value", "may not be changed in an update."))


def validate_limits(limit_range: JsonObject, old: JsonObject | None, say: Say) -> None:
    """A LimitRange."""
    del old
    for index, item in enumerate(read_list(read_object(limit_range, "spec"), "limits")):
        path, kind = f"spec.limits[{index}]", read_text(item, "type")
        say_all((invalid(f"{path}.type", kind, why) for why in check_qualified(kind)), say)
        least, most = read_object(item, "min"), read_object(item, "max")
        for name, amount in least.items():
            limit = most.get(name)
            if limit is not None and _read(amount) > _read(limit):
                told = f"min value {amount} is greater than max value {limit}"
                say(invalid(f"{path}.min[{name}]", amount, told))


def validate_quota(quota: JsonObject, old: JsonObject | None, say: Say) -> None:
    """A ResourceQuota."""
    del old
    for name, amount in read_object(read_object(quota, "spec"), "hard").items():
        if _read(amount) < Quantity(0):
            told = "must be greater than or equal to 0"
            say(invalid(f"spec.hard[{name}]", amount, told))


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
        told = f"{name}: {used.get(name, '0')}/{amount}"
        (limits if name.startswith("limits.") else requests).append(told)
    return [", ".join(requests), ", ".join(limits)]


def _list_certificate_request_cells(request: JsonObject) -> list[Json]:
    spec = read_object(request, "spec")
    seconds = spec.get("expirationSeconds")
    return [
        read_text(spec, "signerName") or "<none>",
        "<none>" if seconds is None else tell_length(seconds),
        _tell_decision(request),
    ]


def _tell_decision(request: JsonObject) -> str:
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


def _list_priority_level_cells(level: JsonObject) -> list[Json]:
    limited = read_object(read_object(level, "spec"), "limited")
    queuing = read_object(read_object(limited, "limitResponse"), "queuing")
    fields = ("queues", "handSize", "queueLengthLimit")
    return [
        limited.get("nominalConcurrencyShares", "<none>"),
        *(queuing.get(field, "<none>") for field in fields),
    ]


BUDGET = build_columns(
    "Name | Min Available | Max Unavailable | Allowed Disruptions:integer | Age", _list_budget_cells
)
QUOTA = build_columns("Name | Request | Limit | Age", _list_quota_cells)
CERTIFICATE_REQUEST = build_columns(
    "Name | Age | SignerName | Requestor=spec.username | RequestedDuration | Condition",
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
PRIORITY_LEVEL = build_columns(
    "Name | Type=spec.type | NominalConcurrencyShares | Queues | HandSize | QueueLengthLimit | Age",
    _list_priority_level_cells,
)


def _carry_approval(old: JsonObject, sent: JsonObject) -> JsonObject:
    conditions = read_list(read_object(sent, "status"), "conditions")
    return {**old, "status": {**read_object(old, "status"), "conditions": conditions}}


def _check_approval(request: JsonObject, old: JsonObject | None, say: Say) -> None:
    path = "status.conditions"
    if all(_list_conditions(request, kind) for kind in _DECISIONS):
        told = "Approved and Denied conditions are mutually exclusive"
        say(invalid(path, "Denied", told))
    for kind in (*_DECISIONS, "Failed"):
        if len(_list_conditions(request, kind)) < len(_list_conditions(old, kind)):
            say(forbidden(path, f'updates may not remove a condition of type "{kind}"'))


def _check_signing(request: JsonObject, old: JsonObject | None, say: Say) -> None:
    """Who signs does not approve, and signs once."""
    _check_approval(request, old, say)
    for kind in _DECISIONS:
        mine, before = _list_conditions(request, kind), _list_conditions(old, kind)
        if mine != before and len(mine) >= len(before):
            verb = "add" if len(mine) > len(before) else "modify"
            say(
                forbidden(
                    "status.conditions", f'updates may not {verb} a condition of type "{kind}"'
                )
            )
    signed = read_text(read_object(old, "status"), "certificate")
    if signed and signed != read_text(read_object(request, "status"), "certificate"):
        say(forbidden("status.certificate", "updates may not modify existing certificate content"))


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
        validate=validate_limits,
        created_by_update=True,
    ),
    BuiltinResource(
        "", "ResourceQuota", validate=validate_quota, columns=QUOTA, returned_when_deleted=True
    ),
    BuiltinResource(
        "policy",
        "PodDisruptionBudget",
        set_defaults=_set_budget_defaults,
        validate=validate_budget,
        columns=BUDGET,
        counts_generations=True,
        needs_version=True,
    ),
    BuiltinResource(
        "scheduling.k8s.io",
        "PriorityClass",
        set_defaults=_set_priority_class_defaults,
        validate=validate_priority_class,
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
