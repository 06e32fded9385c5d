"""MutatingAdmissionPolicy with bindings and parameters."""

import pytest
from msgspec.structs import replace

from lictor.core.model.request import Request
from lictor.core.model.result import Action

CONFIG = {
    "apiVersion": "v1",
    "kind": "ConfigMap",
    "metadata": {"name": "c", "namespace": "shop", "labels": {"app": "web"}},
    "data": {"a": "1"},
}
RULE = {
    "apiGroups": [""],
    "apiVersions": ["v1"],
    "operations": ["CREATE"],
    "resources": ["configmaps"],
}
LABEL = 'Object{metadata: Object.metadata{labels: {"team": "red"}}}'
FROM_PARAMS = "Object{data: {params.metadata.name: params.data.value}}"
PASSED = ("p", "pass", "mutation is successfully applied")


def policy(*expressions, version="v1beta1", **spec):
    return {
        "apiVersion": f"admissionregistration.k8s.io/{version}",
        "kind": "MutatingAdmissionPolicy",
        "metadata": {"name": "p"},
        "spec": {
            "matchConstraints": {"resourceRules": [RULE]},
            "reinvocationPolicy": "Never",
            "mutations": [
                {"patchType": "ApplyConfiguration", "applyConfiguration": {"expression": text}}
                for text in expressions
            ],
            **spec,
        },
    }


def binding(name="b", **spec):
    return {
        "apiVersion": "admissionregistration.k8s.io/v1beta1",
        "kind": "MutatingAdmissionPolicyBinding",
        "metadata": {"name": name},
        "spec": {"policyName": "p", **spec},
    }


def param(name, value, **labels):
    metadata = {"name": name, "namespace": "shop", "labels": labels}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"value": value}}


def told(verdict):
    return [(r.rule, str(r.status), r.message) for r in verdict.results]


@pytest.mark.parametrize("version", ["v1", "v1beta1", "v1alpha1"])
def test_without_binding_it_tells_what_it_would_do(evaluate, version):
    verdict = evaluate([policy(LABEL, version=version)], CONFIG)
    assert told(verdict) == [PASSED]
    assert verdict.patched["metadata"]["labels"] == {"app": "web", "team": "red"}


@pytest.mark.parametrize(
    ("resources", "count"),
    [
        ({}, 1),
        ({"resourceRules": [RULE]}, 1),
        ({"resourceRules": [{**RULE, "resources": ["pods"]}]}, 0),
        ({"objectSelector": {"matchLabels": {"app": "web"}}}, 1),
        ({"objectSelector": {"matchLabels": {"app": "other"}}}, 0),
        ({"excludeResourceRules": [{**RULE, "resourceNames": ["c"]}]}, 0),
    ],
)
def test_a_binding_takes_less_than_its_policy(evaluate, resources, count):
    verdict = evaluate([policy(LABEL), binding(matchResources=resources)], CONFIG)
    assert told(verdict) == [PASSED] * count
    assert all(r.properties == {"mapBinding": "b"} for r in verdict.results)


def test_the_policy_still_has_to_match(evaluate):
    secrets = {"resourceRules": [{**RULE, "resources": ["secrets"]}]}
    document = policy(LABEL, matchConstraints=secrets)
    assert (
        evaluate([document, binding(matchResources={"resourceRules": [RULE]})], CONFIG).results
        == ()
    )


def test_policies_of_the_api_server_are_never_changed(evaluate):
    rule = {"apiGroups": ["*"], "apiVersions": ["*"], "operations": ["*"], "resources": ["*"]}
    document = policy(LABEL, matchConstraints={"resourceRules": [rule]})
    assert evaluate([document], CONFIG).results
    assert evaluate([document], binding()).results == ()


@pytest.mark.parametrize(
    ("given", "reference", "expected"),
    [
        ([param("x", "1")], {"name": "x"}, {"a": "1", "x": "1"}),
        ([param("x", "1", on="1"), param("y", "2", on="1"), param("z", "3")],
         {"selector": {"matchLabels": {"on": "1"}}}, {"a": "1", "x": "1", "y": "2"}),
        ([], {"name": "x", "parameterNotFoundAction": "Allow"}, {"a": "1"}),
    ],
)  # fmt: skip
def test_parameters_come_one_by_one(evaluate, given, reference, expected):
    document = policy(FROM_PARAMS, paramKind={"apiVersion": "v1", "kind": "ConfigMap"})
    verdict = evaluate([document, binding(paramRef=reference)], CONFIG, params=given)
    assert told(verdict) == [PASSED]
    assert verdict.patched["data"] == expected


def test_parameters_come_together_where_the_author_asks_for_items(evaluate):
    text = 'Object{data: {"x": params.items[0].data.value, "y": params.items[1].data.value}}'
    document = policy(text, paramKind={"apiVersion": "v1", "kind": "ConfigMap"})
    chosen = binding(paramRef={"selector": {"matchLabels": {"on": "1"}}})
    given = [param("x", "1", on="1"), param("y", "2", on="1")]
    verdict = evaluate([document, chosen], CONFIG, params=given)
    assert verdict.patched["data"] == {"a": "1", "x": "1", "y": "2"}


def test_missing_parameters_are_an_error(evaluate):
    document = policy(FROM_PARAMS, paramKind={"apiVersion": "v1", "kind": "ConfigMap"})
    (result,) = evaluate([document, binding(paramRef={"name": "x"})], CONFIG, params=[]).results
    assert (str(result.status), result.action) == ("error", Action.ENFORCE)
    assert "no params found" in result.message


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ({"matchConditions": [{"name": "c", "expression": 'object.data.a == "2"'}]},
         ("skip", "match conditions aren't met")),
        ({"matchConditions": [{"name": "c", "expression": "object.nope == 1"}],
          "failurePolicy": "Ignore"}, ("skip", "match conditions aren't met")),
        ({"matchConditions": [{"name": "c", "expression": "object.nope == 1"}]},
         ("error", "no such key: nope")),
        ({"variables": [{"name": "v", "expression": "object.nope"}],
          "matchConditions": [{"name": "c", "expression": "variables.v == 1"}]},
         ("error", "no such key: nope")),
    ],
)  # fmt: skip
def test_conditions(evaluate, spec, expected):
    (result,) = evaluate([policy(LABEL, **spec)], CONFIG).results
    status, words = expected
    assert str(result.status) == status
    assert words in result.message


def test_variables_are_computed_anew_for_each_mutation(evaluate):
    first = 'Object{data: {"b": variables.size}}'
    second = 'Object{data: {"c": variables.size}}'
    variables = [{"name": "size", "expression": "string(object.data.size())"}]
    verdict = evaluate([policy(first, second, variables=variables)], CONFIG)
    assert verdict.patched["data"] == {"a": "1", "b": "1", "c": "2"}


def test_an_expression_that_does_not_compile_is_an_error_when_it_is_used(evaluate):
    (result,) = evaluate([policy("Object{x: nope}")], CONFIG).results
    assert str(result.status) == "error"
    assert "nope" in result.message


def test_what_is_deleted_is_not_changed(evaluate):
    rule = {**RULE, "operations": ["*"]}
    document = policy(LABEL, matchConstraints={"resourceRules": [rule]})
    assert evaluate([document], Request.of(CONFIG, operation="DELETE")).results == ()


def test_a_scan_tells_what_was_not_changed(evaluate):
    request = replace(Request.of(CONFIG), background=True)
    assert told(evaluate([policy(LABEL)], request)) == [("p", "fail", "mutation is not applied")]
