"""Conditions about the operation alone are settled once for each operation, and change no answer."""

from datetime import UTC, datetime

import pytest

from lictor.core.evaluate.conditions import compile_conditions
from lictor.core.evaluate.expressions import Expressions
from lictor.core.lang.watch import unwatched
from lictor.core.model.scope import Scope

NOT_DELETED = {
    "key": "{{ request.operation || 'BACKGROUND' }}",
    "operator": "NotEquals",
    "value": "DELETE",
}
CREATED = {"key": "{{request.operation}}", "operator": "AnyIn", "value": ["CREATE"]}
OF_A_POD = {"key": "{{ request.kind.kind }}", "operator": "Equals", "value": "Pod"}


def _expressions() -> Expressions:
    return Expressions(lambda: datetime.now(UTC))


def _ask(conditions, *requests):
    """The answers to several requests, one after the other."""
    holds = compile_conditions(conditions, _expressions())
    assert holds is not None
    return [holds(Scope({"request": request}))[0] for request in requests]


@pytest.mark.parametrize(
    ("conditions", "expected"),
    [
        ({"all": [NOT_DELETED]}, [True, False, True, True]),
        ([NOT_DELETED], [True, False, True, True]),
        ({"any": [CREATED]}, [True, False, False, True]),
        ({"any": [CREATED], "all": [NOT_DELETED]}, [True, False, False, True]),
        # What asks for more than the operation is asked each time.
        ({"all": [NOT_DELETED, OF_A_POD]}, [True, False, True, False]),
        ({"all": [{**NOT_DELETED, "value": "{{ request.kind.kind }}"}]}, [True, True, True, True]),
    ],
)
def test_answers_follow_the_operation(conditions, expected):
    pod, service = {"kind": {"kind": "Pod"}}, {"kind": {"kind": "Service"}}
    requests = [
        {"operation": "CREATE", **pod},
        {"operation": "DELETE", **pod},
        {"operation": "UPDATE", **pod},
        {"operation": "CREATE", **service},
    ]
    assert _ask(conditions, *requests) == expected
    assert _ask(conditions, *requests, *requests) == expected * 2


def test_an_operation_that_is_none_is_asked_each_time():
    odd = [{"operation": "delete"}, {"operation": 3}, {}, {"operation": "DELETE"}]
    assert _ask({"all": [NOT_DELETED]}, *odd, *odd) == [True, True, True, False] * 2


def test_a_scope_without_request_has_no_operation():
    holds = compile_conditions({"all": [NOT_DELETED]}, _expressions())
    assert holds is not None
    assert holds(Scope({}))[0] is True


def test_whoever_listens_hears_every_answer():
    heard = []

    def watch(what, closure):
        def listen(*given):
            heard.append(what)
            return closure(*given)

        return unwatched(what, listen)

    holds = compile_conditions({"all": [NOT_DELETED]}, _expressions(), watch=watch, where="p")
    assert holds is not None
    for _ in range(3):
        holds(Scope({"request": {"operation": "CREATE"}}))
    assert heard == ["p.all[0]"] * 3
