"""Test, Values and the other files of the command line."""

import pytest

from lictor.cli.inputs.input_files import (
    load_tests,
    read_cluster_resource,
    read_context,
    read_user_info,
    read_values,
)
from lictor.cli.inputs.requests import parse_settings
from lictor.core.errors import LoadError

TEST = """\
apiVersion: cli.kyverno.io/v1alpha1
kind: Test
metadata: {name: t}
policies: [p.yaml, p.yaml]
resources: [a.yaml, b.yaml, a.yaml]
userInfo: u.yaml
results:
- policy: p
  rule: r
  kind: Pod
  resources: [a]
  resourceSpecs: [{version: v1, kind: Pod, name: a}]
  result: fail
checks:
- match: {policy: {metadata: {name: p}}}
  assert: {status: fail}
"""


def test_test_file():
    (found,) = load_tests(TEST, "t.yaml")
    test = found.record
    assert test.policies == ("p.yaml",)
    assert test.resources == ("a.yaml", "b.yaml")
    assert test.userinfo == "u.yaml"
    assert test.results[0].resource_specs[0].name == "a"
    assert test.checks[0].assert_ == {"status": "fail"}
    assert not test.outdated


def test_several_tests_in_one_file():
    assert len(load_tests(f"{TEST}---\n{TEST}", "t.yaml")) == 2


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            TEST.replace("  rule:", "  rle:"),
            't.yaml:9:3: results[0].rle: unknown field "rle" (did you mean "rule"?)',
        ),
        (
            TEST.replace("[p.yaml, p.yaml]", "p.yaml"),
            't.yaml:4:1: policies: expected a list, found the string "p.yaml"',
        ),
        (TEST + "kind: Test\n", 't.yaml:17:1: key "kind" stands twice in one object'),
        ("[", "t.yaml:2:1"),
        ("- a", "t.yaml:1:1: expected an object, found a list"),
    ],
)
def test_broken_test_file(text, message):
    with pytest.raises(LoadError) as caught:
        load_tests(text, "t.yaml")
    assert str(caught.value).startswith(message)


@pytest.mark.parametrize(
    ("change", "outdated"),
    [
        (("kind: Test\n", ""), True),
        (("apiVersion: cli.kyverno.io/v1alpha1\n", ""), True),
        (("metadata: {name: t}", "name: t"), True),
        (("name: t", "name: u"), False),
    ],
)
def test_older_schema(change, outdated):
    (found,) = load_tests(TEST.replace(*change), "t.yaml")
    assert found.record.outdated is outdated


def test_values():
    values = read_values(
        "apiVersion: cli.kyverno.io/v1alpha1\nkind: Values\n"
        "globalValues: {request.operation: UPDATE, count: 1}\n"
        "policies:\n- name: p\n  rules:\n  - name: r\n    values: {a.b: null}\n"
        "    foreachValues: {x: [1, two]}\n  resources: [{name: a, values: {k: [1]}}]\n"
        "namespaceSelector: [{name: ns, labels: {team: 1}}]\n"
        "namespaces: [{apiVersion: v1, kind: Namespace, metadata: {name: ns}}]\n"
        "subresources:\n- subresource: {name: deployments/scale, kind: Scale, group: autoscaling}\n"
        "  parentResource: {name: deployments, kind: Deployment, group: apps}\n",
        "v.yaml",
    )
    assert values.global_values == {"request.operation": "UPDATE", "count": 1}
    assert values.policies[0].rules[0].values == {"a.b": None}
    assert values.policies[0].rules[0].foreach_values == {"x": (1, "two")}
    assert values.namespace_selector[0].labels == {"team": "1"}
    assert values.subresources[0].parent_resource.kind == "Deployment"
    assert not values.outdated


def test_user_info():
    info = read_user_info(
        "clusterRoles: [admin]\nuserInfo: {username: u, groups: [g], extra: {k: [v]}}\n", "u.yaml"
    )
    assert info.cluster_roles == ("admin",)
    assert info.user_info.username == "u"
    assert info.user_info.extra == {"k": ("v",)}
    assert info.outdated


def test_context_and_cluster_resource():
    context = read_context("spec: {resources: [{kind: X}], images: [{image: a}]}", "c.yaml")
    assert context.spec.resources == ({"kind": "X"},)
    assert context.spec.images[0].image == "a"
    cluster = read_cluster_resource("spec: {crds: [a.yaml], resources: [{kind: X}]}", "c.yaml")
    assert cluster.spec.crds == ("a.yaml",)


@pytest.mark.parametrize(
    ("load", "text", "message"),
    [
        (read_values, "", "v.yaml:1:1: no Values in this file"),
        (read_values, "globalValue: {}", "v.yaml:1:1: globalValue: unknown field"),
        (read_values, "policies: [{}]", 'v.yaml:1:12: policies[0]: required field "name"'),
        (read_user_info, "userInfo: []", "v.yaml:1:1: userInfo: expected an object"),
        (read_context, "resources: []", "v.yaml:1:1: resources: unknown field"),
        (read_cluster_resource, "spec: {crds: x}", "v.yaml:1:8: spec.crds: expected a list"),
    ],
)
def test_broken_files(load, text, message):
    with pytest.raises(LoadError) as caught:
        load(text, "v.yaml")
    assert str(caught.value).startswith(message)


@pytest.mark.parametrize(
    ("texts", "values", "ignored"),
    [
        ([], {}, []),
        (["a=1"], {"a": "1"}, []),
        (["a=1,b.c=x"], {"a": "1", "b.c": "x"}, []),
        (["a=1", "a=2"], {"a": "1"}, ["a=2"]),
        ([" a = 1 "], {"a": "1"}, []),
        (["a"], {}, ["a"]),
        (["a=b=c"], {}, ["a=b=c"]),
        (["a="], {}, ["a="]),
        (["=1"], {}, ["=1"]),
        (["request.object.x=1,request.x=1"], {"request.x": "1"}, ["request.object.x=1"]),
        (['"a=1,2",b=3'], {"a": "1,2", "b": "3"}, []),
    ],
)
def test_settings(texts, values, ignored):
    assert parse_settings(texts) == (values, ignored)


def test_broken_settings():
    with pytest.raises(LoadError):
        parse_settings(['"a=1'])
