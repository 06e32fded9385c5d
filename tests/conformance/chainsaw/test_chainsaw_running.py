import pytest
from chainsaw.api import Key
from chainsaw.runner import Result
from chainsaw.shell import expand_variables, run_command
from chainsaw.table import show_failures, show_line, show_table
from chainsaw.writing import judge


@pytest.mark.parametrize(
    ("script", "error", "stdout"),
    [
        ("echo out", None, "out\n"),
        ("echo out; exit 3", "exit status 3", "out\n"),
        ("kill -9 $$", "signal: sigkill", ""),
        ("echo $WORD", None, "given\n"),
    ],
)
def test_commands(tmp_path, script, error, stdout):
    words = ["sh", "-c", script]
    outcome = run_command(words, folder=tmp_path, environment={"WORD": "given"}, seconds=10)
    assert (outcome.error, outcome.stdout) == (error, stdout)


def test_command_that_takes_too_long_ends_with_its_children(tmp_path):
    words = ["sh", "-c", "echo begun; sleep 60 & sleep 60"]
    outcome = run_command(words, folder=tmp_path, environment={}, seconds=0.3)
    assert (outcome.error, outcome.stdout) == ("signal: killed", "begun\n")


def test_command_that_is_not_there(tmp_path):
    outcome = run_command(["/no/such/program"], folder=tmp_path, environment={}, seconds=1)
    assert "no/such/program" in outcome.error


@pytest.mark.parametrize(
    ("text", "expected"), [("$A-${A}", "1-1"), ("$B", ""), ("plain", "plain"), ("a$", "a$")]
)
def test_variables_in_arguments(text, expected):
    assert expand_variables(text, {"A": "1"}) == expected


REFUSED = {"check": {"($error != null)": True}}
OTHER = {"match": {"kind": "Other"}, "check": {"($error != null)": True}}


@pytest.mark.parametrize(
    ("expect", "error", "good"),
    [
        ([], None, True),
        ([], "no", False),
        ([REFUSED], "no", True),
        ([REFUSED], None, False),
        ([OTHER], None, True),
        ([OTHER], "no", False),
        ([OTHER, REFUSED], "no", True),
        ([{"check": {"($error)": "no"}}], "no", True),
        ([{"check": {"(length($error))": 2}}], None, False),
    ],
)
def test_expectations(expect, error, good):
    wrong = judge({"expect": expect}, {"error": error}, {"kind": "Thing"})
    assert (wrong == []) is good


def test_table():
    results = [
        Result("a/one", "passed", 1.0),
        Result("a/two", "failed", 2.0, "step: assert x: wrong"),
        Result("b/three", "failed", 2.0, "no registry"),
    ]
    expected = {"a/one": True, "a/two": True, "b/three": False}
    lines = [line.split() for line in show_table(results, expected).splitlines()]
    assert lines[1:] == [
        ["a", "2", "1", "2", "1", "50.0"],
        ["b", "1", "0", "0", "0", "-"],
        ["all", "3", "1", "2", "1", "50.0"],
    ]
    text = show_failures(results, expected)
    assert text.index("a/two: step: assert x: wrong") < text.index("b/three: no registry")
    assert show_line(results[2], expected=False).endswith("b/three (not expected)")


def test_keys_read_well():
    assert str(Key("v1", "Pod", "a", "b")) == "Pod a/b"
    assert str(Key("v1", "Namespace", "", "")) == "Namespace *"
