"""Label selectors of webhooks."""

import pytest
from webhook_samples import classic, make, resource_rule, validating

from lictor.controllers.webhook_configuration.rules import (
    NAME_LABEL,
    excludes_namespace,
    merge_selectors,
    names_namespace,
    select_labels,
    select_namespaces,
)


def named(operator, *values):
    return {"key": NAME_LABEL, "operator": operator, "values": list(values)}


def selector(*expressions, **labels):
    made = {"matchLabels": labels} if labels else {}
    return {**made, "matchExpressions": list(expressions)} if expressions else made


@pytest.mark.parametrize(
    ("given", "merged"),
    [
        ([], {}),
        ([None, {}], {}),
        ([selector(a="b"), None], selector(a="b")),
        ([selector(a="b"), selector(c="d")], selector(a="b", c="d")),
        (
            [selector(named("In", "a")), selector(named("NotIn", "b"))],
            selector(named("In", "a"), named("NotIn", "b")),
        ),
        ([selector(named("In", "a"))] * 2, selector(named("In", "a"))),
        (
            [selector(a="b"), selector(a="c")],
            selector({"key": "a", "operator": "In", "values": ["c"]}, a="b"),
        ),
    ],
)
def test_merge(given, merged):
    assert merge_selectors(*given) == merged


@pytest.mark.parametrize(
    ("given", "excluded"),
    [
        (None, False),
        ({}, False),
        (selector(named("NotIn", "a", "own")), True),
        (selector(named("NotIn", "a")), False),
        (selector(named("In", "a")), True),
        (selector(named("In", "own")), False),
        (selector({"key": "other", "operator": "NotIn", "values": ["own"]}), False),
        ({"matchLabels": {NAME_LABEL: "a"}}, True),
        ({"matchLabels": {NAME_LABEL: "own"}}, False),
    ],
)
def test_exclusion(given, excluded):
    assert excludes_namespace(given, "own") is excluded


def test_policies_of_namespaces():
    one = classic("a", ["Pod"], namespace="one")
    two = classic("a", ["Pod"], namespace="two")
    everywhere = classic("a", ["Pod"])
    assert select_namespaces([two, one]) == selector(named("In", "one", "two"))
    assert select_namespaces([one, everywhere]) == {}
    assert select_namespaces([]) == {}


@pytest.mark.parametrize(
    ("policy", "is_named"),
    [
        pytest.param(classic("a", ["Pod"]), False, id="everywhere"),
        pytest.param(classic("a", ["Pod"], match={"namespaces": ["*"]}), False, id="star"),
        pytest.param(classic("a", ["Pod"], match={"namespaces": ["own"]}), True, id="name"),
        pytest.param(classic("a", ["Pod"], match={"namespaces": ["o?n"]}), True, id="pattern"),
        pytest.param(classic("a", ["Pod"], namespace="own"), True, id="lives-there"),
        pytest.param(classic("a", ["Pod"], namespace="other"), False, id="lives-elsewhere"),
        pytest.param(validating("a", resource_rule("pods")), False, id="cel"),
        pytest.param(
            validating(
                "a",
                resource_rule("pods"),
                constraints={"namespaceSelector": selector(named("In", "own"))},
            ),
            True,
            id="cel-expression",
        ),
        pytest.param(
            validating(
                "a",
                resource_rule("pods"),
                constraints={"namespaceSelector": {"matchLabels": {NAME_LABEL: "own"}}},
            ),
            True,
            id="cel-label",
        ),
    ],
)
def test_naming(policy, is_named):
    assert names_namespace(policy, "own") is is_named


PROD = {"namespaceSelector": {"matchLabels": {"env": "prod"}}}
ELSEWHERE = {"namespaceSelector": {"matchLabels": {"env": "test"}}}
CHANGES_OTHERS = {
    "mutate": {
        "targets": [{"apiVersion": "v1", "kind": "ConfigMap", "name": "a", "namespace": "b"}],
        "patchStrategicMerge": {"metadata": {"labels": {"a": "b"}}},
    }
}


@pytest.mark.parametrize(
    ("policies", "selected"),
    [
        ([classic("a", ["Pod"], match=PROD)], {"matchLabels": {"env": "prod"}}),
        ([classic("a", ["Pod"], match=PROD), classic("b", ["Job"], match=PROD)], {"matchLabels": {"env": "prod"}}),
        # One that is about everything, or about something else, has to be asked everywhere.
        ([classic("a", ["Pod"], match=PROD), classic("b", ["Pod"])], {}),
        ([classic("a", ["Pod"], match=PROD), classic("b", ["Pod"], match=ELSEWHERE)], {}),
        ([classic("a", ["Pod"], match={"namespaceSelector": {"matchLabels": {"env": "p*"}}})], {}),
        ([classic("a", ["Pod"], match={"namespaceSelector": {}})], {}),
        ([classic("a", ["Pod"], CHANGES_OTHERS, match=PROD)], {}),
        ([validating("v", resource_rule())], {}),
        ([], {}),
    ],
)  # fmt: skip
def test_webhooks_are_limited_to_the_labels_that_all_rules_ask_for(policies, selected):
    assert select_labels(policies, mutating=False) == selected


def test_one_filter_without_a_selector_is_about_every_namespace():
    policy = classic("a", ["Pod"], match=PROD)
    both = [{"resources": {"kinds": ["Pod"], **PROD}}, {"resources": {"kinds": ["Job"]}}]
    for form, selected in (("any", {}), ("all", {"matchLabels": {"env": "prod"}})):
        rules = [{**policy.document["spec"]["rules"][0], "match": {form: both}}]
        made = make("ClusterPolicy", "a", {"rules": rules})
        assert select_labels([made], mutating=False) == selected
