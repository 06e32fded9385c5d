"""Nobody gets past a policy with `failurePolicy: Ignore` by making an object large, deep or slow."""

import asyncio
import time
from base64 import b64decode
from collections.abc import Callable
from http import HTTPStatus
from pathlib import Path

import orjson
import pytest
from serving import Bench, make_policy, make_review, require_label, write_policies

from lictor.core.errors import DeadlineError, SlowRequestError, TooSlowError
from lictor.core.model.program import Needs
from lictor.core.model.result import Verdict
from lictor.core.raw import Json, JsonObject
from lictor.http.messages import HttpRequest, HttpResponse
from lictor.webhook.evaluator import Evaluator
from lictor.webhook.interrupts import SignalAlarm, ThreadWork

PATH = "/validate/ignore"


def _bench(folder: Path, *rules: JsonObject) -> Bench:
    return Bench(write_policies(folder, make_policy("p", *rules, failurePolicy="Ignore")))


def _review(spec: Json, **metadata: Json) -> JsonObject:
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "web", "namespace": "shop", **metadata},
        "spec": spec,
    }
    return make_review(object=pod)


def _nest(depth: int) -> bytes:
    review = orjson.dumps(_review("HERE"))
    return review.replace(b'"HERE"', b'{"a":' * depth + b"1" + b"}" * depth)


@pytest.mark.parametrize("depth", [198, 250, 400, 1000, 5000, 10_000])
def test_too_deep_is_refused_by_an_answer(tmp_path: Path, depth: int) -> None:
    bench = _bench(tmp_path, require_label("x"))
    reply = asyncio.run(bench.post(PATH, _nest(depth)))
    assert reply.status is HTTPStatus.OK
    review = orjson.loads(reply.body)
    assert review["apiVersion"] == "admission.k8s.io/v1"
    assert review["response"]["uid"] == "6b7a"
    assert review["response"]["allowed"] is False
    assert "could not be evaluated" in review["response"]["status"]["message"]


def test_depth_that_can_be_walked_is_judged(tmp_path: Path) -> None:
    bench = _bench(tmp_path, require_label("x"))
    response = orjson.loads(asyncio.run(bench.post(PATH, _nest(190))).body)["response"]
    assert "The label x is required" in response["status"]["message"]


@pytest.mark.parametrize(("operations", "is_allowed"), [(["CREATE"], True), (["DELETE"], False)])
@pytest.mark.parametrize("depth", [190, 198, 250, 1000])
def test_what_is_too_deep_can_be_deleted(
    tmp_path: Path, depth: int, operations: list[str], *, is_allowed: bool
) -> None:
    """It is evaluated without what is too deep; policies about deletions are heard as ever."""
    rule = require_label("x")
    rule["match"] = {"any": [{"resources": {"kinds": ["Pod"], "operations": operations}}]}
    rule["validate"] = {
        "failureAction": "Enforce",
        "message": "it stays",
        "deny": {
            "conditions": {
                "any": [
                    {
                        "key": "{{ request.oldObject.metadata.labels.kept }}",
                        "operator": "Equals",
                        "value": "yes",
                    }
                ]
            }
        },
    }
    old = _review("HERE", labels={"kept": "yes"})["request"]["object"]
    review = orjson.dumps(make_review(operation="DELETE", oldObject=old))
    deep = review.replace(b'"HERE"', b'{"a":' * depth + b"1" + b"}" * depth)
    reply = asyncio.run(_bench(tmp_path, rule).post(PATH, deep))
    response = orjson.loads(reply.body)["response"]
    assert response["allowed"] is is_allowed, response
    assert ("it stays" in str(response)) is not is_allowed


def test_too_large_is_refused_by_an_answer(tmp_path: Path) -> None:
    bench = _bench(tmp_path, require_label("x"))
    body = orjson.dumps(_review({}))[:300]
    call = HttpRequest("POST", PATH, b"", b"application/json", body, is_cut=True)
    reply = bench.app(call)
    assert isinstance(reply, HttpResponse)
    assert reply.status is HTTPStatus.OK
    response = orjson.loads(reply.body)["response"]
    assert (response["uid"], response["allowed"]) == ("6b7a", False)
    assert "too large" in response["status"]["message"]


def test_what_is_no_review_gets_no_answer(tmp_path: Path) -> None:
    bench = _bench(tmp_path, require_label("x"))
    for body in (b"[" * 1000, b"{}"):
        reply = asyncio.run(bench.post(PATH, body))
        assert reply.status is HTTPStatus.BAD_REQUEST


def _deny(key: str, **more: Json) -> JsonObject:
    condition = {"key": key, "operator": "Equals", "value": "x"}
    rule = require_label("x", **more)
    rule["validate"] = {
        "failureAction": "Enforce",
        "message": "no",
        "deny": {"conditions": {"all": [condition]}},
    }
    return rule


def _variable(query: str) -> JsonObject:
    return {"context": [{"name": "v", "variable": {"jmesPath": query}}]}


_ALL = "{a: request.object, b: request.object, c: request.object, d: request.object}"
LARGE = {
    "a text": (_deny("{{ request.object.spec }}-{{ request.object.spec }}"), "x" * 3_000_000),
    "a variable": (_deny("{{ v }}", **_variable(_ALL)), "x" * 3_000_000),
    "a function": (
        _deny("{{ replace_all(request.object.spec, 'x', 'yyyyyyyy') }}"),
        "x" * 3_000_000,
    ),
    "an expression": (
        _deny("{{ regex_replace_all('x', request.object.spec, 'y') }}"),
        "x" * 500_000,
    ),
}


@pytest.mark.parametrize("what", LARGE)
def test_what_an_object_makes_too_large_is_refused(tmp_path: Path, what: str) -> None:
    rule, spec = LARGE[what]
    bench = _bench(tmp_path, rule)
    response = bench.ask(PATH, _review(spec))
    assert response["allowed"] is False
    assert bench.ask(PATH, _review("small"))["allowed"] is True


@pytest.mark.parametrize(("action", "allowed"), [("Enforce", False), ("Audit", True)])
def test_a_registry_does_not_let_its_images_in_by_its_silence(
    tmp_path: Path, action: str, *, allowed: bool
) -> None:
    rule = {
        "name": "signed",
        "match": {"any": [{"resources": {"kinds": ["Pod"]}}]},
        "verifyImages": [
            {
                "failureAction": action,
                "imageReferences": ["*"],
                "required": False,
                "verifyDigest": False,
                "mutateDigest": False,
                "attestors": [{"entries": [{"keys": {"publicKeys": "k"}}]}],
            }
        ],
    }
    policies = write_policies(tmp_path, make_policy("p", rule, failurePolicy="Ignore"))
    review = _review({"containers": [{"name": "c", "image": "127.0.0.1:1/app:v1"}]})
    response = Bench(policies, guard=policies.guard).ask("/mutate/ignore", review)
    assert response["allowed"] is allowed


def test_long_lists_do_not_get_past_cel(tmp_path: Path) -> None:
    policy = {
        "apiVersion": "policies.kyverno.io/v1",
        "kind": "ValidatingPolicy",
        "metadata": {"name": "p"},
        "spec": {
            "failurePolicy": "Ignore",
            "validationActions": ["Deny"],
            "matchConstraints": {
                "resourceRules": [
                    {
                        "apiGroups": [""],
                        "apiVersions": ["v1"],
                        "operations": ["CREATE"],
                        "resources": ["pods"],
                    }
                ]
            },
            "validations": [
                {
                    "expression": "object.spec.all(a, object.spec.all(b, "
                    "object.spec.all(c, a + b + c >= 0)))"
                }
            ],
        },
    }
    bench = Bench(write_policies(tmp_path, policy))
    assert bench.ask("/vpol/p", _review([1, 2, 3]))["allowed"] is True
    response = bench.ask("/vpol/p", _review(list(range(1000))))
    assert response["allowed"] is False
    message = response["status"]["message"]
    assert "deadline exceeded" in message or "cost limit exceeded" in message


def _spin(seconds: float) -> None:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        pass


class _Engine:
    """Judges for as long as it is told to."""

    def __init__(self, work: Callable[[], None], needs: Needs) -> None:
        self._work = work
        self._needs = needs

    def find_needs(self, _: object) -> Needs:
        return self._needs

    find_known_needs = find_needs

    def evaluate(self, _: object, *, deadline: float, compiles: bool) -> Verdict:
        self._work()
        raise DeadlineError("no time left")


def test_a_judgement_that_takes_too_long_here_is_told_so() -> None:
    evaluator = Evaluator(alarm=SignalAlarm())
    request = type("R", (), {"kind": "k", "subresource": "", "operation": "CREATE"})()

    async def ask(work: Callable[[], None], needs: Needs) -> type[BaseException]:
        deadline = time.monotonic() + 1
        with pytest.raises(DeadlineError) as caught:
            await evaluator.evaluate(_Engine(work, needs), request, deadline)
        return caught.type

    assert asyncio.run(ask(lambda: _spin(60), Needs.NOTHING)) is TooSlowError
    assert asyncio.run(ask(lambda: _spin(60), Needs.LOOKUPS)) is TooSlowError
    assert asyncio.run(ask(lambda: time.sleep(1.5), Needs.LOOKUPS)) is DeadlineError
    evaluator.close()


def test_a_thread_that_never_ends_is_interrupted() -> None:
    ended: list[float] = []

    def judge() -> Verdict:
        try:
            _spin(60)
        finally:
            ended.append(time.monotonic())
        raise AssertionError

    async def run() -> None:
        work = ThreadWork(judge)
        future = asyncio.get_running_loop().run_in_executor(None, work.run)
        await asyncio.sleep(1)
        assert isinstance(work.interrupt(), TooSlowError)
        with pytest.raises(SlowRequestError):
            await future
        assert type(work.interrupt()) is DeadlineError

    began = time.monotonic()
    asyncio.run(run())
    assert ended[0] - began < 30


def test_a_loop_over_many_containers_is_judged_in_time(tmp_path: Path) -> None:
    overlay = {"(name)": "{{ element.name }}", "securityContext": {"+(runAsNonRoot)": True}}
    loop = {
        "list": "request.object.spec.containers",
        "patchStrategicMerge": {"spec": {"containers": [overlay]}},
    }
    rule = require_label("x")
    del rule["validate"]
    bench = _bench(tmp_path, {**rule, "mutate": {"foreach": [loop]}})

    def measure(count: int) -> float:
        containers = [{"name": f"c{number}", "image": "x"} for number in range(count)]
        began = time.process_time()
        response = bench.ask("/mutate/ignore", _review({"containers": containers}))
        spent = time.process_time() - began
        assert response["allowed"] is True
        assert len(orjson.loads(b64decode(response["patch"]))) == count
        return spent

    measure(10)
    few, many = min(measure(100) for _ in range(3)), min(measure(1000) for _ in range(2))
    # It was a hundred times as much, and more than the two seconds that there are.
    assert many < 40 * few
    assert many < 3
