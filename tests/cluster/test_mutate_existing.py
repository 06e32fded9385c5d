"""Rules that change objects which are there already, on a real API server."""

import json

import pytest
from background_site import HOME, build_site, make_role, stays, until


@pytest.fixture(scope="module")
def site(open_cluster):
    with open_cluster() as plane:
        made = build_site(plane, ["configmaps", "secrets", "namespaces"])
        role = make_role("scale", [])
        role["rules"] = [
            {
                "apiGroups": ["apps"],
                "resources": ["deployments", "deployments/scale", "deployments/status"],
                "verbs": ["get", "list", "watch", "update", "patch"],
            }
        ]
        made.apply(role)
        yield made


def make_policy(title, target, patch, *, operations=(), **mutate):
    """A rule for ConfigMaps whose names begin with the title."""
    resources = {"kinds": ["ConfigMap"], "names": [f"{title}-*"]}
    if operations:
        resources["operations"] = list(operations)
    body = {"targets": [target], "patchStrategicMerge": patch, **mutate}
    rule = {"name": "change", "match": {"any": [{"resources": resources}]}, "mutate": body}
    return {
        "apiVersion": "kyverno.io/v1",
        "kind": "ClusterPolicy",
        "metadata": {"name": title},
        "spec": {"rules": [rule]},
    }


def make_map(name, **data):
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data}


def make_deployment(name):
    labels = {"app": name}
    template = {
        "metadata": {"labels": labels},
        "spec": {"containers": [{"name": "c", "image": "example.com/none"}]},
    }
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name},
        "spec": {"replicas": 1, "selector": {"matchLabels": labels}, "template": template},
    }


SECRET = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "told"}}
TOLD = {"apiVersion": "v1", "kind": "Secret", "name": "told", "namespace": "default"}
NOTE = {"metadata": {"annotations": {"by": "{{request.object.metadata.name}}"}}}


def read_notes(site, kind, name):
    return site.find(kind, name, "default")["metadata"].get("annotations") or {}


def test_a_trigger_changes_what_is_there(site):
    site.apply(SECRET)
    site.install(make_policy("told", TOLD, NOTE))
    site.apply(make_map("told-a"))
    until(lambda: read_notes(site, "secret", "told").get("by") == "told-a", "changed")
    site.apply(make_map("told-b"))
    until(lambda: read_notes(site, "secret", "told").get("by") == "told-b", "changed again")
    # Our own write is no trigger, and nothing is left in the queue.
    until(lambda: site.count_updates() == 0, "done")


def test_a_deletion_is_a_trigger_too(site):
    site.apply({**SECRET, "metadata": {"name": "ended"}})
    target = {**TOLD, "name": "ended"}
    site.install(make_policy("ended", target, NOTE, operations=["DELETE"]))
    site.apply(make_map("ended-a"))
    stays(lambda: "by" not in read_notes(site, "secret", "ended"), "nothing yet")
    site.kubectl("delete", "configmap", "ended-a")
    until(lambda: read_notes(site, "secret", "ended").get("by") == "ended-a", "changed at the end")


def test_a_new_policy_meets_what_is_there(site):
    site.apply({**SECRET, "metadata": {"name": "met"}}, make_map("met-a"))
    target = {**TOLD, "name": "met"}
    site.install(make_policy("met", target, NOTE, mutateExistingOnPolicyUpdate=True))
    until(lambda: read_notes(site, "secret", "met").get("by") == "met-a", "changed")


def test_a_rule_for_all_namespaces_skips_that_of_lictor(site):
    target = {"apiVersion": "v1", "kind": "Namespace"}
    site.install(make_policy("rolled", target, {"metadata": {"labels": {"rolled": "yes"}}}))
    site.apply(make_map("rolled-a"))

    def list_labelled():
        words = ("get", "namespaces", "-l", "rolled=yes", "-o", "name")
        return site.kubectl(*words).stdout.split()

    until(lambda: "namespace/default" in list_labelled(), "labelled")
    until(lambda: site.count_updates() == 0, "done, and not tried again")
    assert f"namespace/{HOME}" not in list_labelled()


@pytest.mark.parametrize(
    ("part", "patch", "path", "value"),
    [
        pytest.param("scale", {"spec": {"replicas": 3}}, ("spec", "replicas"), 3, id="scale"),
        pytest.param(
            "status",
            {"status": {"collisionCount": 7}},
            ("status", "collisionCount"),
            7,
            id="status",
        ),
    ],
)
def test_a_part_of_an_object(site, part, patch, path, value):
    site.apply(make_deployment(part))
    target = {
        "apiVersion": "apps/v1", "kind": f"Deployment/{part}", "name": part, "namespace": "default",
    }  # fmt: skip
    site.install(make_policy(part, target, patch))
    site.apply(make_map(f"{part}-a"))

    def read():
        found = site.find("deployment", part, "default")
        for name in path:
            found = found.get(name) or {}
        return found

    until(lambda: read() == value, f"{part} changed")


def test_what_may_not_be_changed_is_told(site):
    site.apply(
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "refused"}},
        make_role("accounts", ["serviceaccounts"]),
    )
    account = "system:serviceaccount:lictor:lictor-background-controller"
    words = ("auth", "can-i", "update", "serviceaccounts", "--as", account)
    until(lambda: site.kubectl(*words, check=False).returncode == 0, "rights")
    target = {**TOLD, "kind": "ServiceAccount", "name": "refused"}
    site.install(make_policy("refused", target, NOTE))
    site.kubectl("delete", "clusterrole", "generate:accounts")
    until(lambda: site.kubectl(*words, check=False).returncode != 0, "no rights")
    site.apply(make_map("refused-a"))

    def failed():
        found = json.loads(site.kubectl("get", "updaterequests", "-A", "-o", "json").stdout)
        states = [item.get("status") or {} for item in found["items"]]
        return [each["message"] for each in states if each.get("state") == "Failed"]

    until(failed, "the update says that it failed")
    assert "refused" in failed()[0]


def test_what_a_mutating_policy_did_to_others_is_reported(site):
    """The scan of the trigger must not take the report of its admission away."""
    site.installation.start_controller("reports-controller")
    site.apply({**SECRET, "metadata": {"name": "reported"}})
    rule = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE", "UPDATE"]}
    note = "Object{metadata: Object.metadata{annotations: Object.metadata.annotations{by: 'cel'}}}"
    policy = {
        "apiVersion": "policies.kyverno.io/v1beta1",
        "kind": "MutatingPolicy",
        "metadata": {"name": "reported"},
        "spec": {
            "evaluation": {"mutateExisting": {"enabled": True}},
            "matchConstraints": {
                "resourceRules": [
                    {**rule, "resources": ["configmaps"], "resourceNames": ["reported-a"]}
                ]
            },
            "targetMatchConstraints": {
                "resourceRules": [{**rule, "resources": ["secrets"], "resourceNames": ["reported"]}]
            },
            "mutations": [
                {"patchType": "ApplyConfiguration", "applyConfiguration": {"expression": note}}
            ],
        },
    }
    site.install(policy)
    site.apply(make_map("reported-a"))
    until(lambda: read_notes(site, "secret", "reported").get("by") == "cel", "changed")

    def is_reported():
        found = json.loads(site.kubectl("get", "policyreports", "-A", "-o", "json").stdout)
        results = [each for item in found["items"] for each in item.get("results") or ()]
        return any(each["policy"] == "reported" and each["result"] == "pass" for each in results)

    until(is_reported, "reported")
    stays(is_reported, "still reported after the scan", seconds=4.0)


def test_a_validating_policy_is_told_by_admission_and_by_the_scan(site):
    """Both tell the policy of the object; the object itself is told once, by the scan."""
    site.installation.start_controller("reports-controller")
    rule = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE", "UPDATE"]}
    policy = {
        "apiVersion": "policies.kyverno.io/v1beta1",
        "kind": "ValidatingPolicy",
        "metadata": {"name": "watched"},
        "spec": {
            "validationActions": ["Audit"],
            "matchConstraints": {
                "resourceRules": [
                    {**rule, "resources": ["configmaps"], "resourceNames": ["watched-a"]}
                ]
            },
            "validations": [{"expression": "has(object.data)", "message": "who owns it?"}],
        },
    }
    site.install(policy)
    site.apply(make_map("watched-a"))

    def list_events(kind):
        found = json.loads(site.kubectl("get", "events", "-A", "-o", "json").stdout)
        return [
            (each["reportingComponent"], each["reason"], each["type"], each["message"])
            for each in found["items"]
            if each["involvedObject"]["kind"] == kind
            and each["involvedObject"]["name"].startswith("watched")
            and each["involvedObject"]["apiVersion"].startswith(("policies.kyverno.io/v1", "v1"))
        ]

    told = "ConfigMap default/watched-a: fail; who owns it?"
    by_both = [
        (f"kyverno-{who}", "PolicyViolation", "Warning", told) for who in ("admission", "scan")
    ]
    until(lambda: len(list_events("ValidatingPolicy")) >= 2, "told of the policy", 60)
    assert sorted(list_events("ValidatingPolicy")) == by_both
    of_object = [
        ("kyverno-scan", "PolicyViolation", "Warning", "policy watched/ fail: who owns it?")
    ]
    until(lambda: list_events("ConfigMap"), "told of the object", 60)
    stays(lambda: list_events("ConfigMap") == of_object, "told once")
