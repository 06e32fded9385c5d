"""`variables.x`: lazy, typed, composed, and errors at their place."""

import pytest

from lictor.core.errors import EvaluationError, SyntaxFaultError
from lictor.core.lang.cel.expression import (
    NO_VARIABLES,
    compile_expression,
    declare_variable,
    make_activation,
)
from lictor.core.lang.cel.host import HostFunctions
from lictor.core.lang.cel.kubernetes import kubernetes_environment
from lictor.core.lang.cel.kyverno import kyverno_environment

KYVERNO = kyverno_environment("validating")
ENVIRONMENT = kubernetes_environment()


def declare(variables, environment=ENVIRONMENT):
    known = NO_VARIABLES
    for name, text in variables.items():
        known = declare_variable(known, name, text, environment)
    return known


@pytest.mark.parametrize(
    ("variables", "expression", "given", "kind", "answer"),
    [
        ({"n": "object.n"}, "variables.n + 1", {"n": 4}, "int", 5),
        ({"n": "object.n", "m": "variables.n * 2"}, "variables.m", {"n": 4}, "int", 8),
        ({"on": "object.n == 4"}, "variables.on", {"n": 4}, "bool", True),
        ({"list": "object.l"}, "variables.list.all(x, x > 0)", {"l": [1, 2]}, "bool", True),
        ({"list": "[1, 2]"}, "variables.list", {}, "list(int)", [1, 2]),
        ({"q": "quantity(object.q)"}, "variables.q.asInteger()", {"q": "2k"}, "int", 2000),
        ({"o": "object.?x"}, "variables.o.orValue(7)", {}, "dyn", 7),
        ({"o": "object.?x"}, "variables.o.hasValue()", {"x": 1}, "bool", True),
        ({"m": "{'a': [1]}"}, "variables.m.a[0]", {}, "int", 1),
        ({"t": "timestamp('2024-01-01T00:00:00Z')"}, "variables.t.getFullYear()", {}, "int", 2024),
        ({"x": "1"}, "has(variables.x)", {}, "bool", True),
        ({"x": "1"}, "has(variables.x) && variables . x == 1", {}, "bool", True),
        ({"x": "1"}, "'variables.x'", {}, "string", "variables.x"),
        ({"x": "1"}, "// variables.y\nvariables.x", {}, "int", 1),
        ({"x": "object"}, "object.variables.x", {"variables": {"x": 3}}, "dyn", 3),
        ({"broken": "object.nope"}, "true || variables.broken", {}, "bool", True),
        ({"broken": "object.nope"}, "true ? 1 : variables.broken", {}, "dyn", 1),
        ({"x": "2"}, "[1, 2].map(i, i * variables.x)", {}, "list(int)", [2, 4]),
        ({"x": "[1]"}, "variables.x.map(x, x + variables.x[0])", {}, "list(int)", [2]),
    ],
)
def test_variables_stand_for_their_expressions(variables, expression, given, kind, answer):
    compiled = compile_expression(expression, ENVIRONMENT, declare(variables))
    assert compiled.result_type == kind
    assert compiled({"object": given}) == answer


def test_a_later_variable_hides_an_earlier_of_the_same_name():
    known = declare_variable(NO_VARIABLES, "x", "1", ENVIRONMENT)
    known = declare_variable(known, "y", "variables.x + 10", ENVIRONMENT)
    known = declare_variable(known, "x", "2", ENVIRONMENT)
    assert compile_expression("[variables.x, variables.y]", ENVIRONMENT, known)({}) == [2, 11]


def test_a_variable_is_computed_once_and_only_when_used():
    asked = []
    world = HostFunctions(global_context=lambda name, _: asked.append(name) or {"n": 2})
    environment = kyverno_environment("validating")
    known = declare(
        {"entry": "globalContext.get('entry')", "other": "globalContext.get('other')"}, environment
    )
    expression = compile_expression(
        "variables.entry.n + variables.entry.n + (object ? 0 : variables.other.n)",
        environment,
        known,
    )
    assert expression({"object": True}, world) == 4
    assert asked == ["entry"]


def test_many_variables():
    variables = {"v0": "object.n"} | {f"v{i}": f"variables.v{i - 1} + 1" for i in range(1, 40)}
    compiled = compile_expression("variables.v39", ENVIRONMENT, declare(variables))
    assert compiled({"object": {"n": 1}}) == 40


def test_variables_use_each_other():
    variables = {"v0": "object.n"} | {f"v{i}": f"variables.v{i - 1} + 1" for i in range(1, 30)}
    expression = compile_expression("variables.v29", ENVIRONMENT, declare(variables))
    assert expression({"object": {"n": 1}}) == 30


@pytest.mark.parametrize(
    ("expression", "message", "at"),
    [
        ("variables.unknown == 1", "undefined field 'unknown'", 10),
        ("variables.flag + 1", "found no matching overload for '_+_' applied to '(bool, int)'", 15),
        ("1 +\n  variables.flag", "found no matching overload", 2),
        (
            "variables.flag && objct.x",
            "undeclared reference to 'objct', did you mean 'object'?",
            18,
        ),
    ],
)
def test_faults_point_into_the_original(expression, message, at):
    with pytest.raises(SyntaxFaultError) as caught:
        compile_expression(expression, ENVIRONMENT, declare({"flag": "true"}))
    assert message in caught.value.message
    assert (caught.value.position, caught.value.text) == (at, expression)


@pytest.mark.parametrize(
    ("expression", "told"),
    [
        ("variables.x == 1", 'composited variable "x" fails to evaluate: no such key: nope'),
        (
            "variables.y == 1",
            'composited variable "y" fails to evaluate: '
            'composited variable "x" fails to evaluate: no such key: nope',
        ),
        ("variables.fine && object.other", "no such key: other"),
    ],
)
def test_a_broken_variable_breaks_what_uses_it(expression, told):
    variables = {"fine": "true", "x": "object.nope", "y": "variables.x + 1"}
    with pytest.raises(EvaluationError) as caught:
        compile_expression(expression, ENVIRONMENT, declare(variables))({"object": {}})
    assert str(caught.value) == told


def test_kyverno_does_not_tell_which_variable_failed():
    environment = kyverno_environment("validating")
    known = declare({"x": "object.nope"}, environment)
    with pytest.raises(EvaluationError) as caught:
        compile_expression("variables.x == 1", environment, known)({"object": {}})
    assert str(caught.value) == "no such key: nope"


def test_variables_forgive_nulls_where_they_are_optional():
    known = declare({"all": "object.?spec.?list.orValue([])"})
    expression = compile_expression("variables.all.size() == 0", ENVIRONMENT, known)
    assert expression({"object": {"spec": None}}) is True


def test_variables_cannot_use_those_after_them():
    with pytest.raises(SyntaxFaultError, match="undefined field 'later'"):
        declare({"x": "variables.later", "later": "1"})


def test_variables_of_several_policies_are_computed_once():
    calls = []
    world = HostFunctions(get_resource=lambda *place: calls.append(place) or {"n": len(calls)})
    activation = make_activation({"object": {"n": 1}})
    text = "resource.get('v1', 'pods', 'ns', 'x').n"
    answers = []
    for _ in range(2):
        known = declare_variable(NO_VARIABLES, "asked", text, KYVERNO)
        known = declare_variable(known, "plain", "object.n + 1", KYVERNO)
        for expression in ("variables.asked + variables.plain", "variables.asked"):
            answers.append(compile_expression(expression, KYVERNO, known)(activation, world))
    # What the cluster answers is asked for by each policy, and once.
    assert (answers, len(calls)) == ([3, 1, 4, 2], 2)
    other = make_activation({"object": {"n": 5}})
    assert compile_expression("variables.plain", KYVERNO, known)(other, world) == 6
