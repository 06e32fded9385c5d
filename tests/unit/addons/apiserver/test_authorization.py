"""RBAC: who may do what, in which words they are refused, and roles made of others."""

import asyncio

import pytest
from access_world import ADMIN, World, make

from lictor.addons.apiserver.access.access_reviews import AccessReviews
from lictor.addons.apiserver.access.authentication import Authentication
from lictor.addons.apiserver.access.authorization import AccessQuestion
from lictor.addons.apiserver.bootstrap import list_bootstrap_bindings, list_bootstrap_roles
from lictor.addons.apiserver.controllers.kind_controllers import RoleAggregation
from lictor.addons.apiserver.request import ApiUser, RequestAttributes
from lictor.addons.apiserver.service_account_tokens import ServiceTokens, TokenGrant
from lictor.core.errors import RefusedRequestError
from lictor.core.raw import Json, JsonObject

RBAC = "rbac.authorization.k8s.io/v1"
JANE = ApiUser("jane", ("devs", "system:authenticated"))
ROBOT = ApiUser("system:serviceaccount:default:robot", ("system:serviceaccounts",))


def _role(name: str, *rules: JsonObject, namespace: str = "", **more: Json) -> JsonObject:
    kind = "Role" if namespace else "ClusterRole"
    return make(RBAC, kind, name, namespace, rules=list(rules), **more)


def _rule(verbs: str, resources: str, group: str = "", **more: Json) -> JsonObject:
    return {
        "verbs": verbs.split(), "resources": resources.split(), "apiGroups": [group], **more,
    }  # fmt: skip


def _binding(
    name: str, role: str, subject: JsonObject, namespace: str = "", kind: str = "ClusterRole"
) -> JsonObject:
    return make(
        RBAC,
        "RoleBinding" if namespace else "ClusterRoleBinding",
        name,
        namespace,
        roleRef={"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": role},
        subjects=[subject],
    )


TO_JANE = {"kind": "User", "name": "jane"}
TO_DEVS = {"kind": "Group", "name": "devs"}
TO_ROBOT = {"kind": "ServiceAccount", "name": "robot", "namespace": "default"}

WORLD = (
    _role(
        "read", _rule("get list", "pods pods/log"), _rule("get", "configmaps", resourceNames=["a"])
    ),
    _role("scale", _rule("update", "*/scale", "apps")),
    _role("health", {"verbs": ["get"], "nonResourceURLs": ["/metrics", "/logs/*"]}),
    _role("write", _rule("create delete", "pods"), namespace="default"),
    _role("all", _rule("*", "*", "*")),
    _binding("devs-read", "read", TO_DEVS),
    _binding("jane-scale", "scale", TO_JANE, "default"),
    _binding("jane-health", "health", TO_JANE),
    _binding("robot-write", "write", {**TO_ROBOT, "namespace": ""}, "default", "Role"),
    _binding("robot-all", "all", TO_ROBOT, "kube-system"),
    _binding("broken", "missing", {"kind": "User", "name": "lost"}),
)


@pytest.mark.parametrize(
    ("question", "reason"),
    [
        (
            AccessQuestion(JANE, "get", "", "pods", "", "default", "x"),
            'RBAC: allowed by ClusterRoleBinding "devs-read" of ClusterRole "read" to Group "devs"',
        ),
        (
            AccessQuestion(JANE, "get", "", "pods", "log", "default", "x"),
            'RBAC: allowed by ClusterRoleBinding "devs-read" of ClusterRole "read" to Group "devs"',
        ),
        (
            AccessQuestion(JANE, "get", "", "configmaps", "", "kube-system", "a"),
            'RBAC: allowed by ClusterRoleBinding "devs-read" of ClusterRole "read" to Group "devs"',
        ),
        (
            AccessQuestion(JANE, "update", "apps", "deployments", "scale", "default", "x"),
            'RBAC: allowed by RoleBinding "jane-scale/default" of ClusterRole "scale" to User '
            '"jane"',
        ),
        (
            AccessQuestion(JANE, "get", path="/logs/x"),
            'RBAC: allowed by ClusterRoleBinding "jane-health" of ClusterRole "health" to User '
            '"jane"',
        ),
        (
            AccessQuestion(ROBOT, "create", "", "pods", "", "default"),
            'RBAC: allowed by RoleBinding "robot-write/default" of Role "write" to ServiceAccount '
            '"robot/default"',
        ),
        (
            AccessQuestion(ROBOT, "delete", "apps", "deployments", "status", "kube-system", "x"),
            'RBAC: allowed by RoleBinding "robot-all/kube-system" of ClusterRole "all" to '
            'ServiceAccount "robot/default"',
        ),
        (AccessQuestion(ADMIN, "anything", "any", "thing"), ""),
    ],
    ids=["group", "part", "name", "any-scale", "path", "role", "everything-there", "masters"],
)
def test_allowed(question: AccessQuestion, reason: str) -> None:
    assert World(*WORLD).authorization.decide(question) == (True, reason)


@pytest.mark.parametrize(
    ("question", "message"),
    [
        (
            AccessQuestion(JANE, "delete", "", "pods", "", "default", "x"),
            'pods "x" is forbidden: User "jane" cannot delete resource "pods" in API group "" in '
            'the namespace "default"',
        ),
        (
            AccessQuestion(JANE, "list", "apps", "deployments"),
            'deployments.apps is forbidden: User "jane" cannot list resource "deployments" in API '
            'group "apps" at the cluster scope',
        ),
        (
            AccessQuestion(JANE, "list", "", "configmaps", "", "default"),
            'configmaps is forbidden: User "jane" cannot list resource "configmaps" in API group '
            '"" in the namespace "default"',
        ),
        (
            AccessQuestion(JANE, "update", "apps", "deployments", "scale", "kube-system", "x"),
            'deployments.apps "x" is forbidden: User "jane" cannot update resource '
            '"deployments/scale" in API group "apps" in the namespace "kube-system"',
        ),
        (
            AccessQuestion(JANE, "get", path="/debug"),
            'forbidden: User "jane" cannot get path "/debug"',
        ),
        (
            AccessQuestion(ApiUser("a<b>"), "get", path="/logs/&"),
            'forbidden: User "a&lt;b&gt;" cannot get path "/logs/&amp;"',
        ),
        (
            AccessQuestion(ApiUser("lost"), "get", "", "pods"),
            'pods is forbidden: User "lost" cannot get resource "pods" in API group "" at the '
            'cluster scope: RBAC: clusterrole.rbac.authorization.k8s.io "missing" not found',
        ),
    ],
    ids=["verb", "group", "names-only", "elsewhere", "path", "markup", "no-role"],
)
def test_refused(question: AccessQuestion, message: str) -> None:
    with pytest.raises(RefusedRequestError) as error:
        World(*WORLD).authorization.require(question)
    assert (error.value.code, error.value.reason) == (403, "Forbidden")
    assert error.value.message == message


def test_details_of_a_refusal() -> None:
    world = World()
    pod = make("v1", "Pod", "x", "default")
    with pytest.raises(RefusedRequestError) as error:
        world.authorization.check(world.ask(pod, "delete", JANE))
    assert error.value.details == {"name": "x", "kind": "pods"}


def test_changes_count_at_once() -> None:
    world = World()
    question = AccessQuestion(JANE, "get", "", "pods", "", "default")
    assert not world.authorization.decide(question)[0]
    world.put(_role("read", _rule("get", "pods")), _binding("b", "read", TO_DEVS))
    assert world.authorization.decide(question)[0]
    world.put(_role("read", _rule("list", "pods")))
    assert not world.authorization.decide(question)[0]


# --- the roles that every cluster begins with


def _bootstrapped() -> World:
    return World(*list_bootstrap_roles(), *list_bootstrap_bindings())


@pytest.mark.parametrize(
    ("user", "verb", "path", "allowed"),
    [
        (ApiUser("x", ("system:authenticated",)), "get", "/apis/apps/v1", True),
        (ApiUser("x", ("system:authenticated",)), "get", "/metrics", False),
        (ApiUser("system:anonymous", ("system:unauthenticated",)), "get", "/version", True),
        (ApiUser("system:anonymous", ("system:unauthenticated",)), "get", "/api", False),
    ],
    ids=["discovery", "metrics", "version", "anonymous"],
)
def test_paths_for_everyone(user: ApiUser, verb: str, path: str, *, allowed: bool) -> None:
    world = _bootstrapped()
    if allowed:
        world.authorization.check_path(user, verb, path)
    else:
        with pytest.raises(RefusedRequestError):
            world.authorization.check_path(user, verb, path)


@pytest.mark.parametrize(
    ("role", "verb", "group", "resource", "allowed"),
    [
        ("view", "get", "", "pods", True),
        ("view", "get", "", "secrets", False),
        ("view", "create", "", "pods", False),
        ("edit", "create", "apps", "deployments", True),
        ("edit", "get", "", "secrets", True),
        ("edit", "create", "rbac.authorization.k8s.io", "roles", False),
        ("admin", "create", "rbac.authorization.k8s.io", "roles", True),
        ("admin", "list", "discovery.k8s.io", "endpointslices", True),
        ("cluster-admin", "delete", "x", "y", True),
        ("system:controller:deployment-controller", "create", "apps", "replicasets", True),
    ],
)
def test_bootstrap_roles(role: str, verb: str, group: str, resource: str, *, allowed: bool) -> None:
    world = _bootstrapped()
    world.put(_binding("b", role, TO_JANE))
    question = AccessQuestion(ApiUser("jane"), verb, group, resource, "", "default")
    assert world.authorization.decide(question)[0] is allowed


def test_roles_made_of_others() -> None:
    world = _bootstrapped()
    view = world.kind_of(list_bootstrap_roles()[0])
    written: list[str] = []

    async def write(role: JsonObject) -> None:
        written.append(role["metadata"]["name"])
        world.put(role)

    aggregation = RoleAggregation(world.reader, write)
    asyncio.run(aggregation.reconcile())
    assert written == []
    labels = {"rbac.authorization.k8s.io/aggregate-to-view": "true"}
    world.put(_role("crd-view", _rule("get", "things", "acme.com"), labels=labels))
    for _ in range(3):
        asyncio.run(aggregation.reconcile())
    assert written == ["view", "edit", "admin"]
    for name in written:
        role = world.store.get(view, "", name)
        assert role is not None
        assert _rule("get", "things", "acme.com") in role["rules"]


# --- reviews


def _review(world: World, kind: str, spec: Json, user: ApiUser = JANE, namespace: str = "") -> Json:
    tokens = ServiceTokens(b"k" * 32, world.reader)
    authentication = Authentication(world.authorization, tokens, {"secret": JANE})
    reviews = AccessReviews(authentication, world.authorization, tokens)
    group = "authentication" if kind in ("SelfSubjectReview", "TokenReview") else "authorization"
    found = world.catalogue.find_kind(f"{group}.k8s.io/v1", kind)
    assert found is not None
    document = {"apiVersion": f"{group}.k8s.io/v1", "kind": kind, "metadata": {}, "spec": spec}
    answer = reviews.answer(found, user, document, namespace)
    assert answer is not None
    return answer["status"]


PODS = {"verb": "get", "resource": "pods", "namespace": "default"}


@pytest.mark.parametrize(
    ("kind", "spec", "expected"),
    [
        (
            "SelfSubjectAccessReview",
            {"resourceAttributes": PODS},
            {
                "allowed": True,
                "reason": 'RBAC: allowed by ClusterRoleBinding "devs-read" of ClusterRole "read" '
                'to Group "devs"',
            },
        ),
        (
            "SelfSubjectAccessReview",
            {"nonResourceAttributes": {"verb": "get", "path": "/x"}},
            {"allowed": False},
        ),
        (
            "SubjectAccessReview",
            {"resourceAttributes": {**PODS, "verb": "create"}, "user": ROBOT.name},
            {
                "allowed": True,
                "reason": 'RBAC: allowed by RoleBinding "robot-write/default" of Role "write" to '
                'ServiceAccount "robot/default"',
            },
        ),
        (
            "SubjectAccessReview",
            {"resourceAttributes": PODS, "user": "lost"},
            {
                "allowed": False,
                "reason": 'RBAC: clusterrole.rbac.authorization.k8s.io "missing" not found',
            },
        ),
        (
            "SelfSubjectReview",
            {},
            {"userInfo": {"username": "jane", "groups": ["devs", "system:authenticated"]}},
        ),
        (
            "TokenReview",
            {"token": "secret"},
            {
                "authenticated": True,
                "user": {"username": "jane", "groups": ["devs", "system:authenticated"]},
            },
        ),
        (
            "TokenReview",
            {"token": "wrong"},
            {"user": {}, "error": "invalid bearer token"},
        ),
    ],
)
def test_reviews(kind: str, spec: Json, expected: Json) -> None:
    assert _review(World(*WORLD), kind, spec) == expected


def test_review_of_an_account_token() -> None:
    world = World()
    grant = TokenGrant("default", "default", "ServiceAccount-default")
    token, _ = ServiceTokens(b"k" * 32, world.reader).sign(grant)
    status = _review(world, "TokenReview", {"token": token})
    assert status["audiences"] == ["https://kubernetes.default.svc.cluster.local"]
    assert status["user"]["username"] == "system:serviceaccount:default:default"


def test_review_of_rules() -> None:
    status = _review(World(*WORLD), "SelfSubjectRulesReview", {"namespace": "default"})
    assert status["incomplete"] is False
    assert {"verbs": ["update"], "apiGroups": ["apps"], "resources": ["*/scale"]} in status[
        "resourceRules"
    ]
    assert status["nonResourceRules"] == [
        {"verbs": ["get"], "nonResourceURLs": ["/metrics", "/logs/*"]}
    ]


@pytest.mark.parametrize(
    ("kind", "spec", "code", "message"),
    [
        (
            "SelfSubjectAccessReview",
            {},
            422,
            '.authorization.k8s.io "" is invalid: spec.resourceAttributes: '
            "Invalid value: null: exactly one of nonResourceAttributes or resourceAttributes must "
            "be specified",
        ),
        (
            "SubjectAccessReview",
            {"resourceAttributes": PODS},
            422,
            '.authorization.k8s.io "" is invalid: spec.user: Invalid value: '
            '"": at least one of user or group must be specified',
        ),
        ("TokenReview", {}, 400, "token is required for TokenReview in authentication"),
        ("SelfSubjectRulesReview", {}, 400, "no namespace on request"),
    ],
    ids=["nothing", "nobody", "token", "namespace"],
)
def test_reviews_that_make_no_sense(kind: str, spec: Json, code: int, message: str) -> None:
    with pytest.raises(RefusedRequestError) as error:
        _review(World(), kind, spec)
    assert (error.value.code, error.value.message) == (code, message)


def test_attributes_are_checked_with_their_subresource() -> None:
    world = World(*WORLD)
    deployments = world.catalogue.find("apps", "v1", "deployments")
    assert deployments is not None
    allowed = RequestAttributes(JANE, "update", deployments, "default", "x", "scale")
    world.authorization.check(allowed)
    with pytest.raises(RefusedRequestError):
        world.authorization.check(RequestAttributes(JANE, "update", deployments, "default", "x"))
