"""Policies as admission policies of Kubernetes' own: what is made, and what is left to us."""

import msgspec
import pytest

from lictor.controllers.native_policies.native_cel import build_mutating, build_validating
from lictor.controllers.native_policies.native_classic import build_classic
from lictor.controllers.native_policies.objects import AdmittedResource, PolicyOwner
from lictor.core.errors import CompileError
from lictor.core.families.kyverno_cel.records import MutatingPolicy, ValidatingPolicy
from lictor.core.model.cel_policy import CelException
from lictor.core.model.exception import PolicyException
from lictor.core.model.policy import Policy

KINDS = {
    "Pod": [AdmittedResource("", "v1", "pods")],
    "ConfigMap": [AdmittedResource("", "v1", "configmaps")],
    "Deployment": [AdmittedResource("apps", "v1", "deployments")],
    "StatefulSet": [AdmittedResource("apps", "v1", "statefulsets")],
    "HorizontalPodAutoscaler": [
        AdmittedResource("autoscaling", "v2", "horizontalpodautoscalers"),
        AdmittedResource("autoscaling", "v1", "horizontalpodautoscalers"),
    ],
    "Event": [
        AdmittedResource("", "v1", "events"),
        AdmittedResource("events.k8s.io", "v1", "events"),
    ],
}
EXPRESSION = {"expression": "object.metadata.name != 'x'"}


def find(kind):
    return KINDS.get(kind, [])


def own(kind, name="p", **more):
    return PolicyOwner("kyverno.io/v1", kind, name, "uid", **more)


# --- classic policies


def rule(match=None, exclude=None, **cel):
    resources = {"kinds": ["Deployment"], "operations": ["CREATE"]}
    made = {
        "name": "r",
        "match": match or {"any": [{"resources": resources}]},
        "validate": {
            "failureAction": "Enforce",
            "message": "no",
            "cel": {"generate": True, "expressions": [EXPRESSION], **cel},
        },
    }
    return made if exclude is None else {**made, "exclude": exclude}


def read_policy(*rules, **spec):
    body = {
        "apiVersion": "kyverno.io/v1",
        "kind": "ClusterPolicy",
        "metadata": {"name": "p"},
        "spec": {**spec, "rules": list(rules)},
    }
    return msgspec.convert(body, Policy)


def read_exception(match, rules=("r",), **spec):
    body = {
        "apiVersion": "kyverno.io/v2",
        "kind": "PolicyException",
        "metadata": {"name": "x"},
        "spec": {
            "match": match,
            "exceptions": [{"policyName": "p", "ruleNames": list(rules)}],
            **spec,
        },
    }
    return msgspec.convert(body, PolicyException)


def make(*rules, exceptions=(), **spec):
    return build_classic(read_policy(*rules, **spec), own("ClusterPolicy"), exceptions, find)


def test_classic_policy():
    pair = make(rule())
    assert pair.policy == {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingAdmissionPolicy",
        "metadata": {
            "name": "cpol-p",
            "labels": {"app.kubernetes.io/managed-by": "kyverno"},
            "ownerReferences": [
                {
                    "apiVersion": "kyverno.io/v1",
                    "kind": "ClusterPolicy",
                    "name": "p",
                    "uid": "uid",
                }
            ],
        },
        "spec": {
            "failurePolicy": "Fail",
            "matchConstraints": {
                "resourceRules": [
                    {
                        "apiGroups": ["apps"],
                        "apiVersions": ["v1"],
                        "operations": ["CREATE"],
                        "resources": ["deployments"],
                    }
                ]
            },
            "validations": [{**EXPRESSION, "message": "no"}],
        },
    }
    assert pair.binding["metadata"]["name"] == "cpol-p-binding"
    assert pair.binding["spec"] == {"policyName": "cpol-p", "validationActions": ["Deny"]}


def test_kinds_of_one_group_share_a_rule():
    kinds = {"kinds": ["StatefulSet", "Pod", "Deployment"]}
    rules = make(rule({"any": [{"resources": kinds}]})).policy["spec"]["matchConstraints"]
    found = [(each["apiGroups"], each["resources"]) for each in rules["resourceRules"]]
    assert found == [
        (["apps"], ["deployments", "statefulsets"]),
        ([""], ["pods", "pods/ephemeralcontainers"]),
    ]
    assert rules["resourceRules"][0]["operations"] == ["CREATE", "UPDATE", "CONNECT", "DELETE"]


def test_names_of_one_kind_are_not_those_of_another():
    filters = [
        {"resources": {"kinds": ["Deployment"], "names": ["a"]}},
        {"resources": {"kinds": ["StatefulSet"], "names": ["b"]}},
    ]
    rules = make(rule({"any": filters})).policy["spec"]["matchConstraints"]["resourceRules"]
    assert [(each["resources"], each["resourceNames"]) for each in rules] == [
        (["deployments"], ["a"]),
        (["statefulsets"], ["b"]),
    ]


def test_all_versions_of_a_kind():
    match = {"resources": {"kinds": ["HorizontalPodAutoscaler"]}}
    [made] = make(rule(match)).policy["spec"]["matchConstraints"]["resourceRules"]
    assert made["apiVersions"] == ["v1", "v2"]


def test_namespaces_become_a_selector():
    match = {"any": [{"resources": {"kinds": ["Deployment"], "namespaces": ["a", "b"]}}]}
    constraints = make(rule(match)).policy["spec"]["matchConstraints"]
    assert constraints["namespaceSelector"] == {
        "matchExpressions": [
            {"key": "kubernetes.io/metadata.name", "operator": "In", "values": ["a", "b"]}
        ]
    }


def test_excluded_namespaces_are_really_excluded():
    exclude = {"any": [{"resources": {"namespaces": ["a"], "operations": ["CREATE"]}}]}
    spec = make(rule(exclude=exclude)).policy["spec"]
    [excluded] = spec["matchConstraints"]["excludeResourceRules"]
    assert excluded["resources"] == ["namespaces"]
    assert spec["matchConditions"] == [
        {
            "name": "exclude",
            "expression": "!(request.namespace in ['a'] && request.operation in ['CREATE'])",
        }
    ]


def test_exceptions_are_folded_in():
    match = {"any": [{"resources": {"kinds": ["Deployment"], "names": ["free"]}}]}
    other = read_exception(match, rules=("another",))
    spec = make(rule(), exceptions=[read_exception(match), other]).policy["spec"]
    [excluded] = spec["matchConstraints"]["excludeResourceRules"]
    assert (excluded["resources"], excluded["resourceNames"]) == (["deployments"], ["free"])


def test_audit_warns_too():
    made = rule()
    made["validate"]["failureAction"] = "Audit"
    assert make(made).binding["spec"]["validationActions"] == ["Audit", "Warn"]


DEPLOYMENT = {"kinds": ["Deployment"]}
SELECTOR = {**DEPLOYMENT, "namespaceSelector": {"matchLabels": {"a": "b"}}}
SKIPPED = [
    ("no rules", (), {}, "no rules found."),
    ("two rules", (rule(), {**rule(), "name": "s"}), {}, "multiple rules are not applicable."),
    ("not asked for", (rule(generate=False),), {}, "validate.cel.generate is not set to true."),
    ("no admission", (rule(),), {"admission": False}, "admission is not enabled."),
    (
        "overrides",
        (rule(),),
        {"validationFailureActionOverrides": [{"action": "Audit", "namespaces": ["a"]}]},
        "Namespaces in validationFailureActionOverrides",
    ),
    (
        "callers",
        (rule({"any": [{"resources": DEPLOYMENT, "roles": ["a:b"]}]}),),
        {},
        "Roles / ClusterRoles / Subjects",
    ),
    (
        "annotations",
        (rule({"any": [{"resources": {**DEPLOYMENT, "annotations": {"a": "b"}}}]}),),
        {},
        "Annotations in resource description",
    ),
    (
        "wildcard",
        (rule({"any": [{"resources": {**DEPLOYMENT, "names": ["a*"]}}]}),),
        {},
        "wildcards in resource name",
    ),
    (
        "two with a selector",
        (rule({"any": [{"resources": SELECTOR}, {"resources": DEPLOYMENT}]}),),
        {},
        "across multiple resources in the match block",
    ),
    (
        "namespaces that differ",
        (
            rule(
                {
                    "any": [
                        {"resources": {**DEPLOYMENT, "namespaces": ["a"]}},
                        {"resources": {"kinds": ["Pod"]}},
                    ]
                }
            ),
        ),
        {},
        "different namespaces",
    ),
    (
        "exclude by selector",
        (rule(exclude={"any": [{"resources": SELECTOR}]}),),
        {},
        "in the exclude block is not applicable.",
    ),
    (
        "exclude within a namespace",
        (rule(exclude={"any": [{"resources": {**DEPLOYMENT, "namespaces": ["a"]}}]}),),
        {},
        "excluding a resource within a namespace",
    ),
    (
        "unknown kind",
        (rule({"any": [{"resources": {"kinds": ["Foo"]}}]}),),
        {},
        "no unique match for kind Foo",
    ),
    (
        "ambiguous kind",
        (rule({"any": [{"resources": {"kinds": ["Event"]}}]}),),
        {},
        "no unique match for kind Event",
    ),
]


@pytest.mark.parametrize(
    ("rules", "spec", "words"), [case[1:] for case in SKIPPED], ids=[case[0] for case in SKIPPED]
)
def test_classic_policies_that_stay_ours(rules, spec, words):
    with pytest.raises(CompileError, match="skip generating ValidatingAdmissionPolicy") as caught:
        make(*rules, **spec)
    assert words in str(caught.value)


def test_a_rule_without_cel():
    plain = {"name": "r", "match": rule()["match"], "validate": {"pattern": {}}}
    with pytest.raises(CompileError, match="for non CEL rules"):
        make(plain)


def test_exceptions_that_cannot_be_folded_in():
    match = {"any": [{"resources": DEPLOYMENT}]}
    conditions = {"any": [{"key": "a", "operator": "Equals", "value": "b"}]}
    for exception, words in (
        (read_exception(match, conditions=conditions), "Conditions in PolicyException"),
        (read_exception(match, rules=("r", "s")), "multiple ruleNames"),
    ):
        with pytest.raises(CompileError, match=words):
            make(rule(), exceptions=[exception])


# --- policies in CEL

ABOUT = {
    "resourceRules": [
        {
            "apiGroups": ["apps"],
            "apiVersions": ["v1"],
            "operations": ["CREATE"],
            "resources": ["deployments"],
        }
    ]
}
PODS = {"resourceRules": [{**ABOUT["resourceRules"][0], "apiGroups": [""], "resources": ["pods"]}]}


def read_cel(record, **spec):
    body = {
        "apiVersion": "policies.kyverno.io/v1beta1",
        "kind": record.__name__,
        "metadata": {"name": "p"},
        "spec": {"matchConstraints": ABOUT, **spec},
    }
    return msgspec.convert(body, record)


def validating(**spec):
    enabled = {"validatingAdmissionPolicy": {"enabled": True}}
    return read_cel(ValidatingPolicy, **{"autogen": enabled, "validations": [EXPRESSION], **spec})


def excepting(name="x", kind="ValidatingPolicy", **spec):
    body = {
        "apiVersion": "policies.kyverno.io/v1beta1",
        "kind": "PolicyException",
        "metadata": {"name": name},
        "spec": {"policyRefs": [{"name": "p", "kind": kind}], **spec},
    }
    return msgspec.convert(body, CelException)


def condition(name, expression):
    return {"name": name, "expression": expression}


def make_validating(policy, *exceptions, **more):
    return build_validating(policy, own("ValidatingPolicy", **more), exceptions)


def test_validating_policy():
    pair = make_validating(validating(), failure_policy="Ignore", is_reported=False)
    assert pair.name == "vpol-p"
    assert pair.policy["metadata"]["labels"]["reports.kyverno.io/disabled"] == "true"
    assert pair.policy["spec"] == {
        "failurePolicy": "Ignore",
        "matchConstraints": ABOUT,
        "validations": [EXPRESSION],
    }
    assert pair.binding["spec"]["validationActions"] == ["Deny"]


def test_exceptions_become_conditions():
    policy = validating(matchConditions=[condition("own", "true")])
    pair = make_validating(
        policy,
        excepting(matchConditions=[condition("free", "object.metadata.name == 'a'")]),
        excepting(matchConditions=[condition("free", "true"), condition("b", "false")]),
        excepting("always"),
        excepting(kind="MutatingPolicy"),
    )
    assert pair.policy["spec"]["matchConditions"] == [
        condition("own", "true"),
        condition("free", "!(object.metadata.name == 'a')"),
        condition("free-2", "!((true) && (false))"),
        condition("always", "false"),
    ]


def test_allowed_values_become_variables():
    uses = [{"expression": "'a' in exceptions.allowedValues || 'b' in exceptions.allowedImages"}]
    exceptions = (
        excepting(allowedValues=["it's"]),
        excepting(allowedValues=["b"], matchConditions=[condition("c", "true")]),
    )
    spec = make_validating(validating(validations=uses), *exceptions).policy["spec"]
    assert spec["variables"] == [
        {"name": "allowedImages", "expression": "[]"},
        {"name": "allowedValues", "expression": "['it\\'s'] + ((true) ? ['b'] : [])"},
    ]
    expression = "'a' in variables.allowedValues || 'b' in variables.allowedImages"
    assert spec["validations"] == [{"expression": expression}]
    assert "matchConditions" not in spec


CEL_SKIPPED = [
    ("not asked for", validating(autogen={}), "not enabled."),
    ("controllers", validating(matchConstraints=PODS), "pod controllers autogen is enabled."),
    ("other modes", validating(evaluation={"mode": "JSON"}), "mode JSON is not applicable"),
    (
        "no admission",
        validating(evaluation={"admission": {"enabled": False}}),
        "admission is not enabled.",
    ),
    (
        "functions of ours",
        validating(validations=[{"expression": "http.Get('https://x') == 1"}]),
        "does not know it",
    ),
]


@pytest.mark.parametrize(
    ("policy", "words"),
    [case[1:] for case in CEL_SKIPPED],
    ids=[case[0] for case in CEL_SKIPPED],
)
def test_policies_in_cel_that_stay_ours(policy, words):
    with pytest.raises(CompileError) as caught:
        make_validating(policy)
    assert words in str(caught.value)


CHANGE = {
    "patchType": "ApplyConfiguration",
    "applyConfiguration": {
        "expression": 'Object{metadata: Object.metadata{labels: {"a": "b"}}}',
    },
}


def mutating(**spec):
    enabled = {"mutatingAdmissionPolicy": {"enabled": True}}
    return read_cel(MutatingPolicy, **{"autogen": enabled, "mutations": [CHANGE], **spec})


def test_mutating_policy():
    policy = mutating(matchConditions=[condition("own", "true")])
    exception = excepting(kind="MutatingPolicy", matchConditions=[condition("x", "false")])
    pair = build_mutating(policy, own("MutatingPolicy"), [exception], "v1beta1")
    assert pair.policy["apiVersion"] == "admissionregistration.k8s.io/v1beta1"
    assert pair.policy["kind"] == "MutatingAdmissionPolicy"
    assert pair.policy["spec"] == {
        "failurePolicy": "Fail",
        "matchConstraints": ABOUT,
        "mutations": [CHANGE],
        "reinvocationPolicy": "Never",
        "matchConditions": [condition("x", "!(false)"), condition("own", "true")],
    }
    assert pair.binding["spec"] == {"policyName": "mpol-p"}


def test_targets_that_exist_stay_ours():
    policy = mutating(targetMatchConstraints=ABOUT)
    with pytest.raises(CompileError, match="targets that exist already"):
        build_mutating(policy, own("MutatingPolicy"), (), "v1")
