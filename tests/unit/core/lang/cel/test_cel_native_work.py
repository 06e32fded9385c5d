"""What the engine does without a chance to interrupt it is known before it begins."""

import threading
import time
from collections.abc import Callable, Iterator
from contextvars import copy_context
from typing import Any

import pytest

from lictor.core.errors import DeadlineError, LictorError, SlowRequestError, TooLargeError
from lictor.core.lang.cel.environment import kyverno_environment
from lictor.core.lang.cel.expression import NO_VARIABLES, compile_expression, declare_variable
from lictor.core.lang.cel.growth import is_brief
from lictor.core.lang.cel.native import interruption
from lictor.webhook.interrupts import SignalAlarm, ThreadWork

ENVIRONMENT = kyverno_environment("validating", is_namespaced=True)
LARGE = {"data": {f"k{number}": "a" * 200 for number in range(3000)}}
MIDDLING = {"data": {f"k{number}": "a" * 200 for number in range(600)}}
SMALL = {"data": {f"k{number}": "a" * 20 for number in range(10)}}


@pytest.fixture
def brief() -> Iterator[None]:
    token = is_brief.set(True)
    yield
    is_brief.reset(token)


SQUARE = [
    "object.data.all(k, '%s%s'.format([object.data, object.data]).size() > 0)",
    "object.data.all(k, json.marshal(object).size() > 0)",
    "object.data.exists(k, object.data == object.data)",
    "object.data.all(k, [object.data, object.data].all(x, x == object.data))",
    "object.data.all(k, object.data.all(j, object.data[j].contains(object.data[k]) || true))",
    "lists.range(9000).all(n, object.data['k1'].contains('b') == false)",
]
LINEAR = [
    "object.data.all(k, object.data[k].contains('a'))",
    "object.data.all(k, object.data[k].size() > 0) && object.data.exists(k, k == 'k1')",
    "object.data.map(k, object.data[k]).size() > 0",
    "json.marshal(object).size() > 0 && object == object",
    "object.data.all(k, object.data[k].split('b').size() > 0)",
    "[1, 2, 3].all(n, object.data.size() > n)",
]


@pytest.mark.usefixtures("brief")
@pytest.mark.parametrize("text", SQUARE)
def test_what_takes_the_square_is_not_begun(text: str) -> None:
    expression = compile_expression(text, ENVIRONMENT)
    began = time.process_time()
    with pytest.raises(SlowRequestError):
        expression({"object": MIDDLING})
    with pytest.raises(TooLargeError):
        expression({"object": LARGE})
    assert time.process_time() - began < 0.5
    assert expression({"object": SMALL}) in (True, False)


@pytest.mark.usefixtures("brief")
@pytest.mark.parametrize("text", LINEAR)
def test_what_grows_with_the_request_is(text: str) -> None:
    assert compile_expression(text, ENVIRONMENT)({"object": LARGE}) in (True, False)


def test_whoever_has_time_begins() -> None:
    text = "object.data.exists(k, k == 'k1' && object.data == object.data)"
    assert compile_expression(text, ENVIRONMENT)({"object": MIDDLING}) is True


def test_many_copies_of_a_large_object() -> None:
    variables = declare_variable(NO_VARIABLES, "v0", "[object]", ENVIRONMENT)
    for number in range(1, 8):
        text = f"variables.v{number - 1} + variables.v{number - 1}"
        variables = declare_variable(variables, f"v{number}", text, ENVIRONMENT)
    text = "json.marshal(variables.v7).size() > 0"
    expression = compile_expression(text, ENVIRONMENT, variables)
    with pytest.raises(TooLargeError, match="copies of a large object"):
        expression({"object": LARGE})
    assert expression({"object": SMALL}) is True


def _interrupt_cpu(call: Callable[[], Any]) -> None:
    alarm = SignalAlarm()
    alarm.set_cpu(0.02)
    try:
        call()
    finally:
        assert alarm.clear_cpu()


def _interrupt(call: Callable[[], Any]) -> None:
    alarm = SignalAlarm()
    alarm.set(0.02)
    try:
        call()
    finally:
        alarm.clear()


@pytest.mark.parametrize("interrupt", [_interrupt, _interrupt_cpu])
@pytest.mark.parametrize(("macro", "test"), [("all", ">="), ("exists", "<"), ("exists_one", "<")])
def test_a_loop_ends_with_its_time(interrupt: Callable[..., None], macro: str, test: str) -> None:
    """The engine goes on after an error in one element, thousands of times."""
    text = f"object.data.{macro}(k, object.data[k].findAll('a').size() {test} 0)"
    expression = compile_expression(text, ENVIRONMENT)
    began = time.process_time()
    with pytest.raises(LictorError) as raised:
        interrupt(lambda: expression({"object": LARGE}))
    assert isinstance(raised.value, (DeadlineError, SlowRequestError))
    assert time.process_time() - began < 1.0
    # Whoever comes next is asked anew.
    assert expression({"object": {"data": {}}}) in (True, False)


def test_a_loop_on_a_thread_ends_when_it_is_told() -> None:
    """Nothing but functions of ours is interrupted there, and the engine makes light of that."""
    text = "object.data.all(k, object.data[k].findAll('a').size() >= 0)"
    expression = compile_expression(text, ENVIRONMENT)
    context = copy_context()
    raised: list[Exception] = []

    def evaluate() -> Any:
        try:
            context.run(expression, {"object": LARGE})
        except LictorError as error:
            raised.append(error)

    work = ThreadWork(evaluate)
    context.run(interruption.set, work.interruption)
    thread = threading.Thread(target=work.run)
    thread.start()
    while thread.is_alive() and work.computed < 0.03:
        time.sleep(0.005)
    work.interrupt()
    computed = time.process_time()
    thread.join()
    assert time.process_time() - computed < 1.0
    assert [type(error) for error in raised] == [SlowRequestError]
