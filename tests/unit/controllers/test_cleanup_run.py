"""One run of a policy, on an API server in memory that can be made to misbehave."""

import asyncio
import copy
from datetime import UTC, datetime

import pytest
from prometheus_client import REGISTRY
from small_api import SmallApi

from lictor.controllers.cleanup.run import CleanupRun, read_status
from lictor.controllers.cleanup.sweep import SweepContext, SweepLookups
from lictor.core.errors import (
    ApiError,
    ConflictError,
    GoneError,
    LookupFailedError,
    UnreachableError,
)
from lictor.core.families.registry import registry
from lictor.core.ports import ApiCall, NoLookups
from lictor.kubernetes.discovery import Collection
from lictor.kubernetes.resource import CONFIG_MAP, Resource, find_resource

CLEANUP_POLICY = find_resource(registry().get("kyverno.io", "CleanupPolicy"))
CLUSTER_CLEANUP_POLICY = find_resource(registry().get("kyverno.io", "ClusterCleanupPolicy"))

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
SERVED = tuple(
    Collection(resource, frozenset(("list", "delete")))
    for resource in (CONFIG_MAP, Resource("", "v1", "secrets", "Secret"))
)


class Api(SmallApi):
    """With pages, preconditions, and faults by the name of an object or a collection."""

    def __init__(self):
        super().__init__()
        self.faults = {}
        self.before_delete = {}
        self.deleted = []
        self.largest_page = 0

    async def list_pages(self, resource, namespace="", *, labels="", fields="", page=500):
        items = await self.list(resource, namespace)
        for start in range(0, max(len(items), 1), page):
            if fault := self.faults.pop((resource.plural, start), None):
                raise fault
            some = items[start : start + page]
            self.largest_page = max(self.largest_page, len(some))
            yield {"items": [{"apiVersion": "v1", "kind": resource.kind, **i} for i in some]}

    async def delete(self, resource, name, namespace="", *, propagation="", preconditions=None):
        if change := self.before_delete.pop(name, None):
            change()
        if fault := self.faults.get(name):
            raise fault
        known = self.objects.get((resource.plural, namespace, name))
        if known is None:
            return False
        for field, value in (preconditions or {}).items():
            if known["metadata"][field] != value:
                raise ConflictError("precondition", status=409)
        del self.objects[resource.plural, namespace, name]
        self.deleted.append((name, propagation))
        return True


class Namespaces:
    async def ensure(self, name):
        return None if name == "gone" else {"metadata": {"name": name, "labels": {"in": name}}}


class Setting:
    """One policy and some objects."""

    def __init__(self, *, lookups=None, annotations=None, kinds=("ConfigMap",), **spec):
        self.api = Api()
        self.events = []
        self.lookups = lookups or NoLookups()
        self.protected = set()
        match = {"any": [{"resources": {"kinds": list(kinds), "names": ["old-*"]}}]}
        self.document = self.api.seed(
            CLUSTER_CLEANUP_POLICY,
            {
                "apiVersion": "kyverno.io/v2",
                "kind": "ClusterCleanupPolicy",
                "metadata": {"name": "sweep", "generation": 1, "annotations": annotations or {}},
                "spec": {"schedule": "* * * * *", "match": match, **spec},
            },
        )

    def put(self, *names, namespace="default", resource=CONFIG_MAP, **labels):
        for name in names:
            metadata = {"name": name, "namespace": namespace, "labels": labels}
            head = {"apiVersion": resource.api_version, "kind": resource.kind}
            self.api.seed(resource, {**head, "metadata": metadata})

    def left(self):
        return sorted(name for plural, _, name in self.api.objects if plural == "configmaps")

    def run(self, **options):
        async def serve():
            return SERVED

        world = SweepContext(
            self.api,
            serve,
            Namespaces(),
            self.lookups,
            is_protected=lambda request: request.resource["metadata"]["name"] in self.protected,
        )
        run = CleanupRun(
            CLUSTER_CLEANUP_POLICY,
            copy.deepcopy(self.document),
            world,
            emit=self.events.append,
            now=lambda: NOON,
            **options,
        )
        return asyncio.run(run.execute())

    @property
    def status(self):
        return read_status(self.api.read(CLUSTER_CLEANUP_POLICY, "sweep"))

    @property
    def said(self):
        return self.status.find("Executing")


def test_what_lictor_is_made_of_stays():
    setting = Setting()
    setting.put("old-1")
    setting.put("old-settings", namespace="lictor")
    outcome = setting.run()
    assert (outcome.gone, outcome.failed) == (1, 1)
    assert setting.left() == ["old-settings"]
    assert "policies must not change lictor's own objects" in setting.said["message"]
    assert setting.said["reason"] == "Failed"
    assert [event.reason for event in setting.events] == ["PolicyApplied", "PolicyError"]


def test_deletes_what_matches_and_puts_it_on_record():
    setting = Setting(deletionPropagationPolicy="Foreground")
    setting.put("old-1", "old-2", "new")
    outcome = setting.run()
    assert (outcome.gone, outcome.failed) == (2, 0)
    assert setting.left() == ["new"]
    assert setting.api.deleted == [("old-1", "Foreground"), ("old-2", "Foreground")]
    assert setting.status.last_execution == NOON
    assert setting.said["status"] == "False"
    assert setting.said["message"] == (
        "deleted 2 objects: ConfigMap/default/old-1, ConfigMap/default/old-2"
    )
    first = setting.events[0]
    assert (first.reason, first.action) == ("PolicyApplied", "Resource Cleaned Up")
    message = "successfully cleaned up the target resource ConfigMap/default/old-1"
    assert first.message == message
    labels = {
        "policy_type": "ClusterCleanupPolicy",
        "policy_namespace": "",
        "policy_name": "sweep",
        "resource_kind": "ConfigMap",
        "resource_namespace": "default",
        "deletion_propagation": "Foreground",
    }
    name = "kyverno_cleanup_controller_deletedobjects_total"
    assert REGISTRY.get_sample_value(name, labels) == 2


def test_a_document_that_is_out_of_date_deletes_nothing():
    setting = Setting()
    setting.put("old-1")
    setting.api.seed(CLUSTER_CLEANUP_POLICY, setting.document)
    with pytest.raises(ConflictError):
        setting.run()
    assert setting.left() == ["old-1"]


def test_an_object_that_has_changed_is_judged_again():
    setting = Setting(
        conditions={
            "all": [{"key": "{{ target.metadata.labels.keep || '' }}", "operator": "NotEquals", "value": "yes"}]
        }
    )  # fmt: skip
    setting.put("old-1", "old-2", "old-3", "old-4")

    def label(name):
        known = setting.api.read(CONFIG_MAP, name, "default")
        metadata = {**known["metadata"], "labels": {"keep": "yes"}}
        setting.api.seed(CONFIG_MAP, {**known, "metadata": metadata})

    setting.api.before_delete = {
        "old-1": lambda: label("old-1"),
        "old-2": lambda: setting.put("old-2"),
        "old-3": lambda: setting.api.objects.pop(("configmaps", "default", "old-3")),
    }
    outcome = setting.run()
    # The one in the place of the second is another object, which the sweep did not see.
    assert setting.left() == ["old-1", "old-2"]
    assert (outcome.gone, outcome.failed) == (1, 0)


def test_an_object_that_was_only_touched_goes_all_the_same():
    setting = Setting()
    setting.put("old-1")
    key = ("configmaps", "default", "old-1")

    def touch():
        setting.api.seed(CONFIG_MAP, setting.api.objects[key])

    setting.api.before_delete = {"old-1": touch}
    assert setting.run().gone == 1
    assert setting.left() == []


def test_one_that_cannot_be_deleted_stops_no_other():
    setting = Setting()
    setting.put("old-1", "old-2")
    setting.api.faults["old-1"] = ApiError("denied by a webhook", status=403)
    outcome = setting.run()
    assert (outcome.gone, outcome.failed) == (1, 1)
    assert setting.left() == ["old-1"]
    assert setting.said["reason"] == "Failed"
    assert "ConfigMap/default/old-1: denied by a webhook" in setting.said["message"]
    # The run counts: what could not go is tried again at the next hour.
    assert setting.status.last_execution == NOON
    (error,) = [event for event in setting.events if event.reason == "PolicyError"]
    assert error.message == (
        "failed to clean up the target resource ConfigMap/default/old-1: denied by a webhook"
    )


def test_without_an_api_server_the_run_stays_open():
    setting = Setting()
    setting.put("old-1")
    setting.api.faults["old-1"] = UnreachableError("away")
    with pytest.raises(UnreachableError):
        setting.run()
    assert setting.status.is_executing
    assert setting.status.last_execution is None


def test_a_collection_that_may_not_be_read_is_told_and_the_others_are_done():
    setting = Setting(kinds=("Secret", "ConfigMap"))
    setting.put("old-1")
    setting.api.faults["secrets", 0] = ApiError("forbidden", status=403)
    assert setting.run().gone == 1
    assert "secrets of all namespaces: forbidden" in setting.said["message"]
    assert "failed to list secrets of all namespaces: forbidden" in {
        event.message for event in setting.events
    }


def test_a_listing_that_the_server_forgot_is_begun_again():
    setting = Setting()
    setting.put(*(f"old-{number:03d}" for number in range(250)))
    setting.api.faults["configmaps", 100] = GoneError("too old", status=410)
    assert setting.run().gone == 250
    assert setting.left() == []
    assert setting.api.largest_page == 100


def test_what_cannot_be_decided_stays():
    condition = {"key": "{{ target.data.nothing }}", "operator": "Equals", "value": "x"}
    setting = Setting(conditions={"all": [condition]})
    setting.put("old-1")
    outcome = setting.run()
    assert (outcome.gone, outcome.failed) == (0, 1)
    assert setting.left() == ["old-1"]


def test_protected_dying_and_homeless_objects_stay():
    setting = Setting()
    setting.put("old-1", "old-2")
    setting.put("old-3", namespace="gone")
    setting.protected = {"old-2"}
    dying = {"name": "old-4", "namespace": "default", "deletionTimestamp": "2026-01-01T00:00:00Z"}
    setting.api.seed(CONFIG_MAP, {"metadata": dying})
    assert setting.run().gone == 1
    assert setting.left() == ["old-2", "old-3", "old-4"]


def test_a_dry_run_says_what_would_go():
    setting = Setting(annotations={"lictor.io/dry-run": "true"})
    setting.put(*(f"old-{number:02d}" for number in range(30)))
    assert setting.run().gone == 30
    assert len(setting.left()) == 30
    assert setting.said["reason"] == "DryRun"
    assert setting.said["message"].startswith("dry run: would delete 30 objects: ConfigMap/default")
    assert setting.said["message"].endswith("old-19, and 10 more")
    (event,) = setting.events
    assert event.message == setting.said["message"]


def test_a_policy_that_is_changed_meanwhile_breaks_the_run_off():
    setting = Setting()
    setting.put(*(f"old-{number:03d}" for number in range(150)))
    answers = iter((True, False))
    assert setting.run(is_wanted=lambda: next(answers)) is None
    assert len(setting.left()) == 50
    assert setting.status.is_executing


def test_the_end_is_written_whatever_else_was_written_meanwhile():
    setting = Setting()
    setting.put("old-1")

    def edit():
        stored = setting.api.read(CLUSTER_CLEANUP_POLICY, "sweep")
        setting.api.seed(
            CLUSTER_CLEANUP_POLICY, {**stored, "spec": {**stored["spec"], "schedule": "@daily"}}
        )

    setting.api.before_delete = {"old-1": edit}
    setting.run()
    assert not setting.status.is_executing
    assert setting.status.last_execution == NOON
    assert setting.api.read(CLUSTER_CLEANUP_POLICY, "sweep")["spec"]["schedule"] == "@daily"


class Counting(NoLookups):
    def __init__(self, *, fails=False):
        self.calls = []
        self.fails = fails

    def call_api(self, call):
        self.calls.append(call.url_path)
        if self.fails:
            raise LookupFailedError("away")
        return {"wanted": "old-1"}


CONTEXT = [{"name": "answer", "apiCall": {"urlPath": "/apis/x"}}]
NAMED = {"key": "{{ target.metadata.name }}", "operator": "Equals", "value": "{{ answer.wanted }}"}


@pytest.mark.parametrize("fails", [False, True], ids=["answers", "is away"])
def test_the_world_is_asked_once_for_a_whole_sweep(fails):
    lookups = Counting(fails=fails)
    setting = Setting(lookups=lookups, context=CONTEXT, conditions={"all": [NAMED]})
    setting.put("old-1", "old-2", "old-3")
    outcome = setting.run()
    assert lookups.calls == ["/apis/x"]
    assert (outcome.gone, outcome.failed) == ((0, 3) if fails else (1, 0))


def test_memory_of_a_sweep_is_bounded():
    lookups = Counting()
    sweep = SweepLookups(lookups)
    for number in range(1000):
        sweep.call_api(ApiCall(url_path=f"/{number}"))
    assert len(sweep._kept) == 200
    sweep.call_api(ApiCall(url_path="/999"))
    assert len(lookups.calls) == 1000


def test_namespaced_policies_stay_at_home():
    setting = Setting()
    document = copy.deepcopy(setting.document)
    document |= {"kind": "CleanupPolicy"}
    document["metadata"] |= {"namespace": "home", "name": "home"}
    setting.put("old-1", namespace="home")
    setting.put("old-2", namespace="away")

    async def serve():
        return SERVED

    document = setting.api.seed(CLEANUP_POLICY, document)
    world = SweepContext(setting.api, serve, Namespaces(), NoLookups())
    run = CleanupRun(CLEANUP_POLICY, document, world, emit=setting.events.append, now=lambda: NOON)
    assert asyncio.run(run.execute()).gone == 1
    assert setting.left() == ["old-2"]
