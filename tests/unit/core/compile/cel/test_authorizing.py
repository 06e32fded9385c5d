"""ValidatingPolicies of the modes HTTP and Envoy."""

import pytest

from lictor.core.assembly import compile_documents
from lictor.core.engine import Engine
from lictor.core.families.kyverno_cel.authorizing import REQUEST_KINDS
from lictor.core.load.policies import load_documents
from lictor.core.model.request import GroupVersionKind, Request

HEAD = """
apiVersion: policies.kyverno.io/v1
kind: ValidatingPolicy
metadata: {name: gate}
spec:
  evaluation: {mode: MODE}
"""


def judge(mode, spec, payload, kind=None):
    loaded = load_documents(HEAD.replace("MODE", mode) + spec, "policy.yaml")
    assert not loaded.problems
    programs = compile_documents(loaded.records)
    results = (
        Engine(programs).evaluate(Request(kind=kind or REQUEST_KINDS[mode], object=payload)).results
    )
    return [(str(result.status), result.rule, result.message) for result in results]


@pytest.mark.parametrize(
    ("mode", "spec", "expected"),
    [
        ("HTTP", "  validations: [{expression: http.Allowed().Response()}]", ("pass", "request allowed")),
        ("HTTP", "  validations: [{expression: http.Denied('no').Response()}]", ("fail", "request denied, reason: no")),
        ("HTTP", "  validations: [{expression: 'null'}]", ("skip", "request does not match")),
        ("HTTP", "  validations: [{expression: 'null'}, {expression: http.Allowed().Response()}]", ("pass", "request allowed")),
        ("HTTP", "  matchConditions: [{name: a, expression: 'false'}]\n  validations: [{expression: http.Allowed().Response()}]", ("skip", "request does not match")),
        ("HTTP", "  validations: [{expression: 'object.nothing.at == 1 ? http.Allowed().Response() : null'}]", ("error", "no such key: nothing")),
        ("HTTP", "  failurePolicy: Ignore\n  validations: [{expression: 'object.nothing.at == 1 ? http.Allowed().Response() : null'}]", ("skip", "request does not match")),
        ("HTTP", "  variables: [{name: m, expression: object.attributes.method}]\n  validations: [{expression: 'variables.m == \"GET\" ? http.Allowed().Response() : null'}]", ("pass", "request allowed")),
        ("Envoy", "  validations: [{expression: envoy.Allowed().Response()}]", ("pass", "request allowed")),
        ("Envoy", "  validations: [{expression: envoy.Denied(403).Response()}]", ("fail", "request denied with status code 403")),
        ("Envoy", "  validations: [{expression: 'object.attributes.request.http.path == \"\" ? envoy.Allowed().Response() : null'}]", ("pass", "request allowed")),
    ],
)  # fmt: skip
def test_answers(mode, spec, expected):
    payload = {"attributes": {"method": "GET"}}
    assert judge(mode, spec, payload) == [(expected[0], "gate", expected[1])]


@pytest.mark.parametrize(
    ("mode", "text"), [("HTTP", "'true'"), ("Envoy", "http.Allowed().Response()")]
)
def test_what_is_no_answer_does_not_compile(mode, text):
    ((status, _, message),) = judge(mode, f"  validations: [{{expression: {text}}}]", {})
    assert status == "error"
    assert message.startswith("validations[0].expression: ")


@pytest.mark.parametrize(
    "kind",
    [GroupVersionKind("", "v1", "Pod"), GroupVersionKind("", "", ""), REQUEST_KINDS["Envoy"]],
)
def test_nothing_else_is_their_business(kind):
    spec = "  validations: [{expression: http.Allowed().Response()}]"
    assert judge("HTTP", spec, {}, kind) == []
