"""Which paths policies are served on, and which policies a path finds."""

import orjson
import pytest

from lictor.core.families.registry import registry
from lictor.core.load.policies import load_documents
from lictor.kubernetes.flags import Flags
from lictor.kubernetes.stored_policy import StoredPolicy
from lictor.policies.routes import find_policies, is_asked, list_routes
from lictor.policies.store import list_policy_resources

RESOURCES = {each.kind: each for each in list_policy_resources()}
PODS = {"any": [{"resources": {"kinds": ["Pod"]}}]}
CHECK = {"validate": {"pattern": {"metadata": {"name": "?*"}}}}
CHANGE = {"mutate": {"patchStrategicMerge": {"metadata": {"labels": {"a": "b"}}}}}
CHANGE_OTHERS = {
    "mutate": {**CHANGE["mutate"], "targets": [{"apiVersion": "v1", "kind": "Secret"}]}
}
GENERATE = {"generate": {"apiVersion": "v1", "kind": "ConfigMap", "name": "a", "data": {}}}
IMAGES = {"verifyImages": [{"imageReferences": ["*"]}]}
IMAGES_UNCHECKED = {
    "verifyImages": [{"imageReferences": ["*"], "verifyDigest": False, "required": False}]
}
CEL_SPECS = {
    "ValidatingPolicy": {"validations": [{"expression": "true"}]},
    "MutatingPolicy": {
        "mutations": [
            {"patchType": "JSONPatch", "jsonPatch": {"expression": "[]"}},
        ]
    },
    "GeneratingPolicy": {"generate": [{"expression": "generator.Apply('a', [])"}]},
    "DeletingPolicy": {"schedule": "* * * * *"},
    "ImageValidatingPolicy": {"attestors": [], "validations": [{"expression": "true"}]},
}
CONSTRAINTS = {
    "resourceRules": [
        {
            "apiGroups": [""],
            "apiVersions": ["v1"],
            "resources": ["pods"],
            "operations": ["CREATE"],
        }
    ]
}


def make(kind, name, spec, *, namespace="", status=None, always_ignore=False):
    resource = RESOURCES[kind]
    metadata = {"name": name, "uid": f"uid-{namespace}-{name}"}
    if namespace:
        metadata["namespace"] = namespace
    document = {
        "apiVersion": resource.api_version,
        "kind": kind,
        "metadata": metadata,
        "spec": spec,
        "status": status or {},
    }
    loaded = load_documents(orjson.dumps(document), name)
    found = loaded.listed
    assert found, loaded.problems
    return StoredPolicy(
        resource, document, found[0].record, loaded.problems, always_ignore=always_ignore
    )


def classic(name, *bodies, namespace="", status=None, **spec):
    rules = [{"name": f"r{i}", "match": PODS, **body} for i, body in enumerate(bodies)]
    kind = "Policy" if namespace else "ClusterPolicy"
    return make(kind, name, {"rules": rules, **spec}, namespace=namespace, status=status)


def cel(kind, name, *, namespace="", status=None, **spec):
    plain = CEL_SPECS[kind.removeprefix("Namespaced")]
    whole = {"matchConstraints": CONSTRAINTS, **plain, **spec}
    return make(kind, name, whole, namespace=namespace, status=status)


OWN = {"webhookConfiguration": {"matchConditions": [{"name": "a", "expression": "true"}]}}


@pytest.mark.parametrize(
    ("policy", "mutating", "validating"),
    [
        pytest.param(classic("a", CHECK), False, True, id="validate"),
        pytest.param(classic("a", CHANGE), True, False, id="mutate"),
        pytest.param(classic("a", CHANGE_OTHERS), False, True, id="mutate-existing"),
        pytest.param(classic("a", GENERATE), False, True, id="generate"),
        pytest.param(classic("a", IMAGES), True, True, id="images"),
        pytest.param(classic("a", IMAGES_UNCHECKED), True, False, id="images-unchecked"),
        pytest.param(classic("a", CHECK, CHANGE), True, True, id="both"),
        pytest.param(classic("a", CHECK, admission=False), False, False, id="no-admission"),
        pytest.param(
            classic("a", CHECK, status={"validatingadmissionpolicy": {"generated": True}}),
            False,
            False,
            id="native",
        ),
        pytest.param(cel("ValidatingPolicy", "a"), False, True, id="vpol"),
        pytest.param(cel("MutatingPolicy", "a"), True, False, id="mpol"),
        pytest.param(cel("GeneratingPolicy", "a"), False, True, id="gpol"),
        pytest.param(cel("ImageValidatingPolicy", "a"), True, True, id="ivpol"),
        pytest.param(cel("DeletingPolicy", "a"), False, False, id="dpol"),
        pytest.param(
            cel("ValidatingPolicy", "a", status={"generated": True}), False, False, id="vpol-native"
        ),
        pytest.param(
            cel("ValidatingPolicy", "a", evaluation={"admission": {"enabled": False}}),
            False,
            False,
            id="vpol-no-admission",
        ),
        pytest.param(
            cel("ValidatingPolicy", "a", evaluation={"mode": "JSON"}), False, False, id="vpol-json"
        ),
    ],
)
def test_stages(policy, mutating, validating):
    asked = [is_asked(policy, mutating=stage) for stage in (True, False)]
    assert asked == [mutating, validating]


def routes_of(*policies, flags=None):
    routes = list_routes(policies, flags or Flags())
    return [(each.path, each.failure_policy, each.policy_keys) for each in routes]


@pytest.mark.parametrize(
    ("policies", "routes"),
    [
        pytest.param([], [], id="none"),
        pytest.param(
            [
                classic("b", CHECK),
                classic("a", CHECK),
                classic("i", CHECK, failurePolicy="Ignore"),
                classic("p", CHECK, namespace="ns"),
            ],
            [
                ("/validate/fail", "Fail", ("a", "b", "ns/p")),
                ("/validate/ignore", "Ignore", ("i",)),
            ],
            id="classic",
        ),
        pytest.param(
            [
                classic("a", CHECK, CHANGE, **OWN),
                classic("p", CHECK, namespace="ns", failurePolicy="Ignore", **OWN),
            ],
            [
                ("/mutate/fail/finegrained/a", "Fail", ("a",)),
                ("/validate/fail/finegrained/a", "Fail", ("a",)),
                ("/validate/ignore/finegrained/ns/p", "Ignore", ("ns/p",)),
            ],
            id="own-conditions",
        ),
        pytest.param(
            [
                cel("ValidatingPolicy", "b"),
                cel("ValidatingPolicy", "a"),
                cel("ValidatingPolicy", "i", failurePolicy="Ignore"),
                cel("NamespacedValidatingPolicy", "same", namespace="one"),
                cel("NamespacedValidatingPolicy", "same", namespace="two"),
            ],
            [
                ("/vpol/a/b", "Fail", ("a", "b")),
                ("/vpol/i", "Ignore", ("i",)),
                ("/nvpol/same", "Fail", ("one/same", "two/same")),
            ],
            id="cel",
        ),
        pytest.param(
            [cel("ImageValidatingPolicy", "a"), cel("GeneratingPolicy", "g")],
            [
                ("/ivpol/mutate/a", "Fail", ("a",)),
                ("/gpol/g", "Ignore", ("g",)),
                ("/ivpol/validate/a", "Fail", ("a",)),
            ],
            id="images-and-generating",
        ),
    ],
)
def test_routes(policies, routes):
    assert routes_of(*policies) == routes


def test_routes_that_do_not_follow_policies():
    policies = [classic("a", CHECK, **OWN)]
    flags = Flags(auto_update_webhooks=False)
    assert routes_of(*policies, flags=flags) == [("/validate/fail", "Fail", ("a",))]
    assert find_policies("/validate/fail", policies, fine_grained=False) == tuple(policies)


def test_forced_failure_policy():
    spec = {"rules": [{"name": "r", "match": PODS, **CHECK}], "failurePolicy": "Fail"}
    policy = make("ClusterPolicy", "a", spec, always_ignore=True)
    assert routes_of(policy) == [("/validate/ignore", "Ignore", ("a",))]


STORED = [
    classic("check", CHECK),
    classic("change", CHANGE),
    classic("soft", CHECK, failurePolicy="Ignore"),
    classic("own", CHECK, **OWN),
    classic("own", CHECK, namespace="ns", **OWN),
    classic("off", CHECK, admission=False),
    cel("ValidatingPolicy", "a"),
    cel("ValidatingPolicy", "b"),
    cel("ValidatingPolicy", "check"),
    cel("MutatingPolicy", "a"),
    cel("ImageValidatingPolicy", "a"),
    cel("NamespacedValidatingPolicy", "a", namespace="one"),
    cel("NamespacedValidatingPolicy", "a", namespace="two"),
]


@pytest.mark.parametrize(
    ("path", "found"),
    [
        ("/validate/fail", ["ClusterPolicy/check"]),
        ("/validate/ignore", ["ClusterPolicy/soft"]),
        (
            "/validate",
            ["ClusterPolicy/check", "ClusterPolicy/soft", "ClusterPolicy/own", "Policy/ns/own"],
        ),
        ("/mutate/fail", ["ClusterPolicy/change"]),
        ("/mutate/ignore", []),
        ("/validate/fail/finegrained/own", ["ClusterPolicy/own"]),
        # It was Ignore when the API server learned of it.
        ("/validate/ignore/finegrained/own", ["ClusterPolicy/own"]),
        ("/validate/fail/finegrained/ns/own", ["Policy/ns/own"]),
        ("/validate/fail/finegrained/gone", []),
        ("/validate/fail/other", []),
        ("/vpol/a/b", ["ValidatingPolicy/a", "ValidatingPolicy/b"]),
        ("/vpol/a/gone/b/new", ["ValidatingPolicy/a", "ValidatingPolicy/b"]),
        ("/vpol/check", ["ValidatingPolicy/check"]),
        ("/vpol", []),
        ("/mpol/a/b", ["MutatingPolicy/a"]),
        ("/ivpol/validate/a", ["ImageValidatingPolicy/a"]),
        ("/ivpol/mutate/a", ["ImageValidatingPolicy/a"]),
        ("/nvpol/a", ["NamespacedValidatingPolicy/one/a", "NamespacedValidatingPolicy/two/a"]),
        ("/classic/check", []),
        ("/unknown/a", []),
        ("/", []),
        ("", []),
    ],
)
def test_find(path, found):
    names = [f"{each.resource.kind}/{each.key}" for each in find_policies(path, STORED)]
    assert names == found


@pytest.mark.parametrize(
    "kind", [each.kind for each in registry().kinds if each.path and each.path.segment]
)
def test_every_route_finds_its_policies(kind):
    namespace = "ns" if RESOURCES[kind].namespaced else ""
    policies = [cel(kind, name, namespace=namespace) for name in ("one", "two")]
    routes = list_routes(policies, Flags())
    assert routes
    for route in routes:
        # The other policy goes away before the API server hears of it.
        assert find_policies(route.path, policies) == tuple(policies)
        assert find_policies(route.path, policies[:1]) == tuple(policies[:1])


def test_deleting_policies_have_no_path():
    assert routes_of(cel("DeletingPolicy", "a")) == []
