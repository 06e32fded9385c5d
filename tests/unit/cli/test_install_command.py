"""`install` and `uninstall` on the command line."""

import json

import pytest
import yaml

from lictor.cli import exit_codes


def print_manifests(capsys, *words):
    assert exit_codes.run(["install", *words]) == 0
    return list(yaml.load_all(capsys.readouterr().out, Loader=yaml.CSafeLoader))


def find(manifests, kind, name):
    return next(m for m in manifests if m["kind"] == kind and m["metadata"]["name"] == name)


def test_everything_is_printed(capsys):
    made = print_manifests(capsys, "--prefix", "kyverno", "--namespace", "policies")
    kinds = {each["kind"] for each in made}
    assert {"Namespace", "CustomResourceDefinition", "ClusterRole", "Deployment"} <= kinds
    deployment = find(made, "Deployment", "kyverno-admission-controller")
    assert deployment["metadata"]["namespace"] == "policies"
    assert deployment["spec"]["replicas"] == 3


def test_the_kinds_may_come_from_elsewhere(capsys):
    made = print_manifests(capsys, "--skip-crds")
    assert "CustomResourceDefinition" not in {each["kind"] for each in made}


def test_json_is_one_list(capsys):
    assert exit_codes.run(["install", "--format=json", "--all-in-one"]) == 0
    whole = json.loads(capsys.readouterr().out)
    assert sum(each["kind"] == "Deployment" for each in whole["items"]) == 1


def test_wishes_reach_the_manifests(capsys):
    made = print_manifests(
        capsys,
        *("--image", "registry.example/lictor:2", "--image-pull-secret", "a,b"),
        *("--flag", "enablePolicyException=true", "--flag", "imagePullSecrets=a"),
        *("--set-config", "excludeGroups=system:nodes,admins"),
    )
    assert find(made, "ConfigMap", "lictor")["data"]["excludeGroups"] == "system:nodes,admins"
    pod = find(made, "Deployment", "lictor-cleanup-controller")["spec"]["template"]["spec"]
    assert pod["containers"][0]["image"] == "registry.example/lictor:2"
    assert "--enablePolicyException=true" in pod["containers"][0]["args"]
    assert pod["imagePullSecrets"] == [{"name": "a"}, {"name": "b"}]


@pytest.mark.parametrize(
    ("words", "said"), [([], "make image"), (["--image", "registry.example/lictor:2"], "")]
)
def test_it_says_where_the_usual_image_comes_from(capsys, words, said):
    assert exit_codes.run(["install", "--skip-crds", *words]) == 0
    told = capsys.readouterr()
    assert said in told.err
    assert bool(told.err) == bool(said)
    assert "make image" not in told.out


def test_values_that_are_not_used_are_listed_together(capsys, tmp_path):
    file = tmp_path / "values.yaml"
    file.write_text(
        "upgrade: {fromV2: false}\nadmissionController: {replicas: 2, replica: 3}\n"
        "config: {resourceFilters: ['[Pod,{{ .Release.Namespace }},*]']}\n"
    )
    assert exit_codes.run(["install", "--skip-crds", "--values", str(file)]) == 0
    told = capsys.readouterr()
    assert "3 values are not used:\n  upgrade\n" in told.err
    assert "admissionController.replica; did you mean admissionController.replicas?" in told.err
    assert "config.resourceFilters: templates of Helm" in told.err
    made = list(yaml.load_all(told.out, Loader=yaml.CSafeLoader))
    assert find(made, "Deployment", "lictor-admission-controller")["spec"]["replicas"] == 2


WRONG = [
    (["--flag", "enablePolicyExceptions=true"], "did you mean enablePolicyException?"),
    (["--flag", "webhookTimeout=soon"], "write a number"),
    (["--flag", "backgroundScan=perhaps"], "write true or false"),
    (["--flag", "kubeconfig=/a"], "cannot be set here"),
    (["--flag", "v"], "write NAME=VALUE"),
    (["--set-config", "webhook=a"], "did you mean webhooks?"),
    (["--set", "replicaCount=3"], "--set replicaCount=3: this is an option of Helm"),
    (["--namespace", "default"], "choose one that is lictor's own"),
    (["--replicas", "many"], "many"),
    (["--apply", "--kubeconfig", "/nowhere/config"], "/nowhere/config"),
]


@pytest.mark.parametrize(("words", "said"), WRONG, ids=[said for _, said in WRONG])
def test_a_wrong_call(capsys, words, said):
    assert exit_codes.run(["install", *words]) != 0
    assert said in capsys.readouterr().err


def test_uninstalling_from_nowhere_says_so(capsys):
    assert exit_codes.run(["uninstall", "--kubeconfig", "/nowhere/config"]) == 1
    assert "/nowhere/config" in capsys.readouterr().err


def test_kinds_cannot_be_kept_and_deleted_at_once(capsys):
    assert exit_codes.run(["uninstall", "--keep-crds", "--delete-crds"]) == 2
    assert "give one of them" in capsys.readouterr().err
