"""What policies of a namespace would make, offline as in a cluster: nothing outside of it."""

import orjson
import pytest

from lictor.core.assembly import compile_documents
from lictor.core.engine import Engine
from lictor.core.load.policies import load_documents
from lictor.core.model.request import Request
from lictor.core.model.result import Status
from lictor.core.ports import NoLookups

GO = {
    "apiVersion": "v1",
    "kind": "ConfigMap",
    "metadata": {"name": "go", "namespace": "red"},
    "data": {"where": "blue"},
}
MADE = {"apiVersion": "v1", "kind": "ConfigMap", "name": "made", "data": {"data": {"a": "b"}}}
WHERE = "{{ request.object.data.where }}"
NOWHERE = "{{ request.object.data.none || '' }}"


class Secrets(NoLookups):
    """Has what is asked for, wherever that is, and remembers that it was asked."""

    def __init__(self):
        self.asked = []

    def resource(self, api_version, kind, namespace, name):
        self.asked.append((namespace, name))
        metadata = {"name": name, "namespace": namespace, "uid": "1"}
        return {"apiVersion": api_version, "kind": kind, "metadata": metadata}

    def resources(self, api_version, kind, namespace):
        return [self.resource(api_version, kind, namespace, "all")]

    def call_api(self, call):
        self.asked.append(call.url_path)
        return {}


def judge(kind, spec, namespace="red"):
    group = "kyverno.io/v1" if kind in ("Policy", "ClusterPolicy") else "policies.kyverno.io/v1"
    metadata = {"name": "p", **({"namespace": namespace} if namespace else {})}
    document = {"apiVersion": group, "kind": kind, "metadata": metadata, "spec": spec}
    loaded = load_documents(orjson.dumps(document), "test")
    lookups = Secrets()
    programs = compile_documents(
        loaded.records,
        lookups=lookups,
    )
    (result,) = Engine(programs).evaluate(Request.of(GO)).results
    return result, lookups.asked


def classic(generate):
    match = {"any": [{"resources": {"kinds": ["ConfigMap"]}}]}
    return {"background": False, "rules": [{"name": "r", "match": match, "generate": generate}]}


@pytest.mark.parametrize(
    "generate",
    [
        pytest.param({**MADE, "namespace": WHERE}, id="target"),
        pytest.param({**MADE, "namespace": "blue"}, id="literal"),
        pytest.param({**MADE, "namespace": NOWHERE}, id="empty"),
        pytest.param(MADE, id="none"),
        pytest.param({**MADE, "namespace": "red/../blue"}, id="path"),
        pytest.param({**MADE, "kind": "{{ 'Namespace' }}", "namespace": "red"}, id="cluster-wide"),
        pytest.param(
            {**MADE, "namespace": "red", "data": {"kind": "Namespace"}}, id="kind-in-the-data"
        ),
        pytest.param(
            {**MADE, "data": None, "namespace": "red", "clone": {"namespace": WHERE, "name": "s"}},
            id="clone",
        ),
        pytest.param(
            {**MADE, "data": None, "namespace": "red", "clone": {"name": "s"}}, id="clone-nowhere"
        ),
        pytest.param(
            {"namespace": "red", "cloneList": {"namespace": WHERE, "kinds": ["v1/Secret"]}},
            id="clone-list",
        ),
        pytest.param(
            {"namespace": WHERE, "cloneList": {"namespace": "red", "kinds": ["v1/Secret"]}},
            id="clone-list-target",
        ),
        pytest.param(
            {"namespace": "red", "cloneList": {"namespace": NOWHERE, "kinds": ["v1/Secret"]}},
            id="clone-list-everywhere",
        ),
        pytest.param(
            {"namespace": "red", "cloneList": {"namespace": "red", "kinds": ["v1/Namespace"]}},
            id="clone-list-cluster-wide",
        ),
        pytest.param(
            {"foreach": [{**MADE, "list": "['red', 'blue']", "namespace": "{{ element }}"}]},
            id="foreach",
        ),
    ],
)
def test_a_policy_of_a_namespace_makes_nothing_elsewhere(generate):
    result, asked = judge("Policy", classic(generate))
    assert result.status is Status.ERROR
    assert "a policy of namespace red cannot reach" in result.message
    assert result.generated == ()
    assert asked == [], "nothing is read either"


def test_its_own_namespace_by_a_variable():
    result, _ = judge("Policy", classic({**MADE, "namespace": "{{ request.namespace }}"}))
    assert result.status is Status.PASS
    assert result.generated[0]["metadata"]["namespace"] == "red"


@pytest.mark.parametrize(
    "generate",
    [
        {**MADE, "namespace": NOWHERE},
        {**MADE, "data": None, "namespace": "a", "clone": {"namespace": NOWHERE, "name": "s"}},
        {"namespace": "a", "cloneList": {"namespace": NOWHERE, "kinds": ["v1/Secret"]}},
    ],
)
def test_an_empty_variable_means_no_namespace_at_all(generate):
    result, asked = judge("ClusterPolicy", classic(generate), "")
    assert (result.status, result.generated, asked) == (Status.ERROR, (), [])
    assert "became empty" in result.message


@pytest.mark.parametrize("where", [WHERE, "blue", "*", NOWHERE])
def test_a_policy_of_a_namespace_changes_nothing_elsewhere(where):
    target = {"apiVersion": "v1", "kind": "Secret", "name": "s", "namespace": where}
    body = {"targets": [target], "patchStrategicMerge": {"metadata": {"labels": {"a": "b"}}}}
    spec = classic(None)
    spec["rules"][0]["mutate"] = body
    result, asked = judge("Policy", spec)
    assert (result.status, result.target, asked) == (Status.ERROR, None, [])


RULES = [
    {
        "apiGroups": [""],
        "apiVersions": ["v1"],
        "operations": ["CREATE"],
        "resources": ["configmaps"],
    }
]


def cel(**spec):
    return {"matchConstraints": {"resourceRules": RULES}, **spec}


@pytest.mark.parametrize(
    "expression",
    [
        'generator.Apply("blue", [{"apiVersion": dyn("v1"), "kind": dyn("ConfigMap"),'
        ' "metadata": dyn({"name": "a"})}])',
        "generator.Apply(object.data.where, [{"
        '"apiVersion": dyn("v1"), "kind": dyn("ConfigMap"), "metadata": dyn({"name": "a"})}])',
        'generator.Apply("", [{"apiVersion": dyn("v1"), "kind": dyn("ConfigMap"),'
        ' "metadata": dyn({"name": "a"})}])',
        'generator.Apply("red", [{"apiVersion": dyn("v1"), "kind": dyn("Namespace"),'
        ' "metadata": dyn({"name": "a"})}])',
        # A copy of something that was never read.
        'generator.Apply("red", [{"apiVersion": dyn("v1"), "kind": dyn("ConfigMap"),'
        ' "metadata": dyn({"name": "a", "namespace": "blue", "uid": "1"})}])',
    ],
)
def test_cel_makes_nothing_elsewhere(expression):
    spec = cel(generate=[{"expression": expression}])
    result, asked = judge("NamespacedGeneratingPolicy", spec)
    assert (result.status, result.generated, asked) == (Status.ERROR, (), [])


def existing(target, patch='Object{metadata: Object.metadata{labels: {"a": "b"}}}'):
    return cel(
        evaluation={"mutateExisting": {"enabled": True}},
        targetMatchConstraints={"expression": target},
        mutations=[
            {"patchType": "ApplyConfiguration", "applyConfiguration": {"expression": patch}}
        ],
    )


MAP = (
    '{"apiVersion": dyn("v1"), "kind": dyn("KIND"),'
    ' "metadata": dyn({"name": "a", "namespace": "WHERE"})}'
)


@pytest.mark.parametrize(
    ("target", "status"),
    [
        (MAP.replace("KIND", "ConfigMap").replace("WHERE", "red"), Status.PASS),
        (MAP.replace("KIND", "ConfigMap").replace("WHERE", "blue"), Status.ERROR),
        (MAP.replace("KIND", "ConfigMap").replace("WHERE", ""), Status.ERROR),
        (MAP.replace("KIND", "ClusterRole").replace("WHERE", "blue"), Status.ERROR),
        (MAP.replace("KIND", "Namespace").replace("WHERE", "red"), Status.ERROR),
    ],
)
def test_cel_changes_nothing_elsewhere(target, status):
    result, asked = judge("NamespacedMutatingPolicy", existing(target))
    assert (result.status, asked) == (status, []), result.message


def test_cel_changes_the_object_that_it_found():
    target = MAP.replace("KIND", "ConfigMap").replace("WHERE", "red")
    patch = '[JSONPatch{op: "replace", path: "/metadata/namespace", value: "blue"}]'
    spec = existing(target)
    spec["mutations"] = [{"patchType": "JSONPatch", "jsonPatch": {"expression": patch}}]
    for kind, namespace in (("NamespacedMutatingPolicy", "red"), ("MutatingPolicy", "")):
        result, _ = judge(kind, spec, namespace)
        assert (result.status, result.target) == (Status.ERROR, None)
        assert "metadata.namespace" in result.message
