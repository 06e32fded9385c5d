"""ImageValidatingPolicy, up to the signatures."""

import pytest

GOOD, BAD = "ghcr.io/good/app:1", "docker.io/bad/app:1"
PODS = {
    "apiGroups": [""],
    "apiVersions": ["v1"],
    "operations": ["CREATE"],
    "resources": ["pods"],
}


def policy(*expressions, **spec):
    return {
        "apiVersion": "policies.kyverno.io/v1",
        "kind": "ImageValidatingPolicy",
        "metadata": {"name": "p"},
        "spec": {
            "matchConstraints": {"resourceRules": [PODS]},
            "attestors": [{"name": "me", "cosign": {"key": {"data": "k"}}}],
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


def test_what_needs_signatures_cannot_be_decided_yet(summarize):
    text = "images.containers.all(image, verifyImageSignatures(image, [attestors.me]) > 0)"
    ((rule, status, message),) = summarize([policy(text)], pod(GOOD))
    assert (rule, status) == ("evaluation", "error")
    assert message.startswith("failed to evaluate policy: ")


def test_a_reference_must_say_something(summarize):
    ((_, status, message),) = summarize([policy("true", matchImageReferences=[{}])], pod(GOOD))
    assert (status, message) == (
        "error",
        "matchImageReferences[0]: either glob or expression must be set",
    )
