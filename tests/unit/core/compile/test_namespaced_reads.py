"""What policies of a namespace read, in all forms in which others let them read elsewhere.

Each form is tried with a name that is written out and one that a variable makes; what counts is that
nobody was asked for anything outside.
"""

import orjson
import pytest

from lictor.core.assembly import compile_cleanups, compile_documents
from lictor.core.engine import Engine
from lictor.core.errors import EvaluationError, LookupFailedError
from lictor.core.load.policies import load_documents
from lictor.core.model.request import Request
from lictor.core.model.result import Status
from lictor.core.ports import NoLookups

GO = {
    "apiVersion": "v1",
    "kind": "ConfigMap",
    "metadata": {"name": "go", "namespace": "red"},
    "data": {"where": "blue", "up": "../blue/configmaps", "word": "secret"},
}
WHERE = "{{ request.object.data.where }}"


class Everything(NoLookups):
    """Answers whatever is asked, and remembers which namespace it was asked about."""

    def __init__(self):
        self.asked = []

    def config_map(self, namespace, name):
        self.asked.append(namespace)
        return {"data": {"word": f"of {namespace}"}, "metadata": {"name": name}}

    def call_api(self, call):
        self.asked.append(call.url_path or call.service_url)
        return {"data": {"word": "told"}}

    def resource(self, api_version, kind, namespace, name):
        if kind == "Namespace":
            return None
        self.asked.append(namespace)
        return {"kind": kind, "metadata": {"name": name}, "data": {"word": f"of {namespace}"}}

    def resources(self, api_version, kind, namespace):
        self.asked.append(namespace)
        return []

    def global_reference(self, name):
        self.asked.append(name)
        return {"data": {"word": "of all"}}


def judge(document, lookups):
    loaded = load_documents(orjson.dumps(document), "test")
    programs = compile_documents(
        loaded.records,
        lookups=lookups,
    )
    return Engine(programs).evaluate(Request.of(GO)).results


def classic(context, kind="Policy", **validate):
    rule = {
        "name": "r",
        "match": {"any": [{"resources": {"kinds": ["ConfigMap"]}}]},
        "context": [{"name": "found", **context}] if context else [],
        "validate": validate
        or {
            "message": "{{ found.data.word }}",
            "deny": {"conditions": {"any": [{"key": "{{ found.data.word }}", "operator": "NotEquals", "value": ""}]}},
        },
    }  # fmt: skip
    where = {"namespace": "red"} if kind == "Policy" else {}
    return {
        "apiVersion": "kyverno.io/v1",
        "kind": kind,
        "metadata": {"name": "p", **where},
        "spec": {"rules": [rule]},
    }


def call(path, **more):
    return {"apiCall": {"urlPath": path, **more}}


FORMS = [
    pytest.param(call("/api/v1/namespaces/blue/secrets/s"), id="CVE-2026-22039"),
    pytest.param(call(f"/api/v1/namespaces/{WHERE}/secrets"), id="CVE-2026-22039-variable"),
    pytest.param(call("/api/v1/nodes"), id="CVE-2026-22039-cluster"),
    pytest.param(
        call("/apis/kyverno.io/v1/clusterpolicies", method="POST"), id="CVE-2026-22039-post"
    ),
    pytest.param(
        call("/api/v1/namespaces/red/../../../api/v1/secrets#/api/v1/namespaces/red/x"),
        id="CVE-2026-122310-fragment",
    ),
    pytest.param(
        call("/api/v1/secrets?/../../../api/v1/namespaces/red/x"), id="CVE-2026-122310-query"
    ),
    pytest.param(
        call("/api/v1/namespaces/red/{{ request.object.data.up }}/s"), id="CVE-2026-122310-dots"
    ),
    pytest.param({"configMap": {"name": "c", "namespace": "blue"}}, id="CVE-2026-41068"),
    pytest.param({"configMap": {"name": "c", "namespace": WHERE}}, id="CVE-2026-41068-variable"),
    pytest.param(
        {"apiCall": {"method": "GET", "service": {"url": "http://blue.blue.svc/"}}},
        id="CVE-2026-4789-service",
    ),
    pytest.param({"globalReference": {"name": "everything"}}, id="CVE-2026-122304-global"),
]


@pytest.mark.parametrize("context", FORMS)
def test_a_policy_reads_nothing_outside(context):
    lookups = Everything()
    (result,) = judge(classic(context), lookups)
    assert (result.status, lookups.asked) == (Status.ERROR, [])


@pytest.mark.parametrize("context", FORMS)
def test_a_cleanup_policy_reads_nothing_outside(context):
    """CVE-2026-122304: its context was loaded as if it belonged to nobody."""
    spec = {
        "schedule": "* * * * *",
        "match": {"any": [{"resources": {"kinds": ["ConfigMap"]}}]},
        "context": [{"name": "found", **context}],
        "conditions": {"any": [{"key": "{{ found.data.word }}", "operator": "NotEquals", "value": ""}]},
    }  # fmt: skip
    metadata = {"name": "p", "namespace": "red"}
    document = {"apiVersion": "kyverno.io/v2", "kind": "CleanupPolicy", "metadata": metadata}
    text = orjson.dumps({**document, "spec": spec}).replace(b"request.object", b"target")
    loaded = load_documents(text, "test")
    lookups = Everything()
    records = loaded.records
    (program,) = compile_cleanups(records, lookups=lookups)
    with pytest.raises((EvaluationError, LookupFailedError)):
        program.concerns(Request.of(GO))
    assert lookups.asked == []


@pytest.mark.parametrize(
    ("kind", "namespace", "asked"),
    [
        ("ConfigMap", "blue", []),
        ("ConfigMap", "red", ["red"]),
        ("Node", "", []),
    ],
)
def test_parameters_of_a_rule_in_cel_are_in_its_namespace(kind, namespace, asked):
    where = {"namespace": namespace} if namespace else {}
    cel = {
        "paramKind": {"apiVersion": "v1", "kind": kind},
        "paramRef": {"name": "vault", "parameterNotFoundAction": "Deny", **where},
        "expressions": [{"expression": "params.data.word == 'of red'"}],
    }
    lookups = Everything()
    (result,) = judge(classic(None, cel=cel), lookups)
    assert lookups.asked == asked
    assert (result.status is Status.PASS) is bool(asked)


def cel(expression, kind="NamespacedValidatingPolicy", **spec):
    rule = {
        "apiGroups": [""], "apiVersions": ["v1"],
        "operations": ["CREATE"], "resources": ["configmaps"],
    }  # fmt: skip
    where = {"namespace": "red"} if kind.startswith("Namespaced") else {}
    return {
        "apiVersion": "policies.kyverno.io/v1",
        "kind": kind,
        "metadata": {"name": "p", **where},
        "spec": {
            "matchConstraints": {"resourceRules": [rule]},
            "validations": [{"expression": expression, "message": "no"}],
            **spec,
        },
    }


@pytest.mark.parametrize(
    "expression",
    [
        'resource.Get("v1", "configmaps", "blue", "c") != null',
        'resource.List("v1", "configmaps", "blue") != null',
        'resource.Post("v1", "configmaps", "blue", {}) != null',
        'resource.Get("v1", "nodes", "n") != null',
        'resource.Get("v1", "secrets/../../blue/secrets", "s") != null',
        'resource.Get("v1", "widgets/../../../blue/secrets", "s") != null',
        'resource.Get("v1/namespaces/blue", "secrets", "s") != null',
        'resource.Post("v1", "configmaps/../../../../x", {}) != null',
        'resource.List("ex.io/v1", "../../blue/widgets") != null',
        'globalContext.Get("everything", "") != null',
        'http.Get("http://169.254.169.254/latest/meta-data").metadata != null',
    ],
)
def test_a_policy_in_cel_reads_nothing_outside(expression):
    """CVE-2026-122311 (`..` in the resource), CVE-2026-4789 (http), and the plain forms."""
    lookups = Everything()
    results = judge(cel(expression), lookups)
    assert lookups.asked == []
    assert {result.status for result in results} <= {Status.ERROR, Status.FAIL}
    assert results


@pytest.mark.parametrize(("mode", "unit"), [("HTTP", "http"), ("Envoy", "envoy")])
def test_a_policy_on_web_requests_reads_nothing_outside(mode, unit):
    expression = 'resource.Get("v1", "configmaps", "blue", "c") != null ? null : null'
    document = cel(expression, evaluation={"mode": mode})
    del document["spec"]["matchConstraints"]
    loaded = load_documents(orjson.dumps(document), "test")
    lookups = Everything()
    records = loaded.records
    engine = Engine(compile_documents(records, lookups=lookups))
    group = "http" if unit == "http" else "envoy.service.auth.v3"
    engine.evaluate(Request.of({"apiVersion": f"{group}/", "kind": "CheckRequest"}))
    assert lookups.asked == []
