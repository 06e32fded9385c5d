"""Rows of what rules the cluster: webhooks, policies, roles, budgets, quotas."""

from datetime import datetime

from lictor.apiserver.object_reader import read_list, read_object, read_text
from lictor.apiserver.tables.ages import tell_length
from lictor.apiserver.tables.table_columns import UNSET, age_of, build_layout, join_words, name_of
from lictor.raw import Json, JsonObject


def _fill_webhooks(configuration: JsonObject, now: datetime) -> list[Json]:
    webhooks = read_list(configuration, "webhooks")
    return [name_of(configuration), len(webhooks), age_of(configuration, now)]


def _fill_policy(policy: JsonObject, now: datetime) -> list[Json]:
    spec = read_object(policy, "spec")
    entries = read_list(spec, "validations") or read_list(spec, "mutations")
    param = read_object(spec, "paramKind")
    told = f"{read_text(param, 'apiVersion')}/{read_text(param, 'kind')}" if param else UNSET
    return [name_of(policy), len(entries), told, age_of(policy, now)]


def _fill_policy_binding(binding: JsonObject, now: datetime) -> list[Json]:
    spec = read_object(binding, "spec")
    param = read_object(spec, "paramRef")
    return [
        name_of(binding),
        read_text(spec, "policyName"),
        _tell_param(param) if param else UNSET,
        age_of(binding, now),
    ]


def _tell_param(param: JsonObject) -> str:
    name, namespace = read_text(param, "name"), read_text(param, "namespace")
    if not name:
        return "*" if not namespace else f"{namespace}/*"
    return f"{namespace or '*'}/{name}"


def _fill_binding(binding: JsonObject, now: datetime) -> list[Json]:
    reference = read_object(binding, "roleRef")
    subjects = read_list(binding, "subjects")
    return [
        name_of(binding),
        f"{read_text(reference, 'kind')}/{read_text(reference, 'name')}",
        age_of(binding, now),
        *(_list_subjects(subjects, kind) for kind in ("User", "Group")),
        ", ".join(
            f"{read_text(each, 'namespace')}/{read_text(each, 'name')}"
            for each in subjects
            if each.get("kind") == "ServiceAccount"
        ),
    ]


def _list_subjects(subjects: list[Json], kind: str) -> str:
    return ", ".join(read_text(each, "name") for each in subjects if each.get("kind") == kind)


def _fill_budget(budget: JsonObject, now: datetime) -> list[Json]:
    spec, status = read_object(budget, "spec"), read_object(budget, "status")
    limits = (spec.get(field) for field in ("minAvailable", "maxUnavailable"))
    return [
        name_of(budget),
        *("N/A" if limit is None else str(limit) for limit in limits),
        status.get("disruptionsAllowed") or 0,
        age_of(budget, now),
    ]


def _fill_quota(quota: JsonObject, now: datetime) -> list[Json]:
    status = read_object(quota, "status")
    used = read_object(status, "used")
    requests: list[str] = []
    limits: list[str] = []
    for name, amount in sorted(read_object(status, "hard").items()):
        told = f"{name}: {used.get(name, '0')}/{amount}"
        (limits if name.startswith("limits.") else requests).append(told)
    return [name_of(quota), ", ".join(requests), ", ".join(limits), age_of(quota, now)]


def _fill_certificate_request(request: JsonObject, now: datetime) -> list[Json]:
    spec = read_object(request, "spec")
    seconds = spec.get("expirationSeconds")
    return [
        name_of(request),
        age_of(request, now),
        read_text(spec, "signerName") or "<none>",
        read_text(spec, "username"),
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


def _fill_priority_class(priority_class: JsonObject, now: datetime) -> list[Json]:
    return [
        name_of(priority_class),
        priority_class.get("value") or 0,
        priority_class.get("globalDefault") is True,
        age_of(priority_class, now),
        read_text(priority_class, "preemptionPolicy"),
    ]


def _fill_flow_schema(schema: JsonObject, now: datetime) -> list[Json]:
    spec = read_object(schema, "spec")
    missing = "?"
    for condition in read_list(read_object(schema, "status"), "conditions"):
        if condition.get("type") == "Dangling":
            missing = condition.get("status")
    return [
        name_of(schema),
        read_text(read_object(spec, "priorityLevelConfiguration"), "name"),
        spec.get("matchingPrecedence"),
        read_text(read_object(spec, "distinguisherMethod"), "type") or "<none>",
        age_of(schema, now),
        missing,
    ]


def _fill_priority_level(level: JsonObject, now: datetime) -> list[Json]:
    spec = read_object(level, "spec")
    limited = read_object(spec, "limited")
    queuing = read_object(read_object(limited, "limitResponse"), "queuing")
    fields = ("queues", "handSize", "queueLengthLimit")
    return [
        name_of(level),
        read_text(spec, "type"),
        limited.get("nominalConcurrencyShares", "<none>"),
        *(queuing.get(field, "<none>") for field in fields),
        age_of(level, now),
    ]


WEBHOOKS = build_layout("Name | Webhooks:integer | Age", _fill_webhooks)
VALIDATING_POLICY = build_layout("Name | Validations:integer | ParamKind | Age", _fill_policy)
MUTATING_POLICY = build_layout("Name | Mutations:integer | ParamKind | Age", _fill_policy)
POLICY_BINDING = build_layout("Name | PolicyName | ParamRef | Age", _fill_policy_binding)
BINDING = build_layout("Name | Role | Age | Users! | Groups! | ServiceAccounts!", _fill_binding)
BUDGET = build_layout(
    "Name | Min Available | Max Unavailable | Allowed Disruptions:integer | Age", _fill_budget
)
QUOTA = build_layout("Name | Request | Limit | Age", _fill_quota)
CERTIFICATE_REQUEST = build_layout(
    "Name | Age | SignerName | Requestor | RequestedDuration | Condition",
    _fill_certificate_request,
)
PRIORITY_CLASS = build_layout(
    "Name | Value:integer | Global-Default:boolean | Age | PreemptionPolicy", _fill_priority_class
)
FLOW_SCHEMA = build_layout(
    "Name | PriorityLevel | MatchingPrecedence | DistinguisherMethod | Age | MissingPL",
    _fill_flow_schema,
)
PRIORITY_LEVEL = build_layout(
    "Name | Type | NominalConcurrencyShares | Queues | HandSize | QueueLengthLimit | Age",
    _fill_priority_level,
)
