"""Host calls as Kubewarden answered them, and sessions that kwctl recorded."""

import contextlib
import json

import msgspec
import orjson
import pytest
import yaml
from shared_cases import CASES

from lictor.addons.kubewarden.family.entries import PolicyEntry
from lictor.addons.kubewarden.family.host_calls import PolicyHost
from lictor.addons.kubewarden.family.sessions import (
    RecordingHost,
    ReplayingHost,
    read_recorded_request,
)
from lictor.cli.inputs.lookups import GivenObjects, OfflineLookups
from lictor.cli.inputs.requests import GivenValues
from lictor.core.errors import HostCallError, LookupFailedError
from lictor.core.lang.yaml.build import parse_yaml_text
from lictor.core.raw import Json, JsonObject
from lictor.images.registries import RemoteRegistries

CORPUS = CASES / "kubewarden"
pytestmark = pytest.mark.skipif(not CORPUS.is_dir(), reason="no answers of Kubewarden here")
# What the cluster held.
OBJECTS: tuple[JsonObject, ...] = (
    {
        "apiVersion": "v1",
        "kind": "Namespace",
        "metadata": {"name": "shop", "labels": {"team": "a"}, "managedFields": [{"manager": "x"}]},
    },
    {
        "apiVersion": "v1",
        "kind": "Namespace",
        "metadata": {"name": "closed", "labels": {"team": "b"}},
    },
    {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "web", "namespace": "shop", "labels": {"app": "web"}},
        "spec": {
            "replicas": 2,
            "template": {
                "spec": {
                    "containers": [
                        {"name": "c", "image": "nginx:1"},
                        {"name": "d", "image": "busybox"},
                    ]
                }
            },
        },
    },
)


class Outside(OfflineLookups):
    """The cluster of the rows; registries that nobody runs; one host."""

    def __init__(self) -> None:
        super().__init__(GivenValues(), GivenObjects(cluster=OBJECTS))
        self._registries = RemoteRegistries()

    def registries(self):
        return self._registries

    def resolve_host(self, host):
        if host != "localhost":
            raise LookupFailedError("Name or service not known")
        return ("127.0.0.1",)

    def call_api(self, call):
        if "admin" in call.data["spec"]["user"]:
            return {"status": {"allowed": True}}
        return {"status": {"allowed": False, "reason": "no rule"}}


def test_answers_to_host_calls():
    text = (CORPUS / "server-answers.jsonl").read_text(encoding="utf-8")
    rows = [json.loads(line) for line in text.splitlines()]
    rows = [row for row in rows if row.get("setup") == "host-calls"]
    policies = yaml.safe_load(rows[0]["policies.yml"])
    outside = Outside()
    wrong, judged = [], 0
    for row in rows[1:]:
        policy = policies[row["path"].rpartition("/")[2]]
        if policy["settings"].get("mode") == "host" and "binding" not in policy["settings"]:
            judged += 1
            if ask(outside, policy) != read_answer(row):
                wrong.append(row["id"])
    assert judged > 80
    assert wrong == []


def ask(outside: Outside, policy: JsonObject) -> tuple[bool, Json]:
    asked = policy["settings"]
    host = PolicyHost(outside, msgspec.convert(policy, PolicyEntry))
    payload = orjson.dumps(asked["payload"])
    try:
        answer = host.call(asked["namespace"], asked["operation"], payload)
    except HostCallError:
        return False, None
    return True, settle(orjson.loads(answer)) if answer else None


def read_answer(row: JsonObject) -> tuple[bool, Json]:
    """What the guest was told; of failures the words do not count."""
    response = row["answer"]["response"]
    told = response["status"]["message"].removeprefix("0 ")
    if not response["allowed"]:
        return False, None
    return True, settle(json.loads(told)) if told else None


def settle(value: Json) -> Json:
    """Without what a cluster makes up, and with lists in one order."""
    if isinstance(value, dict):
        made_up = ("uid", "resourceVersion")
        return {name: settle(below) for name, below in value.items() if name not in made_up}
    return sorted(map(settle, value), key=_write) if isinstance(value, list) else value


def _write(value: Json) -> str:
    return json.dumps(value, sort_keys=True)


def test_sessions_of_kwctl():
    paths = sorted((CORPUS / "sessions").glob("*.yml"))
    assert paths
    for path in paths:
        text = path.read_text(encoding="utf-8")
        recording = RecordingHost(ReplayingHost(text, str(path)))
        for exchange in parse_yaml_text(text):
            # What went wrong is written down too, as the comparison shows.
            with contextlib.suppress(HostCallError):
                recording.answer(read_recorded_request(exchange["request"]))
        assert recording.write() == text, path
