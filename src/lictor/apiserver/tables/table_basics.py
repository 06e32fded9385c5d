"""Rows of what every cluster has: namespaces, nodes, settings, accounts, events, leases."""

from datetime import datetime

from lictor.apiserver.object_reader import read_list, read_object, read_text
from lictor.apiserver.tables.ages import read_moment, tell_age
from lictor.apiserver.tables.table_columns import (
    NONE,
    age_of,
    born,
    build_layout,
    list_images,
    name_of,
    tell_labels,
)
from lictor.raw import Json, JsonObject

_ROLE = "node-role.kubernetes.io/"


def _fill_other(document: JsonObject, now: datetime) -> list[Json]:
    del now
    return [name_of(document), born(document)]


def _fill_namespace(namespace: JsonObject, now: datetime) -> list[Json]:
    phase = read_text(read_object(namespace, "status"), "phase")
    return [name_of(namespace), phase, age_of(namespace, now)]


def _fill_config_map(config_map: JsonObject, now: datetime) -> list[Json]:
    count = sum(len(read_object(config_map, field)) for field in ("data", "binaryData"))
    return [name_of(config_map), count, age_of(config_map, now)]


def _fill_secret(secret: JsonObject, now: datetime) -> list[Json]:
    count = len(read_object(secret, "data"))
    return [name_of(secret), read_text(secret, "type"), count, age_of(secret, now)]


def _fill_account(account: JsonObject, now: datetime) -> list[Json]:
    return [name_of(account), len(read_list(account, "secrets")), age_of(account, now)]


def _fill_node(node: JsonObject, now: datetime) -> list[Json]:
    spec, status = read_object(node, "spec"), read_object(node, "status")
    facts = read_object(status, "nodeInfo")
    words = [_tell_ready(status)]
    if spec.get("unschedulable") is True:
        words.append("SchedulingDisabled")
    labels = read_object(read_object(node, "metadata"), "labels")
    roles = sorted(key.removeprefix(_ROLE) for key in labels if key.startswith(_ROLE))
    return [
        name_of(node),
        ",".join(words),
        ",".join(roles) or NONE,
        age_of(node, now),
        read_text(facts, "kubeletVersion"),
        _find_address(status, "InternalIP"),
        _find_address(status, "ExternalIP"),
        read_text(facts, "osImage") or "<unknown>",
        read_text(facts, "kernelVersion") or "<unknown>",
        read_text(facts, "containerRuntimeVersion") or "<unknown>",
    ]


def _tell_ready(status: JsonObject) -> str:
    for condition in read_list(status, "conditions"):
        if condition.get("type") == "Ready":
            return "Ready" if condition.get("status") == "True" else "NotReady"
    return "Unknown"


def _find_address(status: JsonObject, kind: str) -> str:
    found = [each for each in read_list(status, "addresses") if each.get("type") == kind]
    return read_text(found[0], "address") if found else NONE


def _fill_event(event: JsonObject, now: datetime) -> list[Json]:
    source = read_object(event, "source") or read_object(event, "deprecatedSource")
    about = read_object(event, "involvedObject") or read_object(event, "regarding")
    reporter = read_text(event, "reportingComponent") or read_text(event, "reportingController")
    words = [read_text(source, "component"), read_text(source, "host")]
    if not words[0]:
        words = [reporter, read_text(event, "reportingInstance")]
    first, last = _find_times(event)
    return [
        tell_age(last, now),
        read_text(event, "type"),
        read_text(event, "reason"),
        f"{read_text(about, 'kind').lower()}/{read_text(about, 'name')}",
        read_text(about, "fieldPath"),
        ", ".join(word for word in words if word),
        (read_text(event, "message") or read_text(event, "note")).strip(),
        tell_age(first, now),
        _count(event),
        name_of(event),
    ]


def _find_times(event: JsonObject) -> tuple[Json, Json]:
    when = event.get("eventTime")
    first = event.get("firstTimestamp") or event.get("deprecatedFirstTimestamp") or when
    last = event.get("lastTimestamp") or event.get("deprecatedLastTimestamp")
    seen = read_object(event, "series").get("lastObservedTime")
    times = [each for each in (last, seen) if read_moment(each) is not None]
    return first, seen or (times[0] if times else first)


def _count(event: JsonObject) -> int:
    repeated = read_object(event, "series").get("count")
    return repeated or event.get("count") or event.get("deprecatedCount") or 1


def _fill_lease(lease: JsonObject, now: datetime) -> list[Json]:
    holder = read_text(read_object(lease, "spec"), "holderIdentity")
    return [name_of(lease), holder, age_of(lease, now)]


def _fill_revision(revision: JsonObject, now: datetime) -> list[Json]:
    metadata = read_object(revision, "metadata")
    owner = next((o for o in read_list(metadata, "ownerReferences") if o.get("controller")), None)
    told = NONE
    if owner is not None:
        group = read_text(owner, "apiVersion").rpartition("/")[0]
        kind = read_text(owner, "kind").lower()
        told = f"{kind}.{group}/{read_text(owner, 'name')}" if group else f"{kind}/{owner['name']}"
    return [name_of(revision), told, revision.get("revision") or 0, age_of(revision, now)]


def _fill_pod_template(template: JsonObject, now: datetime) -> list[Json]:
    del now
    inner = read_object(template, "template")
    labels = read_object(read_object(inner, "metadata"), "labels")
    return [name_of(template), *list_images(read_object(inner, "spec")), tell_labels(labels)]


def _fill_runtime_class(runtime_class: JsonObject, now: datetime) -> list[Json]:
    return [name_of(runtime_class), read_text(runtime_class, "handler"), age_of(runtime_class, now)]


def _fill_api_service(service: JsonObject, now: datetime) -> list[Json]:
    reference = read_object(read_object(service, "spec"), "service")
    place = f"{read_text(reference, 'namespace')}/{read_text(reference, 'name')}"
    return [name_of(service), place if reference else "Local", "True", age_of(service, now)]


def _fill_aged(document: JsonObject, now: datetime) -> list[Json]:
    return [name_of(document), age_of(document, now)]


def _fill_resource_claim(claim: JsonObject, now: datetime) -> list[Json]:
    status = read_object(claim, "status")
    words = ["allocated"] if "allocation" in status else []
    words += ["reserved"] if read_list(status, "reservedFor") else []
    if read_object(claim, "metadata").get("deletionTimestamp"):
        words.insert(0, "deleted")
    return [name_of(claim), ",".join(words) or "pending", age_of(claim, now)]


def _fill_resource_slice(resource_slice: JsonObject, now: datetime) -> list[Json]:
    spec = read_object(resource_slice, "spec")
    node = read_text(spec, "nodeName") or ("<all>" if spec.get("allNodes") else "<unset>")
    pool = read_text(read_object(spec, "pool"), "name")
    return [
        name_of(resource_slice),
        node,
        read_text(spec, "driver"),
        pool,
        age_of(resource_slice, now),
    ]


# For all kinds that have no columns of their own.
OTHER = build_layout("Name | Created At:date", _fill_other)
NAMESPACE = build_layout("Name | Status | Age", _fill_namespace)
CONFIG_MAP = build_layout("Name | Data | Age", _fill_config_map)
SECRET = build_layout("Name | Type | Data | Age", _fill_secret)
ACCOUNT = build_layout("Name | Secrets | Age", _fill_account)
NODE = build_layout(
    "Name | Status | Roles | Age | Version | Internal-IP! | External-IP! | OS-Image! "
    "| Kernel-Version! | Container-Runtime!",
    _fill_node,
)
EVENT = build_layout(
    "Last Seen | Type | Reason | Object | Subobject! | Source! | Message | First Seen! | Count! "
    "| Name!",
    _fill_event,
)
LEASE = build_layout("Name | Holder | Age", _fill_lease)
REVISION = build_layout("Name | Controller | Revision | Age", _fill_revision)
POD_TEMPLATE = build_layout("Name | Containers | Images | Pod Labels", _fill_pod_template)
RUNTIME_CLASS = build_layout("Name | Handler | Age", _fill_runtime_class)
API_SERVICE = build_layout("Name | Service | Available | Age", _fill_api_service)
AGED = build_layout("Name | Age", _fill_aged)
RESOURCE_CLAIM = build_layout("Name | State | Age", _fill_resource_claim)
RESOURCE_SLICE = build_layout("Name | Node | Driver | Pool | Age", _fill_resource_slice)
