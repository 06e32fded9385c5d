"""Values by hand: who gets which, and how they change a request."""

import pytest

from lictor.cli.inputs.input_files import read_values
from lictor.cli.inputs.requests import GivenValues, RequestFactory
from lictor.core.model.request import GroupVersionKind, Operation
from lictor.core.model.result import PolicyRef

VALUES = """
apiVersion: cli.kyverno.io/v1alpha1
kind: Values
globalValues:
  color: red
  size: small
policies:
- name: one
  resources:
  - name: web
    values:
      size: large
      request.object.metadata.labels.app: shop
  - name: gone
    values:
      request.operation: DELETE
  - name: changed
    values:
      request.operation: UPDATE
      request.oldObject.spec.replicas: 1
  - name: joined
    values:
      request.operation: CONNECT
  rules:
  - name: check
    values:
      entry.data: x
    foreachValues:
      image: [first, second]
namespaceSelector:
- name: prod
  labels: {tier: a}
- name: test
  labels: {tier: b}
namespaces:
- metadata:
    name: test
    labels: {tier: c}
subresources:
- subresource: {name: deployments/scale, kind: Scale, group: autoscaling, version: v1}
  parentResource: {name: deployments, kind: Deployment, group: apps, version: v1}
"""

values = GivenValues(read_values(VALUES, "values.yaml"), ("size=huge",))
unset = GivenValues(read_values(VALUES, "values.yaml"))


@pytest.mark.parametrize(
    ("given", "policy", "resource", "size"),
    [
        (unset, "one", "web", "large"),
        (unset, "one", "other", "small"),
        (unset, "two", "web", "small"),
        (values, "one", "web", "huge"),
    ],
)
def test_the_nearest_value_wins(given: GivenValues, policy: str, resource: str, size: str) -> None:
    found = given.of_resource(policy, resource)
    assert (found["size"], found["color"]) == (size, "red")


@pytest.mark.parametrize(
    ("policy", "rule", "index", "image"),
    [
        ("one", "check", 0, "first"),
        ("one", "autogen-check", 1, "second"),
        ("one", "autogen-cronjob-check", 7, "first"),
        ("one", "other", 0, None),
        ("two", "check", 0, None),
    ],
)
def test_values_of_rules(policy: str, rule: str, index: int, image: str | None) -> None:
    found = unset.of_rule(policy, rule, index)
    assert found.get("image") == image
    assert found.get("entry.data") == (None if image is None else "x")


@pytest.mark.parametrize(("name", "tier"), [("prod", "a"), ("test", "c"), ("none", None)])
def test_namespaces_given_whole_count_more(name: str, tier: str | None) -> None:
    assert unset.namespaces.get(name, {}).get("tier") == tier


def test_subresources_belong_to_a_parent() -> None:
    scale = GroupVersionKind("autoscaling", "v1", "Scale")
    pod = GroupVersionKind("", "v1", "Pod")
    assert unset.parents[scale] == (GroupVersionKind("apps", "v1", "Deployment"), "scale")
    assert pod not in unset.parents


def test_without_values_no_request_changes() -> None:
    assert RequestFactory().adapt is None
    assert RequestFactory(GivenValues(None, ("a=b",))).adapt is not None


def request_for(name: str):
    world = RequestFactory(unset)
    body = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "prod"}}
    assert world.adapt is not None
    return body, world.adapt(PolicyRef("one"), world.make_request(body))


def test_values_become_part_of_the_object_but_not_of_the_file() -> None:
    body, request = request_for("web")
    assert request.object is not None
    assert request.object["metadata"]["labels"] == {"app": "shop"}
    assert "labels" not in body["metadata"]
    assert request.namespace_labels == {"tier": "a"}
    assert set(request.variables) == {"color", "size"}


def test_a_deletion_has_an_old_object_only() -> None:
    body, request = request_for("gone")
    assert (request.operation, request.object, request.old_object) == (Operation.DELETE, None, body)


def test_an_update_has_both() -> None:
    body, request = request_for("changed")
    assert request.operation is Operation.UPDATE
    assert request.object == body
    assert request.old_object is not None
    assert request.old_object["spec"] == {"replicas": 1}
    # Nothing that the request says itself is left: a rule may look at the old object as if created.
    assert set(request.variables) == {"color", "size"}


def test_another_word_is_only_a_variable() -> None:
    _, request = request_for("joined")
    assert request.operation is Operation.CREATE
    assert request.variables["request.operation"] == "CONNECT"
