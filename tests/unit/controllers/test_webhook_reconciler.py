"""The loop against an API server in memory: what it writes, and what it leaves alone."""

import asyncio
import copy

import pytest
from small_api import SmallApi
from webhook_samples import NAMES, SERVED, USUAL, classic, resource_rule, settle, validating

from lictor.controllers.webhook_configuration.configurations import WebhookReconciler
from lictor.controllers.webhook_configuration.draft import CONFIGURATIONS
from lictor.controllers.webhook_configuration.writer import remove_webhooks
from lictor.core.errors import ApiError, LookupFailedError
from lictor.kubernetes.flags import Flags
from lictor.kubernetes.resource import (
    CLUSTER_ROLE,
    CUSTOM_RESOURCE_DEFINITION,
    MUTATING_WEBHOOK,
    SECRET,
    VALIDATING_WEBHOOK,
)

RESOURCE = NAMES.webhook("resource-validating")


class Api(SmallApi):
    """With discovery, and with dry runs that are judged by a word in the name of a condition."""

    def __init__(self):
        super().__init__()
        self.dry_runs = 0
        self.served = list(SERVED)

    async def request(self, method, path, *, body=None, params=None):
        if path == "/apis":
            versions = {f"{each.group}/{each.version}" for each in self.served if each.group}
            return {"groups": [{"versions": [{"groupVersion": each} for each in sorted(versions)]}]}
        if method == "GET":
            return self._describe(path.removeprefix("/apis/").removeprefix("/api/"))
        assert params == {"dryRun": "All"}
        self.dry_runs += 1
        text = str(body["webhooks"])
        if "refuse" in text:
            raise ApiError("is invalid", status=422)
        return body

    def _store(self, resource, key, body):
        # What is empty is not there, as with a real one.
        metadata = {name: value for name, value in body["metadata"].items() if value}
        kept = {name: value for name, value in body.items() if value}
        return super()._store(resource, key, {**kept, "metadata": metadata})

    def _describe(self, group_version):
        group, _, version = group_version.rpartition("/")
        return {
            "resources": [
                {"name": each.path, "kind": each.kind, "namespaced": each.namespaced}
                for each in self.served
                if (each.group, each.version) == (group, version)
            ]
        }


class View:
    """A cache that is never late."""

    def __init__(self, api, resource):
        self.resource = resource
        self._api = api
        self.listeners = []

    def get(self, name, namespace=""):
        return self._api.objects.get((self.resource.plural, namespace, name))

    def listen(self, listener):
        self.listeners.append(listener)


class Store:
    def __init__(self, api):
        self.policies = ()
        self.caches = (View(api, CUSTOM_RESOURCE_DEFINITION),)


class Current:
    def __init__(self, settings):
        self.current = settings


class Place:
    """What a loop needs of its process."""

    def __init__(self, flags=None, settings=None):
        self.client = Api()
        self.flags = flags or Flags()
        self.names = NAMES
        self.store = Store(self.client)
        self.settings = Current(settings or settle(**USUAL))
        self.is_healthy = True
        self.client.seed(CLUSTER_ROLE, {"metadata": {"name": NAMES.owner_role, "uid": "role"}})
        self.show_authority("Q0E=")

    def watch(self, resource, **_):
        return View(self.client, resource)

    def show_authority(self, certificate):
        metadata = {"name": NAMES.authority_secret(), "namespace": NAMES.namespace}
        self.client.seed(SECRET, {"metadata": metadata, "data": {"tls.crt": certificate}})

    def read(self, name=RESOURCE, resource=VALIDATING_WEBHOOK):
        return self.client.read(resource, name)


def play(scene, *, place=None):
    """Run a scene on a place with a keeper."""
    place = place or Place()

    async def inside():
        await scene(place, keep(place))

    asyncio.run(inside())


def keep(place):
    return WebhookReconciler(place, lambda: place.is_healthy, spread=0)


def writes(place):
    done = [(verb, name) for verb, _, _, name in place.client.writes]
    place.client.writes.clear()
    return done


def test_everything_is_created_once():
    async def scene(place, keeper):
        await keeper.reconcile()
        assert sorted(name for _, name in writes(place)) == sorted(
            NAMES.webhook(name) for name, _ in CONFIGURATIONS
        )
        await keeper.reconcile()
        assert writes(place) == []
        configuration = place.read()
        assert configuration["metadata"]["labels"] == {"webhook.kyverno.io/managed-by": "kyverno"}
        assert configuration["metadata"]["ownerReferences"] == [
            {
                "apiVersion": "rbac.authorization.k8s.io/v1",
                "kind": "ClusterRole",
                "name": NAMES.owner_role,
                "uid": "role",
            }
        ]

    play(scene)


def test_policies_come_and_go():
    async def scene(place, keeper):
        policy = classic("a", ["ConfigMap"])
        place.store.policies = (policy,)
        await keeper.reconcile()
        assert [each["name"] for each in place.read()["webhooks"]] == ["validate.lictor.svc-fail"]
        assert keeper.state.ready_keys == {"ClusterPolicy/a"}
        assert keeper.state.is_ready(policy)
        place.store.policies = ()
        await keeper.reconcile()
        assert place.read().get("webhooks") is None
        assert not keeper.state.is_ready(policy)

    play(scene)


def test_a_policy_that_was_made_anew_is_not_ready_at_once():
    async def scene(place, keeper):
        place.store.policies = (classic("a", ["ConfigMap"]),)
        await keeper.reconcile()
        again = classic("a", ["Secret"])
        again.document["metadata"]["uid"] = "another"
        assert not keeper.state.is_ready(again)

    play(scene)


@pytest.mark.parametrize(
    ("damage"),
    [
        pytest.param(lambda item: item["webhooks"][0].update(failurePolicy="Ignore"), id="edit"),
        pytest.param(lambda item: item["webhooks"].append({"name": "x"}), id="addition"),
        pytest.param(
            lambda item: item["webhooks"][0].update(
                matchConditions=[{"name": "x", "expression": "false"}]
            ),
            id="condition",
        ),
        pytest.param(lambda item: item["metadata"].update(labels={}), id="label"),
        pytest.param(lambda item: item["metadata"].update(ownerReferences=[]), id="owner"),
    ],
)
def test_damage_is_repaired(damage):
    async def scene(place, keeper):
        place.store.policies = (classic("a", ["ConfigMap"]),)
        await keeper.reconcile()
        whole = copy.deepcopy(place.read())
        broken = copy.deepcopy(whole)
        damage(broken)
        place.client.seed(VALIDATING_WEBHOOK, broken)
        writes(place)
        await keeper.reconcile()
        assert writes(place) == [("replace", RESOURCE)]
        repaired = place.read()
        assert repaired["webhooks"] == whole["webhooks"]
        assert repaired["metadata"]["labels"] == whole["metadata"]["labels"]
        assert repaired["metadata"]["ownerReferences"] == whole["metadata"]["ownerReferences"]
        await keeper.reconcile()
        assert writes(place) == []

    play(scene)


def test_two_leaders_write_the_same():
    async def scene(place, keeper):
        place.store.policies = tuple(
            classic(name, kinds)
            for name, kinds in (("a", ["Secret", "Pod"]), ("b", ["*"]), ("c", ["Deployment"]))
        )
        other = keep(place)
        await keeper.reconcile()
        writes(place)
        place.store.policies = place.store.policies[::-1]
        await other.reconcile()
        await keeper.reconcile()
        assert writes(place) == []

    play(scene)


def test_no_requests_are_sent_to_us_while_nobody_answers():
    async def scene(place, keeper):
        place.store.policies = (classic("a", ["ConfigMap"]),)
        await keeper.reconcile()
        place.is_healthy = False
        await keeper.reconcile()
        assert place.read().get("webhooks") is None
        assert keeper.state.ready_keys == frozenset()
        # The heartbeat goes on: it tells when we are back.
        assert place.read(NAMES.webhook("verify-mutating"), MUTATING_WEBHOOK)["webhooks"]
        place.is_healthy = True
        await keeper.reconcile()
        assert place.read()["webhooks"]
        assert keeper.state.ready_keys == {"ClusterPolicy/a"}

    play(scene)


def test_authority_is_kept_in_step():
    async def scene(place, keeper):
        place.store.policies = (classic("a", ["ConfigMap"]),)
        await keeper.reconcile()
        place.show_authority("TkVX")
        await keeper.reconcile()
        assert place.read()["webhooks"][0]["clientConfig"]["caBundle"] == "TkVX"

    play(scene)


def test_nothing_is_written_without_an_authority():
    async def scene(place, keeper):
        place.show_authority("")
        with pytest.raises(LookupFailedError, match="no certificate authority yet"):
            await keeper.reconcile()
        assert writes(place) == []

    play(scene)


def test_refused_policies_are_told_and_left_out():
    async def scene(place, keeper):
        bad = validating("bad", resource_rule("refuse"))
        good = validating("good", resource_rule("secrets"))
        place.store.policies = (bad, good)
        await keeper.reconcile()
        paths = [each["clientConfig"]["service"]["path"] for each in place.read()["webhooks"]]
        assert paths == ["/vpol/good"]
        assert keeper.state.refused == {"ValidatingPolicy/bad": "is invalid"}
        assert keeper.state.ready_keys == {"ValidatingPolicy/good"}
        asked = place.client.dry_runs
        await keeper.reconcile()
        assert place.client.dry_runs == asked

    play(scene)


def test_refused_settings_are_left_out():
    settings = settle(matchConditions='[{"name":"refuse","expression":"x"}]', **USUAL)

    async def scene(place, keeper):
        place.store.policies = (classic("a", ["ConfigMap"]),)
        await keeper.reconcile()
        assert "matchConditions" not in place.read()["webhooks"][0]

    play(scene, place=Place(settings=settings))


def test_a_kind_that_comes_later():
    async def scene(place, keeper):
        place.store.policies = (classic("a", ["Widget"]),)
        await keeper.reconcile()
        (webhook,) = place.read()["webhooks"]
        assert webhook["rules"][0]["apiGroups"] == ["*"]
        assert "Widget" in webhook["matchConditions"][0]["expression"]
        assert keeper._timer is not None
        widget = type(SERVED[0])("example.com", "v1", "widgets", "", "Widget", namespaced=True)
        place.client.served.append(widget)
        for listener in place.store.caches[0].listeners:
            listener(None)
        await keeper.reconcile()
        (webhook,) = place.read()["webhooks"]
        assert webhook["rules"][0]["resources"] == ["widgets"]
        assert "matchConditions" not in webhook
        assert keeper._timer is None

    play(scene)


def test_rules_that_people_keep_themselves():
    async def scene(place, keeper):
        place.store.policies = (classic("a", ["ConfigMap"]),)
        await keeper.reconcile()
        configuration = copy.deepcopy(place.read())
        assert len(configuration["webhooks"]) == 2
        configuration["webhooks"][0]["rules"] = []
        place.client.seed(VALIDATING_WEBHOOK, configuration)
        place.show_authority("TkVX")
        await keeper.reconcile()
        kept = place.read()["webhooks"]
        assert kept[0]["rules"] == []
        assert {each["clientConfig"]["caBundle"] for each in kept} == {"TkVX"}
        assert keeper.state.ready_keys == {"ClusterPolicy/a"}

    play(scene, place=Place(flags=Flags(auto_update_webhooks=False)))


def test_settings_name_labels_and_annotations():
    settings = settle(
        webhookLabels='{"team": "a", "webhook.kyverno.io/managed-by": "x"}',
        webhookAnnotations='{"note": "b"}',
        **USUAL,
    )

    async def scene(place, keeper):
        await keeper.reconcile()
        metadata = place.read()["metadata"]
        assert metadata["labels"] == {"team": "a", "webhook.kyverno.io/managed-by": "kyverno"}
        assert metadata["annotations"] == {"note": "b"}

    play(scene, place=Place(settings=settings))


def test_requests_about_cleanup_policies_and_ttl_labels_come_to_us():
    async def scene(place, keeper):
        await keeper.reconcile()
        ttl = place.read(NAMES.webhook("ttl-validating"))["webhooks"][0]
        assert ttl["failurePolicy"] == "Ignore"
        assert ttl["clientConfig"]["service"]["path"] == "/verifyttl"
        cleanup = place.read(NAMES.webhook("cleanup-validating"))["webhooks"][0]
        assert cleanup["clientConfig"]["service"]["path"] == "/validate"

    play(scene)


def test_all_is_removed():
    class Gentle(Api):
        async def delete(self, resource, name, namespace=""):
            return self.objects.pop((resource.plural, namespace, name), None) is not None

    async def scene(place, keeper):
        await keeper.reconcile()
        removed = await remove_webhooks(place.client, NAMES)
        assert len(removed) == len(CONFIGURATIONS)
        assert await remove_webhooks(place.client, NAMES) == []
        left = {plural for plural, _, _ in place.client.objects}
        assert left == {SECRET.plural, CLUSTER_ROLE.plural}

    place = Place()
    gentle = Gentle()
    gentle.objects = place.client.objects
    place.client = gentle
    play(scene, place=place)
