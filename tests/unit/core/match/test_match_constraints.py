"""matchConstraints and matchResources: which requests they mean, and how much is settled early."""

import msgspec
import pytest

from lictor.core.errors import CompileError
from lictor.core.facts.resource_names import builtin_names
from lictor.core.lang.watch import Recorder
from lictor.core.match.combine import always
from lictor.core.match.constraints import compile_constraints, is_exempt
from lictor.core.model.constraints import MatchResources
from lictor.core.model.request import GroupVersionKind, Operation, Request

NAMES = builtin_names()
EVERYTHING = {"apiGroups": ["*"], "apiVersions": ["*"], "resources": ["*"], "operations": ["*"]}
PODS = {"apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"], "operations": ["CREATE"]}
DEPLOYMENTS = {**PODS, "apiGroups": ["apps"], "resources": ["deployments"]}


def constrain(**body):
    return msgspec.convert(body, MatchResources)


def rule(base=PODS, **changes):
    return {"resourceRules": [{**base, **changes}]}


def thing(api_version="v1", kind="Pod", *, name="x", namespace="ns", labels=None, **metadata):
    found = {"name": name, "namespace": namespace, "labels": labels, **metadata}
    kept = {key: value for key, value in found.items() if value}
    return {"apiVersion": api_version, "kind": kind, "metadata": kept}


def ask(constraints, request, names=NAMES):
    select = compile_constraints(constrain(**constraints), names)
    matches = select(request.kind, request.subresource, request.operation)
    return matches is not None and matches(request)


def request(resource=None, operation="CREATE", **changes):
    made = Request.of(resource or thing(), operation=operation)
    return msgspec.structs.replace(made, **changes)


POD = request()
DEPLOYMENT = request(thing("apps/v1", "Deployment"))
NAMESPACE = request(thing(kind="Namespace", name="ns", namespace="", labels={"env": "prod"}))
ROLE = request(thing("rbac.authorization.k8s.io/v1", "ClusterRole", namespace=""))


@pytest.mark.parametrize(
    ("constraints", "asked", "answer"),
    [
        # groups, versions, resources
        (rule(), POD, True),
        (rule(), DEPLOYMENT, False),
        (rule(DEPLOYMENTS), DEPLOYMENT, True),
        (rule(DEPLOYMENTS), POD, False),
        (rule(DEPLOYMENTS, apiGroups=[""]), DEPLOYMENT, False),
        (rule(DEPLOYMENTS, apiGroups=["", "apps"]), DEPLOYMENT, True),
        (rule(DEPLOYMENTS, apiGroups=["*"]), DEPLOYMENT, True),
        (rule(DEPLOYMENTS, apiVersions=["v2"]), DEPLOYMENT, False),
        (rule(DEPLOYMENTS, apiVersions=["*"]), DEPLOYMENT, True),
        (rule(resources=["services", "pods"]), POD, True),
        (rule(resources=["*"]), POD, True),
        (rule(resources=["*"]), DEPLOYMENT, False),
        (rule(resources=["Pod"]), POD, False),
        (rule(resources=["po*"]), POD, False),
        (rule(EVERYTHING), POD, True),
        (rule(EVERYTHING), ROLE, True),
        # What a rule leaves out fits nothing.
        (rule(resources=[]), POD, False),
        (rule(apiGroups=[]), POD, False),
        (rule(apiVersions=[]), POD, False),
        (rule(operations=[]), POD, False),
        # operations
        (rule(), request(operation="UPDATE"), False),
        (rule(operations=["UPDATE", "CREATE"]), request(operation="UPDATE"), True),
        (rule(operations=["*"]), request(operation="DELETE"), True),
        (rule(operations=["CONNECT"]), request(operation="CONNECT"), True),
        # several rules: one is enough
        ({"resourceRules": [PODS, DEPLOYMENTS]}, DEPLOYMENT, True),
        ({"resourceRules": [PODS, DEPLOYMENTS]}, ROLE, False),
        # no rules: everything
        ({}, POD, True),
        ({"resourceRules": []}, ROLE, True),
        # exclusion
        ({"excludeResourceRules": [PODS]}, POD, False),
        ({"excludeResourceRules": [PODS]}, DEPLOYMENT, True),
        ({**rule(EVERYTHING), "excludeResourceRules": [PODS]}, POD, False),
        ({**rule(EVERYTHING), "excludeResourceRules": [PODS]}, DEPLOYMENT, True),
        ({**rule(), "excludeResourceRules": [{**PODS, "resourceNames": ["y"]}]}, POD, True),
        ({**rule(), "excludeResourceRules": [{**PODS, "resourceNames": ["x"]}]}, POD, False),
    ],
)
def test_resource_rules(constraints, asked, answer):
    assert ask(constraints, asked) is answer


def under(subresource, resource=None, **changes):
    return request(resource, subresource=subresource, **changes)


SCALE = thing("autoscaling/v1", "Scale")
EVICTION = thing("policy/v1", "Eviction")


@pytest.mark.parametrize(
    ("resources", "asked", "answer"),
    [
        (["pods"], under("status"), False),
        (["pods/status"], under("status"), True),
        (["pods/status"], POD, False),
        (["pods/*"], under("status"), True),
        (["pods/*"], POD, True),
        (["*/status"], under("status"), True),
        (["*/status"], POD, False),
        (["*/*"], under("status"), True),
        (["*/*"], POD, True),
        (["*"], under("status"), False),
        (["pods/ephemeralcontainers"], under("ephemeralcontainers"), True),
        (["pods"], under("ephemeralcontainers"), False),
        # The object is of another kind than the resource.
        (["pods/eviction"], under("eviction", EVICTION), True),
        (["evictions"], under("eviction", EVICTION), False),
        (["deployments/scale"], under("scale", SCALE), False),
        (["replicationcontrollers/scale"], under("scale", SCALE), True),
        (["pods/exec"], under("exec", thing(kind="PodExecOptions")), True),
    ],
)
def test_subresources(resources, asked, answer):
    assert ask(rule(resources=resources), asked) is answer


@pytest.mark.parametrize(
    ("resource", "answer"),
    [
        ({"group": "apps", "version": "v1", "resource": "deployments"}, True),
        ({"group": "apps", "version": "v1", "resource": "statefulsets"}, False),
        ({"group": "example.com", "version": "v1", "resource": "mice"}, False),
        # Without a word of the API server, any resource with a Scale may be meant.
        (None, True),
        ("deployments", True),
        ({"group": "apps", "resource": []}, True),
    ],
)
def test_scale_is_told_apart_by_the_api_server(resource, answer):
    asked = under("scale", SCALE, admission={"resource": resource})
    assert ask(rule(DEPLOYMENTS, resources=["deployments/scale"]), asked) is answer


MOUSE = thing("example.com/v1", "Mouse")
MICE = {**PODS, "apiGroups": ["example.com"], "resources": ["mice"]}
CRD = {
    "kind": "CustomResourceDefinition",
    "spec": {
        "group": "example.com",
        "scope": "Cluster",
        "names": {"kind": "Mouse", "plural": "mice"},
        "versions": [{"name": "v1"}, {"name": "v2"}],
    },
}


@pytest.mark.parametrize(
    ("resources", "told", "crds", "answer"),
    [
        (["mouses"], None, [], True),
        (["mouse"], None, [], True),
        (["mice"], None, [], False),
        (["mice"], "mice", [], True),
        (["mouses"], "mice", [], False),
        (["mice"], None, [CRD], True),
        (["mouses"], None, [CRD], False),
        (["*"], None, [], True),
    ],
)
def test_custom_resources(resources, told, crds, answer):
    admission = None
    if told:
        place = {"group": "example.com", "version": "v1", "resource": told}
        admission = {"resource": place}
    asked = request(MOUSE, admission=admission)
    constraints = rule(MICE, resources=resources)
    assert ask(constraints, asked, NAMES.with_crds(crds)) is answer


BETA = request(thing("batch/v1beta1", "CronJob"))
CRON_JOBS = {**PODS, "apiGroups": ["batch"], "resources": ["cronjobs"]}


@pytest.mark.parametrize(
    ("base", "policy", "asked", "answer"),
    [
        (CRON_JOBS, None, BETA, True),
        (CRON_JOBS, "Equivalent", BETA, True),
        (CRON_JOBS, "Exact", BETA, False),
        ({**CRON_JOBS, "apiVersions": ["v1beta1"]}, "Exact", BETA, True),
        (DEPLOYMENTS, "Equivalent", request(thing("extensions/v1beta1", "Deployment")), True),
        (DEPLOYMENTS, "Exact", request(thing("extensions/v1beta1", "Deployment")), False),
        (MICE, "Equivalent", request(thing("example.com/v2", "Mouse")), True),
        (MICE, "Exact", request(thing("example.com/v2", "Mouse")), False),
    ],
)
def test_match_policy(base, policy, asked, answer):
    constraints = {**rule(base), **({"matchPolicy": policy} if policy else {})}
    assert ask(constraints, asked, NAMES.with_crds([CRD])) is answer


@pytest.mark.parametrize(
    ("scope", "asked", "answer"),
    [
        ("*", POD, True),
        ("*", ROLE, True),
        ("Namespaced", POD, True),
        ("Namespaced", ROLE, False),
        ("Namespaced", NAMESPACE, False),
        ("Cluster", POD, False),
        ("Cluster", ROLE, True),
        ("Cluster", NAMESPACE, True),
        # A file need not say what the API server would fill in.
        ("Namespaced", request(thing(namespace="")), True),
        # Of a kind that nobody knows, the object tells.
        ("Namespaced", request(MOUSE), True),
        ("Cluster", request(thing("example.com/v1", "Mouse", namespace="")), True),
        ("Cluster", request(MOUSE), False),
    ],
)
def test_scope(scope, asked, answer):
    assert ask(rule(EVERYTHING, scope=scope), asked) is answer


@pytest.mark.parametrize(
    ("names", "asked", "answer"),
    [
        (["x"], POD, True),
        (["y", "x"], POD, True),
        (["y"], POD, False),
        (["x*"], POD, False),
        (["job-"], request(thing(name="", generateName="job-run-")), True),
        (["run-"], request(thing(name="", generateName="job-run-")), False),
        (["x"], request(thing(name="")), False),
        (["x"], request(operation="DELETE"), True),
        (["told"], request(thing(name=""), admission={"name": "told"}), True),
        (["x"], request(admission={"name": "told"}), False),
        (["x"], request(admission={"name": 1}), True),
    ],
)
def test_resource_names(names, asked, answer):
    assert ask(rule(operations=["*"], resourceNames=names), asked) is answer


PRODUCTION = {"namespaceSelector": {"matchLabels": {"env": "prod"}}}
NAMED = {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "ns"}}}
NOT_SYSTEM = {
    "namespaceSelector": {
        "matchExpressions": [
            {"key": "kubernetes.io/metadata.name", "operator": "NotIn", "values": ["ns"]}
        ]
    }
}


@pytest.mark.parametrize(
    ("constraints", "asked", "answer"),
    [
        (PRODUCTION, request(namespace_labels={"env": "prod"}), True),
        (PRODUCTION, request(namespace_labels={"env": "test"}), False),
        (PRODUCTION, POD, False),
        # Never spared: what lies in no namespace.
        (PRODUCTION, ROLE, True),
        (PRODUCTION, request(thing("example.com/v1", "Mouse", namespace="")), True),
        # A Namespace is judged by its own labels.
        (PRODUCTION, NAMESPACE, True),
        (PRODUCTION, request(thing(kind="Namespace", namespace="")), False),
        (PRODUCTION, request(NAMESPACE.object, "DELETE"), True),
        (NAMED, NAMESPACE, True),
        (NAMED, request(thing(kind="Namespace", name="other", namespace="")), False),
        # Every namespace has a label with its name, whether or not anyone gave it.
        (NAMED, POD, True),
        (NAMED, request(thing(namespace="other")), False),
        (NAMED, request(thing(namespace=""), admission={"namespace": "ns"}), True),
        (NOT_SYSTEM, POD, False),
        (NOT_SYSTEM, request(thing(namespace="other")), True),
        ({"namespaceSelector": {}}, POD, True),
        (PRODUCTION, request(namespace_labels={"env": 1}), False),
    ],
)
def test_namespace_selector(constraints, asked, answer):
    assert ask(constraints, asked) is answer


RED = {"objectSelector": {"matchLabels": {"color": "red"}}}
NOT_RED = {
    "objectSelector": {
        "matchExpressions": [{"key": "color", "operator": "NotIn", "values": ["red"]}]
    }
}
RED_POD = thing(labels={"color": "red"})


@pytest.mark.parametrize(
    ("constraints", "asked", "answer"),
    [
        (RED, request(RED_POD), True),
        (RED, POD, False),
        (RED, request(RED_POD, "DELETE"), True),
        # The new object or the old one.
        (RED, request(operation="UPDATE", old_object=RED_POD), True),
        (RED, request(RED_POD, "UPDATE", old_object=thing()), True),
        (RED, request(operation="UPDATE", old_object=thing()), False),
        (NOT_RED, request(RED_POD), False),
        (NOT_RED, POD, True),
        (NOT_RED, request(RED_POD, "UPDATE", old_object=thing()), True),
        ({"objectSelector": {}}, POD, True),
        (RED, request(object={"metadata": []}), False),
        (RED, request(object=None), False),
    ],
)
def test_object_selector(constraints, asked, answer):
    assert ask(constraints, asked) is answer


@pytest.mark.parametrize(
    "selector",
    [
        {"matchLabels": {"app": "web-*"}},
        {"matchLabels": {"a b": "x"}},
        {"matchLabels": {"app": "-"}},
        {"matchExpressions": [{"key": "app", "operator": "Is", "values": ["x"]}]},
        {"matchExpressions": [{"key": "app", "operator": "In"}]},
        {"matchExpressions": [{"key": "app", "operator": "NotIn", "values": []}]},
        {"matchExpressions": [{"key": "app", "operator": "Exists", "values": ["x"]}]},
        {"matchExpressions": [{"key": "", "operator": "DoesNotExist"}]},
    ],
)
@pytest.mark.parametrize("where", ["namespaceSelector", "objectSelector"])
def test_selectors_that_kubernetes_refuses(selector, where):
    with pytest.raises(CompileError) as error:
        compile_constraints(constrain(**{where: selector}), NAMES)
    assert error.value.where == f"matchConstraints.{where}"


@pytest.mark.parametrize(
    ("constraints", "asked", "settled"),
    [
        (rule(), DEPLOYMENT, None),
        (rule(), request(operation="UPDATE"), None),
        (rule(), under("status"), None),
        (rule(), POD, always),
        (rule(EVERYTHING, scope="Namespaced"), POD, always),
        ({**rule(), "excludeResourceRules": [PODS]}, POD, None),
        (PRODUCTION, ROLE, always),
    ],
)
def test_what_the_class_settles(constraints, asked, settled):
    select = compile_constraints(constrain(**constraints), NAMES)
    assert select(asked.kind, asked.subresource, asked.operation) is settled


def test_every_part_is_watched():
    recorder = Recorder()
    body = constrain(**rule(resourceNames=["x"], scope="Namespaced"), **RED)
    watch = recorder.for_rule("r")
    select = compile_constraints(body, NAMES, where="matchResources", watch=watch)
    matches = select(POD.kind, "", Operation.CREATE)
    assert matches is not None
    assert matches(POD) is False
    assert [(heard.what, heard.answer) for heard in recorder.answers] == [
        ("matchResources.resourceRules[0].operations", True),
        ("matchResources.resourceRules[0].resources", True),
        ("matchResources.resourceRules[0].scope", True),
        ("matchResources.resourceRules[0].resourceNames", True),
        ("matchResources.resourceRules[0]", True),
        ("matchResources.objectSelector", False),
        ("matchResources", False),
    ]


@pytest.mark.parametrize(
    ("group", "kind", "answer"),
    [
        ("admissionregistration.k8s.io", "ValidatingAdmissionPolicy", True),
        ("admissionregistration.k8s.io", "MutatingWebhookConfiguration", True),
        ("admissionregistration.k8s.io", "Other", False),
        ("example.com", "ValidatingAdmissionPolicy", False),
        ("", "Pod", False),
    ],
)
def test_exempt_kinds(group, kind, answer):
    assert is_exempt(GroupVersionKind(group, "v1", kind)) is answer
