"""What the API server never asks us about, in its own language."""

import pytest
from webhook_samples import NAMES, USUAL, classic, find_kind, resource_rule, settle, validating

from lictor.controllers.webhook_configuration.match_conditions import (
    build_conditions,
    build_exemptions,
    list_named,
)
from lictor.core.lang.cel.expression import compile_expression
from lictor.core.lang.cel.kubernetes import kubernetes_environment

ENVIRONMENT = kubernetes_environment(has_params=False)
EVERYTHING = [resource_rule("*/*", group="*", scope="*")]
PODS = [resource_rule("pods", scope="*")]


def guard(rules, settings, *, named=(), selector=None, policies=()):
    made = build_exemptions(NAMES, settings, find_kind)
    where = selector if selector is not None else settings.webhook_namespace_selector or {}
    return build_conditions(made, rules, named, where, policies)


def is_asked(conditions, request):
    """Would the API server call us? It does when all conditions hold."""
    return all(
        compile_expression(each["expression"], ENVIRONMENT)({"request": request})
        for each in conditions
    )


def request(path, *, namespace="", name="", user="joe", groups=()):
    """As the API server shows it: what is empty is not there."""
    group, resource, *part = path.split("/")
    asked = {
        "resource": {"group": group, "version": "v1", "resource": resource},
        "userInfo": {"username": user, "groups": list(groups)},
        "operation": "UPDATE",
        "namespace": namespace,
        "name": name,
        "subResource": part[0] if part else "",
    }
    if not groups:
        del asked["userInfo"]["groups"]
    return {key: value for key, value in asked.items() if value}


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        (request("/pods", namespace="team"), True),
        (request("/pods", namespace="lictor-ns"), False),
        (request("/pods", namespace="kube-system"), False),
        (request("/pods/exec", namespace="team"), True),
        (request("/nodes", name="n"), False),
        (request("/nodes/status", name="n"), False),
        (request("coordination.k8s.io/leases", namespace="kube-node-lease"), False),
        (request("certificates.k8s.io/certificatesigningrequests"), False),
        (request("certificates.k8s.io/certificatesigningrequests/approval"), False),
        (request("authentication.k8s.io/tokenreviews"), False),
        (request("authorization.k8s.io/subjectaccessreviews"), False),
        (request("authorization.k8s.io/localsubjectaccessreviews", namespace="team"), False),
        (request("/serviceaccounts/token", namespace="team"), False),
        (request("/serviceaccounts", namespace="team"), True),
        (request("example.com/nodes"), True),
        (request("/namespaces", namespace="lictor-ns", name="lictor-ns"), False),
        # Of a Namespace that is being created, there is a name only.
        (request("/namespaces", name="lictor-ns"), False),
        (request("/namespaces", name="team"), True),
        (request("/namespaces/finalize", namespace="lictor-ns", name="lictor-ns"), False),
        (request("example.com/namespaces", name="lictor-ns"), True),
        (request("rbac.authorization.k8s.io/clusterroles", name=NAMES.owner_role), False),
        (request("rbac.authorization.k8s.io/clusterroles", name="other"), True),
        (request("rbac.authorization.k8s.io/roles", name=NAMES.owner_role), True),
        (
            request("rbac.authorization.k8s.io/clusterroles", name="x", user="system:apiserver"),
            False,
        ),
    ],
)
def test_everything_without_settings(asked, expected):
    assert is_asked(guard(EVERYTHING, settle()), asked) is expected


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        (request("/pods", namespace="team"), True),
        (request("/pods", namespace="team", groups=["a", "system:nodes"]), False),
        (request("/pods", namespace="team", groups=["a"]), True),
        (request("/pods", namespace="team", user="robot"), False),
        (request("/pods", namespace="kube-public"), False),
        (request("/events", namespace="team"), False),
        (request("events.k8s.io/events", namespace="team"), False),
        (request("apps/replicasets", namespace="team"), True),
        (request("apps/replicasets/status", namespace="team"), False),
        (request("/configmaps", namespace="team"), True),
    ],
)
def test_everything_with_what_settings_leave_alone(asked, expected):
    settings = settle(
        resourceFilters="[Event,*,*] [*/*,kube-public,*] [ReplicaSet/*,*,*] [ConfigMap,x,*] [*,y,z]",
        excludeGroups="system:nodes,team-*",
        excludeUsernames="robot",
        **USUAL,
    )
    assert is_asked(guard(EVERYTHING, settings), asked) is expected


def test_callers_that_may_be_taken_back_in_are_left_to_the_server():
    settings = settle(excludeGroups="system:nodes", excludeUsernames="!admin", **USUAL)
    asked = request("/pods", namespace="team", groups=["system:nodes"])
    assert is_asked(guard(EVERYTHING, settings), asked)


def test_a_policy_that_names_a_kind_is_asked_about_it():
    rules = [*EVERYTHING, resource_rule("leases", group="coordination.k8s.io", scope="*")]
    conditions = guard(rules, settle(**USUAL), named=list_named(rules))
    lease = request("coordination.k8s.io/leases", namespace="team")
    assert is_asked(conditions, lease)
    assert not is_asked(conditions, request("/nodes"))


def test_a_policy_that_names_a_namespace_is_asked_about_it():
    policies = [classic("a", ["*"], match={"namespaces": ["kube-system"]})]
    conditions = guard(EVERYTHING, settle(), policies=policies)
    assert is_asked(conditions, request("/pods", namespace="kube-system"))
    assert not is_asked(conditions, request("/pods", namespace="lictor-ns"))


def test_no_conditions_where_nothing_needs_them():
    assert guard(PODS, settle(**USUAL), policies=[validating("a", *PODS)]) == []


def test_settings_that_choose_namespaces_keep_ours_out_all_the_same():
    settings = settle(webhooks='{"namespaceSelector": {"matchLabels": {"env": "prod"}}}')
    conditions = guard(PODS, settings)
    assert is_asked(conditions, request("/pods", namespace="kube-system"))
    assert not is_asked(conditions, request("/pods", namespace="lictor-ns"))


def test_the_owner_can_be_deleted_though_a_policy_names_its_kind():
    rules = [resource_rule("clusterroles", group="rbac.authorization.k8s.io", scope="*")]
    conditions = guard(rules, settle(**USUAL), named=list_named(rules))
    asked = request("rbac.authorization.k8s.io/clusterroles", name=NAMES.owner_role)
    assert not is_asked(conditions, asked)


@pytest.mark.parametrize("name", ['a"b', "a\\b"])
def test_names_cannot_break_out_of_the_expression(name):
    settings = settle(excludeUsernames=name, **USUAL)
    conditions = guard(EVERYTHING, settings)
    assert not is_asked(conditions, request("/pods", namespace="team", user=name))
    assert is_asked(conditions, request("/pods", namespace="team"))
