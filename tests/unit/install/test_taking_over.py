"""What is kept when a Deployment takes the place of another, and how definitions change versions."""

import msgspec
import pytest

from lictor.install.build import build_manifests
from lictor.install.installation import Installation
from lictor.install.storage_versions import add_versions, find_stale
from lictor.install.taking_over import (
    build_mark,
    build_replacement,
    is_rolled_out,
    join_rules,
    keep_flags,
    read_flags,
)

INSTALLATION = Installation(image="lictor:1", version="1", prefix="kyverno", namespace="kyverno")


def make_live(**pod):
    labels = {
        "app.kubernetes.io/component": "admission-controller",
        "helm.sh/chart": "kyverno-3",
        "team": "a",
    }
    metadata = {
        "name": "kyverno-admission-controller",
        "namespace": "kyverno",
        "resourceVersion": "7",
        "labels": labels,
        "annotations": {"meta.helm.sh/release-name": "kyverno"},
        "finalizers": ["kyverno.io/webhooks", "someone.else/waits"],
    }
    containers = [
        {
            "name": "kyverno",
            "image": "kyverno:1",
            "args": ["--webhookTimeout=5", "--webhookTimeout=7"],
        }
    ]
    template = {"metadata": {"labels": labels}, "spec": {"containers": containers, **pod}}
    return {"metadata": metadata, "spec": {"replicas": 5, "template": template}}


def find_manifest():
    made = build_manifests(msgspec.structs.replace(INSTALLATION, skip_crds=True))
    return next(
        m
        for m in made
        if m["metadata"]["name"] == "kyverno-admission-controller" and m["kind"] == "Deployment"
    )


def test_where_pods_run_is_kept_and_what_they_run_is_not():
    live = make_live(
        nodeSelector={"zone": "a"}, tolerations=[{"key": "x"}], initContainers=[{"name": "pre"}]
    )
    made = build_replacement(find_manifest(), live, replicas=True)
    pod = made["spec"]["template"]["spec"]
    assert made["spec"]["replicas"] == 5
    assert pod["nodeSelector"] == {"kubernetes.io/os": "linux", "zone": "a"}
    assert pod["tolerations"] == [{"key": "x"}]
    assert "initContainers" not in pod
    assert [each["image"] for each in pod["containers"]] == ["lictor:1"]
    labels = made["metadata"]["labels"]
    assert (labels["team"], labels["app.kubernetes.io/managed-by"]) == ("a", "lictor")
    assert "helm.sh/chart" not in labels
    assert made["metadata"]["annotations"] == {"meta.helm.sh/release-name": "kyverno"}
    assert made["metadata"]["finalizers"] == ["someone.else/waits"]
    assert made["metadata"]["resourceVersion"] == "7"
    mark = build_mark(made, live)["spec"]["template"]["spec"]
    assert set(mark) == {"nodeSelector", "tolerations", "containers"}


def test_replicas_that_were_named_win():
    made = build_replacement(find_manifest(), make_live(), replicas=False)
    assert made["spec"]["replicas"] == 3


def test_what_is_called_for_wins_over_what_was_found():
    flags = read_flags([make_live()], INSTALLATION)
    assert keep_flags(INSTALLATION, flags).flags == {"webhookTimeout": "7"}
    wanted = Installation(image="", version="", flags={"webhookTimeout": "9"})
    assert keep_flags(wanted, flags).flags == {"webhookTimeout": "9"}


def test_reports_of_the_other_group_go_on():
    live = make_live()
    live["spec"]["template"]["spec"]["containers"][0]["args"] = ["--openreportsEnabled=true"]
    kept = keep_flags(INSTALLATION, read_flags([live], INSTALLATION))
    assert kept.open_reports
    assert kept.flags == {}


def test_roles_give_the_rights_of_both():
    ours, theirs = {"verbs": ["get"]}, {"verbs": ["list"]}
    role = {"kind": "ClusterRole", "rules": [ours]}
    assert join_rules(role, {"rules": [theirs, ours]})["rules"] == [ours, theirs]
    gathering = {"kind": "ClusterRole", "aggregationRule": {}}
    assert join_rules(gathering, {"rules": [theirs]}) == gathering


DONE = {"observedGeneration": 2, "replicas": 2, "updatedReplicas": 2, "availableReplicas": 2}
ROLLOUTS = [
    (DONE, True),
    ({**DONE, "observedGeneration": 1}, False),
    ({**DONE, "replicas": 3}, False),
    ({**DONE, "updatedReplicas": 1}, False),
    ({**DONE, "availableReplicas": 0}, False),
    ({}, False),
]


@pytest.mark.parametrize(("status", "done"), ROLLOUTS)
def test_a_rollout_is_done_when_no_old_pod_is_left(status, done):
    deployment = {"metadata": {"generation": 2}, "spec": {"replicas": 2}, "status": status}
    assert is_rolled_out(deployment) is done


def make_definition(*versions, stored=()):
    listed = [{"name": v.strip("*"), "storage": "*" in v, "served": True} for v in versions]
    return {"spec": {"versions": listed}, "status": {"storedVersions": list(stored)}}


def test_versions_in_which_something_is_stored_stay_until_nothing_is():
    ours = make_definition("v2*", "v2beta1")
    live = make_definition("v2*", "v2alpha1", "v2beta1", "v1", stored=("v2alpha1", "v2"))
    assert find_stale(ours, live) == ["v2alpha1"]
    widened = add_versions(ours, live, ["v2alpha1"])["spec"]["versions"]
    assert [(each["name"], each["storage"]) for each in widened] == [
        ("v2", True),
        ("v2beta1", False),
        ("v2alpha1", False),
    ]
    assert add_versions(ours, live, ["v2beta1"]) is ours
    assert find_stale(ours, None) == []
    assert find_stale(ours, make_definition("v2*", stored=("v2",))) == []
