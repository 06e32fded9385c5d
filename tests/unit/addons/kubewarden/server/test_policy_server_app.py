"""What requests to a policy server are answered, whatever they hold."""

import asyncio
import json
import threading
import time
from collections.abc import Collection, Iterator
from concurrent.futures import Future, wait
from pathlib import Path
from typing import Any

import pytest
from policy_serving import make_review, write_guest

from lictor.addons.kubewarden.modules.module_store import ModuleSettings, ModuleStore
from lictor.addons.kubewarden.server import policies as served_policies
from lictor.addons.kubewarden.server.app import PolicyServerApp
from lictor.addons.kubewarden.server.metrics import EvaluationMetrics
from lictor.addons.kubewarden.server.policies import PolicyOpener, ServedPolicies
from lictor.addons.kubewarden.server.runner import PolicyRunner
from lictor.core.errors import LookupFailedError
from lictor.core.lang.wasm_module import WasmModule
from lictor.core.lang.wasm_records import GuestLimits, NoHostCalls
from lictor.http.messages import HttpRequest, HttpResponse

_PATIENCE = 60.0
DEEP = '{"request": {"uid": "u-9", "object": ' + '{"a":' * 3000 + "1" + "}" * 3000 + "}}"


@pytest.fixture(scope="module")
def policies(tmp_path_factory: pytest.TempPathFactory) -> ServedPolicies:
    folder = tmp_path_factory.mktemp("app")
    reject = {"module": write_guest(folder, "reject")}
    entries = {
        "no": reject,
        "watched": reject | {"policyMode": "monitor"},
        "told": reject | {"message": "ask us"},
        "change": {"module": write_guest(folder, "mutate")},
        "group": {"policies": {"m": reject}, "expression": "!m()", "message": "together"},
    }
    file = folder / "policies.yml"
    file.write_text(json.dumps(entries))
    store = ModuleStore(ModuleSettings(folder=folder, private_folder=folder / "private"))
    opener = PolicyOpener(store, lambda *_: NoHostCalls(), GuestLimits())
    served = ServedPolicies(file, opener, continues_on_errors=False)
    served.load()
    return served


@pytest.fixture
def runner() -> Iterator[asyncio.Runner]:
    with asyncio.Runner() as found:
        yield found


def _ask(runner: asyncio.Runner, policies: ServedPolicies, call: HttpRequest) -> HttpResponse:
    async def ask() -> HttpResponse:
        threads = PolicyRunner()
        try:
            return await PolicyServerApp(policies, threads, EvaluationMetrics())(call)
        finally:
            threads.close()

    return runner.run(ask())


def _post(path: str, body: Any, kind: bytes = b"application/json") -> HttpRequest:
    data = body.encode() if isinstance(body, str) else json.dumps(body).encode()
    return HttpRequest("POST", path, b"", kind, data)


REVIEW = make_review()


@pytest.mark.parametrize(
    ("call", "status"),
    [
        (_post("/validate/no", REVIEW), 200),
        (_post("/validate/no", REVIEW, b"Application/JSON; charset=utf-8"), 200),
        (_post("/validate/no", REVIEW, b"application/x+json"), 200),
        (_post("/validate/no", REVIEW, b"text/plain"), 415),
        (_post("/validate/no", REVIEW, b""), 415),
        (_post("/validate/no", ""), 400),
        (_post("/validate/no", "{no"), 400),
        (_post("/validate/no", '"\ud800"'.encode("utf-8", "surrogatepass").decode("latin-1")), 422),
        (_post("/validate/no", "[]"), 422),
        (_post("/validate/no", {"request": None}), 422),
        (_post("/validate/no", {"request": {"uid": 5}}), 422),
        (_post("/validate/other", REVIEW), 404),
        (_post("/validate/group%2Fm", REVIEW), 200),
        (_post("/validate/group%2Fx", REVIEW), 404),
        (_post("/validate/a%2Fb%2Fc", REVIEW), 500),
        (_post("/validate/group/m", REVIEW), 404),
        (_post("/validate/no/", REVIEW), 404),
        (_post("/validate", REVIEW), 404),
        (_post("/validate_raw/no", {"request": "text"}), 200),
        (_post("/validate_raw/no", {}), 422),
        (HttpRequest("GET", "/validate/no", b"", b"", b""), 405),
        (HttpRequest("GET", "/metrics", b"", b"", b""), 404),
    ],
)
def test_statuses(
    runner: asyncio.Runner, policies: ServedPolicies, call: HttpRequest, status: int
) -> None:
    reply = _ask(runner, policies, call)
    assert reply.status == status
    if reply.body and status != 200:
        assert json.loads(reply.body)["status"] == status


@pytest.mark.parametrize(
    ("path", "allowed", "message"),
    [
        ("/validate/no", False, "no"),
        ("/validate/watched", True, None),
        ("/audit/watched", False, "no"),
        ("/validate/told", False, "ask us"),
        ("/audit/told", False, "no"),
        ("/validate/group", True, None),
        ("/validate/group%2Fm", False, "no"),
    ],
)
def test_answers(
    runner: asyncio.Runner,
    policies: ServedPolicies,
    path: str,
    allowed: bool,  # noqa: FBT001
    message: str | None,
) -> None:
    response = json.loads(_ask(runner, policies, _post(path, REVIEW)).body)["response"]
    assert (response["uid"], response["allowed"]) == ("u-1", allowed)
    assert (response.get("status") or {}).get("message") == message
    assert response["auditAnnotations"] is response["warnings"] is None


def test_a_policy_that_may_not_change_objects_refuses(
    runner: asyncio.Runner, policies: ServedPolicies
) -> None:
    told = json.loads(_ask(runner, policies, _post("/validate/change", REVIEW)).body)["response"]
    assert told["allowed"] is False
    assert "patch" not in told
    said = json.loads(_ask(runner, policies, _post("/audit/change", REVIEW)).body)["response"]
    assert said["patchType"] == "JSONPatch"


@pytest.mark.parametrize(
    "call", [_post("/validate/no", DEEP), HttpRequest("POST", "/audit/no", b"", b"application/json",
             DEEP[:60].encode(), is_cut=True)]
)  # fmt: skip
def test_what_cannot_be_read_is_refused_by_an_answer(
    runner: asyncio.Runner, policies: ServedPolicies, call: HttpRequest
) -> None:
    reply = _ask(runner, policies, call)
    response = json.loads(reply.body)["response"]
    assert (reply.status, response["uid"], response["allowed"]) == (200, "u-9", False)


def test_fields_that_kubernetes_does_not_know_are_dropped() -> None:
    from lictor.addons.kubewarden.server.reviews import read_admission

    review = make_review()
    review["request"] |= {"odd": 1, "oldObject": None, "dryRun": False}
    question = read_admission(json.dumps(review).encode())
    assert question["dryRun"] is False
    assert {"odd", "oldObject"} & question.keys() == set()


def _be_patient(monkeypatch: pytest.MonkeyPatch, late: int, came: threading.Event) -> None:
    """Wait until all modules are there but so many: seconds would say nothing on a busy machine."""

    def wait_for_others(futures: Collection[Future[Any]], _: float) -> Any:
        deadline = time.monotonic() + _PATIENCE
        while True:
            done, left = wait(futures, 0.05)
            if len(left) <= (0 if came.is_set() else late) or time.monotonic() > deadline:
                return done, left

    monkeypatch.setattr(served_policies, "wait", wait_for_others)


def test_a_module_that_does_not_come_holds_up_nobody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    came = threading.Event()
    _be_patient(monkeypatch, 1, came)

    class SlowStore(ModuleStore):
        def load(self, address: str, namespace: str = "") -> WasmModule:
            if address.startswith("registry:"):
                came.wait(2 * _PATIENCE)
            return super().load(guest, namespace)

    guest = write_guest(tmp_path, "accept")
    file = tmp_path / "policies.yml"
    file.write_text(json.dumps({"late": {"module": "registry://x/y:v1"}, "a": {"module": guest}}))
    store = SlowStore(ModuleSettings(folder=tmp_path, private_folder=tmp_path / "private"))
    opener = PolicyOpener(store, lambda *_: NoHostCalls(), GuestLimits())
    served = ServedPolicies(file, opener, continues_on_errors=True)
    served.load()
    request = make_review()["request"]
    assert served.table.opened["a"].evaluate(request).allowed is True
    assert served.table.opened["late"].evaluate(request).allowed is False
    came.set()
    served.open_again(served.table.waiting)
    assert served.table.opened["late"].evaluate(request).allowed is True
    assert not served.table.failed


def test_a_namespace_with_slow_registries_holds_up_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    came = threading.Event()
    _be_patient(monkeypatch, 20, came)

    class SlowStore(ModuleStore):
        def load(self, address: str, namespace: str = "") -> WasmModule:
            if namespace == "evil":
                came.wait(2 * _PATIENCE)
            return super().load(guest, namespace)

    def describe(namespace: str) -> dict[str, object]:
        place = {"Namespace": namespace, "Name": "p"}
        return {"module": "registry://x/y:v1", "namespacedName": place}

    guest = write_guest(tmp_path, "accept")
    entries = {f"a{number}": describe("evil") for number in range(20)}
    others = {
        "b": describe("shop"),
        "c": describe(""),
        **{f"d{n}": describe(f"n{n}") for n in range(40)},
    }
    file = tmp_path / "policies.yml"
    file.write_text(json.dumps({**entries, **others}))
    store = SlowStore(ModuleSettings(folder=tmp_path, private_folder=tmp_path / "private"))
    opener = PolicyOpener(store, lambda *_: NoHostCalls(), GuestLimits())
    served = ServedPolicies(file, opener, continues_on_errors=True)
    served.load()
    came.set()
    assert served.table.waiting == entries.keys()
    assert served.table.opened["b"].evaluate(make_review()["request"]).allowed is True


@pytest.mark.parametrize(
    ("change", "stays"),
    [
        ({}, True),
        ({"settings": {"a": 1}}, True),
        # What may do less from now on must not go on as before.
        ({"hostCapabilities": ["oci/*"]}, False),
        ({"policyMode": "monitor"}, False),
        ({"allowedToMutate": True}, False),
    ],
)
def test_a_policy_answers_as_before_until_its_new_module_has_come(
    tmp_path: Path, change: dict[str, Any], *, stays: bool
) -> None:
    has_come = False

    class FarStore(ModuleStore):
        def load(self, address: str, namespace: str = "") -> WasmModule:
            if address.startswith("registry:") and not has_come:
                raise LookupFailedError("the registry is away")
            return super().load(reject if address.startswith("registry:") else address, namespace)

    accept, reject = write_guest(tmp_path, "accept"), write_guest(tmp_path, "reject")
    file = tmp_path / "policies.yml"
    store = FarStore(ModuleSettings(folder=tmp_path, private_folder=tmp_path / "private"))
    opener = PolicyOpener(store, lambda *_: NoHostCalls(), GuestLimits())
    served = ServedPolicies(file, opener, continues_on_errors=True)

    def take(module: str, **more: Any) -> None:
        group = {"policies": {"m": {"module": module}}, "expression": "m()", "message": "together"}
        file.write_text(json.dumps({"a": {"module": module, **more}, "g": group}))
        served._reload()

    request = make_review()["request"]
    take(accept)
    before = served.report.policies
    take("registry://x/y:v2", **change)
    assert served.table.opened["a"].evaluate(request).allowed is stays
    assert served.table.opened["g"].evaluate(request).allowed is True
    told = served.report.policies
    assert {told[name].state.value for name in "ag"} == {"pending"}
    assert "the registry is away" in told["a"].reason
    assert (told["a"].digest == before["a"].digest) is stays
    has_come = True
    served.open_again(served.table.waiting)
    for name in "ag":
        assert served.table.opened[name].evaluate(request).allowed is False
        assert served.report.policies[name].state.value == "ready"
        assert served.report.policies[name].digest != before[name].digest


def test_logs_hold_neither_objects_nor_settings(
    runner: asyncio.Runner,
    policies: ServedPolicies,
    caplog: pytest.LogCaptureFixture,
    tmp_path: Path,
) -> None:
    review = make_review()
    review["request"]["object"]["data"] = {"key": "very secret"}
    with caplog.at_level("INFO"):
        _ask(runner, policies, _post("/validate/no", review))
    assert [record.message for record in caplog.records] == ["policy evaluated"]
    assert "very secret" not in str([vars(record) for record in caplog.records])


def test_what_policies_of_a_namespace_are_not_given(tmp_path: Path) -> None:
    """Their hosts know their namespace, and they name no files of the server."""
    asked = []
    entry = {"module": write_guest(tmp_path, "accept")}
    of_namespace = {"namespacedName": {"Namespace": "shop", "Name": "a"}}
    group = {"policies": {"m": entry}, "expression": "m()", "message": "no"}
    file = tmp_path / "policies.yml"
    policies = {"a": entry | of_namespace, "b": entry, "g": group | of_namespace}
    file.write_text(json.dumps(policies))
    store = ModuleStore(ModuleSettings(folder=tmp_path, private_folder=tmp_path / "private"))

    def make_host(policy: str, _: object, namespace: str) -> NoHostCalls:
        asked.append((policy, namespace))
        return NoHostCalls()

    opener = PolicyOpener(store, make_host, GuestLimits())
    served = ServedPolicies(file, opener, continues_on_errors=True)
    served.load()
    assert sorted(asked) == [("a", "shop"), ("b", ""), ("g", "shop")]
    assert served.table.failed.keys() == {"a", "g"}
    assert "may not name files" in served.table.failed["a"]
