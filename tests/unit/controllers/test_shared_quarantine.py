"""Pods of one installation, each with a ledger of its own, exchange what they quarantine."""

import asyncio
from types import SimpleNamespace

from small_api import SmallApi

from lictor.controllers import quarantine
from lictor.controllers.quarantine import ANNOTATION, build_quarantine_loop
from lictor.core.evaluations import EvaluationLedger, identify
from lictor.kubernetes.names import Names
from lictor.kubernetes.resource import LEASE

NAMES = Names(namespace="policies")
PLACE = ("leases", NAMES.namespace, NAMES.quarantine_lease)


class Api(SmallApi):
    async def apply(self, resource, body):
        self.writes.append(body)
        return self.seed(resource, body)


class LeaseCache:
    """Always in step with the API server."""

    def __init__(self, api):
        self._api = api

    def listen(self, listener):
        pass

    def get(self, name, namespace=""):
        return self._api.objects.get(("leases", namespace, name))


class Pod:
    def __init__(self, api):
        self.ledger = EvaluationLedger()
        self._context = SimpleNamespace(
            client=api,
            names=NAMES,
            store=SimpleNamespace(listen=lambda _: None),
            watch=lambda *_, **__: LeaseCache(api),
        )

    def reconcile(self, monkeypatch):
        monkeypatch.setattr(quarantine, "EVALUATIONS", self.ledger)
        asyncio.run(build_quarantine_loop(self._context)._reconcile())


def test_every_pod_quarantines_what_one_has_died_of(monkeypatch):
    api = Api()
    one, two = Pod(api), Pod(api)
    one.ledger.add(identify("a"))
    two.ledger.add(identify("b"))
    for pod in (one, two, one, two):
        pod.reconcile(monkeypatch)
    for pod in (one, two):
        assert pod.ledger.holds(identify("a"))
        assert pod.ledger.holds(identify("b"))
    assert len(api.writes) == 2
    # A Pod that starts later knows at once, and nothing is written again.
    late = Pod(api)
    late.reconcile(monkeypatch)
    assert late.ledger.count == 2
    assert len(api.writes) == 2


def test_what_was_overwritten_is_added_again_and_nonsense_is_passed_over(monkeypatch):
    api = Api()
    pod = Pod(api)
    pod.ledger.add(identify("a"))
    pod.reconcile(monkeypatch)
    other = identify("b").hex()
    api.objects[PLACE]["metadata"]["annotations"] = {ANNOTATION: f"{other} zz 0011 {other}0"}
    pod.reconcile(monkeypatch)
    assert pod.ledger.list_quarantined() == [identify("a"), identify("b")]
    kept = api.read(LEASE, NAMES.quarantine_lease, NAMES.namespace)["metadata"]["annotations"]
    assert kept[ANNOTATION].split() == [other, identify("a").hex()]
