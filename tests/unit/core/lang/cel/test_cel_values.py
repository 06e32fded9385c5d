"""JSON on its way into CEL and back; no input may crash."""

import subprocess
import sys
import time

import pytest

from lictor.core.errors import EvaluationError, SyntaxFaultError, TooLargeError
from lictor.core.lang.cel.expression import compile_expression, make_activation
from lictor.core.lang.cel.kubernetes import kubernetes_environment
from lictor.core.lang.cel.kyverno import kyverno_environment
from lictor.core.lang.cel.library.plain import emit
from lictor.core.lang.cel.values import Duration
from lictor.core.lang.patch.pointer import is_same

ENVIRONMENT = kyverno_environment("validating")


def evaluate(text, value=None):
    return compile_expression(text, ENVIRONMENT)({"object": value})


@pytest.mark.parametrize(
    "value",
    [
        None, True, False, 0, -1, 2**63 - 1, -(2**63), 1.5, 1.0, -0.0, "", "é", "a\nb", [], {}, [None],
        {"a": None}, {"": {"": [1, 1.0, "1", True]}}, [[[[]]]], {"a b/c": "d"}, "\U0001f600",
    ],
)  # fmt: skip
def test_json_comes_back_as_it_went(value):
    assert is_same(evaluate("object", value), value)


@pytest.mark.parametrize(
    ("value", "answer"),
    [
        (2**70, 2.0**70),
        (-(2**70), -(2.0**70)),
        ({"a": 2**64}, {"a": 2.0**64}),
        ("a\ud800b", "a\ufffdb"),
        ({"\udfff": 1}, {"\ufffd": 1}),
        (10**400, float("inf")),
    ],
)
def test_what_go_reads_otherwise_is_mended(value, answer):
    assert evaluate("object", value) == answer


@pytest.mark.parametrize(
    ("value", "told"),
    [
        (b"bytes", "no JSON value"),
        ({1, 2}, "no JSON value"),
        (object(), "no JSON value"),
        (1j, "no JSON value"),
    ],
)
def test_what_cannot_be_judged_is_an_error(value, told):
    with pytest.raises(EvaluationError, match=told):
        evaluate("object == 1", value)


def test_bottomless_values_are_an_error():
    value: list = []
    for _ in range(5000):
        value = [value]
    with pytest.raises(TooLargeError, match="nested too deeply"):
        evaluate("object", value)


def test_a_nul_is_a_character_like_others():
    assert evaluate("object == 'a\\x00b' && object.size() == 3", "a\0b") is True


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("b'\\x00\\x01'", "AAE="),
        ("timestamp('2024-02-29T12:00:00.5Z')", "2024-02-29T12:00:00.5Z"),
        ("timestamp('0001-01-01T00:00:00Z')", "0001-01-01T00:00:00Z"),
        ("duration('90m')", "5400s"),
        ("duration('-1500ms')", "-1.5s"),
        ("{1: 'a', 2: 'b'}", {"1": "a", "2": "b"}),
        ("{true: 'b'}", {"true": "b"}),
        ("optional.of(1)", 1),
        ("optional.none()", None),
        ("object.?x", None),
        ("type(1)", "int"),
        ("{'b': 1, 'a': 2}", {"a": 2, "b": 1}),
        ("quantity('1k')", "kubernetes.Quantity"),
    ],
)
def test_answers_are_json(text, answer):
    assert evaluate(text, {}) == answer


def test_keys_come_in_order():
    assert list(evaluate("{'b': 1, 'c': 3, 'a': 2}")) == ["a", "b", "c"]


def test_lists_are_written_part_by_part():
    assert emit([b"a", Duration(-2_000_000_000)]) == ["YQ==", "-2s"]


@pytest.mark.parametrize(
    ("text", "value", "answer"),
    [
        ("object.?spec.?containers.orValue([]).size() == 0", {"spec": None}, True),
        ("object.?spec.containers.hasValue()", {"spec": None}, False),
        ("object.spec.?containers.hasValue()", {"spec": None}, False),
        ("object.spec.?a[?'b/c'].orValue('') != ''", {"spec": None}, False),
        ("object.spec.?a[?'b/c'].orValue('') != ''", {"spec": {"a": None}}, False),
        ("object.list.all(x, x.?a.?b.orValue(1) == 1)", {"list": [{"a": None}]}, True),
        ("object.a[?'x'].hasValue()", {"a": None}, False),
        ("object.a[?0].hasValue()", {"a": None}, False),
        ("object.?a.b.c.hasValue()", {"a": {"b": None}}, False),
        ("object.?a.b[?'x'].hasValue()", {"a": 1}, False),
        ("object.?a.?b.hasValue()", {"a": "text"}, False),
        ("has(object.a.b)", {"a": None}, False),
        ("has(object.a.b)", {"a": 1}, False),
        ("has(object.a.b) || object.a == null", {"a": None}, True),
        ("has(object.a.b) && has(object.c.d)", {"a": {"b": 1}, "c": None}, False),
        ("object.list.orValue([])", {"list": [1]}, [1]),
        ("object.list.orValue([]).filter(x, x > 1)", {"list": [1, 2]}, [2]),
        ("object.text.orValue('x')", {"text": "t"}, "t"),
        ("object.a == null", {"a": None}, True),
    ],
)
def test_what_is_not_there_is_absent_where_one_may_ask(text, value, answer):
    assert evaluate(text, value) == answer


@pytest.mark.parametrize(
    ("text", "value", "told"),
    [
        ("object.spec.containers", {"spec": None}, "no such key"),
        ("object.a.b == 1", {"a": 1}, "no such key"),
        ("has(object.a.b.c)", {"a": None}, "no such key"),
        ("object.nope.orValue([])", {}, "no such key: nope"),
        ("object.list.?x.hasValue()", {"list": [1]}, "unsupported index type"),
        ("object.list.hasValue()", {"list": [1]}, "no such overload"),
        ("object.list.value()", {"list": [1]}, "no such overload"),
    ],
)
def test_what_one_may_not_ask_is_an_error(text, value, told):
    with pytest.raises(EvaluationError, match=told):
        evaluate(text, value)


@pytest.mark.parametrize(
    "text",
    [
        "object.all(a, object.all(b, a >= 0 && b >= 0))",
        "object.map(a, object.map(b, object.map(c, a + b + c))).size()",
    ],
)
def test_loops_come_to_an_end(text):
    # Of this process, for others may be busy; all of the loops would take minutes.
    started = time.process_time()
    with pytest.raises(TooLargeError, match="cost limit exceeded"):
        evaluate(text, list(range(400)))
    assert time.process_time() - started < 5


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("(" * 300 + "1" + ")" * 300, "recursion limit"),
        ("object" + ".a" * 300, "max recursion depth"),
        ("'" + "a" * 200_000 + "'", "size"),
        ("", "the expression is empty"),
        ("   \n", "the expression is empty"),
        ("\0", "Syntax error"),
        ("// only a comment", ""),
    ],
)
def test_odd_expressions_are_faults(text, told):
    with pytest.raises(SyntaxFaultError) as caught:
        compile_expression(text, kubernetes_environment())
    assert told in caught.value.message


def test_an_activation_serves_the_expressions_of_all_environments():
    activation = make_activation({"object": {"a": 1}})
    for environment in (
        ENVIRONMENT,
        kubernetes_environment(),
        kyverno_environment("generating"),
    ):
        assert compile_expression("object.a == 1", environment)(activation) is True


def test_the_package_stays_lazy():
    code = (
        "import sys, lictor.core.lang.cel; sys.exit('lictor.core.lang.cel.parser' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
