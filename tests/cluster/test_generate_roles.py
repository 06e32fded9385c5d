"""Roles and bindings that policies make: nobody grants by a policy what the background may not."""

import json

import pytest
from background_site import BACKGROUND, HOME, RIGHTS, build_site, until

ACCOUNT = f"system:serviceaccount:{HOME}:lictor-{BACKGROUND}"
GROUP = "rbac.authorization.k8s.io"
LABEL = "rbac.kyverno.io/aggregate-to-background-controller"


@pytest.fixture(scope="module")
def site(open_cluster):
    with open_cluster() as plane:
        yield build_site(plane, ["configmaps"])


def make_grant(name, *rules):
    """More rights for the background."""
    return {
        "apiVersion": f"{GROUP}/v1",
        "kind": "ClusterRole",
        "metadata": {"name": f"roles:{name}", "labels": {LABEL: "true"}},
        "rules": [
            {"apiGroups": [group], "resources": resources, "verbs": verbs}
            for group, resources, verbs in rules
        ],
    }


def make_policy(name):
    """A namespace gets a role for Jobs, and a binding to it."""
    match = {"any": [{"resources": {"kinds": ["Namespace"], "names": [f"{name}-*"]}}]}
    target = {
        "apiVersion": f"{GROUP}/v1",
        "name": "keeper",
        "namespace": "{{request.object.metadata.name}}",
        "synchronize": True,
    }
    keeps = {"apiGroups": ["batch"], "resources": ["jobs"], "verbs": ["delete"]}
    bound = {
        "roleRef": {"apiGroup": GROUP, "kind": "Role", "name": "keeper"},
        "subjects": [{"kind": "Group", "apiGroup": GROUP, "name": "shop"}],
    }
    made = [("role", "Role", {"rules": [keeps]}), ("binding", "RoleBinding", bound)]
    rules = [
        {"name": rule, "match": match, "generate": {**target, "kind": kind, "data": data}}
        for rule, kind, data in made
    ]
    return {
        "apiVersion": "kyverno.io/v1",
        "kind": "ClusterPolicy",
        "metadata": {"name": name},
        "spec": {"rules": rules},
    }


MAKING = make_grant("making", (GROUP, ["roles", "rolebindings"], RIGHTS))
PASSING_ON = make_grant("passing-on", (GROUP, ["roles"], ["escalate", "bind"]))
HOLDING = make_grant("holding", ("batch", ["jobs"], ["delete"]))


def grant(site, *roles):
    """Give these rights, and take all others of this file away."""
    wanted = {role["metadata"]["name"] for role in roles}
    for role in (MAKING, PASSING_ON, HOLDING):
        if role["metadata"]["name"] not in wanted:
            name = role["metadata"]["name"]
            site.kubectl("delete", "clusterrole", name, "--ignore-not-found")
    if roles:
        site.apply(*roles)
    for role in (MAKING, PASSING_ON, HOLDING):
        is_wanted = role["metadata"]["name"] in wanted
        rule = role["rules"][0]
        what = ".".join(filter(None, (rule["resources"][0], rule["apiGroups"][0])))
        words = ("auth", "can-i", rule["verbs"][-1], what, "--as", ACCOUNT)
        until(lambda w=words, i=is_wanted: _may(site, w) is i, "rights", 60)


def _may(site, words):
    return site.kubectl(*words, check=False).returncode == 0


def refuse(site, policy):
    """What the refusal of a policy says."""
    text = json.dumps(policy)
    answer = site.plane.kubectl("create", "-f", "-", stdin=text, check=False)
    assert answer.returncode != 0
    return answer.stderr


def test_the_refusal_of_a_policy_names_the_right(site):
    grant(site)
    told = refuse(site, make_policy("poor"))
    for kind in ("Role", "RoleBinding"):
        needed = f"requires permissions get,create,update,delete for resource {GROUP}/v1/{kind}"
        assert f"{ACCOUNT} {needed}" in told
    assert LABEL in told
    grant(site, MAKING)
    told = refuse(site, make_policy("poor"))
    assert (
        f"{ACCOUNT} may not make a Role with rights that it does not hold: delete batch/jobs"
        in told
    )
    assert "the verb escalate on roles" in told


@pytest.mark.parametrize("others", [(PASSING_ON,), (PASSING_ON, HOLDING)], ids=["may", "holds"])
def test_roles_and_bindings_are_made_and_kept(site, others):
    name = f"rich{len(others)}"
    grant(site, MAKING, *others)
    site.install(make_policy(name))
    site.make_namespace(f"{name}-a")
    until(lambda: site.find("rolebinding", "keeper", f"{name}-a"), "the binding", 60)
    until(lambda: site.find("role", "keeper", f"{name}-a"), "the role", 60)
    site.kubectl("delete", "role", "keeper", "-n", f"{name}-a")
    until(lambda: site.find("role", "keeper", f"{name}-a"), "the role comes back", 60)
    site.kubectl("delete", "clusterpolicy", name)
    until(lambda: site.find("role", "keeper", f"{name}-a") is None, "gone with the policy", 60)


def test_a_right_that_is_lost_later_is_named_by_the_update(site):
    grant(site, MAKING, PASSING_ON)
    site.install(make_policy("lost"))
    grant(site, MAKING)
    site.make_namespace("lost-a")

    def failures():
        found = json.loads(site.kubectl("get", "updaterequests", "-n", HOME, "-o", "json").stdout)
        states = [
            item.get("status") or {} for item in found["items"] if item["spec"]["policy"] == "lost"
        ]
        return " ".join(each["message"] for each in states if each.get("state") == "Failed")

    until(lambda: "jobs" in failures(), "the update names what is missing", 60)
    grant(site, MAKING, PASSING_ON)
    until(lambda: site.find("rolebinding", "keeper", "lost-a"), "made once it may be", 90)
    until(lambda: site.find("role", "keeper", "lost-a"), "made once it may be", 90)
