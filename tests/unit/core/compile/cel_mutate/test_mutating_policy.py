"""MutatingPolicy: what it changes, and what it says where it cannot."""

import pytest
from msgspec.structs import replace

from lictor.core.model.request import Operation, Request
from lictor.core.model.result import Action

POD = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "web", "namespace": "shop", "labels": {"app": "web"}},
    "spec": {"containers": [{"name": "app", "image": "app:1"}]},
}
DEPLOYMENT = {
    "apiVersion": "apps/v1",
    "kind": "Deployment",
    "metadata": {"name": "web", "namespace": "shop"},
    "spec": {
        "selector": {"matchLabels": {"app": "web"}},
        "template": {"metadata": {"labels": {"app": "web"}}, "spec": POD["spec"]},
    },
}
CRON_JOB = {
    "apiVersion": "batch/v1",
    "kind": "CronJob",
    "metadata": {"name": "web", "namespace": "shop"},
    "spec": {
        "schedule": "* * * * *",
        "jobTemplate": {"spec": {"template": {"metadata": {}, "spec": POD["spec"]}}},
    },
}
PODS = {
    "apiGroups": [""],
    "apiVersions": ["v1"],
    "operations": ["CREATE", "UPDATE"],
    "resources": ["pods"],
}
CONFIG_MAPS = {**PODS, "resources": ["configmaps"]}
LABEL = 'Object{metadata: Object.metadata{labels: {"team": "red"}}}'


def merge(text):
    return {"patchType": "ApplyConfiguration", "applyConfiguration": {"expression": text}}


def patch(text):
    return {"patchType": "JSONPatch", "jsonPatch": {"expression": text}}


def policy(*mutations, kind="MutatingPolicy", rules=(PODS,), **spec):
    metadata = {"name": "p"}
    if kind.startswith("Namespaced"):
        metadata["namespace"] = "shop"
    return {
        "apiVersion": "policies.kyverno.io/v1",
        "kind": kind,
        "metadata": metadata,
        "spec": {
            "matchConstraints": {"resourceRules": list(rules)},
            "mutations": [merge(m) if isinstance(m, str) else m for m in mutations],
            **spec,
        },
    }


def condition(text):
    return [{"name": "c", "expression": text}]


@pytest.mark.parametrize(
    ("mutations", "expected"),
    [
        ([LABEL], {"app": "web", "team": "red"}),
        (["Object{}"], {"app": "web"}),
        (['has(object.nope) ? Object{} : Object{metadata: {"labels": {"x": "y"}}}'],
         {"app": "web", "x": "y"}),
        ([patch('[JSONPatch{op: "add", path: "/metadata/labels/x", value: "y"}]')],
         {"app": "web", "x": "y"}),
        ([patch('[JSONPatch{op: "remove", path: "/metadata/labels/app"}]')], {}),
        ([patch('[JSONPatch{op: "test", path: "/metadata/name", value: "no"},'
                ' JSONPatch{op: "remove", path: "/metadata/labels"}]')], {"app": "web"}),
        ([patch('[JSONPatch{op: "add", path: "/metadata/labels/" + jsonpatch.escapeKey("a/b"),'
                ' value: "y"}]')], {"app": "web", "a/b": "y"}),
        # Each mutation sees the object as the one before left it.
        ([LABEL, 'Object{metadata: Object.metadata{labels: {"again": object.metadata.labels.team}}}'],
         {"app": "web", "team": "red", "again": "red"}),
    ],
)  # fmt: skip
def test_labels(evaluate, mutations, expected):
    verdict = evaluate([policy(*mutations)], POD)
    assert [(r.rule, str(r.status), r.message) for r in verdict.results] == [
        ("", "pass", "success")
    ]
    assert verdict.patched["metadata"]["labels"] == expected
    assert POD["metadata"]["labels"] == {"app": "web"}


def test_whole_numbers_stay_whole(evaluate):
    made = patch('[JSONPatch{op: "add", path: "/spec/priority", value: 3.0}]')
    after = evaluate([policy(made)], POD).patched["spec"]["priority"]
    assert repr(after) == "3"


@pytest.mark.parametrize(
    ("spec", "mutation", "message"),
    [
        ({}, "Object{metadata: Object.metadata{labels: {'x': object.nope}}}", "no such key: nope"),
        ({"matchConditions": condition("object.nope == 1")}, LABEL, "no such key: nope"),
        ({}, 'Object{spec: Object.spec{nodeSelector: {"a": "b"}}}',
         "error applying patch: invalid ApplyConfiguration: may not mutate atomic arrays, maps or"
         " structs: .spec.nodeSelector"),
        ({}, patch('[JSONPatch{op: "remove", path: "/spec/nope"}]'),
         "JSON Patch: error in remove for path: '/spec/nope': Unable to remove nonexistent key:"
         " nope: missing value"),
        ({}, patch('[JSONPatch{op: "replace", path: "", value: {"a": "b"}}]'),
         "JSON Patch: Object 'Kind' is missing"),
    ],
)  # fmt: skip
def test_what_cannot_be_changed_is_an_error(evaluate, spec, mutation, message):
    verdict = evaluate([policy(mutation, **spec)], POD)
    (result,) = verdict.results
    assert (result.rule, str(result.status)) == ("evaluation", "error")
    assert result.message == f"failed to evaluate policy: {message}"
    assert result.action is Action.ENFORCE
    assert verdict.patched is POD


def test_failure_policy_ignore_lets_pass_what_cannot_be_changed(evaluate):
    (result,) = evaluate([policy("Object{x: object.nope}", failurePolicy="Ignore")], POD).results
    assert (str(result.status), result.action) == ("error", Action.AUDIT)


@pytest.mark.parametrize(
    ("mutation", "message"),
    [
        ("Object{", "applyConfiguration.expression"),
        ('{"a": "b"}', "must evaluate to Object"),
        (patch('[{"op": "add"}]'), "must evaluate to list(JSONPatch)"),
        ({"patchType": "JSONPatch"}, "needs `jsonPatch`"),
        ({"patchType": "ApplyConfiguration"}, "needs `applyConfiguration`"),
    ],
)
def test_a_policy_that_does_not_compile_says_why(evaluate, mutation, message):
    (result,) = evaluate([policy(mutation)], POD).results
    assert str(result.status) == "error"
    assert message in result.message


def test_conditions_and_variables(evaluate):
    document = policy(
        'Object{metadata: Object.metadata{labels: {"image": variables.image}}}',
        matchConditions=condition('variables.image == "app:1"'),
        variables=[{"name": "image", "expression": "object.spec.containers[0].image"}],
    )
    assert evaluate([document], POD).patched["metadata"]["labels"]["image"] == "app:1"
    other = {**POD, "spec": {"containers": [{"name": "app", "image": "app:2"}]}}
    verdict = evaluate([document], other)
    assert [(r.rule, str(r.status), r.message) for r in verdict.results] == [("", "skip", "skip")]
    assert verdict.patched is other


def label(**values):
    pairs = ", ".join(f'"{name}": {value}' for name, value in values.items())
    return f"Object{{metadata: Object.metadata{{labels: {{{pairs}}}}}}}"


@pytest.mark.parametrize(
    ("mutations", "conditions", "expected"),
    [
        ([label(a="variables.n"), label(b="variables.n")], (), {"a": "1", "b": "1"}),
        # First used in the second mutation: its value is of then.
        ([label(a='"0"'), label(b="variables.n"), label(c="variables.n")], (),
         {"a": "0", "b": "2", "c": "2"}),
        ([label(a='"0"'), label(b="variables.n")], condition('variables.n == "1"'),
         {"a": "0", "b": "1"}),
        # One variable by way of another.
        ([label(a="variables.m"), label(b="variables.n")], (), {"a": "1!", "b": "1"}),
        ([label(a="variables.n"), label(b="variables.m")], (), {"a": "1", "b": "1!"}),
        # What cannot be computed and is not asked for is not kept.
        ([label(a='has(object.metadata.labels.x) ? string(variables.x) : "0"', x='"y"'),
          label(b='has(object.metadata.labels.x) ? string(variables.x) : "0"')], (),
         {"a": "0", "x": "y", "b": "y"}),
    ],
)  # fmt: skip
def test_variables_keep_their_first_value(evaluate, mutations, conditions, expected):
    variables = [
        {"name": "n", "expression": "string(object.metadata.labels.size())"},
        {"name": "m", "expression": 'variables.n + "!"'},
        {"name": "x", "expression": "object.metadata.labels.x"},
    ]
    document = policy(*mutations, variables=variables, matchConditions=list(conditions))
    verdict = evaluate([document], POD)
    assert verdict.patched["metadata"]["labels"] == {"app": "web", **expected}


def test_policies_see_what_those_before_them_made(evaluate):
    second = policy('Object{metadata: Object.metadata{labels: {"b": object.metadata.labels.team}}}')
    second["metadata"] = {"name": "second"}
    labels = evaluate([policy(LABEL), second], POD).patched["metadata"]["labels"]
    assert labels == {"app": "web", "team": "red", "b": "red"}


def test_nothing_is_changed_in_what_is_deleted(evaluate):
    rule = {**PODS, "operations": ["DELETE"]}
    assert (
        evaluate([policy(LABEL, rules=[rule])], Request.of(POD, operation="DELETE")).results == ()
    )


def test_a_scan_tells_what_was_not_changed(evaluate):
    request = replace(Request.of(POD), background=True)
    (result,) = evaluate([policy(LABEL)], request).results
    assert (str(result.status), result.message) == ("fail", "mutation is not applied")
    labelled = {**POD, "metadata": {**POD["metadata"], "labels": {"team": "red"}}}
    (result,) = evaluate([policy(LABEL)], replace(Request.of(labelled), background=True)).results
    assert str(result.status) == "pass"


def test_a_namespaced_policy_ends_at_its_namespace(evaluate):
    document = policy(LABEL, kind="NamespacedMutatingPolicy")
    assert evaluate([document], POD).results[0].policy.namespace == "shop"
    elsewhere = {**POD, "metadata": {"name": "web", "namespace": "other"}}
    assert evaluate([document], elsewhere).results == ()


# --- controllers of Pods


@pytest.mark.parametrize(
    "expression",
    [
        'Object{metadata: Object.metadata{labels: {"team": "red"}},'
        ' spec: Object.spec{hostname: "h"}}',
        'has(object.spec.containers) ? Object{metadata: Object.metadata{labels: {"team": "red"}},'
        ' spec: Object.spec{hostname: "h"}} : Object{}',
        "Object{spec: Object.spec{hostname: variables.name},"
        ' metadata: Object.metadata{labels: {"team": "red"}}}',
    ],
)
@pytest.mark.parametrize("resource", [DEPLOYMENT, CRON_JOB], ids=["Deployment", "CronJob"])
def test_controllers_have_their_template_changed(evaluate, expression, resource):
    variables = [
        {"name": "name", "expression": 'object.spec.containers[0].image == "app:1" ? "h" : ""'}
    ]
    after = evaluate([policy(expression, variables=variables)], resource).patched
    spec = (
        after["spec"].get("jobTemplate", after)["spec"] if resource is CRON_JOB else after["spec"]
    )
    assert spec["template"]["metadata"]["labels"]["team"] == "red"
    assert spec["template"]["spec"]["hostname"] == "h"
    assert "labels" not in after["metadata"]


def test_conditions_look_into_the_template(evaluate):
    document = policy(LABEL, matchConditions=condition("object.spec.containers.size() == 2"))
    assert [str(r.status) for r in evaluate([document], DEPLOYMENT).results] == ["skip"]


def test_json_patches_stay_as_they_are(evaluate):
    made = patch('[JSONPatch{op: "add", path: "/metadata/labels", value: {"team": "red"}}]')
    after = evaluate([policy(made)], DEPLOYMENT).patched
    assert after["metadata"]["labels"] == {"team": "red"}
    assert after["spec"] == DEPLOYMENT["spec"]


@pytest.mark.parametrize(
    ("controllers", "count"), [([], 0), (["deployments"], 1), (["cronjobs"], 0), (None, 1)]
)
def test_the_author_chooses_the_controllers(evaluate, controllers, count):
    autogen = {"podControllers": {} if controllers is None else {"controllers": controllers}}
    assert len(evaluate([policy(LABEL, autogen=autogen)], DEPLOYMENT).results) == count


# --- exceptions


def exception(**spec):
    return {
        "apiVersion": "policies.kyverno.io/v1",
        "kind": "PolicyException",
        "metadata": {"name": "e", "namespace": "shop"},
        "spec": {"policyRefs": [{"name": "p", "kind": "MutatingPolicy"}], **spec},
    }


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ({}, ("exception", "skip", "rule is skipped due to policy exception: shop/e")),
        ({"reportResult": "pass"},
         ("exception", "pass", "rule is passed due to policy exception: shop/e")),
        ({"matchConditions": condition('object.metadata.name == "other"')},
         ("", "pass", "success")),
        ({"allowedValues": ["x"]}, ("", "pass", "success")),
    ],
)  # fmt: skip
def test_exceptions(evaluate, spec, expected):
    (result,) = evaluate([policy(LABEL), exception(**spec)], POD).results
    assert (result.rule, str(result.status), result.message) == expected


def test_an_exception_hands_over_values(evaluate):
    text = (
        'Object{metadata: Object.metadata{labels: {"n": string(exceptions.allowedValues.size())}}}'
    )
    verdict = evaluate([policy(text), exception(allowedValues=["x", "y"])], POD)
    assert verdict.patched["metadata"]["labels"]["n"] == "2"


# --- objects that are there already

CONFIG = {"apiVersion": "v1", "kind": "ConfigMap"}
RED = {**CONFIG, "metadata": {"name": "red", "namespace": "shop", "labels": {"app": "web"}}}
BLUE = {**CONFIG, "metadata": {"name": "blue", "namespace": "other"}}
NAMESPACES = [
    {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": {"n": name}}}
    for name in ("shop", "other")
]


def existing(mutation, *, kind="MutatingPolicy", **targets):
    return policy(
        mutation,
        kind=kind,
        evaluation={"mutateExisting": {"enabled": True}},
        targetMatchConstraints=targets,
    )


@pytest.mark.parametrize(
    ("targets", "names"),
    [
        ({"resourceRules": [CONFIG_MAPS]}, ["red", "blue"]),
        ({"resourceRules": [{**CONFIG_MAPS, "operations": []}]}, ["red", "blue"]),
        ({"resourceRules": [{**CONFIG_MAPS, "resourceNames": ["blue"]}]}, ["blue"]),
        ({"resourceRules": [CONFIG_MAPS], "objectSelector": {"matchLabels": {"app": "web"}}},
         ["red"]),
        ({"resourceRules": [CONFIG_MAPS], "namespaceSelector": {"matchLabels": {"n": "other"}}},
         ["blue"]),
        ({"expression": 'resource.List("v1", "configmaps", "shop")'}, ["red"]),
        ({"expression": 'resource.Get("v1", "configmaps", "other", "blue")'}, ["blue"]),
        ({"resourceRules": [{**CONFIG_MAPS, "resources": ["secrets"]}]}, []),
    ],
)  # fmt: skip
def test_targets(evaluate, cluster, targets, names):
    verdict = evaluate([existing(LABEL, **targets)], POD, lookups=cluster(RED, BLUE, *NAMESPACES))
    assert [r.target["metadata"]["name"] for r in verdict.results] == names
    assert [r.part for r in verdict.results] == [None] * len(names)


BLUE_ONE = {"expression": 'resource.Get("v1", "configmaps", "other", "blue")'}
STATUS = {**CONFIG_MAPS, "resources": ["config*/status"]}


@pytest.mark.parametrize(
    ("targets", "part"),
    [
        ({"resourceRules": [{**CONFIG_MAPS, "resources": ["configmaps/status"]}]}, "status"),
        ({**BLUE_ONE, "resourceRules": [STATUS]}, "status"),
        # The first rule that fits decides.
        ({**BLUE_ONE, "resourceRules": [CONFIG_MAPS, STATUS]}, ""),
        ({**BLUE_ONE, "resourceRules": [{**STATUS, "apiGroups": ["apps"]}]}, ""),
    ],
)
def test_targets_that_are_updated_by_a_subresource(evaluate, cluster, targets, part):
    verdict = evaluate([existing(LABEL, **targets)], POD, lookups=cluster(BLUE, *NAMESPACES))
    (result,) = verdict.results
    assert result.target["metadata"]["name"] == "blue"
    assert (result.part.subresource if result.part is not None else "") == part
    assert all(r.target["metadata"]["labels"]["team"] == "red" for r in verdict.results)
    assert all(r.patched is None for r in verdict.results)
    assert verdict.patched is POD


def test_a_target_is_the_object_and_the_request_is_the_trigger(evaluate, cluster):
    text = (
        'Object{metadata: Object.metadata{labels: {"own": object.metadata.name,'
        ' "trigger": request.object.metadata.name}}}'
    )
    document = existing(text, resourceRules=[CONFIG_MAPS])
    (result,) = evaluate([document], POD, lookups=cluster(BLUE)).results
    assert result.target["metadata"]["labels"] == {"own": "blue", "trigger": "web"}


def test_conditions_hold_for_the_trigger_alone(evaluate, cluster):
    document = existing(LABEL, resourceRules=[CONFIG_MAPS])
    document["spec"]["matchConditions"] = condition('object.metadata.name == "web"')
    results = evaluate([document], POD, lookups=cluster(RED, BLUE)).results
    assert [str(r.status) for r in results] == ["pass", "pass"]
    other = {**POD, "metadata": {"name": "other"}}
    assert evaluate([document], other, lookups=cluster(RED, BLUE)).results == ()


def test_targets_that_cannot_be_found_are_an_error(evaluate):
    (result,) = evaluate([existing(LABEL, resourceRules=[CONFIG_MAPS])], POD).results
    assert str(result.status) == "error"
    assert result.message.startswith("failed to find targets: no cluster available")


def test_targets_count_only_where_existing_objects_are_to_be_changed(evaluate):
    document = policy(LABEL, targetMatchConstraints={"resourceRules": [CONFIG_MAPS]})
    assert evaluate([document], POD).results == ()


def test_an_update_is_changed_too(evaluate):
    request = Request.of(POD, operation=Operation.UPDATE, old=POD)
    assert evaluate([policy(LABEL)], request).patched["metadata"]["labels"]["team"] == "red"
