"""The types of a ValidatingAdmissionPolicy are checked by the kinds that it matches."""

import time

POLICIES = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies"
RULE = {
    "apiGroups": ["apps"],
    "apiVersions": ["v1"],
    "operations": ["CREATE"],
    "resources": ["deployments", "statefulsets"],
}
# Each with its issues for a Deployment and a StatefulSet: column and message.
UNDEFINED = "undefined field '{}'"
MISMATCH = "found no matching overload for '{}' applied to '({})'"
EXPRESSIONS = {
    "object.spec.replicas > 1 && object.metadata.labels.app == 'x'": ((), ()),
    "object.spec.size > 1": ([(12, UNDEFINED.format("size"))],) * 2,
    "object.spec.replicas == 'many'": ([(22, MISMATCH.format("_==_", "int, string"))],) * 2,
    "object.spec.strategy.type != ''": ((), [(12, UNDEFINED.format("strategy"))]),
    "variables.count > '1' || object.spec.template.spec.containers.all(c, c.tag == '')": (
        [(17, MISMATCH.format("_>_", "int, string")), (71, UNDEFINED.format("tag"))],
    )
    * 2,
    "object.spec.paused == 1": (
        [(20, MISMATCH.format("_==_", "bool, int"))],
        [(12, UNDEFINED.format("paused"))],
    ),
}


def list_warnings():
    """As Kubernetes words them."""
    for index, (text, issues) in enumerate(EXPRESSIONS.items()):
        messages = []
        for kind, found in zip(("Deployment", "StatefulSet"), issues, strict=True):
            lines = [
                f"ERROR: <input>:1:{column}: {message}\n | {text}\n | {'.' * (column - 1)}^"
                for column, message in found
            ]
            if lines:
                messages.append(f"apps/v1, Kind={kind}: " + "\n".join(lines) + "\n")
        if messages:
            where = f"spec.validations[{index}].expression"
            yield {"fieldRef": where, "warning": "\n".join(messages)}


def test_warnings_are_those_of_kubernetes(cluster):
    spec = {
        "matchConstraints": {"resourceRules": [RULE]},
        "variables": [{"name": "count", "expression": "object.spec.replicas"}],
        "validations": [{"expression": text} for text in EXPRESSIONS],
    }
    policy = {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingAdmissionPolicy",
        "metadata": {"name": "typed"},
        "spec": spec,
    }
    with cluster.connect() as client:
        answer = client.post(POLICIES, json=policy)
        assert answer.status_code == 201, answer.text
        deadline = time.monotonic() + 60
        while not (status := client.get(f"{POLICIES}/typed").json().get("status", {})):
            assert time.monotonic() < deadline
        client.delete(f"{POLICIES}/typed")
    assert status["typeChecking"]["expressionWarnings"] == list(list_warnings())
