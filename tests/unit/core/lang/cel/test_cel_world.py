"""Functions that ask the world: what they ask for, and what becomes of its refusals."""

from datetime import UTC, datetime

import pytest

from lictor.core.errors import EvaluationError, FunctionError, LookupFailedError, NotProvidedError
from lictor.core.lang.cel.expression import compile_expression
from lictor.core.lang.cel.host import AuthorizerCheck, AuthorizerDecision, HostFunctions, HttpCall
from lictor.core.lang.cel.kubernetes import kubernetes_environment
from lictor.core.lang.cel.kyverno import kyverno_environment
from lictor.core.lang.cel.library.host import make_authorizer, request_resource
from lictor.core.lang.cel.library.resources import check_url
from lictor.core.lang.networks import BLOCKED_HOSTS, BLOCKED_NETWORKS, find_blocked_network

KYVERNO = kyverno_environment("mutating")
BLOCKED = (*BLOCKED_NETWORKS, *BLOCKED_HOSTS)


def evaluate(text, world=None, environment=KYVERNO, **given):
    return compile_expression(text, environment)(given, world or HostFunctions())


@pytest.mark.parametrize(
    ("expression", "told"),
    [
        (
            "resource.get('v1', 'pods', 'ns', 'x')",
            "failed to get resource: no cluster is available",
        ),
        ("resource.List('v1', 'pods', 'ns')", "failed to list resource: no cluster is available"),
        (
            "resource.post('v1', 'pods', 'ns', {})",
            "failed to create resource: no cluster is available",
        ),
        ("resource.toGVR('v1', 'Pod')", "failed to map kind to resource: no cluster is available"),
        (
            "globalContext.get('x')",
            "failed to get global reference: no global context is available",
        ),
        ("image.getMetadata('nginx')", "failed to get image data: no registry is available"),
        ("http.get('https://example.com')", "request failed: no network is available"),
        (
            "generator.apply('ns', [{'a': 'b'}])",
            "failed to generate resources: no cluster is available",
        ),
    ],
)
def test_without_a_world_functions_say_so(expression, told):
    with pytest.raises(NotProvidedError) as caught:
        evaluate(expression)
    assert told in str(caught.value)


def test_an_error_of_the_world_does_not_spoil_what_needs_no_answer():
    assert evaluate("true || has(resource.get('v1', 'pods', 'ns', 'x').spec)") is True


def test_what_does_not_exist_is_null():
    world = HostFunctions(get_resource=lambda *place: None)
    assert evaluate("dyn(resource.get('v1', 'pods', 'ns', 'x')) == null", world) is True


def test_other_failures_keep_their_kind():
    def refuse(*place):
        raise LookupFailedError("permission denied")

    with pytest.raises(LookupFailedError, match="failed to list resource: permission denied"):
        evaluate(
            "resource.list('v1', 'pods', '').items.size()", HostFunctions(list_resources=refuse)
        )


def test_labels_are_handed_on():
    seen = []
    world = HostFunctions(list_resources=lambda *place: seen.append(place) or {"items": []})
    evaluate(
        "resource.list('apps/v1', 'deployments', '', {'app': object.name}).items.size()",
        world,
        object={"name": "web"},
    )
    assert seen == [("apps/v1", "deployments", "", {"app": "web"})]


def test_what_is_generated_is_handed_on():
    made = []
    world = HostFunctions(generate=lambda namespace, objects: made.append((namespace, objects)))
    assert evaluate(
        "generator.apply('team', [dyn({'kind': dyn('A'), 'n': dyn(1)}), object])",
        world,
        object={"kind": "B"},
    )
    assert made == [("team", [{"kind": "A", "n": 1}, {"kind": "B"}])]


def test_the_clock_is_the_worlds():
    world = HostFunctions(now=lambda: datetime(2024, 2, 29, 15, 4, 5, 250000, tzinfo=UTC))
    assert evaluate("time.now()", world) == "2024-02-29T15:04:05.25Z"
    assert evaluate("string(time.now() - duration('1h'))", world) == "2024-02-29T14:04:05.25Z"
    assert evaluate("time.toCron(time.now())", world) == "4 15 29 2 4"


def test_chance_is_the_worlds():
    assert evaluate("random('[a-c]{3}')", HostFunctions(choose=lambda n: n - 1)) == "ccc"


def answer_http(calls, status=200, body=None):
    return HostFunctions(http=lambda call: calls.append(call) or (status, body))


@pytest.mark.parametrize("get", ["get", "Get"])
def test_http_answers_body_and_status(get):
    calls = []
    world = answer_http(calls, 201, {"ok": True})
    assert evaluate(f"http.{get}('https://example.com/x')", world) == {
        "ok": True,
        "statusCode": 201,
    }
    assert calls == [HttpCall("GET", "https://example.com/x", {})]


def test_http_wraps_what_is_no_object():
    assert evaluate("http.get('https://example.com')", answer_http([], 404, [1])) == {
        "body": [1],
        "statusCode": 404,
    }


def test_http_posts_json_with_headers_and_certificates():
    calls = []
    bundle = "-----BEGIN CERTIFICATE-----\nx\n-----END CERTIFICATE-----"
    evaluate(
        "http.Client(object).Post('https://example.com', {'a': 1}, {'X-A': 'b'}).statusCode",
        answer_http(calls),
        object=bundle,
    )
    assert calls == [HttpCall("POST", "https://example.com", {"X-A": "b"}, {"a": 1}, bundle)]


@pytest.mark.parametrize(
    ("url", "told"),
    [
        ("http://127.0.0.1/x", "blocked range 127.0.0.0/8"),
        ("http://[::1]:8080/", "blocked range ::1/128"),
        ("http://169.254.169.254/latest/meta-data", "blocked range 169.254.0.0/16"),
        ("http://10.1.2.3", "blocked range 10.0.0.0/8"),
        ("http://172.20.0.1", "blocked range 172.16.0.0/12"),
        ("http://192.168.1.1", "blocked range 192.168.0.0/16"),
        ("http://[fd00::1]/", "blocked range fc00::/7"),
        ("http://[fe80::1]/", "blocked range fe80::/10"),
        ("http://100.64.0.9", "blocked range 100.64.0.0/10"),
        ("http://[::ffff:127.0.0.1]/", "blocked range 127.0.0.0/8"),
        (
            "http://metadata.google.internal/",
            'hostname "metadata.google.internal" is on the blocklist',
        ),
        ("http://METADATA.google.INTERNAL./", "is on the blocklist"),
        ("http://metadata.internal", "is on the blocklist"),
        ("not a url", "invalid URL"),
    ],
)
def test_some_addresses_are_never_called(url, told):
    calls = []
    with pytest.raises(FunctionError) as caught:
        evaluate("http.get(object)", answer_http(calls), object=url)
    assert told in str(caught.value)
    assert calls == []


@pytest.mark.parametrize(
    ("url", "allowed", "may"),
    [
        ("https://api.example.com/v1/x", ("https://api.example.com",), True),
        ("https://api.example.com:443/v1", ("https://api.example.com",), True),
        ("https://API.example.com./v1", ("https://api.example.com",), True),
        ("http://api.example.com/v1", ("https://api.example.com",), False),
        ("https://other.example.com", ("https://api.example.com",), False),
        ("https://api.example.com/v1/x", ("https://api.example.com/v1",), True),
        ("https://api.example.com/v10", ("https://api.example.com/v1",), False),
        ("https://api.example.com/v1", ("https://api.example.com/v1",), True),
        ("https://10.0.0.1/", ("https://10.0.0.1",), False),
    ],
)
def test_an_allowlist_narrows_further(url, allowed, may):
    if may:
        check_url(url, BLOCKED, allowed)
    else:
        with pytest.raises(FunctionError):
            check_url(url, BLOCKED, allowed)


@pytest.mark.parametrize(
    ("address", "network"),
    [("10.0.0.1", "10.0.0.0/8"), ("93.184.216.34", ""), ("::ffff:10.0.0.1", "10.0.0.0/8"), ("example.com", "")],
)  # fmt: skip
def test_resolved_addresses_can_be_checked_too(address, network):
    assert find_blocked_network(address, BLOCKED) == network


def test_policies_of_a_namespace_may_be_kept_from_the_network():
    environment = kyverno_environment("validating", is_namespaced=True)
    world = HostFunctions(http=lambda call: (200, None), namespace="team", allows_http=False)
    with pytest.raises(EvaluationError, match="http calls are not allowed in namespaced policies"):
        evaluate("http.get('https://example.com')", world, environment)


def test_the_authorizer_is_asked_what_the_expression_says():
    asked = []
    world = HostFunctions(
        authorize=lambda question: (
            asked.append(question) or AuthorizerDecision(allowed=True, reason="ok")
        )
    )
    environment = kubernetes_environment()
    given = {
        "authorizer": make_authorizer(),
        "authorizer.requestResource": request_resource(
            make_authorizer(),
            group="apps",
            resource="deployments",
            subresource="scale",
            namespace="team",
            name="web",
        ),
    }
    texts = [
        "authorizer.group('').resource('pods').namespace('ns').name('x').check('get').allowed()",
        "authorizer.group('apps').resource('deployments').subresource('status').check('patch').reason() == 'ok'",
        "authorizer.path('/healthz').check('get').allowed()",
        "authorizer.serviceAccount('ns', 'sa').group('').resource('pods').check('list').allowed()",
        "authorizer.requestResource.check('delete').allowed()",
        "authorizer.group('').resource('pods').fieldSelector('spec.nodeName=n').labelSelector('a=b').check('list').errored() == false",
    ]  # fmt: skip
    assert all(compile_expression(text, environment)(given, world) for text in texts)
    assert asked == [
        AuthorizerCheck("get", resource="pods", namespace="ns", name="x"),
        AuthorizerCheck("patch", group="apps", resource="deployments", subresource="status"),
        AuthorizerCheck("get", path="/healthz"),
        AuthorizerCheck("list", resource="pods", service_account=("ns", "sa")),
        AuthorizerCheck("delete", group="apps", resource="deployments", subresource="scale", namespace="team", name="web"),
        AuthorizerCheck("list", resource="pods", field_selector="spec.nodeName=n", label_selector="a=b"),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("expression", "told"),
    [
        ("authorizer.path(' ').check('get').allowed()", "path must not be empty"),
        ("authorizer.group('').resource('').check('get').allowed()", "resource must not be empty"),
        ("authorizer.serviceAccount('ns', 'Not Valid').path('/x').check('get').allowed()", "Invalid service account name"),
        ("authorizer.serviceAccount('N S', 'sa').path('/x').check('get').allowed()", "Invalid service account namespace"),
        ("authorizer.path('/x').check('get').allowed()", "no authorizer is available"),
    ],
)  # fmt: skip
def test_checks_that_make_no_sense(expression, told):
    with pytest.raises((EvaluationError, NotProvidedError), match=told):
        evaluate(expression, environment=kubernetes_environment(), authorizer=make_authorizer())


def test_signatures_are_the_worlds_business():
    environment = kyverno_environment("image")
    world = HostFunctions(
        verify_signatures=lambda image, attestors: len(attestors),
        verify_attestations=lambda image, attestation, attestors: 1,
        attestation_payload=lambda image, attestation: {"of": attestation},
        image_data=lambda image: {"image": image},
    )
    given = {
        "images": {"containers": ["a", "b"]},
        "attestors": {"one": {"name": "one"}},
        "attestations": {"sbom": "sbom"},
    }
    texts = [
        "images.containers.map(i, verifyImageSignatures(i, [attestors.one])).all(n, n > 0)",
        "verifyAttestationSignatures('a', attestations.sbom, [attestors.one]) == 1",
        "extractPayload('a', 'sbom').of == 'sbom'",
        "getImageData('a').image == 'a'",
    ]
    assert all(compile_expression(text, environment)(given, world) for text in texts)
