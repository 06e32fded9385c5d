"""Which functions and variables each kind of policy has."""

import pytest

from lictor.core.errors import SyntaxFaultError
from lictor.core.lang.cel.expression import compile_expression
from lictor.core.lang.cel.kubernetes import kubernetes_environment
from lictor.core.lang.cel.kyverno import image_environment, kyverno_environment

CALLS = {
    "resource": "resource.get('v1', 'pods', 'ns', 'x')",
    "globalContext": "globalContext.get('x')",
    "http": "http.get('https://example.com')",
    "image data": "image.getMetadata('x')",
    "image": "parseImageReference('x').tag()",
    "generator": "generator.apply('ns', [{'a': 'b'}])",
    "user": "parseServiceAccount('x')",
    "hash": "sha256('x')",
    "math": "math.round(1.5, 1)",
    "json": "json.marshal(1)",
    "yaml": "yaml.parse('a')",
    "random": "random()",
    "x509": "x509.decode('x')",
    "time": "time.now()",
    "transform": "listObjToMap([], [], 'a', 'b')",
    "gzip": "gzip.compress('x')",
    "imageverify": "verifyImageSignatures('x', [])",
    "jsonpatch": "jsonpatch.escapeKey('x')",
    "object literal": "Object{a: 1}",
    "base64": "base64.encode(b'x')",
    "bind": "cel.bind(x, 1, x)",
    "exceptions": "exceptions.allowedImages",
    "authorizer": "authorizer.path('/x').check('get').allowed()",
    "params": "params.x",
    "quantity": "quantity('1')",
    "format": "format.uri().validate('x')",
}
EVERYWHERE = {"quantity", "format"}
KYVERNO = EVERYWHERE | {
    "resource", "globalContext", "http", "image data", "image", "hash", "math", "json", "yaml",
    "random", "time", "transform", "gzip", "base64", "bind", "exceptions",
}  # fmt: skip
ENVIRONMENTS = {
    "Kubernetes": (kubernetes_environment(), EVERYWHERE | {"authorizer", "params"}),
    "Kubernetes, mutating": (
        kubernetes_environment(has_patches=True, has_params=False, has_authorizer=False),
        EVERYWHERE | {"jsonpatch", "object literal"},
    ),
    "ValidatingPolicy": (kyverno_environment("validating"), KYVERNO | {"user", "x509"}),
    "MutatingPolicy": (
        kyverno_environment("mutating"),
        KYVERNO | {"user", "x509", "generator", "jsonpatch", "object literal"},
    ),
    "GeneratingPolicy": (kyverno_environment("generating"), KYVERNO | {"x509", "generator"}),
    "DeletingPolicy": (kyverno_environment("deleting"), KYVERNO | {"x509"}),
    "ImageValidatingPolicy": (
        kyverno_environment("image"),
        KYVERNO | {"user", "imageverify"},
    ),
}


def can_compile(text, environment):
    try:
        compile_expression(text, environment)
    except SyntaxFaultError:
        return False
    return True


@pytest.mark.parametrize("name", ENVIRONMENTS)
@pytest.mark.parametrize("call", CALLS)
def test_each_kind_has_its_libraries(name, call):
    environment, known = ENVIRONMENTS[name]
    assert can_compile(CALLS[call], environment) == (call in known)


@pytest.mark.parametrize(
    ("camel", "pascal"),
    [
        ("resource.get('v1', 'pods', 'ns', 'x')", "resource.Get('v1', 'pods', 'ns', 'x')"),
        ("resource.list('v1', 'pods', 'ns')", "resource.List('v1', 'pods', 'ns')"),
        ("resource.post('v1', 'pods', 'ns', {})", "resource.Post('v1', 'pods', 'ns', {})"),
        ("resource.toGVR('v1', 'Pod')", "resource.ToGVR('v1', 'Pod')"),
        ("globalContext.get('x', 'y')", "globalContext.Get('x', 'y')"),
        ("http.post('https://x', 1)", "http.Post('https://x', 1)"),
        ("http.client('').get('https://x')", "http.Client('').Get('https://x')"),
        ("image.getMetadata('x')", "image.GetMetadata('x')"),
        ("generator.apply('x', [])", "generator.Apply('x', [])"),
        ("hash.md5('x')", "md5('x')"),
        ("random.random('x')", "random('x')"),
        ("user.parseServiceAccount('x')", "parseServiceAccount('x')"),
        ("transform.listObjToMap([], [], 'a', 'b')", "listObjToMap([], [], 'a', 'b')"),
    ],
)
def test_both_spellings_are_known(camel, pascal):
    environment = kyverno_environment("mutating")
    one, other = (compile_expression(text, environment) for text in (camel, pascal))
    assert one.result_type == other.result_type


def test_image_references_see_nothing_but_the_image():
    environment = image_environment()
    assert compile_expression("ref.startsWith('ghcr.io/')", environment)({"ref": "ghcr.io/app"})
    assert compile_expression("image(ref).registry() == 'ghcr.io'", environment)(
        {"ref": "ghcr.io/app"}
    )
    assert not can_compile("object.x", environment)
    assert not can_compile("resource.get('v1', 'pods', 'ns', 'x')", environment)


def test_environments_are_made_once():
    assert kubernetes_environment() is kubernetes_environment()
    assert kyverno_environment("validating") is kyverno_environment("validating")
