"""GenerationReconciler over an API server in memory, with policies that a test chooses."""

import asyncio
from contextlib import asynccontextmanager

import orjson
import pytest
from live_api import LiveApi

from lictor.controllers.generate.downstream import Downstream
from lictor.controllers.generate.labels import GenerationUnit
from lictor.controllers.generate.objects import GeneratedObjectWriter
from lictor.controllers.generate.queue import GenerationQueue, Rewrites
from lictor.controllers.generate.reconcile import GenerationReconciler
from lictor.controllers.generate.rules import GenerateRules
from lictor.controllers.generate.watch import GenerationWatch, TriggerWatch
from lictor.controllers.policy_writes import PolicyWrites
from lictor.controllers.update_requests import TriggerReader
from lictor.core.assembly import compile_documents
from lictor.core.facts.resource_names import builtin_names
from lictor.core.families.registry import registry
from lictor.core.load.policies import load_documents
from lictor.core.model.request import Request
from lictor.core.ports import NoLookups
from lictor.kubernetes.names import Names
from lictor.kubernetes.resource import NAMESPACE, find_resource
from lictor.kubernetes.stored_policy import StoredPolicy
from lictor.kubernetes.update_requests import UpdateTrigger

CLUSTER_POLICY = find_resource(registry().get("kyverno.io", "ClusterPolicy"))
POLICY = find_resource(registry().get("kyverno.io", "Policy"))


class Lookups(NoLookups):
    """Reads the objects of an API in memory."""

    def __init__(self, api):
        self._api = api

    def resource(self, api_version, kind, namespace, name):
        plural = builtin_names().of_kind("", api_version, kind).resource
        found = self._api.objects.get((plural, namespace, name))
        return found and {"apiVersion": api_version, "kind": kind, **found}


class Store:
    def __init__(self, api):
        self._api = api
        self.policies: tuple[StoredPolicy, ...] = ()
        self.listeners = []

    def listen_to_changes(self, listener):
        self.listeners.append(listener)

    def set(self, *documents):
        self.policies = tuple(
            StoredPolicy(
                POLICY if document["kind"] == "Policy" else CLUSTER_POLICY,
                document,
                load_documents(orjson.dumps(document), "test").policies[0].record,
            )
            for document in documents
        )

    def mark(self, policy):
        return str(policy.generation)

    def programs(self, policy):
        return compile_documents([policy.record], lookups=Lookups(self._api))


class Namespaces:
    def __init__(self):
        self.ending = set()

    def labels(self, name):
        return {}

    async def ensure(self, name):
        metadata = {"name": name}
        if name in self.ending:
            metadata["deletionTimestamp"] = "2026-01-01T00:00:00Z"
        return {"metadata": metadata}


def make_policy(*, rule="make", operations=(), when="", **generate):
    resources = {"kinds": ["Namespace"]}
    if operations:
        resources["operations"] = list(operations)
    body = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "name": "made",
        "namespace": "{{request.object.metadata.name}}",
        "synchronize": True,
        **generate,
    }
    made = {"name": rule, "match": {"any": [{"resources": resources}]}, "generate": body}
    if when:
        key = "{{ request.object.metadata.labels.on || '' }}"
        made["preconditions"] = {"all": [{"key": key, "operator": "Equals", "value": when}]}
    return {
        "apiVersion": "kyverno.io/v1",
        "kind": "ClusterPolicy",
        "metadata": {"name": "policy", "uid": "policy-uid", "generation": 1},
        "spec": {"rules": [made]},
    }


DATA = {"data": {"data": {"text": "right"}}}
CLONE = {"kind": "Secret", "clone": {"namespace": "vault", "name": "source"}}


class Site:
    """GenerationReconciler over an API in memory."""

    def __init__(self, *policies):
        self.api = LiveApi()
        self.store = Store(self.api)
        self.namespaces = Namespaces()
        self.done = []
        triggers = TriggerReader(self.api, builtin_names, self.namespaces)
        self.downstream = Downstream(self.api)
        self.book = GenerateRules(self.api, self.store)
        objects = GeneratedObjectWriter(self.api, PolicyWrites(self.api, Names()), self.downstream)
        self.generation = GenerationReconciler(
            objects,
            self.downstream,
            triggers,
            policies=self.book,
            rewrites=(rewrites := Rewrites()),
            emit=self.done.append,
        )
        self.queue = GenerationQueue(
            self.generation.reconcile, rewrites, workers=2, first_pause=0.05
        )
        self.watch = GenerationWatch(
            self.api, self.downstream, triggers, self.book, self.generation, self.queue
        )
        self.trigger_watch = TriggerWatch(
            self.api, triggers, self.downstream, self.generation, self.book, self.queue
        )
        self.set(*policies)

    def set(self, *policies):
        self.store.set(*policies)

    def add_namespace(self, name, **labels):
        body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
        body["metadata"]["labels"] = labels
        return self.api.seed(NAMESPACE, body)["metadata"]["uid"]

    def unit(self, name, rule="make"):
        found = self.api.objects.get(("namespaces", "", name))
        uid = found["metadata"]["uid"] if found else "gone"
        return GenerationUnit("policy", "", rule, UpdateTrigger("v1", "Namespace", "", name, uid))

    async def ask(self, name):
        """A request about a namespace came."""
        request = Request.of(self.api.read(NAMESPACE, name))
        await self.generation.reconcile(self.unit(name), request)

    def made(self, namespace, name="made", kind="configmaps"):
        return self.api.objects.get((kind, namespace, name))

    @asynccontextmanager
    async def running(self):
        task = asyncio.create_task(self.queue.run())
        try:
            yield self
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            await self.watch.stop()
            await self.downstream.stop()


async def until(holds):
    for _ in range(200):
        if holds():
            return
        await asyncio.sleep(0.01)
    pytest.fail("it never came about")


def run(site, work):
    async def main():
        async with site.running():
            await work(site)

    asyncio.run(main())
