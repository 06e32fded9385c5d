"""`Object{}` and `JSONPatch{}` in expressions of mutations."""

import pytest

from lictor.core.errors import EvaluationError, SyntaxFaultError
from lictor.core.lang.cel.expression import NO_VARIABLES, compile_expression, declare_variable
from lictor.core.lang.cel.kubernetes import kubernetes_environment
from lictor.core.lang.cel.kyverno import kyverno_environment

ENVIRONMENTS = (kubernetes_environment(has_patches=True), kyverno_environment("mutating"))
GIVEN = {"object": {"spec": {"containers": [{"name": "main"}, {"name": "side"}], "n": 2}}}


@pytest.mark.parametrize("environment", ENVIRONMENTS)
@pytest.mark.parametrize(
    ("expression", "kind", "answer"),
    [
        ("Object{}", "Object", {}),
        ("Object{spec: Object.spec{n: 3, on: true}}", "Object", {"spec": {"n": 3, "on": True}}),
        ("Object {spec : Object.spec { n : 3 }}", "Object", {"spec": {"n": 3}}),
        ("Object{metadata: Object.metadata{labels: {'a/b': 'c'}}}", "Object", {"metadata": {"labels": {"a/b": "c"}}}),
        ("Object{?a: optional.none(), ?b: optional.of(1)}", "Object", {"b": 1}),
        ("object.spec.n > 1 ? Object{a: 1} : Object{b: 'x'}", "Object", {"a": 1}),
        (
            "Object{spec: Object.spec{containers: object.spec.containers.map(c, Object.spec.containers{name: c.name, image: 'x'})}}",
            "Object",
            {"spec": {"containers": [{"name": "main", "image": "x"}, {"name": "side", "image": "x"}]}},
        ),
        ("Object{spec: object.spec.n > 5 ? Object.spec{a: 1} : Object.spec{b: 'x'}}", "Object", {"spec": {"b": "x"}}),
        ("Object{spec: Object.spec{l: [Object.spec.l{a: 1}, Object.spec.l{b: 'x'}]}}", "Object", {"spec": {"l": [{"a": 1}, {"b": "x"}]}}),
        ("Object{value: 1.5, text: 'a{b', deep: {'k': ['}']}}", "Object", {"value": 1.5, "text": "a{b", "deep": {"k": ["}"]}}),
        ("[JSONPatch{op: 'add', path: '/a', value: 1}]", "list(JSONPatch)", [{"op": "add", "path": "/a", "value": 1}]),
        ("[JSONPatch{op: 'remove', path: '/a'}] + [JSONPatch{op: 'move', from: '/b', path: '/c'}]", "list(JSONPatch)", [{"op": "remove", "path": "/a"}, {"op": "move", "from": "/b", "path": "/c"}]),
        ("[JSONPatch{op: 'test', path: '/a/' + jsonpatch.escapeKey('b/c~d'), value: Object.a{x: 'y'}}]", "list(JSONPatch)", [{"op": "test", "path": "/a/b~1c~0d", "value": {"x": "y"}}]),
        ("object.spec.containers.map(c, JSONPatch{op: 'add', path: '/' + c.name, value: c})", "list(JSONPatch)", [{"op": "add", "path": "/main", "value": {"name": "main"}}, {"op": "add", "path": "/side", "value": {"name": "side"}}]),
        ("object.spec.n == 9 ? [JSONPatch{op: 'remove', path: '/a'}] : []", "list(JSONPatch)", []),
        ("JSONPatch{op: 'add', path: '/a'}.op", "string", "add"),
        ("JSONPatch{op: 'add'}.path == '' && JSONPatch{op: 'add'}.value == null", "bool", True),
        ("has(JSONPatch{op: 'add'}.op) && !has(JSONPatch{op: 'add'}.from)", "bool", True),
        ("has(JSONPatch{value: null}.value) && !has(JSONPatch{path: ''}.path)", "bool", True),
        ("JSONPatch{op: 'add'}.?value.orValue(7)", "dyn", 7),
        ("JSONPatch{value: {'a': {'b': 3}}}\n  . value.a.b", "dyn", 3),
        ("[JSONPatch{op: 'add', path: '/ä'}, JSONPatch{op: 'remove', path: '/b'}].filter(p, p.op == 'add' && p.path.startsWith('/'))", "list(JSONPatch)", [{"op": "add", "path": "/ä"}]),
        ("object.spec.containers.map(c, JSONPatch{op: 'add', path: '/' + c.name}).map(p, p.path)", "list(string)", ["/main", "/side"]),
        ("Object{spec: Object.spec{n: 3}}.spec.n", "dyn", 3),
        ("'Object{a: 1}'", "string", "Object{a: 1}"),
        ("object.Object", "dyn", None),
    ],
)  # fmt: skip
def test_literals_become_json(environment, expression, kind, answer):
    compiled = compile_expression(expression, environment)
    assert compiled.result_type == kind
    given = {"object": {**GIVEN["object"], "Object": None}}
    assert compiled(given) == answer


@pytest.mark.parametrize(
    ("expression", "message", "at"),
    [
        ("JSONPatch{oops: 1}", "undefined field 'oops'", 10),
        ("JSONPatch{op: 'add'}.oops == 1", "undefined field 'oops'", 21),
        ("[JSONPatch{op: 'a'}].all(p, has(p.oops))", "undefined field 'oops'", 34),
        ("JSONPatch{op: 'add'}.op == x", "undeclared reference to 'x'", 27),
        ("Object{spec: objct.x}", "undeclared reference to 'objct', did you mean 'object'?", 13),
        (
            "Object{a: 1} + 'x'",
            "found no matching overload for '_+_' applied to '(Object, string)'",
            13,
        ),
        ("Object{a: ", "Syntax error", 10),
        ("Object{a b}", "Syntax error", 9),
    ],
)
def test_faults(expression, message, at):
    with pytest.raises(SyntaxFaultError) as caught:
        compile_expression(expression, ENVIRONMENTS[1])
    assert message in caught.value.message
    assert caught.value.position == at


@pytest.mark.parametrize(
    ("expression", "expected"),
    [("Object{spec: Object.wrong{}}", "Object.spec"), ("Object{a: [Object.b{}]}", "Object.a")],
)
def test_objects_are_of_the_type_of_their_place(expression, expected):
    with pytest.raises(EvaluationError, match=f'unexpected type name .* expected "{expected}"'):
        compile_expression(expression, ENVIRONMENTS[1])({})


def test_deep_literals_stay_readable_for_the_engine():
    names = [
        "spec",
        "jobTemplate",
        "spec",
        "template",
        "spec",
        "containers",
        "env",
        "valueFrom",
        "x",
        "y",
        "z",
    ]
    text = "1"
    for index in range(len(names) - 1, -1, -1):
        text = f"{'.'.join(['Object', *names[:index]])}{{{names[index]}: {text}}}"
    assert compile_expression(text, ENVIRONMENTS[0]).result_type == "Object"


def test_literals_in_variables():
    environment = ENVIRONMENTS[1]
    known = declare_variable(NO_VARIABLES, "patch", "Object{spec: Object.spec{n: 1}}", environment)
    compiled = compile_expression("variables.patch", environment, known)
    assert (compiled.result_type, compiled({})) == ("Object", {"spec": {"n": 1}})


def test_other_policies_have_no_literals():
    for environment in (kubernetes_environment(), kyverno_environment("validating")):
        with pytest.raises(SyntaxFaultError):
            compile_expression("Object{a: 1}", environment)
