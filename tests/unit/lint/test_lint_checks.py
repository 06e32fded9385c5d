"""The checks one by one: what they must see, and what they must leave alone."""

import pytest

from lictor.lint.catalog import CHECKS
from lictor.lint.exceptions import lint_cleanup, lint_exception
from lictor.lint.expressions import (
    ANY_VARIABLE,
    KnownVariables,
    check_query,
    check_text,
    entry_names,
)
from lictor.lint.field import Field
from lictor.lint.policy import lint_policy
from lictor.lint.schema_kinds import KnownSchemas
from lictor.lint.test_files import TestInventory, lint_test

INNER = KnownVariables(names=frozenset(["team"]), has_element=True, has_target=True)
SCAN = KnownVariables(has_caller=False)


def names(faults):
    return [fault.check for fault in faults]


@pytest.mark.parametrize(
    ("text", "zone", "found"),
    [
        ("plain", KnownVariables(), []),
        ("{{ request.object.metadata.name }}", KnownVariables(), []),
        ("{{request.object.a}}{{request.object.b}}", KnownVariables(), []),
        ("{{- request.object.a }}", KnownVariables(), []),
        ("{{@}}", KnownVariables(), []),
        (r"\{{ not.an.expression( }}", KnownVariables(), []),
        ('{"a": {"b": {"c": 1}}}', KnownVariables(), []),
        ("{{ team }} {{ element }} {{ element0.x }} {{ elementIndex }} {{ target.x }}", INNER, []),
        ("{{ images.containers.*.registry }}", KnownVariables(), []),
        ("{{ request.object.spec.[a, b].{x: y} }}", KnownVariables(), []),
        ("{{ request.object.labels.\"{{ request.object.key }}\" }}", KnownVariables(), []),
        ("{{ map(&name, request.object.items) }}", KnownVariables(), []),
        ("{{ request.object.items[?kind == 'x'] | [0].name }}", KnownVariables(), []),
        ("{{ whatever.x }}", ANY_VARIABLE, []),
        ("{{ request.userInfo.username }}", KnownVariables(), []),
        ("{{ request.object.request.userInfo }}", SCAN, []),
        ("{{ request.userInfo.username }}", SCAN, ["background"]),
        ("{{ request.roles }} {{ serviceAccountNamespace }}", SCAN, ["background"] * 2),
        ("{{ }}", KnownVariables(), ["bad-expression"]),
        ("{{ a. }}", KnownVariables(), ["bad-expression"]),
        ("{{ request.object.x && team }}", KnownVariables(), ["unknown-variable"]),
        ("{{ request.object.x || null }}", KnownVariables(), ["unknown-variable"]),
        ('{{ request.object.x || "" }}', KnownVariables(), ["unknown-variable"]),
        ("{{ element }}", KnownVariables(), ["misplaced-variable"]),
        ("{{ target.metadata.name }}", KnownVariables(), ["misplaced-variable"]),
        ("{{ nosuch(request) }}", KnownVariables(), ["unknown-function"]),
        ("{{ truncate(request.object.x) }}", KnownVariables(), ["wrong-arguments"]),
        ("{{ request.object.x }", KnownVariables(), ["unbalanced-braces"]),
        ("{ request.object.x }}", KnownVariables(), ["unbalanced-braces"]),
        ("{{ {a: {b: request}} }}", KnownVariables(), ["unbalanced-braces"]),
    ],
)  # fmt: skip
def test_expressions_in_text(text, zone, found):
    assert names(check_text(Field(text), zone)) == found


@pytest.mark.parametrize(
    ("text", "zone", "found"),
    [
        ("request.object.spec.containers", KnownVariables(), []),
        ("team", INNER, []),
        ("to_upper(@)", ANY_VARIABLE, []),
        ("{{ team }}", INNER, []),
        ("request.userInfo", SCAN, []),
        ("", KnownVariables(), []),
        ("team[", INNER, ["bad-expression"]),
        ("teem", INNER, ["unknown-variable"]),
    ],
)
def test_texts_that_are_expressions(text, zone, found):
    assert names(check_query(Field(text), zone)) == found


@pytest.mark.parametrize(
    ("text", "offset", "suggestion"),
    [
        ("x {{ lenght(request) }}", 5, "length"),
        ("{{ request.object.x }} {{ requets.y }}", 26, "request"),
        ("{{ request.objekt }}", 3, "request.object"),
    ],
)
def test_faults_know_their_place_and_what_was_meant(text, offset, suggestion):
    (fault,) = check_text(Field(text), KnownVariables())
    assert fault.offset is not None
    assert (fault.offset.offset, fault.suggestion) == (offset, suggestion)


def rule(**fields):
    return {
        "name": "r",
        "match": {"any": [{"resources": {"kinds": ["Pod"]}}]},
        "validate": {"message": "m", "deny": {}},
        **fields,
    }


def policy(*rules, kind="ClusterPolicy", **spec):
    metadata = {"name": "p", **({"namespace": "shop"} if kind == "Policy" else {})}
    return {
        "apiVersion": "kyverno.io/v1",
        "kind": kind,
        "metadata": metadata,
        "spec": {"rules": list(rules), **spec},
    }


def filters(*each, form="any"):
    return {form: [{"resources": one} for one in each]}


POD = {"kinds": ["Pod"]}


@pytest.mark.parametrize(
    ("match", "exclude", "found"),
    [
        (filters(POD), filters({"kinds": ["Pod"], "names": ["a"]}), []),
        (filters(POD), filters(POD), ["never-matches"]),
        (filters(POD), filters({"kinds": ["v1/Pod"]}), []),
        (filters({"kinds": ["v1/Pod"]}), filters(POD), ["never-matches"]),
        (filters({"kinds": ["Pod"], "namespaces": ["a"]}), filters({"namespaces": ["*"]}), ["never-matches"]),
        (filters(POD), filters({"namespaces": ["*"]}), []),
        (filters({"kinds": ["Pod"], "names": ["a-*"]}), filters({"names": ["a-?"]}), []),
        (filters(POD), filters(POD, {"kinds": ["Pod"], "names": ["x"]}, form="all"), []),
        (filters(POD), {"any": [{"resources": POD, "subjects": [{"kind": "User", "name": "a"}]}]}, ["background"]),
        (filters(POD, {"kinds": ["Deployment"]}), filters(POD), ["never-matches"]),
        (filters(POD, {"kinds": ["Job"]}, form="all"), None, ["never-matches"]),
        (filters(POD, {"kinds": ["*/Pod", "v1/Pod"]}, form="all"), None, []),
        (filters({"kinds": ["Pod"], "names": ["a*"]}, {"kinds": ["Pod"], "names": ["*b"]}, form="all"), None, []),
        (filters({"kinds": ["Pod"], "names": ["a*"]}, {"kinds": ["Pod"], "names": ["b"]}, form="all"), None, ["never-matches"]),
        (filters({"kinds": ["Pod"], "names": ["a*"]}, {"kinds": ["Pod"], "names": ["b*"]}, form="all"), None, ["never-matches"]),
        (
            filters(
                {"kinds": ["Pod"], "selector": {"matchLabels": {"a": "x"}}},
                {"kinds": ["Pod"], "selector": {"matchLabels": {"a": "y"}}},
                form="all",
            ),
            None,
            ["never-matches"],
        ),
        ({"resources": POD}, None, []),
        ({"any": [{"resources": POD}], "all": [{"resources": POD}]}, None, ["bad-match"]),
        ({"any": [{"resources": POD}], "resources": POD}, None, ["bad-match"]),
        ({}, None, ["bad-match"]),
        (filters({"namespaces": ["x"]}), None, ["bad-match"]),
        (filters({"kinds": ["Pod"], "name": "a", "names": ["b"]}), None, ["bad-match"]),
        (filters({"kinds": ["Pod"], "selector": {}}), None, ["bad-selector"]),
        (filters({"kinds": ["Pod"], "selector": {"matchLabels": {"a/*": "?*"}}}), None, []),
        (filters({"kinds": ["deployments"]}), None, ["unknown-resource"]),
        (filters({"kinds": ["Deploymnt"]}), None, ["unknown-resource"]),
        (filters({"kinds": ["postgresql", "Issuer", "Kustomization", "IngressRoute"]}), None, []),
    ],
)  # fmt: skip
def test_match_and_exclude(match, exclude, found):
    fields = {"match": match} if exclude is None else {"match": match, "exclude": exclude}
    assert names(lint_policy(policy(rule(**fields)), KnownSchemas())) == found


@pytest.mark.parametrize(
    ("document", "found"),
    [
        (policy(rule()), []),
        (policy(rule(), kind="Policy"), []),
        (policy(), ["bad-rule"]),
        (policy(rule(validate=None)), ["bad-rule"]),
        (policy(rule(imageExtractors={"Pod": [{"path": "/a"}]})), ["bad-rule"]),
        (policy(rule(celPreconditions=[{"name": "a", "expression": "true"}])), ["bad-rule"]),
        (policy(rule(), validationFailureAction="Enforce"), ["deprecated"]),
        (policy(rule(), generateExistingOnPolicyUpdate=True), ["bad-settings"]),
        (policy(rule(), failurePolicy="Fail", webhookConfiguration={"failurePolicy": "Fail"}), ["deprecated", "bad-settings"]),
        (policy(rule(), admission=False, background=False), ["bad-settings"]),
        (policy(rule(context=[{"name": "a"}])), ["bad-context", "unused-context"]),
        (policy(rule(context=[{"name": "a", "variable": {}}])), ["bad-context", "unused-context"]),
        (policy(rule(context=[{"name": "request", "variable": {"value": 1}}])), ["bad-context", "unused-context"]),
        (policy(rule(context=[{"name": "a", "variable": {"value": 1, "default": 2}}], preconditions={"all": [{"key": "{{ a }}", "operator": "Equals", "value": 1}]})), ["bad-context"]),
        (policy(rule(validate={"deny": {"conditions": [{"key": "a", "operator": "Equals", "value": "b"}]}})), []),
        (policy(rule(validate={"deny": {"conditions": [{"key": "a", "operator": "In", "value": "b"}]}})), ["deprecated"]),
        (policy(rule(validate={"deny": {"conditions": "x"}})), ["bad-condition"]),
        (policy(rule(validate={"anyPattern": {"a": 1}})), ["bad-pattern"]),
        (policy(rule(validate={"pattern": {"spec": {"a": "$(./../b)"}}})), ["bad-pattern"]),
        (policy(rule(match=filters({"kinds": ["*"]}))), ["wildcard-kind"]),
        (policy(rule(match=filters({"kinds": ["*"]})), background=False), []),
        (policy(rule(match=filters({"kinds": ["*"]}), validate={"pattern": {"spec": 1}}), background=False), ["wildcard-kind"]),
        (policy(rule(match=filters({"kinds": ["PodExecOptions"]}))), ["background"]),
        (policy(rule(match=filters({"kinds": ["Pod/exec"]})), background=False), []),
        (policy(rule(match=filters({"kinds": ["Namespace"]})), kind="Policy"), ["bad-scope"]),
        (policy(rule(), validationFailureActionOverrides=[{"action": "enforce", "namespaces": ["a*"]}, {"action": "audit", "namespaces": ["ab"]}]), ["deprecated", "bad-settings"]),
    ],
)  # fmt: skip
def test_policies(document, found):
    assert sorted(names(lint_policy(document, KnownSchemas()))) == sorted(found)


@pytest.mark.parametrize(
    "body",
    [
        None, 7, "x", [], {}, {"spec": None}, {"spec": 1}, {"spec": {"rules": 3}},
        {"spec": {"rules": [None, 1, [], {}, {"match": [1], "exclude": "x", "validate": [2]}]}},
        {"spec": {"rules": [rule(context=7, preconditions=[1, None], validate={"foreach": [1]})]}},
        {"metadata": {"annotations": {"pod-policies.kyverno.io/autogen-controllers": 5}}},
        {"spec": {"rules": [rule(mutate={"patchesJson6902": "[1"}, verifyImages=[{"attestors": [{"entries": [None]}]}])]}},
    ],
)  # fmt: skip
def test_nothing_crashes(body):
    faults = [
        *lint_policy(body, KnownSchemas()),
        *lint_cleanup(body, KnownSchemas()),
        *lint_exception(body, {"p": ["r"]}, KnownSchemas()),
        *lint_test(body, TestInventory()),
    ]
    assert all(fault.check in CHECKS for fault in faults)


def test_entries_define_the_first_part_of_their_names():
    assert entry_names(Field([{"name": "a.b"}, {"name": "c"}, 7])) == {"a", "c", ""}


@pytest.mark.parametrize(
    ("result", "found"),
    [
        ({"policy": "p", "rule": "r", "resources": ["a"], "result": "pass"}, []),
        ({"policy": "shop/p", "rule": "autogen-r", "resources": ["shop/a"], "result": "skip"}, []),
        ({"policy": "cel", "rule": "whatever", "resources": ["a"], "result": "pass"}, []),
        ({"policy": "p", "rule": "r", "resources": ["other/a"], "result": "pass"}, ["unknown-target"]),
        ({"policy": "p", "rule": "rr", "resources": ["b"], "result": "ok"}, ["bad-result", "unknown-target", "unknown-target"]),
        ({"policy": "q", "resources": ["a"], "result": "fail"}, ["unknown-target"]),
    ],
)  # fmt: skip
def test_results_of_tests(result, found):
    inventory = TestInventory({"p": ["r"], "cel": None}, {("shop", "a")})
    assert names(lint_test({"results": [result]}, inventory)) == found


@pytest.mark.parametrize(
    ("schedule", "found"),
    [
        ("*/5 * * * *", []),
        ("0 0 * * MON", []),
        ("@daily", []),
        ("@every 1h30m", []),
        ("TZ=Europe/Berlin 0 6 * * *", []),
        ("@dayly", ["bad-schedule"]),
        ("@every day", ["bad-schedule"]),
        ("0 0 * *", ["bad-schedule"]),
        ("0 0 * * * *", ["bad-schedule"]),
        ("61 0 * * *", ["bad-schedule"]),
    ],
)
def test_schedules(schedule, found):
    spec = {"schedule": schedule, "match": filters(POD)}
    document = {"kind": "ClusterCleanupPolicy", "metadata": {"name": "c"}, "spec": spec}
    assert names(lint_cleanup(document, KnownSchemas())) == found
