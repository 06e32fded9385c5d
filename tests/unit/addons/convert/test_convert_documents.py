"""What the new policies look like, and which policies are refused for which reason."""

import pytest
from converting import build_policy, compare, convert, convert_alike, translate

from lictor.addons.convert.conversion import ConversionTarget
from lictor.core.errors import CompileError

LABEL = {"validate": {"message": "label it", "pattern": {"metadata": {"labels": {"team": "?*"}}}}}
DENY = {"validate": {"message": "no", "deny": {}}}


@pytest.mark.parametrize(
    ("validate", "expected"),
    [
        ({"pattern": {"spec": {"type": "!NodePort"}}}, 'object.spec.?type.orValue("NodePort") != "NodePort"'),
        ({"pattern": {"spec": {"=(type)": "!NodePort"}}}, 'object.spec.?type.orValue("") != "NodePort"'),
        ({"pattern": {"spec": {"X(externalIPs)": "null"}}}, "!has(object.spec.externalIPs)"),
        (
            {"pattern": {"spec": {"ports": [{"port": "1-10"}]}}},
            "has(object.spec.ports) && object.spec.ports.all(port, has(port.port) && port.port >= 1 && port.port <= 10)",
        ),
        (
            {"deny": {"conditions": {"any": [{"key": "{{request.operation}}", "operator": "Equals", "value": "DELETE"}]}}},
            "false",
        ),
    ],
)  # fmt: skip
def test_expressions(validate, expected):
    assert translate({"message": "no", **validate}) == expected


def test_one_policy_covers_pods_and_all_that_makes_pods():
    (document,) = convert(build_policy(LABEL)).documents
    spec = document["spec"]
    rules = spec["matchConstraints"]["resourceRules"]
    assert sorted(name for rule in rules for name in rule["resources"]) == [
        "cronjobs", "daemonsets", "deployments", "jobs", "pods", "pods/ephemeralcontainers",
        "replicasets", "replicationcontrollers", "statefulsets",
    ]  # fmt: skip
    assert [each["name"] for each in spec["variables"]] == ["podMetadata"]
    assert "autogen" not in spec


def test_a_policy_about_created_pods_is_not_applied_to_their_controllers_by_kyverno():
    policy = build_policy(
        {**LABEL, "match": {"any": [{"resources": {"kinds": ["Pod"], "operations": ["CREATE"]}}]}},
        annotations={"pod-policies.kyverno.io/autogen-controllers": "none"},
    )
    form, comparison = convert_alike(policy)
    (document,) = form.documents
    assert document["spec"]["matchConstraints"]["resourceRules"][0]["resources"] == ["pods"]
    assert document["spec"]["autogen"] == {"podControllers": {"controllers": []}}
    assert comparison.differences == ()


def test_policies_for_the_api_server_come_with_bindings():
    documents = convert(build_policy(LABEL), ConversionTarget.ADMISSION).documents
    assert [(d["kind"], d["metadata"]["name"]) for d in documents] == [
        ("ValidatingAdmissionPolicy", "sample"),
        ("ValidatingAdmissionPolicyBinding", "sample-binding"),
    ]
    assert documents[1]["spec"] == {"policyName": "sample", "validationActions": ["Audit"]}


def test_rules_about_different_things_share_a_policy():
    policy = build_policy(
        LABEL, {**DENY, "match": {"resources": {"kinds": ["Secret"]}}}, kinds=("Service",)
    )
    (document,) = convert(policy).documents
    assert [each["expression"].split() for each in document["spec"]["validations"]] == [
        ['request.kind.kind', '!=', '"Service"', '||', '!(request.operation', 'in', '["CREATE",', '"UPDATE"])', '||', 'object.metadata.?labels.?team.orValue("")', '!=', '""'],
        ['request.kind.kind', '!=', '"Secret"'],
    ]  # fmt: skip
    assert compare(policy, [document]).differences == ()


def test_rules_with_different_actions_do_not_share_a_policy():
    enforced = {**LABEL, "validate": {**LABEL["validate"], "failureAction": "Enforce"}}
    documents = convert(build_policy(LABEL, enforced, kinds=("Service",))).documents
    assert [d["metadata"]["name"] for d in documents] == ["sample-rule-0", "sample-rule-1"]


def test_settings_are_carried_over():
    policy = build_policy(
        LABEL,
        kinds=("Service",),
        validationFailureAction="Enforce",
        background=False,
        failurePolicy="Ignore",
        webhookTimeoutSeconds=7,
    )
    (document,) = convert(policy).documents
    spec = document["spec"]
    assert spec["validationActions"] == ["Deny"]
    assert spec["evaluation"] == {"background": {"enabled": False}}
    assert spec["failurePolicy"] == "Ignore"
    assert spec["webhookConfiguration"] == {"timeoutSeconds": 7}


def test_rules_in_cel_stay_as_they_are():
    cel = {
        "variables": [{"name": "team", "expression": "object.metadata.?labels.?team"}],
        "expressions": [{"expression": "variables.team.hasValue()"}],
    }
    policy = build_policy({"validate": {"message": "no", "cel": cel}}, kinds=("Service",))
    (document,) = convert(policy).documents
    assert document["spec"]["variables"] == cel["variables"]
    assert document["spec"]["validations"] == [
        {"expression": "variables.team.hasValue()", "message": "no"}
    ]


def test_messages_with_variables_become_expressions():
    rule = {**DENY, "validate": {"message": "{{request.object.metadata.name}} is bad", "deny": {}}}
    (document,) = convert(build_policy(rule, kinds=("Service",))).documents
    (validation,) = document["spec"]["validations"]
    assert validation["messageExpression"] == 'variables.resource.metadata.name + " is bad"'


def test_names_of_unknown_kinds_are_told_to_be_guesses():
    made = convert(build_policy(LABEL, kinds=("corp.io/v1/Widget",)))
    assert made.documents[0]["spec"]["matchConstraints"]["resourceRules"][0]["resources"] == [
        "widgets"
    ]
    assert made.notes == ("the resource name of Widget is unknown: widgets is the usual plural",)


REFUSED = [
    ({**DENY, "exclude": {"any": [{"clusterRoles": ["admin"]}]}}, "clusterRoles"),
    ({"validate": {"podSecurity": {"level": "baseline"}}}, "podSecurity"),
    ({"validate": {"assert": {"a": 1}}}, "assert"),
    ({**DENY, "context": [{"name": "a", "imageRegistry": {"reference": "b"}}]}, "imageRegistry"),
    ({**DENY, "preconditions": {"all": [{"key": "{{ time_now() }}", "operator": "Equals", "value": "x"}]}}, "time_now"),
    ({**DENY, "preconditions": {"all": [{"key": "{{ mystery }}", "operator": "Equals", "value": "x"}]}}, "mystery"),
    ({"mutate": {"targets": [{"apiVersion": "v1", "kind": "Secret"}], "patchStrategicMerge": {}}}, "targets"),
    ({"mutate": {"foreach": [{"list": "request.object.spec.containers", "patchStrategicMerge": {}}]}}, "foreach"),
    ({"mutate": {"patchesJson6902": "- {op: add, path: /spec/containers/0/image, value: a}"}}, "counts elements"),
    ({"generate": {"apiVersion": "v1", "kind": "Secret", "name": "a", "clone": {"name": "b"}}}, "another name"),
    ({**LABEL, "validate": {**LABEL["validate"], "failureActionOverrides": [{"action": "Audit", "namespaces": ["a"]}]}}, "failureActionOverrides"),
    ({"verifyImages": [{"imageReferences": ["*"]}]}, "verifyImages"),
]  # fmt: skip


@pytest.mark.parametrize(("rule", "reason"), REFUSED)
def test_refusals_say_why(rule, reason):
    with pytest.raises(CompileError, match=reason):
        convert(build_policy(rule))


@pytest.mark.parametrize(
    ("rule", "target", "reason"),
    [
        (LABEL, ConversionTarget.MUTATING, "can only mutate"),
        ({"generate": {"kind": "Secret"}}, ConversionTarget.ADMISSION, "can only validate"),
        (
            {**DENY, "context": [{"name": "a", "configMap": {"name": "b"}}]},
            ConversionTarget.ADMISSION,
            "makes no external calls",
        ),
    ],
)
def test_a_target_must_fit(rule, target, reason):
    with pytest.raises(CompileError, match=reason):
        convert(build_policy(rule), target)


def test_one_rule_only_is_refused():
    with pytest.raises(CompileError, match="applyRules"):
        convert(build_policy(LABEL, DENY, applyRules="One"))


def test_a_different_form_is_found_out():
    policy = build_policy(LABEL, kinds=("Service",))
    (document,) = convert(policy).documents
    document["spec"]["validations"][0]["expression"] = "true"
    comparison = compare(policy, [document])
    assert comparison.differences
    first = comparison.differences[0]
    assert first.before.refuses
    assert not first.after.refuses
