import pytest

from lictor.core.errors import EvaluationError
from lictor.core.lang.cel.expression import (
    NO_VARIABLES,
    compile_expression,
    declare_variable,
    make_activation,
)
from lictor.core.lang.cel.kyverno import kyverno_environment


@pytest.mark.parametrize(
    "text",
    [
        "{'a': optional.of('a')}",
        "[optional.of(1)]",
        "{'a': {'b': optional.none()}}",
        "[object.l[?9]]",
        "{'a': object.l[?0]}",
    ],
)
def test_an_optional_inside_an_answer_is_an_error(text):
    expression = compile_expression(text, kyverno_environment("mutating"))
    with pytest.raises(EvaluationError, match="holds an optional"):
        expression(make_activation({"object": {"l": [1], "n": 1}}))


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("[1, 2].indexOf(object.?n.orValue(0))", 0),
        ("json.marshal(object.?l.orValue([]))", "[1]"),
        ("json.marshal([object.?n, object.?x].filter(o, o.hasValue()).map(o, o.value()))", "[1]"),
        ("json.marshal(object.l[?0].orValue(7))", "1"),
        ("json.marshal(object.?x.optMap(v, v + 1).orValue(7))", "7"),
        ("json.marshal(optional.of(optional.of(1)).value().value())", "1"),
        ("json.marshal([?object.?n, ?object.?x])", "[1]"),
        ("json.marshal({?'a': object.?n, ?'b': object.?x})", '{"a":1}'),
        ("json.marshal({'a': object.?n}.a.value())", "1"),
        ("json.marshal(object.l.first().value())", "1"),
        ("json.marshal(variables.found.orValue('none'))", '"none"'),
        ("json.marshal([object.?n.hasValue(), object.?x == optional.none()])", "[true,true]"),
    ],
)
def test_what_is_inside_an_optional_may_go_on(text, answer):
    environment = kyverno_environment("validating")
    known = declare_variable(NO_VARIABLES, "found", "object.?x", environment)
    expression = compile_expression(text, environment, known)
    assert expression(make_activation({"object": {"l": [1], "n": 1}})) == answer


def test_bytes_that_are_no_text_are_not_formatted():
    environment = kyverno_environment("validating")
    expression = compile_expression("json.marshal(['%s'.format([b'\\xff'])])", environment)
    with pytest.raises(EvaluationError):
        expression(make_activation({"object": {}}))
