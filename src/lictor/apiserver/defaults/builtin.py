"""What does an object of a built-in kind hold where its author said nothing?

Each kind has a function that fills in a copy of the object; the object itself is left as it was.
"""

import base64
from collections.abc import Callable
from itertools import pairwise

from lictor.apiserver.defaults.pod_defaults import complete_pod, complete_template
from lictor.apiserver.defaults.policy_defaults import (
    complete_admission_policy,
    complete_definition,
    complete_policy_binding,
    complete_webhooks,
)
from lictor.apiserver.defaults.service_defaults import complete_service
from lictor.apiserver.defaults.storage_defaults import (
    complete_claim,
    complete_driver,
    complete_storage_class,
    complete_volume,
)
from lictor.apiserver.defaults.workload_defaults import (
    complete_autoscaler,
    complete_cron_job,
    complete_daemon_set,
    complete_deployment,
    complete_job,
    complete_replica_set,
    complete_stateful_set,
)
from lictor.apiserver.object_reader import copy_json, read_list, read_object, read_text
from lictor.raw import JsonObject

_RBAC = "rbac.authorization.k8s.io"
_LIMIT_KINDS = ("max", "default", "defaultRequest")


def complete_builtin(kind: str, document: JsonObject) -> JsonObject:
    """The object with all defaults of its kind; the same one where the kind has none."""
    complete = _COMPLETIONS.get(kind)
    if complete is None:
        return document
    completed: JsonObject = copy_json(document)
    complete(completed)
    return completed


def _complete_secret(secret: JsonObject) -> None:
    written = secret.pop("stringData", None)
    if written:
        encoded = {key: base64.b64encode(text.encode()).decode() for key, text in written.items()}
        secret["data"] = {**read_object(secret, "data"), **encoded}
    if not secret.get("type"):
        secret["type"] = "Opaque"


def _complete_namespace(namespace: JsonObject) -> None:
    metadata = namespace.setdefault("metadata", {})
    if name := read_text(metadata, "name"):
        metadata.setdefault("labels", {})["kubernetes.io/metadata.name"] = name
    spec = namespace.setdefault("spec", {})
    # Finalizers go by way of `finalize` only: those that are gone must not come back.
    if "deletionTimestamp" not in metadata:
        spec.setdefault("finalizers", ["kubernetes"])
    namespace.setdefault("status", {}).setdefault("phase", "Active")


def _complete_binding(binding: JsonObject) -> None:
    reference = read_object(binding, "roleRef")
    if reference and not reference.get("apiGroup"):
        reference["apiGroup"] = _RBAC
    for subject in read_list(binding, "subjects"):
        if subject.get("kind") in ("User", "Group") and not subject.get("apiGroup"):
            subject["apiGroup"] = _RBAC


def _complete_network_policy(policy: JsonObject) -> None:
    spec = policy.setdefault("spec", {})
    spec.setdefault("podSelector", {})
    for direction in ("ingress", "egress"):
        for rule in read_list(spec, direction):
            for port in read_list(rule, "ports"):
                port.setdefault("protocol", "TCP")
    if not spec.get("policyTypes"):
        spec["policyTypes"] = ["Ingress", "Egress"] if spec.get("egress") else ["Ingress"]


def _complete_endpoints(endpoints: JsonObject) -> None:
    for subset in read_list(endpoints, "subsets"):
        for port in read_list(subset, "ports"):
            port.setdefault("protocol", "TCP")


def _complete_slice(endpoint_slice: JsonObject) -> None:
    for port in read_list(endpoint_slice, "ports"):
        port.setdefault("name", "")
        port.setdefault("protocol", "TCP")
    for endpoint in read_list(endpoint_slice, "endpoints"):
        endpoint.setdefault("conditions", {})


def _complete_limits(limit_range: JsonObject) -> None:
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


def _complete_priority_class(priority_class: JsonObject) -> None:
    priority_class.setdefault("preemptionPolicy", "PreemptLowerPriority")


def _complete_pod_template(template: JsonObject) -> None:
    complete_template(template.setdefault("template", {}))


def _complete_ingress_class(ingress_class: JsonObject) -> None:
    parameters = read_object(read_object(ingress_class, "spec"), "parameters")
    if parameters:
        parameters.setdefault("scope", "Cluster")


def _complete_api_service(service: JsonObject) -> None:
    reference = read_object(read_object(service, "spec"), "service")
    if reference:
        reference.setdefault("port", 443)


def _complete_ingress(ingress: JsonObject) -> None:
    ingress.setdefault("status", {}).setdefault("loadBalancer", {})


def _complete_budget(budget: JsonObject) -> None:
    status = budget.setdefault("status", {})
    for field in ("currentHealthy", "desiredHealthy", "disruptionsAllowed", "expectedPods"):
        status.setdefault(field, 0)


def _complete_event(event: JsonObject) -> None:
    if event.get("apiVersion") == "v1":
        event.setdefault("source", {})
        event.setdefault("reportingComponent", "")
        event.setdefault("reportingInstance", "")


def _complete_resource_claim(claim: JsonObject) -> None:
    devices = read_object(read_object(claim, "spec"), "devices")
    for request in read_list(devices, "requests"):
        exactly = read_object(request, "exactly")
        if exactly and exactly.setdefault("allocationMode", "ExactCount") == "ExactCount":
            exactly.setdefault("count", 1)


def _complete_flow_schema(schema: JsonObject) -> None:
    schema.setdefault("spec", {}).setdefault("matchingPrecedence", 1000)


_COMPLETIONS: dict[str, Callable[[JsonObject], None]] = {
    "Pod": complete_pod,
    "PodTemplate": _complete_pod_template,
    "Deployment": complete_deployment,
    "ReplicaSet": complete_replica_set,
    "ReplicationController": complete_replica_set,
    "StatefulSet": complete_stateful_set,
    "DaemonSet": complete_daemon_set,
    "Job": complete_job,
    "CronJob": complete_cron_job,
    "HorizontalPodAutoscaler": complete_autoscaler,
    "Service": complete_service,
    "Endpoints": _complete_endpoints,
    "EndpointSlice": _complete_slice,
    "Secret": _complete_secret,
    "Namespace": _complete_namespace,
    "Ingress": _complete_ingress,
    "PodDisruptionBudget": _complete_budget,
    "Event": _complete_event,
    "ResourceClaim": _complete_resource_claim,
    "FlowSchema": _complete_flow_schema,
    "NetworkPolicy": _complete_network_policy,
    "IngressClass": _complete_ingress_class,
    "RoleBinding": _complete_binding,
    "ClusterRoleBinding": _complete_binding,
    "LimitRange": _complete_limits,
    "PersistentVolume": complete_volume,
    "PersistentVolumeClaim": complete_claim,
    "StorageClass": complete_storage_class,
    "CSIDriver": complete_driver,
    "PriorityClass": _complete_priority_class,
    "MutatingWebhookConfiguration": complete_webhooks,
    "ValidatingWebhookConfiguration": complete_webhooks,
    "ValidatingAdmissionPolicy": complete_admission_policy,
    "MutatingAdmissionPolicy": complete_admission_policy,
    "ValidatingAdmissionPolicyBinding": complete_policy_binding,
    "MutatingAdmissionPolicyBinding": complete_policy_binding,
    "CustomResourceDefinition": complete_definition,
    "APIService": _complete_api_service,
}
