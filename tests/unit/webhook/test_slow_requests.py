"""What takes long to judge is left to another process, and told apart from what does not."""

import asyncio
import threading
import time
from pathlib import Path

import orjson
import pytest

from lictor.core.engine import Engine
from lictor.core.errors import SlowRequestError
from lictor.core.model.program import Case, CompiledRule, Phase, Program
from lictor.core.model.request import Request
from lictor.core.model.result import PolicyRef, Result, RuleType, Status
from lictor.core.raw import JsonObject
from lictor.core.report.admission_response import AdmissionAnswer, render_review
from lictor.webhook.evaluator import Evaluator
from lictor.webhook.interrupts import SignalAlarm
from lictor.webhook.slow_requests import SlowRequests

POD: JsonObject = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "web"}}
POLICY = PolicyRef("any")


def make_request(namespace: str) -> Request:
    request = Request.of(POD)
    return type(request)(
        kind=request.kind, object=POD, admission={"namespace": namespace, "uid": "1"}
    )


def make_engine(seconds: float, *, sleeps: bool = False, asked: list[Case] | None = None) -> Engine:
    """One rule that computes, or waits, for so long about what is in `red`."""

    def check(case: Case) -> tuple[Result, ...]:
        if asked is not None:
            asked.append(case)
        is_slow = (case.request.admission or {})["namespace"] == "red"
        if is_slow and sleeps:
            time.sleep(seconds)
        end = time.process_time() + (seconds if is_slow and not sleeps else 0)
        while time.process_time() < end:
            pass
        return (Result(POLICY, "rule", RuleType.VALIDATION, Status.PASS),)

    rule = CompiledRule("rule", Phase.VALIDATE, lambda *_: lambda _: True, check)
    return Engine([Program(POLICY, (rule,))])


def judge_once(evaluator: Evaluator, engine: Engine, namespace: str) -> Status:
    deadline = time.monotonic() + 120
    verdict = asyncio.run(evaluator.evaluate(engine, make_request(namespace), deadline))
    return verdict.results[0].status


def test_a_request_that_computes_for_long_is_handed_over() -> None:
    asked: list[Case] = []
    engine = make_engine(5.0, asked=asked)
    evaluator = Evaluator(alarm=SignalAlarm(), hands_over=True)
    began = time.process_time()
    # One may have been chance; after two, the next at once.
    for tried in (1, 2, 2):
        with pytest.raises(SlowRequestError):
            judge_once(evaluator, engine, "red")
        assert len(asked) == tried
    assert time.process_time() - began < 1.0
    # Those of other namespaces are judged here.
    assert judge_once(evaluator, engine, "green") is Status.PASS


def test_waiting_for_a_processor_is_not_computing() -> None:
    evaluator = Evaluator(alarm=SignalAlarm(), hands_over=True)
    assert judge_once(evaluator, make_engine(0.2, sleeps=True), "red") is Status.PASS


def test_without_such_a_process_nothing_is_handed_over() -> None:
    evaluator = Evaluator(alarm=SignalAlarm())
    assert judge_once(evaluator, make_engine(0.1), "red") is Status.PASS


async def answer_always(path: Path, answer: AdmissionAnswer, seen: list[bytes]) -> asyncio.Server:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        seen.append(await reader.readuntil(b"}}"))
        body = render_review("1", answer)
        head = f"HTTP/1.1 200 OK\r\ncontent-length: {len(body)}\r\n\r\n"
        await asyncio.sleep(0.2)
        writer.write(head.encode() + body)
        writer.close()

    return await asyncio.start_unix_server(serve, path)


@pytest.mark.parametrize(
    "answer",
    [
        AdmissionAnswer(),
        AdmissionAnswer(allowed=False, message="no"),
        AdmissionAnswer(allowed=False, message="no", status={"code": 403, "details": {"a": 1}}),
        AdmissionAnswer(audit_annotations={"a": "b"}),
        AdmissionAnswer(warnings=("mind", "this")),
        AdmissionAnswer(patch=({"op": "add", "path": "/a", "value": [1]},)),
    ],
)
def test_answers_come_back_as_they_are(tmp_path: Path, answer: AdmissionAnswer) -> None:
    seen: list[bytes] = []

    async def run() -> AdmissionAnswer:
        async with await answer_always(tmp_path / "slow", answer, seen):
            slow = SlowRequests(str(tmp_path / "slow"))
            return await slow.ask("/validate/fail", make_request("red"), time.monotonic() + 10)

    assert asyncio.run(run()) == answer
    head, _, body = seen[0].partition(b"\r\n\r\n")
    assert head.startswith(b"POST /validate/fail?timeout=9s HTTP/1.1")
    assert orjson.loads(body)["request"] == {"namespace": "red", "uid": "1"}


def ask_many(folder: Path, names: list[str], seconds: float = 10) -> list[object]:
    """Which answer, or error, each of the requests got, in the order in which they ended."""

    async def run() -> list[object]:
        ended: list[object] = []
        async with await answer_always(folder / "slow", AdmissionAnswer(), []):
            slow = SlowRequests(str(folder / "slow"))

            async def ask(name: str) -> None:
                try:
                    await slow.ask("/validate/fail", make_request(name), time.monotonic() + seconds)
                except SlowRequestError as error:
                    ended.append(str(error))
                else:
                    ended.append(name)

            await asyncio.gather(*map(ask, names))
            # The server ends what nobody waits for any more.
            await asyncio.sleep(0.5)
        return ended

    return asyncio.run(run())


def test_one_namespace_leaves_room_for_others(tmp_path: Path) -> None:
    ended = ask_many(tmp_path, ["red"] * 6 + ["green"])
    assert sorted(ended[:5], key=str) == ["green"] + ["red"] * 4
    assert ended[5:] == ["red"] * 2


def test_a_line_ends_where_nobody_would_be_heard_in_time(tmp_path: Path) -> None:
    ended = ask_many(tmp_path, ["red"] * 21)
    assert ended.count("red") == 20
    assert ended[0] == "too many requests at once that take long to evaluate"
    assert "the rules took too long" in ask_many(tmp_path, ["red"] * 6, seconds=0.3)


@pytest.mark.parametrize(
    ("namespace", "size", "is_handed"),
    [("red", 200_000, True), ("red", 2_000, False), ("green", 200_000, False)],
)
def test_large_objects_that_policies_of_their_namespace_concern(
    namespace: str, size: int, *, is_handed: bool
) -> None:
    """Converting them is native code that nobody can interrupt."""
    rule = CompiledRule("rule", Phase.VALIDATE, lambda *_: lambda _: True, lambda _: ())
    engine = Engine([Program(PolicyRef("any", namespace="red"), (rule,))])
    evaluator = Evaluator(hands_over=True)
    asked = evaluator.evaluate(engine, make_request(namespace), time.monotonic() + 9, size=size)
    if is_handed:
        with pytest.raises(SlowRequestError):
            asyncio.run(asked)
    else:
        assert asyncio.run(asked).results == ()


@pytest.mark.parametrize("reply", [b"", b"HTTP/1.1 500 no\r\n\r\n", b"HTTP/1.1 200 OK\r\n\r\n{}"])
def test_nothing_is_allowed_where_nobody_answers(tmp_path: Path, reply: bytes) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"}}")
        writer.write(reply)
        writer.close()

    async def run(address: Path) -> None:
        async with await asyncio.start_unix_server(serve, tmp_path / "slow"):
            slow = SlowRequests(str(address))
            await slow.ask("/validate/fail", make_request("red"), time.monotonic() + 10)

    with pytest.raises(SlowRequestError):
        asyncio.run(run(tmp_path / "slow"))
    with pytest.raises(SlowRequestError):
        asyncio.run(run(tmp_path / "nobody"))


def test_what_other_threads_compute_does_not_count() -> None:
    """Else images that are verified on threads would send small requests to the slow process."""
    alarm = SignalAlarm()
    others = [threading.Thread(target=_spin_for, args=(0.3,)) for _ in range(3)]
    alarm.set_cpu(0.05)
    try:
        for thread in others:
            thread.start()
        for thread in others:
            thread.join()
    finally:
        has_rung = alarm.clear_cpu()
    assert not has_rung


def _spin_for(seconds: float) -> None:
    began = time.thread_time()
    while time.thread_time() - began < seconds:
        pass
