"""Nobody hands out rights that they do not have."""

import pytest
from access_world import ADMIN, World, make

from lictor.addons.apiserver.access.escalation import Escalation
from lictor.addons.apiserver.request import ApiUser
from lictor.core.errors import RefusedRequestError
from lictor.core.raw import JsonObject

RBAC = "rbac.authorization.k8s.io/v1"
GROUP = "rbac.authorization.k8s.io"
JANE = ApiUser("jane", ("devs", "system:authenticated"))
PODS: JsonObject = {"apiGroups": [""], "resources": ["pods", "*/log"], "verbs": ["get", "list"]}
SELECTORS = {"clusterRoleSelectors": [{"matchLabels": {"a": "b"}}]}
BEGINNING = (
    'user "jane" (groups=["devs" "system:authenticated"]) is attempting to grant RBAC permissions '
    "not currently held:\n"
)


def _role(name: str, *rules: JsonObject, **more: JsonObject) -> JsonObject:
    return make(RBAC, "Role", name, "default", rules=list(rules), **more)


def _cluster_role(name: str, *rules: JsonObject, **more: JsonObject) -> JsonObject:
    return make(RBAC, "ClusterRole", name, rules=list(rules), **more)


def _bind(name: str, role: str, kind: str = "ClusterRole", namespace: str = "") -> JsonObject:
    return make(
        RBAC,
        "RoleBinding" if namespace else "ClusterRoleBinding",
        name,
        namespace,
        roleRef={"apiGroup": GROUP, "kind": kind, "name": role},
        subjects=[{"kind": "User", "name": "jane"}],
    )


def _world(*documents: JsonObject) -> World:
    """Jane may read Pods in the namespace default."""
    return World(
        _cluster_role("read", PODS),
        _bind("jane-reads", "read", namespace="default"),
        _cluster_role("everything", {"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}),
        *documents,
    )


def _check(world: World, document: JsonObject, verb: str = "create", user: ApiUser = JANE) -> None:
    escalation = Escalation(world.reader, world.authorization)
    attributes = world.ask(document, verb, user)
    old = None
    if verb != "create":
        old = world.store.get(attributes.kind, attributes.namespace, attributes.name)
    escalation.check(attributes, document, old)


@pytest.mark.parametrize(
    "document",
    [
        _role("r", PODS),
        _role("r", {**PODS, "resources": ["pods", "pods/log", "services/log"]}),
        _role("r", {**PODS, "resourceNames": ["a"]}),
        _bind("b", "read", namespace="default"),
        make("v1", "ConfigMap", "c", "default"),
    ],
    ids=["same", "parts", "narrower", "binding", "no-rights"],
)
def test_allowed(document: JsonObject) -> None:
    _check(_world(), document)


@pytest.mark.parametrize(
    ("document", "message"),
    [
        (
            _role("r", {"apiGroups": ["", "apps"], "resources": ["pods"], "verbs": ["get", "*"]}),
            f'roles.{GROUP} "r" is forbidden: {BEGINNING}'
            '{APIGroups:[""], Resources:["pods"], Verbs:["*"]}\n'
            '{APIGroups:["apps"], Resources:["pods"], Verbs:["get" "*"]}',
        ),
        (
            _role(
                "r",
                {"apiGroups": [""], "resources": ["secrets"], "verbs": ["get"], "resourceNames": ["a"]},
            ),
            f'roles.{GROUP} "r" is forbidden: {BEGINNING}'
            '{APIGroups:[""], Resources:["secrets"], ResourceNames:["a"], Verbs:["get"]}',
        ),
        (
            _cluster_role("c", PODS, {"nonResourceURLs": ["/x", "/y"], "verbs": ["get"]}),
            f'clusterroles.{GROUP} "c" is forbidden: {BEGINNING}'
            '{APIGroups:[""], Resources:["*/log"], Verbs:["get" "list"]}\n'
            '{APIGroups:[""], Resources:["pods"], Verbs:["get" "list"]}\n'
            '{NonResourceURLs:["/x"], Verbs:["get"]}\n'
            '{NonResourceURLs:["/y"], Verbs:["get"]}',
        ),
        (
            _cluster_role("c", aggregationRule=SELECTORS),
            f'clusterroles.{GROUP} "c" is forbidden: must have cluster-admin privileges to use the '
            "aggregationRule",
        ),
        (
            _bind("b", "everything", namespace="default"),
            f'rolebindings.{GROUP} "b" is forbidden: {BEGINNING}'
            '{APIGroups:["*"], Resources:["*"], Verbs:["*"]}',
        ),
        (_bind("b", "nope", "Role", "default"), f'rolebindings.{GROUP} "nope" not found'),
    ],
    ids=["verbs", "names", "paths", "aggregation", "binding", "no-role"],
)  # fmt: skip
def test_refused(document: JsonObject, message: str) -> None:
    with pytest.raises(RefusedRequestError) as error:
        _check(_world(), document)
    assert error.value.message == message
    _check(_world(), document, user=ADMIN)


@pytest.mark.parametrize(
    ("verb", "resource", "document"),
    [
        ("escalate", "roles", _role("r", {**PODS, "verbs": ["delete"]})),
        ("bind", "clusterroles", _bind("b", "everything", namespace="default")),
    ],
)
def test_who_may_may(verb: str, resource: str, document: JsonObject) -> None:
    rule = {"apiGroups": [GROUP], "resources": [resource], "verbs": [verb]}
    _check(_world(_role("may", rule), _bind("may", "may", "Role", "default")), document)


def test_upkeep_needs_no_rights() -> None:
    role = _role("r", {**PODS, "verbs": ["delete"]})
    world = _world(role)
    kept = {**role, "metadata": {**role["metadata"], "finalizers": ["a"]}}
    _check(world, kept, "update")
    labelled = {**role, "metadata": {**role["metadata"], "labels": {"a": "b"}}}
    with pytest.raises(RefusedRequestError):
        _check(world, labelled, "update")
