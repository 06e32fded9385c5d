"""The index leaves out nothing that a visit of every rule would have heard of."""

import random

import orjson
import pytest
from msgspec import convert
from msgspec.structs import replace

import lictor
from lictor.core.assembly import compile_documents
from lictor.core.load.policies import join_loaded, load_documents
from lictor.core.match.bounds import find_bounds
from lictor.core.model.matching import Match
from lictor.core.model.program import Bounds, CompiledRule, Needs, Phase, Program
from lictor.core.model.request import Request, UnknownNamespace
from lictor.core.model.result import PolicyRef

NAMES = ["a", "b"]
SETS = 500


def load(documents, **options):
    loaded = join_loaded(
        load_documents(orjson.dumps(each), f"{number}") for number, each in enumerate(documents)
    )
    assert not loaded.problems
    return compile_documents(loaded.records, **options)


def visit_all(programs):
    """The same programs, of which an index knows nothing."""
    return [
        replace(each, rules=tuple(replace(rule, bounds=Bounds()) for rule in each.rules))
        for each in programs
    ]


def make_texts(rng):
    return rng.choice([["a"], ["b"], ["a", "b"], ["a", "b*"], ["?"], [""]])


def make_description(rng):
    """Each field is there now and then; together they often concern the same requests."""
    fields = {
        "kinds": rng.choice([["Pod"], ["Pod", "Namespace"], ["*/*"], ["P*", "Namespace"]]),
        "namespaces": make_texts(rng),
        "names": make_texts(rng),
        "name": rng.choice(NAMES),
        "operations": rng.choice([["CREATE"], ["CREATE", "UPDATE"]]),
        "selector": {"matchLabels": {"x": "1"}},
        "namespaceSelector": {"matchLabels": {"x": "1"}},
        "annotations": {"x": "1"},
    }
    shares = {"kinds": 0.8, "namespaces": 0.5, "namespaceSelector": 0.25}
    return {key: value for key, value in fields.items() if rng.random() < shares.get(key, 0.12)}


def make_match(rng):
    filters = [{"resources": make_description(rng)} for _ in range(rng.choice([1, 1, 2]))]
    return rng.choice([{"any": filters}, {"all": filters}, filters[0]])


BODIES = [
    {"validate": {"message": "m", "pattern": {"metadata": {"name": "a"}}}},
    {"validate": {"message": "m", "deny": {}}},
    {"mutate": {"patchStrategicMerge": {"metadata": {"namespace": "a"}}}},
    {"mutate": {"patchStrategicMerge": {"metadata": {"namespace": "b"}}}},
    {"mutate": {"patchStrategicMerge": {"metadata": {"name": "a"}}}},
]


def make_rule(rng, number):
    excluded = {"exclude": make_match(rng)} if rng.random() < 0.3 else {}
    return {"name": f"r{number}", "match": make_match(rng), **excluded, **rng.choice(BODIES)}


def make_policy(rng, number):
    home = rng.choice(["", "", "", *NAMES])
    rules = [make_rule(rng, at) for at in range(rng.choice([1, 1, 2]))]
    return {
        "apiVersion": "kyverno.io/v1",
        "kind": "Policy" if home else "ClusterPolicy",
        "metadata": {"name": f"p{number}", **({"namespace": home} if home else {})},
        "spec": {"rules": rules, "applyRules": "One" if rng.random() < 0.2 else "All"},
    }


def make_object(rng):
    metadata = {
        "name": rng.choice(NAMES),
        "generateName": rng.choice(NAMES),
        "namespace": rng.choice([*NAMES, *NAMES, 7]),
        "labels": {"x": "1"},
    }
    shares = {"namespace": 0.8}
    kept = {key: value for key, value in metadata.items() if rng.random() < shares.get(key, 0.6)}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": rng.choice([kept, kept, kept, []])}


def make_request(rng):
    resource = {**make_object(rng), "kind": rng.choice(["Pod", "Pod", "Namespace"])}
    old = rng.choice([None, make_object(rng)])
    made = Request.of(resource, operation=rng.choice(["CREATE", "UPDATE", "DELETE"]), old=old)
    labels = rng.choice([{}, {"x": "1"}, UnknownNamespace("a")])
    nothing = {"object": None, "old_object": None} if rng.random() < 0.1 else {}
    return replace(made, namespace_labels=labels, **nothing)


def judge(programs, request):
    verdict = lictor.Engine(programs).evaluate(request)
    return verdict.results, verdict.patched


def judge_by_all(programs, request):
    """By every rule of every program, one program after the other."""
    engine = lictor.Engine(visit_all(programs))
    verdict = engine.evaluate(request, adapt=lambda _, seen: seen)
    return verdict.results, verdict.patched


def test_the_index_and_a_visit_of_every_rule_give_the_same_results():
    rng = random.Random(19)
    found = 0
    for _ in range(SETS):
        documents = [make_policy(rng, number) for number in range(rng.choice([1, 2, 4]))]
        programs = load(documents, is_lazy=rng.random() < 0.5)
        for request in [make_request(rng) for _ in range(8)]:
            expected = judge_by_all(programs, request)
            assert judge(programs, request) == expected, (documents, request)
            found += len(expected[0])
    assert found > SETS, "hardly a rule concerned a request: nothing was compared"


def test_the_index_knows_whose_policies_a_request_meets():
    rng = random.Random(7)
    found = set()
    for _ in range(60):
        programs = load([make_policy(rng, number) for number in range(3)])
        request, namespace = make_request(rng), rng.choice(NAMES)
        indexed, visited = lictor.Engine(programs), lictor.Engine(visit_all(programs))
        expected = visited.meets_policies_of(namespace, request)
        assert indexed.meets_policies_of(namespace, request) == expected
        found.add(expected)
    assert found == {True, False}


def cel_policy(name, namespace):
    return {
        "apiVersion": "policies.kyverno.io/v1",
        "kind": "NamespacedValidatingPolicy",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {
            "matchConstraints": {
                "resourceRules": [
                    {
                        "apiGroups": [""],
                        "apiVersions": ["v1"],
                        "operations": ["CREATE"],
                        "resources": ["pods", "namespaces"],
                    }
                ]
            },
            "validations": [{"expression": "false", "message": "no"}],
        },
    }


@pytest.mark.parametrize("kind", ["Pod", "Namespace"])
@pytest.mark.parametrize("told", [None, "a", "b", "", 7])
@pytest.mark.parametrize("lies", ["a", "b", None])
def test_policies_of_a_namespace_in_cel_are_found_by_the_request_s_own(kind, told, lies):
    programs = load([cel_policy("one", "a"), cel_policy("two", "b")])
    metadata = {"name": "a"} if lies is None else {"name": "a", "namespace": lies}
    request = Request.of({"apiVersion": "v1", "kind": kind, "metadata": metadata})
    if told is not None:
        request = replace(request, admission={"namespace": told})
    assert all(rule.bounds.asked_in for program in programs for rule in program.rules)
    found = [result.policy.name for result in judge(programs, request)[0]]
    assert found == [result.policy.name for result in judge_by_all(programs, request)[0]]
    expected = {"a": ["one"], "b": ["two"]}
    assert found == expected.get(lies if told is None else told, [])


NAME_LABEL = "kubernetes.io/metadata.name"


def make_selector(rng):
    """Most name namespaces, in one of the ways that there are."""
    parts = [
        {"matchLabels": {NAME_LABEL: rng.choice(NAMES)}},
        {"matchLabels": {NAME_LABEL: rng.choice(NAMES), "x": "1"}},
        {"matchExpressions": [{"key": NAME_LABEL, "operator": "In", "values": NAMES[:1]}]},
        {"matchExpressions": [{"key": NAME_LABEL, "operator": "NotIn", "values": NAMES[:1]}]},
        {"matchLabels": {"x": "1"}},
        {},
    ]
    return rng.choice(parts)


def make_cel_policy(rng, number):
    made = cel_policy(f"p{number}", "a")
    if rng.random() < 0.7:
        made["kind"] = "ValidatingPolicy"
        del made["metadata"]["namespace"]
    constraints = made["spec"]["matchConstraints"]
    constraints["namespaceSelector"] = make_selector(rng)
    resources = [["pods"], ["pods", "services"], ["pods", "namespaces"], ["pods", "nodes"], ["*"]]
    constraints["resourceRules"][0]["resources"] = rng.choice(resources)
    return made


def make_asked(rng):
    """A request, where the object lies or is said to lie, and the labels of that namespace."""
    kind = rng.choice(["Pod", "Pod", "Pod", "Namespace", "Node"])
    made = Request.of({**make_object(rng), "kind": kind})
    told = rng.choice([None, {}, {"namespace": rng.choice([*NAMES, "", 7])}])
    labels = rng.choice(
        [{}, {}, {"x": "1"}, {"x": "1", NAME_LABEL: "a"}, {NAME_LABEL: 7}, UnknownNamespace("a")]
    )
    return replace(made, namespace_labels=labels, admission=told)


def test_policies_in_cel_are_found_by_the_namespaces_that_they_name():
    rng = random.Random(23)
    found, left_out = 0, 0
    for _ in range(SETS // 5):
        programs = load([make_cel_policy(rng, number) for number in range(3)], is_lazy=True)
        left_out += any(rule.bounds.labelled for program in programs for rule in program.rules)
        for request in [make_asked(rng) for _ in range(8)]:
            expected = judge_by_all(programs, request)
            assert judge(programs, request) == expected, (programs, request)
            found += len(expected[0])
    assert found > SETS // 5
    assert left_out > SETS // 10


BOUNDS = {
    "literal namespaces": (
        {"resources": {"namespaces": ["a", "b"]}},
        Bounds(namespaces={"a", "b"}),
    ),
    "a wildcard": ({"resources": {"namespaces": ["a", "b*"]}}, Bounds()),
    "kinds by any name": (
        {"resources": {"kinds": ["v1/Pod", "Deployment", "Pod/exec"]}},
        Bounds(kinds={"Pod", "Deployment"}),
    ),
    "kinds by wildcard": ({"resources": {"kinds": ["Pod", "*"]}}, Bounds()),
    "any, joined": (
        {"any": [{"resources": {"names": ["a"]}}, {"resources": {"name": "b"}}]},
        Bounds(names={"a", "b"}),
    ),
    "any, one of them open": (
        {"any": [{"resources": {"names": ["a"]}}, {"resources": {"kinds": ["Pod"]}}]},
        Bounds(),
    ),
    "all, the first of each": (
        {"all": [{"resources": {"names": ["a"]}}, {"resources": {"kinds": ["Pod"]}}]},
        Bounds(kinds={"Pod"}, names={"a"}),
    ),
    "a selector that can fail is asked first": (
        {"resources": {"kinds": ["Pod"], "namespaces": ["a"], "namespaceSelector": {}}},
        Bounds(kinds={"Pod"}),
    ),
    "nor does what stands behind it count": (
        {
            "all": [
                {"resources": {"kinds": ["Pod"], "namespaceSelector": {}}},
                {"resources": {"namespaces": ["a"]}},
            ]
        },
        Bounds(kinds={"Pod"}),
    ),
}


@pytest.mark.parametrize(("match", "expected"), BOUNDS.values(), ids=BOUNDS)
def test_bounds(match, expected):
    assert find_bounds(convert(match, Match)) == expected


def test_a_request_visits_no_rule_about_another_namespace():
    asked = []

    def make_program(namespace):
        def select(kind, subresource, operation):
            asked.append(namespace)
            return lambda request: asked.append(namespace) or True

        bounds = Bounds(namespaces=frozenset((namespace,)))
        rule = CompiledRule("r", Phase.VALIDATE, select, lambda case: (), bounds=bounds)
        return Program(PolicyRef(namespace, kind="ClusterPolicy"), (rule,))

    engine = lictor.Engine([make_program(f"ns-{number}") for number in range(50)])
    metadata = {"name": "x", "namespace": "ns-7"}
    engine.evaluate({"apiVersion": "v1", "kind": "Pod", "metadata": metadata})
    assert asked == ["ns-7", "ns-7"]


def test_what_a_request_needs_is_what_rules_about_it_need():
    policy = {
        "apiVersion": "kyverno.io/v1",
        "kind": "ClusterPolicy",
        "metadata": {"name": "p"},
        "spec": {
            "rules": [
                {
                    "name": "r",
                    "match": {"any": [{"resources": {"kinds": ["Pod"], "namespaces": ["a"]}}]},
                    "context": [{"name": "c", "configMap": {"name": "m", "namespace": "n"}}],
                    "validate": {"message": "m", "deny": {}},
                }
            ]
        },
    }
    engine = lictor.Engine(load([policy]))
    pods = [
        Request.of({"apiVersion": "v1", "kind": "Pod", "metadata": {"namespace": namespace}})
        for namespace in ("a", "b")
    ]
    assert [engine.find_needs(pod) for pod in pods] == [Needs.LOOKUPS, Needs.NOTHING]
