"""`jp` answers as Kyverno's does: comments, compact, unquoted, files, standard input, errors."""

import io
import json
import sys

import pytest

from lictor.cli import exit_codes
from lictor.cli.jp import render_tree

DOCUMENT = {
    "a": {"b": "x<y>&é", "n": 1.0, "f": 1e21, "l": [1, {"z": 1, "a": None}], "e": {}, "el": []}
}


@pytest.fixture
def jp(capsys, monkeypatch):
    def call(*arguments, typed=""):
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(typed.encode())))
        code = exit_codes.run(["jp", *arguments])
        return code, *capsys.readouterr()

    return call


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "in.json"
    path.write_text(json.dumps(DOCUMENT))
    return str(path)


@pytest.mark.parametrize(
    ("flags", "out"),
    [
        (["a.b"], '# a.b\n"x\\u003cy\\u003e\\u0026é"\n'),
        (["-u", "a.b"], "# a.b\nx<y>&é\n"),
        (["-u", "a.n"], "# a.n\n1\n"),
        (["a.l"], '# a.l\n[\n  1,\n  {\n    "a": null,\n    "z": 1\n  }\n]\n'),
        (["-c", "a.l", "a.f"], '# a.l\n[1,{"a":null,"z":1}]\n# a.f\n1e+21\n'),
        (["--compact=true", "a.[e, el]"], "# a.[e, el]\n[{},[]]\n"),
        (["-v", "3", "to_upper('ü')"], "# to_upper('ü')\n\"Ü\"\n"),
    ],
)
def test_query(jp, file, flags, out):
    assert jp("query", "-i", file, *flags) == (0, out, "")


def test_query_files(jp, file, tmp_path):
    (tmp_path / "q1").write_text("a.b\n")
    (tmp_path / "q2").write_text("a.n")
    code, out, _ = jp("query", "-i", file, "-c", "-q", f"{tmp_path}/q1,{tmp_path}/q2", "a.e")
    assert (code, out) == (0, '# a.e\n{}\n# a.b\n\n"x\\u003cy\\u003e\\u0026é"\n# a.n\n1\n')


@pytest.mark.parametrize(
    ("arguments", "typed", "out"),
    [
        (["a.b"], "a: {b: yes}", "Enter input object and hit Ctrl+D.\n# a.b\ntrue\n"),
        (["a"], "", "Enter input object and hit Ctrl+D.\n# a\nnull\n"),
        (["-i", "FILE"], "a.n", "Enter a jmespath expression and hit Ctrl+D.\n# a.n\n1\n"),
    ],
)
def test_query_from_standard_input(jp, file, arguments, typed, out):
    code, got, _ = jp(
        "query", *(file if word == "FILE" else word for word in arguments), typed=typed
    )
    assert (code, got) == (0, f"Reading from terminal input.\n{out}")


@pytest.mark.parametrize(
    ("arguments", "typed", "message"),
    [
        (["query"], "", "at least one query or input object is required"),
        (["query", "-i", "FILE", "a.["], "", "failed to compile JMESPath: a.[, error: "),
        (["query", "-i", "FILE", "nope"], "", "error evaluating JMESPath expression: "),
        (
            ["query", "-i", "/no/such", "a"],
            "",
            "failed open file /no/such: no such file or directory",
        ),
        (["query", "-i", "/", "a"], "", "failed to read file /: is a directory"),
        (["query", "-q", "/no/such"], "", "failed open file /no/such: no such file or directory"),
        (["query", "a"], "{a: [", "error parsing input json: standard input:"),
        (["parse", "a["], "", "SyntaxError: "),
        (["parse", "-f", "/no/such"], "", "failed open file /no/such: no such file or directory"),
    ],
)
def test_errors(jp, file, arguments, typed, message):
    code, _, err = jp(*(file if word == "FILE" else word for word in arguments), typed=typed)
    assert code == 1
    assert err.startswith(f"Error: {message}")


def test_a_fault_is_marked(jp):
    _, _, err = jp("parse", "a.b[")
    assert err.splitlines()[1:] == ["a.b[", "    ^"]


def test_parse(jp):
    code, out, _ = jp("parse", "a.b[0] == `1`")
    assert code == 0
    assert out == (
        "# a.b[0] == `1`\n"
        "ASTComparator {\n"
        "  value: tEQ\n"
        "  children: {\n"
        "    ASTSubexpression {\n"
        "      children: {\n"
        "        ASTField {\n"
        '          value: "a"\n'
        "        }\n"
        "        ASTIndexExpression {\n"
        "          children: {\n"
        "            ASTField {\n"
        '              value: "b"\n'
        "            }\n"
        "            ASTIndex {\n"
        "              value: 0\n"
        "            }\n"
        "        }\n"
        "    }\n"
        "    ASTLiteral {\n"
        "      value: 1\n"
        "    }\n"
        "}\n\n"
    )


def test_parse_standard_input(jp):
    code, out, _ = jp("parse", typed="@")
    assert (code, out.splitlines()[2:4]) == (0, ["# @", "ASTCurrentNode {"])


def test_tree_of_other_comparators():
    assert "value: tGTE" in render_tree({"type": "ASTComparator", "value": ">="})


def test_function(jp):
    code, out, _ = jp("function", "truncate", "nope")
    assert code == 0
    assert out.startswith(
        "Name: truncate\n  Signature: truncate(string, number) string\n  Note:      "
    )
    assert out.endswith("\n\n")
    assert out.count("Name: ") == 1


def test_functions_are_sorted(jp):
    names = [line for line in jp("function")[1].splitlines() if line.startswith("Name: ")]
    assert len(names) >= 51
    assert names == sorted(names)
