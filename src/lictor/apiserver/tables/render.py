"""Objects as a table, with the columns that `kubectl get` shows."""

from collections.abc import Iterable
from datetime import UTC, datetime
from functools import lru_cache

from lictor.apiserver.kind import ServedKind
from lictor.apiserver.kinds.custom_kind import CustomSchema
from lictor.apiserver.tables import table_basics as basics
from lictor.apiserver.tables import table_network as network
from lictor.apiserver.tables import table_rules as rules
from lictor.apiserver.tables import table_storage as storage
from lictor.apiserver.tables import table_workloads as workloads
from lictor.apiserver.tables.partial import show_metadata
from lictor.apiserver.tables.table_columns import Layout
from lictor.apiserver.tables.table_custom import read_layout
from lictor.apiserver.tables.table_pods import POD
from lictor.raw import Json, JsonObject

_META = "meta.k8s.io"


def render_table(
    kind: ServedKind,
    objects: Iterable[JsonObject],
    *,
    list_metadata: JsonObject,
    include_object: str = "Metadata",
    version: str = "v1",
    now: datetime | None = None,
) -> JsonObject:
    """A table with a row for each object; `include_object` is Metadata, Object or None."""
    layout = find_layout(kind)
    moment = now or datetime.now(UTC)
    return {
        "kind": "Table",
        "apiVersion": f"{_META}/{version}",
        "metadata": list_metadata,
        "columnDefinitions": [column.describe() for column in layout.columns],
        "rows": [_build_row(layout, each, include_object, version, moment) for each in objects],
    }


def _build_row(
    layout: Layout, document: JsonObject, include: str, version: str, now: datetime
) -> JsonObject:
    shown: Json = None
    if include == "Object":
        shown = document
    elif include != "None":
        shown = show_metadata(document, version)
    return {"cells": layout.fill(document, now), "object": shown}


def find_layout(kind: ServedKind) -> Layout:
    """The columns of a kind."""
    if isinstance(kind.schema, CustomSchema):
        return _read_custom(kind.schema)
    return _LAYOUTS.get(kind.kind, basics.OTHER)


@lru_cache(maxsize=256)
def _read_custom(shape: CustomSchema) -> Layout:
    return read_layout(shape.columns)


_LAYOUTS: dict[str, Layout] = {
    "Pod": POD,
    "Deployment": workloads.DEPLOYMENT,
    "ReplicaSet": workloads.REPLICA_SET,
    "ReplicationController": workloads.REPLICA_SET,
    "StatefulSet": workloads.STATEFUL_SET,
    "DaemonSet": workloads.DAEMON_SET,
    "Job": workloads.JOB,
    "CronJob": workloads.CRON_JOB,
    "HorizontalPodAutoscaler": workloads.AUTOSCALER,
    "Service": network.SERVICE,
    "Ingress": network.INGRESS,
    "IngressClass": network.INGRESS_CLASS,
    "NetworkPolicy": network.NETWORK_POLICY,
    "Endpoints": network.ENDPOINTS,
    "EndpointSlice": network.ENDPOINT_SLICE,
    "IPAddress": network.IP_ADDRESS,
    "ServiceCIDR": network.SERVICE_CIDR,
    "PersistentVolume": storage.VOLUME,
    "PersistentVolumeClaim": storage.CLAIM,
    "StorageClass": storage.STORAGE_CLASS,
    "VolumeAttributesClass": storage.ATTRIBUTES_CLASS,
    "CSIDriver": storage.DRIVER,
    "CSINode": storage.CSI_NODE,
    "VolumeAttachment": storage.ATTACHMENT,
    "MutatingWebhookConfiguration": rules.WEBHOOKS,
    "ValidatingWebhookConfiguration": rules.WEBHOOKS,
    "ValidatingAdmissionPolicy": rules.VALIDATING_POLICY,
    "MutatingAdmissionPolicy": rules.MUTATING_POLICY,
    "ValidatingAdmissionPolicyBinding": rules.POLICY_BINDING,
    "MutatingAdmissionPolicyBinding": rules.POLICY_BINDING,
    "RoleBinding": rules.BINDING,
    "ClusterRoleBinding": rules.BINDING,
    "PodDisruptionBudget": rules.BUDGET,
    "ResourceQuota": rules.QUOTA,
    "CertificateSigningRequest": rules.CERTIFICATE_REQUEST,
    "PriorityClass": rules.PRIORITY_CLASS,
    "FlowSchema": rules.FLOW_SCHEMA,
    "PriorityLevelConfiguration": rules.PRIORITY_LEVEL,
    "Namespace": basics.NAMESPACE,
    "ConfigMap": basics.CONFIG_MAP,
    "Secret": basics.SECRET,
    "ServiceAccount": basics.ACCOUNT,
    "Node": basics.NODE,
    "Event": basics.EVENT,
    "Lease": basics.LEASE,
    "ControllerRevision": basics.REVISION,
    "PodTemplate": basics.POD_TEMPLATE,
    "RuntimeClass": basics.RUNTIME_CLASS,
    "APIService": basics.API_SERVICE,
    "DeviceClass": basics.AGED,
    "ResourceClaim": basics.RESOURCE_CLAIM,
    "ResourceClaimTemplate": basics.AGED,
    "ResourceSlice": basics.RESOURCE_SLICE,
}
