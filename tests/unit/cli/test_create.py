"""Created files are valid, hold what was asked for, and go where they should."""

import pytest
import yaml

from lictor.cli import exit_codes


@pytest.fixture
def create(capsys):
    def call(*arguments):
        code = exit_codes.run(["create", *arguments])
        out, err = capsys.readouterr()
        assert (code, err) == (0, "")
        return out

    return call


@pytest.mark.parametrize(
    ("arguments", "document"),
    [
        (
            [
                "test",
                "-p",
                "p1,p2",
                "-r",
                "r1",
                "-r",
                "r2",
                "-f",
                "v",
                "-n",
                "yes",
                "--pass",
                "a,b,c,d,e",
                "--fail",
                "1,2,3,,K",
                "--skip",
                "a,b,c,d,e,out.yaml",
            ],
            {
                "apiVersion": "cli.kyverno.io/v1alpha1",
                "kind": "Test",
                "metadata": {"name": "yes"},
                "policies": ["p1", "p2"],
                "resources": ["r1", "r2"],
                "variables": "v",
                "results": [
                    {
                        "policy": "a",
                        "rule": "b",
                        "resources": ["d/c"],
                        "kind": "e",
                        "result": "pass",
                    },
                    {"policy": "1", "rule": "2", "resources": ["3"], "kind": "K", "result": "fail"},
                    {
                        "policy": "a",
                        "rule": "b",
                        "resources": ["d/c"],
                        "kind": "e",
                        "patchedResources": "out.yaml",
                        "result": "skip",
                    },
                ],
            },
        ),
        (
            ["test"],
            {
                "apiVersion": "cli.kyverno.io/v1alpha1",
                "kind": "Test",
                "metadata": {"name": "test-name"},
                "policies": None,
                "resources": None,
                "variables": None,
                "results": None,
            },
        ),
        (
            [
                "values",
                "-g",
                "a=b,c=1",
                "-g",
                "e=true",
                "-n",
                "prod,env=1",
                "--rule",
                "p,r,z=1,a=x y",
                "--resource",
                "p,res,k=v",
            ],
            {
                "apiVersion": "cli.kyverno.io/v1alpha1",
                "kind": "Values",
                "policies": [
                    {"name": "p", "rules": [{"name": "r", "values": {"a": "x y", "z": 1}}]},
                    {"name": "p", "resources": [{"name": "res", "values": {"k": "v"}}]},
                ],
                "globalValues": {"a": "b", "c": 1, "e": True},
                "namespaceSelector": [{"name": "prod", "labels": {"env": "1"}}],
            },
        ),
        (
            ["user-info", "-u", "me", "-g", "a,b", "-r", "r", "-c", "c"],
            {
                "apiVersion": "cli.kyverno.io/v1alpha1",
                "kind": "UserInfo",
                "roles": ["r"],
                "clusterRoles": ["c"],
                "userInfo": {"username": "me", "groups": ["a", "b"]},
            },
        ),
        (
            [
                "exception",
                "ex",
                "--namespace",
                "ns",
                "--policy-rules",
                "p,r1,r2",
                "--any",
                "kind=Pod,kind=Job,name=x-*,operation=CREATE",
                "--all",
                "kind=A,namespace=n",
            ],
            {
                "apiVersion": "kyverno.io/v2",
                "kind": "PolicyException",
                "metadata": {"name": "ex", "namespace": "ns"},
                "spec": {
                    "background": True,
                    "match": {
                        "any": [
                            {
                                "resources": {
                                    "kinds": ["Pod", "Job"],
                                    "names": ["x-*"],
                                    "operations": ["CREATE"],
                                }
                            }
                        ],
                        "all": [{"resources": {"kinds": ["A"], "namespaces": ["n"]}}],
                    },
                    "exceptions": [{"policyName": "p", "ruleNames": ["r1", "r2"]}],
                },
            },
        ),
        (
            ["exception", "ex", "--policy-rules", "p,r", "-b=false"],
            {
                "apiVersion": "kyverno.io/v2",
                "kind": "PolicyException",
                "metadata": {"name": "ex", "namespace": "default"},
                "spec": {
                    "background": False,
                    "match": None,
                    "exceptions": [{"policyName": "p", "ruleNames": ["r"]}],
                },
            },
        ),
        (
            ["metrics-config", "-i", "a,b", "-e", "c"],
            {
                "apiVersion": "v1",
                "kind": "ConfigMap",
                "metadata": {"name": "kyverno-metrics", "namespace": "kyverno"},
                "data": {
                    "namespaces": '{\n  "include": [\n    "a",\n    "b"\n  ],\n  "exclude": [\n    "c"\n  ]\n}\n'
                },
            },
        ),
        (
            [
                "cluster-role",
                "n",
                "-g",
                "apps",
                "--resources",
                "a,b",
                "--resources",
                "c",
                "--verbs",
                "all",
            ],
            {
                "apiVersion": "rbac.authorization.k8s.io/v1",
                "kind": "ClusterRole",
                "metadata": {
                    "name": "kyverno-n-permission",
                    "labels": {"rbac.kyverno.io/aggregate-to-background-controller": "true"},
                },
                "rules": [
                    {
                        "apiGroups": ["apps"],
                        "resources": ["a", "b", "c"],
                        "verbs": ["create", "get", "update", "delete", "list", "watch"],
                    }
                ],
            },
        ),
        (
            [
                "cluster-role",
                "n",
                "-g",
                "",
                "--resources",
                "a",
                "--verbs",
                "get,list",
                "--controllers",
                "x",
                "--controllers",
                "y",
            ],
            {
                "apiVersion": "rbac.authorization.k8s.io/v1",
                "kind": "ClusterRole",
                "metadata": {
                    "name": "kyverno-n-permission",
                    "labels": {
                        "rbac.kyverno.io/aggregate-to-x": "true",
                        "rbac.kyverno.io/aggregate-to-y": "true",
                    },
                },
                "rules": [{"apiGroups": [""], "resources": ["a"], "verbs": ["get", "list"]}],
            },
        ),
    ],
)
def test_documents(create, arguments, document):
    assert yaml.safe_load(create(*arguments)) == document


def test_output_goes_to_a_file(create, tmp_path):
    path = tmp_path / "info.yaml"
    assert create("user-info", "-u", "me", "-o", str(path)) == ""
    assert yaml.safe_load(path.read_text())["userInfo"]["username"] == "me"


@pytest.mark.parametrize(
    "arguments",
    [
        ["test", "--pass", "a,b"],
        ["values", "-g", "a"],
        ["values", "--rule", "p"],
        ["values", "-n", "prod"],
        ["exception", "x", "--policy-rules", "p"],
        ["exception", "x", "--policy-rules", "p,r", "--any", "label=x"],
        ["cluster-role", "n", "-g", "x", "--resources", "a", "--verbs", "get", "--controllers", ""],
        ["user-info", "-o", "/no/such/folder/x"],
    ],
)
def test_what_makes_no_sense_is_refused(capsys, arguments):
    assert exit_codes.run(["create", *arguments]) == 1
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("Error: ")
