"""Policies and surroundings for the tests of webhooks."""

import orjson

from lictor.controllers.webhook_configuration.draft import DraftContext
from lictor.controllers.webhook_configuration.match_conditions import build_exemptions
from lictor.core.lang.kind_selector import parse_kind_selector
from lictor.core.load.policies import load_documents
from lictor.kubernetes.discovery import ServedResource, find_resources
from lictor.kubernetes.flags import Flags
from lictor.kubernetes.names import Names
from lictor.kubernetes.settings import Settings, read_settings
from lictor.kubernetes.stored_policy import StoredPolicy
from lictor.policies.store import list_policy_resources

NAMES = Names("lictor", "lictor-ns")
RESOURCES = {each.kind: each for each in list_policy_resources()}
CHECK = {"validate": {"pattern": {"metadata": {"name": "?*"}}}}
CHANGE = {"mutate": {"patchStrategicMerge": {"metadata": {"labels": {"a": "b"}}}}}
NO_AUTOGEN = {"pod-policies.kyverno.io/autogen-controllers": "none"}


def _served(group, version, path, kind, *, namespaced=True):
    resource, _, subresource = path.partition("/")
    return ServedResource(group, version, resource, subresource, kind, namespaced)


SERVED = (
    _served("", "v1", "pods", "Pod"),
    _served("", "v1", "pods/exec", "PodExecOptions"),
    _served("", "v1", "configmaps", "ConfigMap"),
    _served("", "v1", "secrets", "Secret"),
    _served("", "v1", "nodes", "Node", namespaced=False),
    _served("", "v1", "namespaces", "Namespace", namespaced=False),
    _served("", "v1", "events", "Event"),
    _served("events.k8s.io", "v1", "events", "Event"),
    _served("apps", "v1", "deployments", "Deployment"),
    _served("apps", "v1", "deployments/scale", "Scale"),
    _served("apps", "v1", "replicasets", "ReplicaSet"),
    _served("apps", "v1", "replicasets/status", "ReplicaSet"),
    _served("batch", "v1", "cronjobs", "CronJob"),
    _served("rbac.authorization.k8s.io", "v1", "clusterroles", "ClusterRole", namespaced=False),
)


def find_kind(text):
    return find_resources(SERVED, parse_kind_selector(text))


def make(kind, name, spec, *, namespace="", annotations=None, status=None):
    resource = RESOURCES[kind]
    document = {
        "apiVersion": resource.api_version,
        "kind": kind,
        "metadata": {
            "name": name,
            "namespace": namespace,
            "uid": f"uid-of-{name}",
            "generation": 1,
            "annotations": annotations or {},
        },
        "spec": spec,
        "status": status or {},
    }
    loaded = load_documents(orjson.dumps(document), name)
    found = loaded.listed
    assert found, loaded.problems
    return StoredPolicy(resource, document, found[0].record, loaded.problems)


def classic(name, kinds, body=None, *, namespace="", match=None, annotations=None, **spec):
    """A classic policy with one rule."""
    resources = {"kinds": kinds, **(match or {})}
    rule = {"name": "rule", "match": {"any": [{"resources": resources}]}, **(body or CHECK)}
    return make(
        "Policy" if namespace else "ClusterPolicy",
        name,
        {"rules": [rule], **spec},
        namespace=namespace,
        annotations=annotations or NO_AUTOGEN,
    )


def resource_rule(*resources, group="", operations=("CREATE",), **more):
    return {
        "apiGroups": [group],
        "apiVersions": ["v1"],
        "resources": list(resources),
        "operations": list(operations),
        **more,
    }


def validating(name, *rules, namespace="", constraints=None, **spec):
    kind = "NamespacedValidatingPolicy" if namespace else "ValidatingPolicy"
    whole = {
        "matchConstraints": {"resourceRules": list(rules), **(constraints or {})},
        "validations": [{"expression": "true"}],
        **spec,
    }
    return make(kind, name, whole, namespace=namespace)


def mutating(name, *rules, namespace="", constraints=None, **spec):
    kind = "NamespacedMutatingPolicy" if namespace else "MutatingPolicy"
    patch = {"patchType": "JSONPatch", "jsonPatch": {"expression": "[]"}}
    whole = {
        "matchConstraints": {"resourceRules": list(rules), **(constraints or {})},
        "mutations": [patch],
        **spec,
    }
    return make(kind, name, whole, namespace=namespace)


def settle(**data):
    """Settings from the entries of a ConfigMap."""
    return read_settings({"data": data}) if data else Settings()


# What an installer writes: then no conditions for namespaces are needed.
USUAL = {
    "webhooks": orjson.dumps(
        {
            "namespaceSelector": {
                "matchExpressions": [
                    {
                        "key": "kubernetes.io/metadata.name",
                        "operator": "NotIn",
                        "values": ["kube-system", "lictor-ns"],
                    }
                ]
            }
        }
    ).decode()
}


def surround(settings=None, *, flags=None, explain=lambda _: "", find=find_kind):
    settings = settings if settings is not None else settle(**USUAL)
    guard = build_exemptions(NAMES, settings, find_kind)
    return DraftContext(NAMES, flags or Flags(), settings, guard, find, explain)
