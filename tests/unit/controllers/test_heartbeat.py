"""Beats with and without an answer of the webhook."""

import asyncio
import logging

from prometheus_client import REGISTRY
from small_api import SmallApi

from lictor.controllers.webhook_configuration.heartbeat import STAMP, Heartbeat
from lictor.kubernetes.cache import Change, ChangeType
from lictor.kubernetes.names import Names
from lictor.kubernetes.resource import LEASE

NAMES = Names("kyverno", "kyverno")


class Scene:
    """A Lease, a webhook that may be deaf, and a watch that tells of each write."""

    def __init__(self):
        self.api = SmallApi()
        self.heartbeat = Heartbeat(self.api, NAMES)
        self.flips = []
        self.heartbeat.listen(lambda: self.flips.append(self.heartbeat.healthy()))
        self.number = 0

    def lease(self):
        return self.api.read(LEASE, "kyverno-health", "kyverno")

    def beat(self, *, answers=True):
        asyncio.run(self.heartbeat.beat())
        if answers:
            self.number += 1
            self.lease()["metadata"]["annotations"][STAMP] = (
                f"2030-01-01T00:{self.number // 60:02}:{self.number % 60:02}Z"
            )
        self.emit()

    def emit(self):
        self.heartbeat.hear(Change(ChangeType.MODIFIED, self.lease()))


def test_the_lease_is_made_as_kyverno_makes_it():
    scene = Scene()
    scene.beat(answers=False)
    metadata = scene.lease()["metadata"]
    assert metadata["labels"] == {"app.kubernetes.io/name": "kyverno"}
    assert STAMP in metadata["annotations"]
    assert scene.lease()["apiVersion"] == "coordination.k8s.io/v1"


def test_answers_keep_it_healthy():
    scene = Scene()
    for _ in range(30):
        scene.beat()
        assert scene.heartbeat.healthy()
    assert scene.flips == []
    assert scene.heartbeat.last_answer == "2030-01-01T00:00:30Z"


def test_a_hundred_seconds_of_silence_are_too_many(caplog):
    scene = Scene()
    scene.beat()
    with caplog.at_level(logging.INFO):
        for _ in range(9):
            scene.beat(answers=False)
            assert scene.heartbeat.healthy()
        scene.beat(answers=False)
        assert not scene.heartbeat.healthy()
        assert REGISTRY.get_sample_value("lictor_webhook_healthy") == 0
        scene.beat()
    assert scene.heartbeat.healthy()
    assert REGISTRY.get_sample_value("lictor_webhook_healthy") == 1
    assert REGISTRY.get_sample_value("lictor_webhook_last_answer_timestamp_seconds") > 1.8e9
    assert scene.flips == [False, True]
    assert [record.message for record in caplog.records] == [
        "webhooks do not answer",
        "webhooks answer again",
    ]


def test_beats_do_not_touch_the_stamp():
    scene = Scene()
    scene.beat()
    before = scene.lease()["metadata"]["annotations"][STAMP]
    renewed = scene.lease()["spec"]["renewTime"]
    scene.beat(answers=False)
    assert scene.lease()["metadata"]["annotations"][STAMP] == before
    assert scene.lease()["spec"]["renewTime"] != renewed


def test_other_changes_of_the_lease_are_no_beats():
    scene = Scene()
    scene.beat()
    for number in range(20):
        scene.lease()["metadata"]["labels"]["by"] = str(number)
        scene.emit()
    assert scene.heartbeat.healthy()


def test_a_lost_annotation_comes_back():
    scene = Scene()
    scene.beat()
    del scene.lease()["metadata"]["annotations"]
    scene.beat(answers=False)
    assert STAMP in scene.lease()["metadata"]["annotations"]


def test_nothing_known_is_no_reason_for_alarm():
    assert Scene().heartbeat.healthy()
