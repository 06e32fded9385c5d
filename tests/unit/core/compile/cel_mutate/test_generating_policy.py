"""GeneratingPolicy: what a request would make."""

import pytest

from lictor.core.model.request import Request

NAMESPACE = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shop"}}
RULE = {
    "apiGroups": [""],
    "apiVersions": ["v1"],
    "operations": ["CREATE", "DELETE"],
    "resources": ["namespaces", "configmaps"],
}
MADE = '[{"apiVersion": dyn("v1"), "kind": dyn("ConfigMap"), "metadata": dyn({"name": "made"})}]'
SECRETS = [
    {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": name, "namespace": "default", "uid": "1", "resourceVersion": "2"},
    }
    for name in ("a", "b")
]
PASSED = ("p", "pass", "policy evaluated successfully")


def policy(*expressions, kind="GeneratingPolicy", **spec):
    metadata = {"name": "p"}
    if kind.startswith("Namespaced"):
        metadata["namespace"] = "shop"
    return {
        "apiVersion": "policies.kyverno.io/v1",
        "kind": kind,
        "metadata": metadata,
        "spec": {
            "matchConstraints": {"resourceRules": [RULE]},
            "generate": [{"expression": text} for text in expressions],
            **spec,
        },
    }


def made(name, namespace=None, kind="ConfigMap"):
    metadata = {"name": name, **({"namespace": namespace} if namespace else {})}
    return {"apiVersion": "v1", "kind": kind, "metadata": metadata}


@pytest.mark.parametrize(
    ("expressions", "expected"),
    [
        ([f'generator.apply("shop", {MADE})'], [made("made", "shop")]),
        ([f'generator.Apply("", {MADE})'], [made("made")]),
        ([f'["x", "y"].all(ns, generator.apply(ns, {MADE}))'],
         [made("made", "x"), made("made", "y")]),
        ([f'generator.apply("x", {MADE})', f'generator.apply("y", {MADE})'],
         [made("made", "x"), made("made", "y")]),
        (['generator.apply("shop", [resource.List("v1", "secrets", "default")])'],
         [made("a", "shop", "Secret"), made("b", "shop", "Secret")]),
        (['generator.apply("shop", [resource.Get("v1", "secrets", "default", "a")])'],
         [made("a", "shop", "Secret")]),
        (["true"], []),
    ],
)  # fmt: skip
def test_generated_objects(evaluate, cluster, expressions, expected):
    (result,) = evaluate([policy(*expressions)], NAMESPACE, lookups=cluster(*SECRETS)).results
    assert (result.rule, str(result.status), result.message) == PASSED
    assert list(result.generated) == expected


def test_a_policy_of_one_namespace_makes_no_cluster_scoped_objects(evaluate):
    text = 'generator.apply("shop", [{"apiVersion": dyn("v1"), "kind": dyn("Namespace")}])'
    trigger = made("settings", "shop")
    (result,) = evaluate([policy(text, kind="NamespacedGeneratingPolicy")], trigger).results
    assert str(result.status) == "error"
    assert "cross-scope generation denied" in result.message


def test_requests_do_not_see_what_others_made(evaluate):
    document = policy(f'generator.apply("shop", {MADE})')
    first, second = (evaluate([document], NAMESPACE).results[0] for _ in range(2))
    assert first.generated == second.generated == (made("made", "shop"),)


def test_conditions_that_do_not_hold_make_nothing(evaluate):
    conditions = [{"name": "c", "expression": 'object.metadata.name == "other"'}]
    document = policy(f'generator.apply("shop", {MADE})', matchConditions=conditions)
    (result,) = evaluate([document], NAMESPACE).results
    assert (result.rule, str(result.status), result.message) == PASSED
    assert result.generated == ()


def test_a_deletion_may_make_objects(evaluate):
    document = policy("generator.apply(oldObject.metadata.name, " + MADE + ")")
    (result,) = evaluate([document], Request.of(NAMESPACE, operation="DELETE")).results
    assert result.generated == (made("made", "shop"),)


def test_variables(evaluate):
    variables = [{"name": "ns", "expression": "object.metadata.name"}]
    document = policy(f"generator.apply(variables.ns, {MADE})", variables=variables)
    assert evaluate([document], NAMESPACE).results[0].generated == (made("made", "shop"),)


@pytest.mark.parametrize(
    ("expression", "message"),
    [
        (f"generator.apply(object.nope, {MADE})", "no such key: nope"),
        ('generator.apply("shop", [resource.Get("v1", "secrets", "default", "nope")])',
         "not found"),
    ],
)  # fmt: skip
def test_errors(evaluate, cluster, expression, message):
    (result,) = evaluate([policy(expression)], NAMESPACE, lookups=cluster(*SECRETS)).results
    assert (result.rule, str(result.status)) == ("p", "error")
    assert result.message.startswith("failed to evaluate policy: ")
    assert message in result.message
    assert result.generated == ()


def test_a_namespaced_policy_makes_objects_in_its_namespace_only(evaluate):
    trigger = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "c", "namespace": "shop"},
    }
    kind = "NamespacedGeneratingPolicy"
    inside = policy(f'generator.apply("shop", {MADE})', kind=kind)
    assert evaluate([inside], trigger).results[0].generated == (made("made", "shop"),)
    outside = policy(f'generator.apply("other", {MADE})', kind=kind)
    assert "cross-namespace" in evaluate([outside], trigger).results[0].message


def test_exceptions(evaluate):
    exception = {
        "apiVersion": "policies.kyverno.io/v1",
        "kind": "PolicyException",
        "metadata": {"name": "e", "namespace": "shop"},
        "spec": {"policyRefs": [{"name": "p", "kind": "GeneratingPolicy"}]},
    }
    (result,) = evaluate([policy(f'generator.apply("x", {MADE})'), exception], NAMESPACE).results
    assert (result.rule, str(result.status)) == ("exception", "skip")
    assert result.generated == ()
