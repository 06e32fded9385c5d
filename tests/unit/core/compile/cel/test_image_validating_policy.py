"""ImageValidatingPolicy: which images it is about, and whose signatures it takes."""

import json
import re

import pytest

from lictor.core.assembly import compile_documents, explain, fail_policy
from lictor.core.engine import Engine
from lictor.core.errors import CompileError
from lictor.core.load.policies import load_documents
from lictor.core.model.program import Needs
from lictor.core.model.request import Request
from lictor.core.model.result import Action, Status

GOOD, BAD = "ghcr.io/good/app:1", "docker.io/bad/app:1"
PODS = {
    "apiGroups": [""],
    "apiVersions": ["v1"],
    "operations": ["CREATE"],
    "resources": ["pods"],
}


OFF = {"mutateDigest": False, "verifyDigest": False, "required": False}


def policy(*expressions, **spec):
    return {
        "apiVersion": "policies.kyverno.io/v1",
        "kind": "ImageValidatingPolicy",
        "metadata": {"name": "p"},
        "spec": {
            "matchConstraints": {"resourceRules": [PODS]},
            "attestors": [{"name": "me", "cosign": {"key": {"data": "k"}}}],
            "validationConfigurations": OFF,
            "validations": [{"expression": text, "message": "no"} for text in expressions],
            **spec,
        },
    }


def pod(*images):
    containers = [{"name": f"c{i}", "image": image} for i, image in enumerate(images)]
    metadata = {"name": "web"}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": metadata,
        "spec": {"containers": containers},
    }


def deployment(*images):
    template = {"spec": pod(*images)["spec"]}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "web"},
        "spec": {"template": template},
    }


ALL_GOOD = "images.containers.all(image, image.startsWith('ghcr.io/'))"
PASSED, FAILED = [("p", "pass", "success")], [("p", "fail", "no")]
REFERENCES = {"matchImageReferences": [{"glob": "ghcr.io/*"}]}
EXPRESSION = {"matchImageReferences": [{"expression": "ref.contains('good')"}]}


@pytest.mark.parametrize(
    ("document", "resource", "expected"),
    [
        (policy(ALL_GOOD), pod(GOOD), PASSED),
        (policy(ALL_GOOD), pod(GOOD, BAD), FAILED),
        (policy(ALL_GOOD), deployment(GOOD), PASSED),
        (policy(ALL_GOOD), deployment(BAD), FAILED),
        (policy(ALL_GOOD, **REFERENCES), pod(GOOD, BAD), PASSED),
        (policy(ALL_GOOD, **EXPRESSION), pod(GOOD, BAD), PASSED),
        (policy("size(images.initContainers) == 0"), pod(GOOD), PASSED),
        (
            policy("images.own == ['web']", images=[{"name": "own", "expression": "[object.metadata.name]"}]),
            pod(GOOD),
            PASSED,
        ),
        (policy("attestors.me.cosign.key.data == 'k'"), pod(GOOD), PASSED),
        (policy("false", matchConditions=[{"name": "c", "expression": "false"}]), pod(GOOD), []),
        (policy("false"), {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n"}}, []),
    ],
)  # fmt: skip
def test_images(summarize, document, resource, expected):
    assert summarize([document], resource) == expected


def test_without_a_registry_signatures_cannot_be_decided(summarize):
    text = "images.containers.all(image, verifyImageSignatures(image, [attestors.me]) > 0)"
    ((rule, status, message),) = summarize([policy(text)], pod(GOOD))
    assert (rule, status) == ("evaluation", "error")
    assert message.startswith("failed to evaluate policy: ")


def test_who_listens_hears_each_thing_once():
    document = policy(ALL_GOOD, validationConfigurations={"verifyDigest": False})
    (record,) = load_documents(json.dumps(document), "policy.yaml").records
    heard = [each.what for each in explain(record, Request.of(pod(GOOD))).heard]
    assert heard.count("images.containers") == 1
    assert heard.count("validations[0].expression") == 1


def test_registries_are_asked_whatever_the_expressions_say():
    document = policy("true", validationConfigurations={})
    loaded = load_documents(json.dumps(document), "policy.yaml")
    (program,) = compile_documents(loaded.records)
    assert all(rule.needs & Needs.IMAGES for rule in program.rules)


def test_a_reference_must_say_something(summarize):
    ((_, status, message),) = summarize([policy("true", matchImageReferences=[{}])], pod(GOOD))
    assert (status, message) == (
        "error",
        "matchImageReferences[0]: either glob or expression must be set",
    )


# Words of the language that this is written in: they tell a user nothing. `int` and `bool` are CEL's.
_INNER_WORDS = re.compile(
    r"NoneType|\b(dict|str|float|tuple|None|True|False)\b|<class|__\w+__"
    r"|has no attribute|subscriptable|iterable|unhashable|positional|unsupported operand|\w+Error\b"
)
_ODD = (
    "null", "1", "1.5", "'x'", "true", "[1, 'a']", "[null]", "{'a': 1}", "b'x'", "duration('1s')",
    "object", "attestors.me", "images.containers",
)  # fmt: skip
_PLACES = {
    "a validation": "dyn(VALUE)",
    "a field": "dyn(VALUE).field == 1",
    "an element": "dyn(VALUE)[0] == 1",
    "a sum": "dyn(VALUE) + 1 == 2",
    "a loop": "dyn(VALUE).all(each, each.x)",
    "a conversion": "int(dyn(VALUE)) == 1",
    "an image": "image(dyn(VALUE)).registry() == 'a'",
    "is it an image?": "isImage(dyn(VALUE))",
    "the image of a signature": "verifyImageSignatures(dyn(VALUE), [attestors.me]) > 0",
    "the attestors of a signature": "verifyImageSignatures('a', dyn(VALUE)) > 0",
    "the image of an attestation": "verifyAttestationSignatures(dyn(VALUE), 'a', [attestors.me]) > 0",
    "a payload": "extractPayload(dyn(VALUE), 'a') == 1",
    "metadata": "getImageData(dyn(VALUE)) == 1",
}
_SPECS = {
    "images": lambda text: {"images": [{"name": "own", "expression": text}]},
    "references": lambda text: {"matchImageReferences": [{"expression": text}]},
    "conditions": lambda text: {"matchConditions": [{"name": "c", "expression": text}]},
    "variables": lambda text: {"variables": [{"name": "v", "expression": text}]},
    "annotations": lambda text: {"auditAnnotations": [{"key": "k", "valueExpression": text}]},
}  # fmt: skip
_CONTAINERS = (None, 1, "x", [1], [None], [{}], [{"image": None}], [{"image": 1}], [{"image": []}])


def _list_messages(summarize, document, resource):
    return [message for _, status, message in summarize([document], resource) if status == "error"]


@pytest.mark.parametrize("value", _ODD)
@pytest.mark.parametrize("place", _PLACES)
def test_no_error_of_an_expression_shows_a_type_of_python(summarize, place, value):
    text = _PLACES[place].replace("VALUE", value)
    for message in _list_messages(summarize, policy(text), pod(GOOD)):
        assert not _INNER_WORDS.search(message.replace(text, ""))


@pytest.mark.parametrize("value", _ODD)
@pytest.mark.parametrize("field", _SPECS)
def test_no_error_of_another_field_shows_a_type_of_python(summarize, field, value):
    document = policy("images.containers.size() == 9", **_SPECS[field](f"dyn({value})"))
    for message in _list_messages(summarize, document, pod(GOOD)):
        assert not _INNER_WORDS.search(message)


@pytest.mark.parametrize("containers", _CONTAINERS)
@pytest.mark.parametrize("where", ["containers", "initContainers"])
def test_no_error_of_an_odd_object_shows_a_type_of_python(summarize, where, containers):
    odd = pod(GOOD)
    odd["spec"][where] = containers
    for resource in (odd, {**deployment(GOOD), "spec": {"template": {"spec": odd["spec"]}}}):
        for message in _list_messages(summarize, policy(ALL_GOOD), resource):
            assert not _INNER_WORDS.search(message)


@pytest.mark.parametrize("failure_policy", ["Fail", "Ignore"])
@pytest.mark.parametrize("is_compiled", [True, False])
def test_a_policy_that_cannot_verify_refuses(failure_policy: str, *, is_compiled: bool) -> None:
    """Neither an invalid expression nor a policy that is not compiled at all admits an image."""
    document = policy("object.(", failurePolicy=failure_policy, validationActions=["Deny"])
    (record,) = load_documents(json.dumps(document), "policy.yaml").records
    programs = (
        compile_documents([record])
        if is_compiled
        else fail_policy(record, CompileError("too large"))
    )
    (result,) = Engine(programs).evaluate(pod(GOOD)).results
    assert (result.status, result.action) == (Status.ERROR, Action.ENFORCE)
