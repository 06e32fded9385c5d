"""Requests that no honest client sends: sound ones with something wrong somewhere."""

import json
from collections.abc import Iterator
from random import Random
from typing import Any
from urllib.parse import quote

Json = Any
META = {"name": "x", "labels": {"a": "b"}, "annotations": {"c": "d"}}
TEMPLATE = {
    "metadata": {"labels": {"app": "x"}},
    "spec": {
        "containers": [
            {
                "name": "x",
                "image": "x",
                "ports": [{"containerPort": 80}],
                "env": [{"name": "A", "value": "b"}],
                "resources": {"limits": {"cpu": "1", "memory": "1Gi"}},
                "livenessProbe": {"httpGet": {"path": "/", "port": 80}},
            }
        ],
        "volumes": [{"name": "v", "emptyDir": {}}],
    },
}
RULE = {"apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"], "operations": ["CREATE"]}
OBJECTS: tuple[tuple[str, Json], ...] = (
    ("api/v1/namespaces/default/pods", {"apiVersion": "v1", "kind": "Pod", **TEMPLATE}),
    (
        "api/v1/namespaces/default/services",
        {
            "apiVersion": "v1",
            "kind": "Service",
            "spec": {"selector": {"a": "b"}, "ports": [{"port": 80, "targetPort": "x"}]},
        },
    ),
    (
        "api/v1/namespaces/default/secrets",
        {"apiVersion": "v1", "kind": "Secret", "type": "Opaque", "data": {"a": "Yg=="}},
    ),
    ("api/v1/namespaces", {"apiVersion": "v1", "kind": "Namespace", "spec": {"finalizers": []}}),
    (
        "apis/apps/v1/namespaces/default/deployments",
        {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "spec": {
                "replicas": 1,
                "selector": {"matchLabels": {"app": "x"}},
                "strategy": {"rollingUpdate": {"maxSurge": "25%"}},
                "template": TEMPLATE,
            },
        },
    ),
    (
        "apis/batch/v1/namespaces/default/cronjobs",
        {
            "apiVersion": "batch/v1",
            "kind": "CronJob",
            "spec": {"schedule": "* * * * *", "jobTemplate": {"spec": {"template": TEMPLATE}}},
        },
    ),
    (
        "apis/apiextensions.k8s.io/v1/customresourcedefinitions",
        {
            "apiVersion": "apiextensions.k8s.io/v1",
            "kind": "CustomResourceDefinition",
            "spec": {
                "group": "x.example",
                "scope": "Namespaced",
                "names": {"plural": "xs", "kind": "X"},
                "versions": [
                    {
                        "name": "v1",
                        "served": True,
                        "storage": True,
                        "schema": {
                            "openAPIV3Schema": {
                                "type": "object",
                                "properties": {"spec": {"type": "object"}},
                                "x-kubernetes-validations": [{"rule": "true"}],
                            }
                        },
                    }
                ],
            },
        },
    ),
    (
        "apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations",
        {
            "apiVersion": "admissionregistration.k8s.io/v1",
            "kind": "ValidatingWebhookConfiguration",
            "webhooks": [
                {
                    "name": "a.b.c",
                    "clientConfig": {"url": "https://127.0.0.1:1/"},
                    "rules": [RULE],
                    "sideEffects": "None",
                    "admissionReviewVersions": ["v1"],
                    "failurePolicy": "Ignore",
                    "timeoutSeconds": 1,
                    "matchConditions": [{"name": "x", "expression": "false"}],
                }
            ],
        },
    ),
    (
        "apis/rbac.authorization.k8s.io/v1/clusterroles",
        {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "ClusterRole",
            "rules": [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}],
            "aggregationRule": {"clusterRoleSelectors": [{"matchLabels": {"x": "y"}}]},
        },
    ),
    (
        "apis/coordination.k8s.io/v1/namespaces/default/leases",
        {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "spec": {"holderIdentity": "x"}},
    ),
    (
        "apis/authorization.k8s.io/v1/subjectaccessreviews",
        {
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SubjectAccessReview",
            "spec": {"user": "x", "resourceAttributes": {"verb": "get", "resource": "pods"}},
        },
    ),
)
JUNK: tuple[Json, ...] = (
    None, True, False, 0, -1, 1, 2**31, 2**63, -(2**70), 1.5, 1e308, "", " ", "x", "\x00", "\ud83d\ude00",
    "a" * 300, "../../etc", "{{x}}", "100%", "1e9999", "2020-01-01T00:00:00Z", [], {}, [[]], [None], {"": ""},
    {"$patch": "delete"}, {"$patch": 3}, {"$setElementOrder/containers": 1}, [{}], ["x"], [1, "x", None],
)  # fmt: skip
TYPES = (
    "application/json",
    "application/yaml",
    "application/merge-patch+json",
    "application/strategic-merge-patch+json",
    "application/json-patch+json",
    "application/apply-patch+yaml",
    "application/vnd.kubernetes.protobuf",
    "text/plain",
    "",
    "application/json; charset=\xff",
)
QUERIES = (
    "fieldManager=x", "fieldManager=", "force=true", "force=7", "dryRun=All", "dryRun=no", "limit=1",
    "limit=-1", "limit=x", "continue=x", "continue=eyJ2IjoxfQ", "labelSelector=a%3Db", "labelSelector=%3D%3D",
    "labelSelector=a in (b", "fieldSelector=metadata.name%3Dx", "fieldSelector=spec.x%3D1", "fieldSelector=%00",
    "resourceVersion=0", "resourceVersion=x", "resourceVersion=99999999999999999999", "timeoutSeconds=0",
    "watch=true&timeoutSeconds=1&resourceVersion=1", "watch=maybe", "fieldValidation=Strict",
    "fieldValidation=x", "propagationPolicy=Foreground", "propagationPolicy=x", "gracePeriodSeconds=-1",
    "pretty=true", "resourceVersionMatch=Exact", "sendInitialEvents=true", "%", "=&&=", "a" * 200,
)  # fmt: skip
PATHS = (
    "", "api", "apis", "api/v1", "api/v2", "apis/x/y/z", "api/v1/namespaces//pods", "api/v1/pods/x",
    "api/v1/namespaces/default/pods/x/status", "api/v1/namespaces/default/pods/x/nothing",
    "api/v1/namespaces/default/pods/x/log", "api/v1/namespaces/default/pods/x/eviction",
    "api/v1/namespaces/default/serviceaccounts/default/token", "apis/apps/v1/namespaces/default/deployments/x/scale",
    "apis/apps/v1/namespaces/default/deployments/x/scale/y", "api/v1/namespaces/default/finalize",
    "openapi/v3", "openapi/v3/apis/apps/v1", "openapi/v2", "version", "healthz", "metrics", "%00", "..%2f..%2f",
    "api/v1/namespaces/%00/pods", "api/v1/nodes/x/proxy/y", "api/v1/namespaces/default/services/x:80/proxy/",
)  # fmt: skip
ACCEPTS = (
    "application/json", "application/json;as=Table;v=v1;g=meta.k8s.io", "*/*", "text/html", ";;;", "",
    "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io", "application/json;as=Table;v=v9;g=x",
    "application/vnd.kubernetes.protobuf",
)  # fmt: skip
METHODS = ("GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS", "TRACE")


def make_requests(chance: Random, count: int) -> Iterator[dict[str, Json]]:
    """So many requests, the same for the same chance."""
    for _ in range(count):
        yield make_request(chance)


def make_request(chance: Random) -> dict[str, Json]:
    """One request, as arguments of httpx."""
    path, body = chance.choice(OBJECTS)
    body = spoil({**body, "metadata": {**META, **body.get("metadata", {})}}, chance)
    method = chance.choice(METHODS[:5] if chance.random() < 0.9 else METHODS)
    if method != "POST" or chance.random() < 0.1:
        path = f"{path}/{chance.choice(('x', 'y', quote(chance.choice(('..', 'ä', ' ', 'X'))), 'x/status'))}"
    if chance.random() < 0.15:
        path = chance.choice(PATHS)
    query = "&".join(chance.sample(QUERIES, chance.choice((0, 0, 1, 2))))
    kind = chance.choice(
        TYPES[:1] if method in ("POST", "PUT") and chance.random() < 0.7 else TYPES
    )
    headers = {"Content-Type": kind.encode("latin-1"), "Accept": chance.choice(ACCEPTS)}
    return {
        "method": method,
        "url": f"/{path}?{query}".rstrip("?"),
        "content": write(body, method, kind, chance) if method not in ("GET", "HEAD") else b"",
        "headers": headers,
    }


def spoil(body: Json, chance: Random) -> Json:
    """The same with one to four places that hold something else."""
    spoiled = json.loads(json.dumps(body))
    for _ in range(chance.randint(0, 4)):
        holder, key = chance.choice(list(list_places(spoiled)))
        holder[key] = json.loads(json.dumps(chance.choice(JUNK)))
    return spoiled


def list_places(value: Json) -> Iterator[tuple[Json, Json]]:
    """Every place in a document that can be overwritten."""
    items = value.items() if isinstance(value, dict) else enumerate(value)
    for key, inner in items:
        yield value, key
        if isinstance(inner, (dict, list)) and inner:
            yield from list_places(inner)


def write(body: Json, method: str, kind: str, chance: Random) -> bytes:
    """The bytes of a body, which may be no document at all."""
    if method == "PATCH" and "json-patch" in kind:
        path = chance.choice(("/spec", "/metadata/name", "", "/a/b/c", "//", "/-", "/spec/x~2", 7))
        op = chance.choice(("add", "remove", "replace", "move", "copy", "test", "x", None))
        body = [{"op": op, "path": path, "value": chance.choice(JUNK), "from": chance.choice(JUNK)}]
    text = json.dumps(body).encode()
    match chance.randrange(20):
        case 0:
            return text[: chance.randrange(len(text))]
        case 1:
            return text.replace(b'"', b"'")
        case 2:
            return b"[" * 5000
        case 3:
            return chance.randbytes(chance.randrange(200))
        case 4:
            return json.dumps(chance.choice(JUNK)).encode()
        case 5:
            return b'{"a":' * 3000 + b"1" + b"}" * 3000
    return text
