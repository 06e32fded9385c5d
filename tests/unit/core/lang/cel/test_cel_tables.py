"""Expressions and their answers: every function of every library, good, odd and wrong.

The rows stand in YAML files beside this one.
"""

from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from lictor.core.errors import EvaluationError, LictorError, SyntaxFaultError
from lictor.core.lang.cel.expression import compile_expression, make_activation
from lictor.core.lang.cel.host import HostFunctions
from lictor.core.lang.cel.kubernetes import kubernetes_environment
from lictor.core.lang.cel.kyverno import kyverno_environment
from lictor.core.lang.patch.pointer import is_same

GIVEN = yaml.safe_load("""
object:
  apiVersion: apps/v1
  kind: Deployment
  metadata:
    name: web
    namespace: team
    creationTimestamp: "2024-01-02T03:04:05Z"
    labels: {app.kubernetes.io/name: web, tier: front}
  spec:
    replicas: 3
    ratio: 1.5
    empty: null
    flag: true
    keys: [{n: a}, {n: b}]
    values: [{v: 1}, {v: 2}]
    containers:
    - name: main
      image: nginx:1.25
      ports: [{containerPort: 80}, {containerPort: 8080}]
      securityContext: {privileged: false}
      resources: {limits: {cpu: 250m, memory: 256Mi}}
    - name: side
      image: ghcr.io/team/side:latest
      ports: []
      resources: {limits: {cpu: "1", memory: 512Mi}}
oldObject: null
params: null
request: {operation: CREATE, userInfo: {username: alice, groups: [dev]}, namespace: team}
namespaceObject: {metadata: {name: team, labels: {env: prod}}}
""")


def make_object(api_version, kind, namespace, name=""):
    return {
        "apiVersion": api_version,
        "kind": kind,
        "metadata": {"namespace": namespace, "name": name},
    }


WORLD = HostFunctions(
    get_resource=make_object,
    list_resources=lambda *place: {"items": [make_object(*place[:3])]},
    post_resource=lambda *given: given[3],
    find_resource=lambda version, kind: (*version.rpartition("/")[::2], kind),
    global_context=lambda name, projection: {"name": name, "projection": projection},
    generate=lambda namespace, objects: None,
)
ENVIRONMENTS = {
    "kubernetes": (kubernetes_environment(has_patches=True), WORLD),
    "kyverno": (kyverno_environment("mutating"), WORLD),
    "kyverno-namespaced": (
        kyverno_environment("mutating", is_namespaced=True),
        replace(WORLD, namespace="team"),
    ),
}


def read_rows():
    for path in sorted(Path(__file__).parent.glob("*.yaml")):
        table = yaml.safe_load(path.read_text(encoding="utf-8"))
        for number, row in enumerate(table["rows"]):
            yield pytest.param(table["environment"], row, id=f"{path.stem}-{number}")


@pytest.fixture(scope="module")
def activation():
    return make_activation(GIVEN)


@pytest.mark.parametrize(("environment", "row"), list(read_rows()))
def test_expressions_answer_as_the_table_says(environment, row, activation):
    declared, world = ENVIRONMENTS[environment]
    if "fault" in row:
        with pytest.raises(SyntaxFaultError) as caught:
            compile_expression(row["expression"], declared)
        assert row["fault"] in caught.value.message
        assert caught.value.position == row["at"]
        return
    expression = compile_expression(row["expression"], declared)
    assert expression.result_type == row["type"]
    if "error" in row:
        with pytest.raises(LictorError) as failed:
            expression(activation, world)
        assert row["error"] in str(failed.value)
        assert isinstance(failed.value, EvaluationError)
    else:
        assert is_same(expression(activation, world), row["value"])
