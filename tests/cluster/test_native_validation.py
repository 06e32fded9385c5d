"""Admission policies and webhooks are refused in the words of Kubernetes, on both clusters."""

import pytest

GROUP = "/apis/admissionregistration.k8s.io/v1"
STATIC = (
    'names ending with ".static.k8s.io" are reserved for static manifest-based configurations '
    "and cannot be managed via the API"
)


def rule(*operations):
    return {
        "apiGroups": [""],
        "apiVersions": ["v1"],
        "operations": [*operations],
        "resources": ["configmaps"],
    }


def validating(expression, name="checked"):
    constraints = {"resourceRules": [rule("CREATE")]}
    spec = {"matchConstraints": constraints, "validations": [{"expression": expression}]}
    return {"kind": "ValidatingAdmissionPolicy", "metadata": {"name": name}, "spec": spec}


REMOVE = "[JSONPatch{op: 'remove', path: '/data/a'}]"


def mutating(*operations, expression=REMOVE, **spec):
    patch = {"patchType": "JSONPatch", "jsonPatch": {"expression": expression}}
    constraints = {"resourceRules": [rule(*operations)]}
    spec = {"matchConstraints": constraints, "mutations": [patch], **spec}
    return {"kind": "MutatingAdmissionPolicy", "metadata": {"name": "changing"}, "spec": spec}


def conditions(count):
    return [{"name": f"c{number}", "expression": "true"} for number in range(count)]


def send(cluster, plural, body):
    document = {"apiVersion": "admissionregistration.k8s.io/v1", **body}
    with cluster.connect() as client:
        path = f"{GROUP}/{plural}?dryRun=All"
        answer = client.post(path, json=document)
    causes = answer.json().get("details", {}).get("causes", [])
    return answer.status_code, [f"{each['field']}: {each['message']}" for each in causes]


@pytest.mark.parametrize(
    ("plural", "body", "causes"),
    [
        ("validatingadmissionpolicies", validating("object.data['a'] == 'b'"), []),
        (
            "validatingadmissionpolicies",
            validating("true", "a.static.k8s.io"),
            [f'metadata.name: Invalid value: "a.static.k8s.io": {STATIC}'],
        ),
        (
            "validatingwebhookconfigurations",
            {"kind": "ValidatingWebhookConfiguration", "metadata": {"name": "b.static.k8s.io"}},
            [f'metadata.name: Invalid value: "b.static.k8s.io": {STATIC}'],
        ),
        ("mutatingadmissionpolicies", mutating("*", reinvocationPolicy="Never"), []),
        (
            "mutatingadmissionpolicies",
            mutating("CREATE", "*", reinvocationPolicy="Never"),
            [
                'spec.matchConstraints.resourceRules[0].operations: Invalid value: ["CREATE","*"]: '
                "if '*' is present, must not specify other operations"
            ],
        ),
        (
            "mutatingadmissionpolicies",
            mutating("CREATE", "DELETE", reinvocationPolicy="Never"),
            [
                'spec.matchConstraints.resourceRules.operations: Unsupported value: "DELETE": '
                'supported values: "*", "CONNECT", "CREATE", "UPDATE"'
            ],
        ),
        (
            "mutatingadmissionpolicies",
            mutating("CREATE", expression="[]", reinvocationPolicy="Never"),
            [
                'spec.mutations[0].jsonPatch.expression: Invalid value: "[]": must evaluate to '
                "list(JSONPatch) but got list(dyn)"
            ],
        ),
        (
            "mutatingadmissionpolicies",
            mutating("CREATE"),
            ["spec.reinvocationPolicy: Required value"],
        ),
        (
            "mutatingadmissionpolicies",
            mutating("CREATE", reinvocationPolicy="Never", matchConditions=conditions(65)),
            ["spec.matchConditions: Too many: 65: must have at most 64 items"],
        ),
    ],
)
def test_causes(cluster, plural, body, causes):
    assert send(cluster, plural, body) == (422 if causes else 201, causes)


def test_new_functions_are_refused_in_new_expressions(cluster):
    code, causes = send(cluster, "validatingadmissionpolicies", validating("[1].includes(1)"))
    assert code == 422
    assert causes[0].startswith("spec.validations[0].expression: Invalid value: ")
    assert "undeclared reference to 'includes'" in causes[0]
