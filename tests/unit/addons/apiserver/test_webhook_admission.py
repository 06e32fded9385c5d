"""Webhooks: which are asked, in which order, what they are shown, and what follows."""

import re

import pytest
from access_world import RULE, Webhooks, World, config_map, configure, make, patch, run_step

from lictor.addons.apiserver.admission.chain import AdmissionChain
from lictor.addons.apiserver.request import ApiUser
from lictor.core.raw import JsonObject

JANE = ApiUser("jane", ("devs",), "7", {"scopes": ("a", "b")})

# --- what a webhook is shown


def test_review_of_a_creation() -> None:
    async def step(world: World, admission: AdmissionChain, webhooks: Webhooks) -> None:
        world.put(webhooks.configure(path="/a", timeoutSeconds=7))
        document = config_map()
        await admission.validate(world.ask(document, user=JANE), document, None)
        assert webhooks.paths == ["/a?timeout=7s"]
        (review,) = webhooks.reviews
        assert (review["apiVersion"], review["kind"]) == ("admission.k8s.io/v1", "AdmissionReview")
        request = review["request"]
        assert re.fullmatch(r"[0-9a-f-]{36}", request.pop("uid"))
        kind = {"group": "", "version": "v1", "kind": "ConfigMap"}
        resource = {"group": "", "version": "v1", "resource": "configmaps"}
        assert request == {
            "kind": kind,
            "resource": resource,
            "requestKind": kind,
            "requestResource": resource,
            "name": "thing",
            "namespace": "default",
            "operation": "CREATE",
            "userInfo": {
                "username": "jane",
                "uid": "7",
                "groups": ["devs"],
                "extra": {"scopes": ["a", "b"]},
            },
            "object": document,
            "oldObject": None,
            "dryRun": False,
            "options": {"kind": "CreateOptions", "apiVersion": "meta.k8s.io/v1"},
        }

    run_step(step)


def test_review_of_a_subresource_and_of_a_namespace() -> None:
    async def step(world: World, admission: AdmissionChain, webhooks: Webhooks) -> None:
        world.put(webhooks.configure())
        deployment = make("apps/v1", "Deployment", "d", "default")
        scale = make("autoscaling/v1", "Scale", "d", "default", spec={"replicas": 2})
        attributes = world.ask(deployment, "update", subresource="scale")
        await admission.validate(attributes, scale, scale)
        request = webhooks.reviews[0]["request"]
        assert request["kind"] == {"group": "autoscaling", "version": "v1", "kind": "Scale"}
        assert request["resource"] == {
            "group": "apps", "version": "v1", "resource": "deployments",
        }  # fmt: skip
        assert (request["subResource"], request["requestSubResource"]) == ("scale", "scale")
        assert request["oldObject"] == scale
        namespace = make("v1", "Namespace", "new")
        await admission.validate(world.ask(namespace), namespace, None)
        assert webhooks.reviews[1]["request"]["namespace"] == "new"
        await admission.validate(world.ask(namespace, "delete"), None, namespace)
        request = webhooks.reviews[2]["request"]
        assert (request["object"], request["oldObject"]) == (None, namespace)

    run_step(step)


def test_review_in_another_version() -> None:
    async def step(world: World, admission: AdmissionChain, webhooks: Webhooks) -> None:
        rule = {**RULE, "apiVersions": ["v1"], "resources": ["horizontalpodautoscalers"]}
        world.put(webhooks.configure("a", rules=[rule], path="/a"))
        world.put(webhooks.configure("b", rules=[rule], path="/b", matchPolicy="Exact"))
        document = make("autoscaling/v2", "HorizontalPodAutoscaler", "h", "default")
        await admission.validate(world.ask(document), document, None)
        (review,) = webhooks.reviews
        request = review["request"]
        assert request["kind"]["version"] == "v1"
        assert request["resource"]["version"] == "v1"
        assert request["requestKind"]["version"] == "v2"
        assert request["object"]["apiVersion"] == "autoscaling/v1"

    run_step(step)


def test_older_reviews() -> None:
    async def step(world: World, admission: AdmissionChain, webhooks: Webhooks) -> None:
        world.put(webhooks.configure(admissionReviewVersions=["v2", "v1beta1", "v1"]))
        document = config_map()
        await admission.validate(world.ask(document), document, None)
        assert webhooks.reviews[0]["apiVersion"] == "admission.k8s.io/v1beta1"

    run_step(step)


# --- which are asked


NAMESPACE = make("v1", "Namespace", "blue", labels={"team": "blue"})
CHOICES: dict[str, tuple[JsonObject, JsonObject, bool]] = {
    "all": ({}, config_map(), True),
    "operation": ({"rules": [{**RULE, "operations": ["UPDATE"]}]}, config_map(), False),
    "group": ({"rules": [{**RULE, "apiGroups": ["apps"]}]}, config_map(), False),
    "resource": ({"rules": [{**RULE, "resources": ["configmaps"]}]}, config_map(), True),
    "plain-is-not-part": ({"rules": [{**RULE, "resources": ["pods/*"]}]}, config_map(), False),
    "parts-of-all": ({"rules": [{**RULE, "resources": ["*"]}]}, config_map(), True),
    "second-rule": ({"rules": [{**RULE, "apiGroups": ["x"]}, RULE]}, config_map(), True),
    "no-rule": ({"rules": []}, config_map(), False),
    "inside": ({"rules": [{**RULE, "scope": "Namespaced"}]}, config_map(), True),
    "not-inside": ({"rules": [{**RULE, "scope": "Namespaced"}]}, NAMESPACE, False),
    "outside": ({"rules": [{**RULE, "scope": "Cluster"}]}, NAMESPACE, True),
    "not-outside": ({"rules": [{**RULE, "scope": "Cluster"}]}, config_map(), False),
    "namespace-labels": (
        {"namespaceSelector": {"matchLabels": {"team": "blue"}}},
        config_map(namespace="blue"),
        True,
    ),
    "other-namespace": (
        {"namespaceSelector": {"matchLabels": {"team": "blue"}}}, config_map(), False,
    ),
    "namespace-itself": (
        {"namespaceSelector": {"matchLabels": {"team": "blue"}}}, NAMESPACE, True,
    ),
    "cluster-wide-is-never-spared": (
        {"namespaceSelector": {"matchLabels": {"team": "blue"}}},
        make("rbac.authorization.k8s.io/v1", "ClusterRole", "r"),
        True,
    ),
    "expressions": (
        {"namespaceSelector": {"matchExpressions": [{"key": "team", "operator": "DoesNotExist"}]}},
        config_map(namespace="blue"),
        False,
    ),
    "object-labels": (
        {"objectSelector": {"matchLabels": {"a": "b"}}}, config_map(labels={"a": "b"}), True,
    ),
    "other-labels": (
        {"objectSelector": {"matchLabels": {"a": "b"}}}, config_map(labels={"a": "c"}), False,
    ),
    "conditions": (
        {"matchConditions": [{"name": "n", "expression": "object.metadata.name == 'thing'"}]},
        config_map(),
        True,
    ),
    "a-false-condition-decides": (
        {
            "matchConditions": [
                {"name": "broken", "expression": "object.nothing.at.all"},
                {"name": "n", "expression": "request.name != 'thing'"},
            ]
        },
        config_map(),
        False,
    ),
    "undecided-and-ignored": (
        {
            "failurePolicy": "Ignore",
            "matchConditions": [{"name": "b", "expression": "object.nothing == 'x'"}],
        },
        config_map(),
        False,
    ),
    "authorizer": (
        {
            "matchConditions": [
                {
                    "name": "n",
                    "expression": "authorizer.group('').resource('pods').check('get').allowed()",
                }
            ]
        },
        config_map(),
        True,
    ),
    "authorizer-refuses": (
        {
            "matchConditions": [
                {
                    "name": "n",
                    "expression": "authorizer.serviceAccount('a', 'b').group('').resource('pods')"
                    ".check('get').allowed()",
                }
            ]
        },
        config_map(),
        False,
    ),
    "its-own-repair": (
        {},
        make("admissionregistration.k8s.io/v1", "ValidatingWebhookConfiguration", "c"),
        False,
    ),
    "reviews": ({}, make("authorization.k8s.io/v1", "SubjectAccessReview", ""), False),
    "tokens": ({}, make("authentication.k8s.io/v1", "TokenReview", ""), False),
    "policies": ({}, make("admissionregistration.k8s.io/v1", "ValidatingAdmissionPolicy", "c"), False),
}  # fmt: skip


@pytest.mark.parametrize(("fields", "document", "asked"), CHOICES.values(), ids=CHOICES)
def test_which_are_asked(fields: JsonObject, document: JsonObject, *, asked: bool) -> None:
    async def step(world: World, admission: AdmissionChain, webhooks: Webhooks) -> None:
        world.put(NAMESPACE, webhooks.configure(**fields))
        await admission.validate(world.ask(document), document, None)
        assert bool(webhooks.reviews) is asked

    run_step(step)


def test_old_labels_count_too() -> None:
    async def step(world: World, admission: AdmissionChain, webhooks: Webhooks) -> None:
        world.put(webhooks.configure(objectSelector={"matchLabels": {"a": "b"}}))
        old, new = config_map(labels={"a": "b"}), config_map()
        await admission.validate(world.ask(new, "update"), new, old)
        assert len(webhooks.reviews) == 1

    run_step(step)


def test_changes_of_configurations_count_at_once() -> None:
    async def step(world: World, admission: AdmissionChain, webhooks: Webhooks) -> None:
        document = config_map()
        await admission.validate(world.ask(document), document, None)
        configuration = webhooks.configure(path="/a")
        world.put(configuration)
        await admission.validate(world.ask(document), document, None)
        world.put(webhooks.configure(path="/b"))
        await admission.validate(world.ask(document), document, None)
        world.store.remove(world.kind_of(configuration), "", "c")
        await admission.validate(world.ask(document), document, None)
        assert [path.partition("?")[0] for path in webhooks.paths] == ["/a", "/b"]

    run_step(step)


# --- those that change


def test_each_sees_what_those_before_left() -> None:
    async def step(world: World, admission: AdmissionChain, webhooks: Webhooks) -> None:
        webhooks.answers = {
            "/a": patch({"op": "add", "path": "/data", "value": {"a": "1"}}),
            "/b": patch({"op": "add", "path": "/data/b", "value": "2"}),
        }
        world.put(
            webhooks.configure("z", mutating=True, path="/c"),
            configure(
                "a", [webhooks.hook(name="w1", path="/a"), webhooks.hook(name="w2", path="/b")],
                mutating=True,
            ),
        )  # fmt: skip
        document = config_map()
        admitted = await admission.mutate(world.ask(document), document, None)
        assert admitted.document == {**document, "data": {"a": "1", "b": "2"}}
        assert "data" not in document
        shown = [review["request"]["object"].get("data") for review in webhooks.reviews]
        assert shown == [None, {"a": "1"}, {"a": "1", "b": "2"}]

    run_step(step)


@pytest.mark.parametrize(
    ("first", "second", "paths"),
    [
        ("Never", "Never", ["/a", "/b"]),
        ("IfNeeded", "Never", ["/a", "/b", "/a"]),
        ("Never", "IfNeeded", ["/a", "/b"]),
        ("IfNeeded", "IfNeeded", ["/a", "/b", "/a"]),
    ],
)
def test_reinvocation(first: str, second: str, paths: list[str]) -> None:
    async def step(world: World, admission: AdmissionChain, webhooks: Webhooks) -> None:
        webhooks.answers = {"/b": patch({"op": "add", "path": "/data", "value": {"b": "2"}})}
        world.put(
            webhooks.configure("a", mutating=True, path="/a", reinvocationPolicy=first),
            webhooks.configure("b", mutating=True, path="/b", reinvocationPolicy=second),
        )
        document = config_map()
        await admission.mutate(world.ask(document), document, None)
        assert [path.partition("?")[0] for path in webhooks.paths] == paths

    run_step(step)


def test_one_that_changes_what_the_other_changed_ends() -> None:
    async def step(world: World, admission: AdmissionChain, webhooks: Webhooks) -> None:
        def count(request: JsonObject) -> JsonObject:
            number = int(request["object"].get("data", {}).get("n", "0")) + 1
            return patch({"op": "add", "path": "/data", "value": {"n": str(number)}})(request)

        webhooks.answers = {"/a": count, "/b": count}
        for name in ("a", "b"):
            world.put(
                webhooks.configure(
                    name, mutating=True, path=f"/{name}", reinvocationPolicy="IfNeeded"
                )
            )
        document = config_map()
        admitted = await admission.mutate(world.ask(document), document, None)
        assert admitted.document is not None
        # As in Kubernetes: there are two rounds and no more.
        assert admitted.document["data"] == {"n": "4"}

    run_step(step)


def test_changes_are_read_back_as_the_kind_says() -> None:
    async def step(world: World, admission: AdmissionChain, webhooks: Webhooks) -> None:
        webhooks.answers = {"/a": patch({"op": "add", "path": "/nonsense", "value": 1})}
        world.put(webhooks.configure(mutating=True, path="/a"))
        document = config_map()
        admitted = await admission.mutate(world.ask(document), document, None)
        assert admitted.document is not None
        assert "nonsense" not in admitted.document

    run_step(step)
