"""The first object of a kind that is defined after its policy is evaluated by that policy."""

import time

import yaml
from test_idle import run_cluster

POLICY = {
    "apiVersion": "kyverno.io/v1",
    "kind": "ClusterPolicy",
    "metadata": {"name": "no-oxen"},
    "spec": {
        "validationFailureAction": "Enforce",
        "rules": [
            {
                "name": "none",
                "match": {"any": [{"resources": {"kinds": ["Ox"]}}]},
                "validate": {"message": "no oxen here", "deny": {}},
            }
        ],
    },
}
OXEN = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": "oxen.farm.example"},
    "spec": {
        "group": "farm.example",
        "scope": "Namespaced",
        # No rule of English spelling leads to this plural.
        "names": {"kind": "Ox", "plural": "oxen"},
        "versions": [
            {
                "name": "v1",
                "served": True,
                "storage": True,
                "schema": {"openAPIV3Schema": {"type": "object"}},
            }
        ],
    },
}
OX = {"apiVersion": "farm.example/v1", "kind": "Ox", "metadata": {"name": "first"}}
PLACE = "/apis/farm.example/v1/namespaces/default/oxen"


def test_the_first_object_of_a_new_kind_does_not_pass(tmp_path):
    file = tmp_path / "policy.yaml"
    file.write_text(yaml.safe_dump(POLICY))
    with run_cluster(tmp_path, file) as client:
        crds = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
        assert client.post(crds, json=OXEN).status_code == 201
        deadline = time.monotonic() + 60
        while (answer := client.post(PLACE, json=OX)).status_code == 404:
            assert time.monotonic() < deadline, answer.text
        assert answer.status_code == 400, answer.text
        assert "no oxen here" in answer.text
