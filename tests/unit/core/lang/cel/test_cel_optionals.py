import pytest

from lictor.core.errors import EvaluationError, SyntaxFaultError
from lictor.core.lang.cel.environment import kyverno_environment, make_activation
from lictor.core.lang.cel.expression import NO_VARIABLES, compile_expression, declare_variable


@pytest.mark.parametrize(
    "text",
    [
        "{'a': optional.of('a')}",
        "[optional.of(1)]",
        "{'a': {'b': optional.none()}}",
        "[object.l[?9]]",
        "{'a': object.l[?0]}",
        "dyn(object.n == 1 ? dyn(object.?s) : dyn(1))",
    ],
)
def test_an_optional_inside_an_answer_is_an_error(text):
    expression = compile_expression(text, kyverno_environment("mutating"))
    with pytest.raises(EvaluationError, match="holds an optional"):
        expression(make_activation({"object": {"l": [1], "n": 1}}))


@pytest.mark.parametrize(
    ("text", "message", "place"),
    [
        ("[1].indexOf(object.?x) == -1", "indexOf() takes no optional", ".?x"),
        ("json.unmarshal(dyn(object.?x))", "json.unmarshal() takes no optional", "(object.?x"),
        ("json.marshal({'a': [object.m[?'zz']]})", "json.marshal() takes no optional", "{'a'"),
        ("{'a': 1}.transformMap(k, v, object.?x)", "transformMap() takes no optional", ".?x"),
        ("Object{metadata: Object.metadata{name: optional.of('a')}}", "Object{} takes no", "Object{"),
        ("[JSONPatch{op: 'add', path: '/a', value: {'a': object.m[?'zz']}}]", "JSONPatch{} takes no", "JSONPatch{"),
        ("json.marshal(variables.found)", "json.marshal() takes no optional", "variables.found"),
        ("json.marshal(variables.all)", "json.marshal() takes no optional", "variables.all"),
    ],
)  # fmt: skip
def test_an_optional_for_a_function_is_refused(text, message, place):
    environment = kyverno_environment("mutating")
    known = declare_variable(NO_VARIABLES, "found", "object.?x", environment)
    known = declare_variable(known, "all", "[variables.found]", environment)
    with pytest.raises(SyntaxFaultError) as refused:
        compile_expression(text, environment, known)
    assert str(refused.value).endswith("end it with orValue() or value()")
    assert message in str(refused.value)
    assert text[refused.value.position or 0 :].startswith(place)


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


def test_deeply_nested_loops_are_compiled_soon():
    loops = "[optional.of(1)]"
    for number in range(12):
        loops = f"[1].map(v{number}, {loops})"
    with pytest.raises(SyntaxFaultError):
        compile_expression(f"json.marshal({loops})", kyverno_environment("validating"))
