"""ValidatingPolicy: what it answers, in which words, and what follows."""

import pytest

from lictor.core.model.request import Caller, Operation, Request
from lictor.core.model.result import Action

POD = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "web", "namespace": "shop", "labels": {"app": "web"}},
    "spec": {"containers": [{"name": "c", "image": "nginx:1"}]},
}
DEPLOYMENT = {
    "apiVersion": "apps/v1",
    "kind": "Deployment",
    "metadata": {"name": "web", "namespace": "shop"},
    "spec": {"template": {"metadata": {"labels": {"a": "b"}}, "spec": {"hostPID": True}}},
}
CRON_JOB = {
    "apiVersion": "batch/v1",
    "kind": "CronJob",
    "metadata": {"name": "web", "namespace": "shop"},
    "spec": {"jobTemplate": {"spec": {"template": {"spec": {"hostPID": True}}}}},
}
PODS = {
    "apiGroups": [""],
    "apiVersions": ["v1"],
    "operations": ["CREATE", "UPDATE"],
    "resources": ["pods"],
}


def policy(*validations, kind="ValidatingPolicy", rules=(PODS,), **spec):
    checks = [v if isinstance(v, dict) else {"expression": v} for v in validations]
    body = {"matchConstraints": {"resourceRules": list(rules)}, "validations": checks, **spec}
    metadata = {"name": "p", **({"namespace": "shop"} if kind.startswith("Name") else {})}
    version = "policies.kyverno.io/v1"
    return {"apiVersion": version, "kind": kind, "metadata": metadata, "spec": body}


def conditions(*expressions):
    return [{"name": f"c{i}", "expression": text} for i, text in enumerate(expressions)]


def variables(**expressions):
    return [{"name": name, "expression": text} for name, text in expressions.items()]


def message(expression, **fields):
    return {"expression": expression, **fields}


NO_KEY = ("", "error", "error: no such key: nope")
UNMATCHED = ("evaluation", "error", "failed to load context: no such key: nope")
PASSED = ("", "pass", "success")
SKIPPED = ("", "skip", "skip")


@pytest.mark.parametrize(
    ("document", "expected"),
    [
        (policy("object.metadata.name == 'web'"), PASSED),
        (policy(message("false", message="never")), ("", "fail", "never")),
        (policy("true", "false"), ("", "fail", "CEL expression validation failed at index 1")),
        (policy(message("false", messageExpression="'no ' + object.kind")), ("", "fail", "no Pod")),
        (
            policy(message("false", message="m", messageExpression="string(object.nope)")),
            ("", "fail", "failed to evaluate message expression: no such key: nope"),
        ),
        (policy("object.nope == 1"), NO_KEY),
        (policy("false", "object.nope == 1"), ("", "fail", "CEL expression validation failed at index 0")),
        (policy("false", matchConditions=conditions("false")), SKIPPED),
        (policy("true", matchConditions=conditions("object.nope == 1")), UNMATCHED),
        (policy("true", matchConditions=conditions("object.nope == 1", "false")), SKIPPED),
        (
            policy("true", matchConditions=conditions("object.nope == 1"), failurePolicy="Ignore"),
            SKIPPED,
        ),
        (
            policy(
                "variables.m == 'web!'",
                variables=variables(n="object.metadata.name", m="variables.n + '!'"),
            ),
            PASSED,
        ),
        (policy("true", variables=variables(n="object.nope")), PASSED),
        (policy(), ("", "error", "validations: expected at least one expression, found none")),
        (policy("request.kind.kind + request.resource.resource == 'Podpods'"), PASSED),
        (policy("request.object == object && oldObject == null && !request.dryRun"), PASSED),
        (policy("exceptions.allowedImages.size() == 0"), PASSED),
        (policy("request.name + '/' + request.namespace == 'web/shop'"), PASSED),
    ],
)  # fmt: skip
def test_answers(summarize, document, expected):
    assert summarize([document], POD) == [expected]


@pytest.mark.parametrize(
    ("document", "reason"),
    [
        (policy("object.metadata.name"), "validations[0].expression: must evaluate to bool"),
        (policy("1 +"), "validations[0].expression: Syntax error"),
        (policy(message("true", messageExpression="1")), "validations[0].messageExpression: must"),
        (
            policy("true", variables=variables(a="nope")),
            "variables[0].expression: undeclared reference to 'nope'",
        ),
        (
            policy("true", matchConditions=conditions("variables.x")),
            "matchConditions[0].expression: undefined field 'x'",
        ),
        (
            policy("true", auditAnnotations=[{"key": "k", "valueExpression": "1"}]),
            "auditAnnotations[0].valueExpression: must evaluate to string or null_type",
        ),
    ],
)
def test_a_policy_that_does_not_compile_answers_with_the_reason(judge, document, reason):
    (result,) = judge([document], POD)
    assert str(result.status) == "error"
    assert result.action is Action.ENFORCE
    assert result.message.startswith(reason)


@pytest.mark.parametrize(
    ("actions", "action"),
    [
        ([], Action.ENFORCE),
        (["Deny"], Action.ENFORCE),
        (["Warn", "Deny"], Action.ENFORCE),
        (["Audit"], Action.AUDIT),
        (["Warn"], Action.AUDIT),
    ],
)
def test_what_follows_from_a_failure(judge, actions, action):
    (result,) = judge([policy("false", validationActions=actions)], POD)
    assert result.action is action
    assert result.policy.source == "KyvernoValidatingPolicy"


@pytest.mark.parametrize("failure_policy", ["Fail", "Ignore"])
def test_what_follows_from_an_error(judge, failure_policy):
    (result,) = judge([policy("object.nope == 1", failurePolicy=failure_policy)], POD)
    assert (str(result.status), result.action) == ("error", Action.ENFORCE)


@pytest.mark.parametrize(
    ("expression", "properties"),
    [("object.metadata.name + '!'", {"who": "web!"}), ("''", {}), ("null", {})],
)
@pytest.mark.parametrize("verdict", ["true", "false"])
def test_audit_annotations_are_properties(judge, expression, properties, verdict):
    annotations = [{"key": "who", "valueExpression": expression}]
    (result,) = judge([policy(verdict, auditAnnotations=annotations)], POD)
    index = {} if verdict == "true" else {"cel.validationIndex": "0"}
    assert result.properties == {**index, **properties}


def test_an_audit_annotation_that_cannot_be_made_is_an_error(summarize):
    annotations = [{"key": "k", "valueExpression": "string(object.nope)"}]
    reason = "failed to evaluate auditAnnotation 'k': no such key: nope"
    expected = ("evaluation", "error", f"failed to load context: {reason}")
    assert summarize([policy("true", auditAnnotations=annotations)], POD) == [expected]


NO_HOST_PID = "!object.spec.?hostPID.orValue(false)"
FAILED = ("", "fail", "CEL expression validation failed at index 0")


@pytest.mark.parametrize(
    ("document", "resource", "expected"),
    [
        (policy(NO_HOST_PID), POD, [PASSED]),
        (policy(NO_HOST_PID), DEPLOYMENT, [FAILED]),
        (policy(NO_HOST_PID), CRON_JOB, [FAILED]),
        (policy(NO_HOST_PID), {**CRON_JOB, "apiVersion": "batch/v1beta1"}, []),
        (policy("object.metadata.labels.a == 'b'"), DEPLOYMENT, [PASSED]),
        (
            policy(NO_HOST_PID, autogen={"podControllers": {"controllers": []}}),
            DEPLOYMENT,
            [],
        ),
        (
            policy(NO_HOST_PID, autogen={"podControllers": {"controllers": ["cronjobs"]}}),
            DEPLOYMENT,
            [],
        ),
        (
            policy(NO_HOST_PID, autogen={"podControllers": {"controllers": ["cronjobs"]}}),
            CRON_JOB,
            [FAILED],
        ),
        (policy(NO_HOST_PID, rules=[{**PODS, "resources": ["pods", "nodes"]}]), DEPLOYMENT, []),
        (policy(NO_HOST_PID, rules=[PODS, PODS]), DEPLOYMENT, []),
    ],
)
def test_policies_about_pods_cover_their_controllers(summarize, document, resource, expected):
    assert summarize([document], resource) == expected


@pytest.mark.parametrize(
    ("document", "request_", "expected"),
    [
        (policy("true"), Request.of(DEPLOYMENT, operation="DELETE"), []),
        (policy("true"), Request.of(POD, operation="DELETE"), []),
        (
            policy("oldObject.metadata.name == 'web' && object == null", rules=[{**PODS, "operations": ["*"]}]),
            Request.of(POD, operation="DELETE"),
            [PASSED],
        ),
        (
            policy("oldObject.metadata.name == object.metadata.name && request.operation == 'UPDATE'"),
            Request.of(POD, operation=Operation.UPDATE, old=POD),
            [PASSED],
        ),
        (
            policy("request.userInfo.username == 'ann' && 'devs' in request.userInfo.groups"),
            Request.of(POD, caller=Caller("ann", groups=("devs",))),
            [PASSED],
        ),
        (policy("!has(request.userInfo.username)"), Request.of(POD), [PASSED]),
        (
            policy("namespaceObject.metadata.labels.tier == 'gold'"),
            Request.of(POD, namespace_labels={"tier": "gold"}),
            [PASSED],
        ),
        (policy("namespaceObject == null"), Request.of(POD), [PASSED]),
    ],
)  # fmt: skip
def test_requests(summarize, document, request_, expected):
    assert summarize([document], request_) == expected


def test_an_admission_request_is_shown_as_it_came(summarize):
    admission = {
        "uid": "17",
        "resource": {"group": "", "version": "v1", "resource": "pods"},
        "name": "given",
        "namespace": "here",
        "dryRun": True,
    }
    request = Request(Request.of(POD).kind, POD, admission=admission)
    text = "request.uid == '17' && request.dryRun && request.object.metadata.name == 'web'"
    assert summarize([policy(text)], request) == [PASSED]


@pytest.mark.parametrize(("namespace", "expected"), [("shop", [PASSED]), ("other", [])])
def test_a_namespaced_policy_stays_at_home(judge, namespace, expected):
    resource = {**POD, "metadata": {**POD["metadata"], "namespace": namespace}}
    results = judge([policy("true", kind="NamespacedValidatingPolicy")], resource)
    assert [(r.rule, str(r.status), r.message) for r in results] == expected
    assert all(r.policy.key == "shop/p" for r in results)


@pytest.mark.parametrize(
    ("mode", "expected"),
    [("JSON", [PASSED]), ("Envoy", []), ("HTTP", []), ("Kubernetes", [])],
)
def test_modes(summarize, mode, expected):
    document = policy("object.anything == 1 && request == null", evaluation={"mode": mode})
    assert summarize([document], {"anything": 1}) == expected


def test_a_policy_without_constraints_concerns_nothing(summarize):
    document = policy("false")
    del document["spec"]["matchConstraints"]
    assert summarize([document], POD) == []


def test_a_selector_that_makes_no_sense_is_told(summarize):
    document = policy("true")
    document["spec"]["matchConstraints"]["objectSelector"] = {"matchLabels": {"a": "*"}}
    ((_, status, _),) = summarize([document], POD)
    assert status == "error"


def test_settings_of_the_program(compile_all):
    evaluation = {"admission": {"enabled": False}, "background": {"enabled": False}}
    document = policy("true", evaluation=evaluation, validationActions=["Warn"])
    (program,) = compile_all([document]).programs
    assert (program.admission, program.background, program.emit_warning) == (False, False, True)
