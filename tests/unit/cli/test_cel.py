"""`cel eval` evaluates one expression, or a file of cases."""

import json

import pytest

from lictor.cli import exit_codes


@pytest.fixture
def cel(capsys):
    def call(*arguments):
        code = exit_codes.run(["cel", "eval", *arguments])
        return code, *capsys.readouterr()

    return call


def test_an_expression_on_an_object(cel, tmp_path):
    path = tmp_path / "object.yaml"
    path.write_text("spec: {replicas: 4}\n")
    assert cel("object.spec.replicas > 3", "-i", str(path))[:2] == (0, "true\n")
    assert cel("{'a': [1, 2]}")[:2] == (0, '{\n  "a": [\n    1,\n    2\n  ]\n}\n')


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("1 +",), "Syntax error"),
        ((), "an expression is required"),
        (("[1].includes(1)", "--kubernetes-version", "1.36"), "undeclared reference to 'includes'"),
        (("1", "--kubernetes-version", "x"), "no release of kubernetes: x"),
        (("object.missing",), "no such key: missing"),
        (("--cases", "x"), "--cases needs --output"),
        (("--cases", "/nowhere", "--output", "/nowhere"), "failed to read cases"),
    ],
)
def test_mistakes(cel, arguments, words):
    code, _, told = cel(*arguments)
    assert code != 0
    assert words in told


def test_a_file_of_cases(cel, tmp_path):
    cases, output = tmp_path / "cases.jsonl", tmp_path / "answers.jsonl"
    rows = [
        {"id": "a", "env": "kubernetes", "expression": "object.n + 1", "variables": {"object": {"n": 1}}},
        {"id": "b", "env": "kyverno", "expression": "1 / 0", "variables": {}, "version": "1.18"},
        {"id": "c", "env": "kyverno", "expression": "1 +", "variables": {}},
        {"id": "d", "env": "kubernetes", "expression": "[b'a', optional.of(duration('1m'))].map(x, type(x))", "variables": {}},
        {"id": "e", "env": "kubernetes", "expression": "{true: 1.0 / 0.0}", "variables": {}},
        {"id": "f", "env": "kyverno", "expression": "lists.range(2000000)", "variables": {}},
    ]  # fmt: skip
    cases.write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert cel("--cases", str(cases), "--output", str(output))[0] == 0
    answers = [json.loads(line) for line in output.read_text().splitlines()]
    assert answers[0] == {"id": "a", "value": 2}
    assert answers[1] == {"id": "b", "error": "division by zero"}
    assert "Syntax error" in answers[2]["compile_error"]
    assert "compile_error" in answers[3]
    assert answers[4] == {"id": "e", "value": {"true": {"$double": "Infinity"}}}
    assert "error" in answers[5]
