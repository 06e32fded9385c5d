"""Whoever may write policies in one namespace touches nothing outside of it; see docs/explanation/threat-model.md."""

import json
import time

import pytest
from background_site import HOME, build_site, make_role, until

GROUP = "rbac.authorization.k8s.io"
ROLE = {"apiGroup": GROUP, "kind": "ClusterRole", "name": "view"}
MALLORY = {"kind": "User", "apiGroup": GROUP, "name": "mallory"}
KINDS = {
    "Policy": ("kyverno.io/v1", "policies.kyverno.io"),
    "ClusterPolicy": ("kyverno.io/v1", "clusterpolicies.kyverno.io"),
    "NamespacedGeneratingPolicy": (
        "policies.kyverno.io/v1beta1",
        "namespacedgeneratingpolicies.policies.kyverno.io",
    ),
    "NamespacedMutatingPolicy": (
        "policies.kyverno.io/v1beta1",
        "namespacedmutatingpolicies.policies.kyverno.io",
    ),
}


@pytest.fixture(scope="module")
def site(open_cluster):
    with open_cluster() as plane:
        made = build_site(plane, ["configmaps", "secrets"])
        # More than anybody should give it, so that nothing but lictor itself is in the way.
        role = make_role("all", ["*"])
        role["rules"][0]["apiGroups"] = ["*"]
        role["rules"][0]["verbs"] = ["*"]
        made.apply(role)
        for name in ("red", "blue"):
            made.make_namespace(name)
        made.apply(make_map("vault", "blue", word="secret"), make_map("vault", "red", word="mine"))
        yield made


def make_map(name, namespace, **data):
    metadata = {"name": name, "namespace": namespace}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data}


def make_policy(kind, name, **spec):
    where = {} if kind.startswith("Cluster") else {"namespace": "red"}
    metadata = {"name": name, **where}
    return {"apiVersion": KINDS[kind][0], "kind": kind, "metadata": metadata, "spec": spec}


def make_classic(name, kind="Policy", **body):
    match = {"any": [{"resources": {"kinds": ["ConfigMap"], "names": ["go-*"]}}]}
    rule = {"name": "rule", "match": match, **body}
    return make_policy(kind, name, background=False, rules=[rule])


def make_target(name, namespace, **more):
    target = {"apiVersion": "v1", "kind": "ConfigMap", "name": name, "namespace": namespace}
    return {"synchronize": True, **target, **more}


MATCH = {
    "resourceRules": [
        {
            "apiGroups": [""],
            "apiVersions": ["v1"],
            "operations": ["CREATE"],
            "resources": ["configmaps"],
        }
    ]
}
ONLY_GO = [{"name": "go", "expression": "object.metadata.name.startsWith('go-')"}]
OURS = {"data": {"resourceFilters": "[*/*,*,*]", "excludeUsernames": "mallory"}}
STOLEN = {"data": {"word": "stolen"}}


def escapes():
    """All forms in which a policy of red could reach for something else, each with its trick."""
    blue = "{{ 'blue' }}"
    yield make_classic("overwrites", generate=make_target("vault", blue, data=STOLEN))
    yield make_classic("settings", generate=make_target(HOME, "{{ 'lictor' }}", data=OURS))
    binding = {"apiVersion": f"{GROUP}/v1", "kind": "RoleBinding", "name": "mallory"}
    body = {"roleRef": ROLE, "subjects": [MALLORY]}
    yield make_classic("binds", generate={**binding, "namespace": blue, "data": body})
    wide = {**binding, "namespace": "red", "data": {**body, "kind": "ClusterRoleBinding"}}
    yield make_classic("binds-all", generate=wide)
    clone = {"namespace": blue, "name": "vault"}
    yield make_classic("copies", generate=make_target("copy", "red", clone=clone))
    many = {"namespace": blue, "kinds": ["v1/ConfigMap"]}
    yield make_classic("copies-all", generate={"namespace": "red", "cloneList": many})
    loop = {"list": "['blue']", **make_target("vault", "{{ element }}", data=STOLEN)}
    loop.pop("synchronize")
    yield make_classic("loops", generate={"foreach": [loop]})
    nowhere = make_target("made", "{{ request.object.data.none || '' }}", data=STOLEN)
    yield make_classic("nowhere", generate=nowhere)
    mine = {"apiVersion": "v1", "kind": "ConfigMap", "name": "vault"}
    move = json.dumps([{"op": "replace", "path": "/metadata/namespace", "value": "blue"}])
    yield make_classic("moves", mutate={"targets": [mine], "patchesJson6902": move})
    label = {"metadata": {"labels": {"by": "red"}}}
    other = {**mine, "namespace": "{{ request.object.data.where }}"}
    yield make_classic("changes", mutate={"targets": [other], "patchStrategicMerge": label})
    made = (
        '[{"apiVersion": dyn("v1"), "kind": dyn("ConfigMap"), "metadata": dyn({"name": "vault"})}]'
    )
    yield make_policy(
        "NamespacedGeneratingPolicy",
        "cel-makes",
        matchConstraints=MATCH,
        matchConditions=ONLY_GO,
        generate=[{"expression": f"generator.Apply(object.data.where, {made})"}],
    )
    found = made[1:-1].replace('"name": "vault"', '"name": "vault", "namespace": "blue"')
    yield make_policy(
        "NamespacedMutatingPolicy",
        "cel-changes",
        matchConstraints=MATCH,
        matchConditions=ONLY_GO,
        evaluation={"mutateExisting": {"enabled": True}},
        targetMatchConstraints={"expression": found},
        mutations=[
            {
                "patchType": "ApplyConfiguration",
                "applyConfiguration": {
                    "expression": 'Object{metadata: Object.metadata{labels: {"by": "red"}}}'
                },
            }
        ],
    )


def install(site, policies):
    """Those that are let in, and what the others were told."""
    refused = {}
    for policy in policies:
        words = ("create", "-f", "-")
        done = site.plane.kubectl(*words, stdin=json.dumps(policy), check=False)
        if done.returncode:
            refused[policy["metadata"]["name"]] = done.stderr
    accepted = [p for p in policies if p["metadata"]["name"] not in refused]
    for policy in accepted:
        until(lambda: is_ready(site, policy), policy["metadata"]["name"])  # noqa: B023
    time.sleep(1.0)
    return accepted, refused


def is_ready(site, policy):
    where = policy["metadata"].get("namespace", "")
    found = site.find(KINDS[policy["kind"]][1], policy["metadata"]["name"], where)
    status = (found or {}).get("status") or {}
    status = status.get("conditionStatus") or status
    return any(
        each["type"] in ("Ready", "WebhookConfigured") and each["status"] == "True"
        for each in status.get("conditions") or ()
    )


def snapshot(site):
    """All that must stay as it is."""
    kinds = "configmaps,secrets,rolebindings,clusterrolebindings,serviceaccounts"
    words = ("get", kinds, "-A", "-o", "json")
    items = json.loads(site.kubectl(*words).stdout)["items"]
    return {
        (each["kind"], each["metadata"].get("namespace", ""), each["metadata"]["name"]): (
            each["metadata"]["uid"],
            each.get("data"),
            each["metadata"].get("labels"),
            each.get("subjects"),
        )
        for each in items
        if each["metadata"].get("namespace") != "red"
    }


def list_failures(site):
    words = ("get", "updaterequests.kyverno.io", "-n", HOME, "-o", "json")
    items = json.loads(site.kubectl(*words).stdout)["items"]
    return {
        each["spec"]["policy"].rpartition("/")[2]: each["status"].get("message", "")
        for each in items
        if (each.get("status") or {}).get("state") == "Failed"
    }


def test_a_policy_of_a_namespace_touches_nothing_outside(site):
    before = snapshot(site)
    policies = list(escapes())
    accepted, refused = install(site, policies)
    names = {policy["metadata"]["name"] for policy in accepted}
    assert len(names) >= 9, refused
    site.apply(make_map("go-1", "red", where="blue"))
    until(lambda: names <= list_failures(site).keys(), "all of them have failed", 60)
    failures = list_failures(site)
    for name in names:
        told = failures[name]
        assert "cannot reach" in told or "must not change" in told or "denied" in told, (name, told)
    assert snapshot(site) == before
    assert site.data("vault", "red") == {"word": "mine"}
    assert site.find("configmap", "copy", "red") is None
    # The author hears of it too.
    words = ("get", "events.events.k8s.io", "-n", "red", "-o", "json")

    def is_told():
        items = json.loads(site.kubectl(*words).stdout)["items"]
        notes = [each.get("note", "") for each in items if each.get("reason") == "PolicyError"]
        return any("cannot reach namespace blue" in note for note in notes)

    until(is_told, "an event says so")
    take_away(site, accepted)


def take_away(site, policies):
    for policy in policies:
        where = policy["metadata"].get("namespace")
        place = ("-n", where) if where else ()
        site.kubectl("delete", KINDS[policy["kind"]][1], policy["metadata"]["name"], *place)
    site.kubectl("delete", "updaterequests.kyverno.io", "--all", "-n", HOME)
    site.kubectl("delete", "configmaps", "-n", "red", "go-1")


def test_no_policy_touches_what_lictor_is_made_of(site):
    """Neither those of the whole cluster, with all rights there are."""
    settings = site.find("configmap", HOME, HOME)
    webhook = {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingWebhookConfiguration",
        "name": "lictor-resource-validating-webhook-cfg",
    }
    role = {
        "apiVersion": f"{GROUP}/v1",
        "kind": "ClusterRole",
        "name": "lictor:admission-controller",
    }
    label = {"metadata": {"labels": {"by": "someone"}}}
    own = {"apiVersion": "v1", "kind": "ConfigMap", "name": HOME, "namespace": HOME}
    policies = [
        make_classic("writes-ours", "ClusterPolicy", generate=make_target(HOME, HOME, data=OURS)),
        make_classic("adds-ours", "ClusterPolicy", generate=make_target("new", HOME, data=OURS)),
        *(
            make_classic(
                f"changes-{number}",
                "ClusterPolicy",
                mutate={"targets": [target], "patchStrategicMerge": label},
            )
            for number, target in enumerate((own, webhook, role))
        ),
    ]
    accepted, refused = install(site, policies)
    assert not refused
    site.apply(make_map("go-1", "red"))
    names = {policy["metadata"]["name"] for policy in accepted}
    until(lambda: names <= list_failures(site).keys(), "all of them have failed", 60)
    for name, told in list_failures(site).items():
        assert "lictor's own objects" in told, (name, told)
    assert site.find("configmap", HOME, HOME) == settings
    assert site.find("configmap", "new", HOME) is None
    for target in (webhook, role):
        labels = site.find(target["kind"], target["name"])["metadata"].get("labels") or {}
        assert "by" not in labels
    take_away(site, accepted)
