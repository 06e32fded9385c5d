"""The GitHub Action: what its steps are, and that what pull requests say stays text."""

import json
import sys
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[3]
sys.path.append(str(ROOT / "scripts"))
import run_action  # noqa: E402

ACTION = yaml.safe_load((ROOT / "action.yml").read_text())
HOSTILE = "oh\n::error::mine\r\n%0A|<img src=x onerror=alert(1)> `x` [a](http://b) @team"


def test_every_input_reaches_the_step() -> None:
    *_, run = ACTION["runs"]["steps"]
    told = {value for value in run["env"].values()}
    assert told == {f"${{{{ inputs.{name} }}}}" for name in ACTION["inputs"]} - {
        "${{ inputs.python-version }}"
    }
    assert run["id"] == "run"


def test_no_step_writes_an_input_into_its_script() -> None:
    scripts = [step.get("run", "") for step in ACTION["runs"]["steps"]]
    assert not any("${{" in script for script in scripts)
    assert all(step.get("shell") == "bash" for step in ACTION["runs"]["steps"] if "run" in step)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (
            {"COMMAND": "apply", "POLICIES": "a\n b c \n\n", "RESOURCES": "d\ne"},
            "apply a|b c|--resource|d|--resource|e|--output-format|sarif",
        ),
        (
            {"COMMAND": "lint", "POLICIES": "a", "ARGUMENTS": "--strict"},
            "lint a|--format|sarif|--strict",
        ),
        (
            {"COMMAND": "test", "POLICIES": "a"},
            "test a|--output-format|junit|--require-tests|--remove-color",
        ),
    ],
)
def test_words(given: dict[str, str], words: str) -> None:
    command, _, rest = words.partition(" ")
    variables = {f"LICTOR_{name}": value for name, value in given.items()}
    assert run_action.build_call(variables) == [command, *rest.split("|")]


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"COMMAND": "up", "POLICIES": "a"}, "apply, lint, test"),
        ({"COMMAND": "lint", "POLICIES": " \n"}, "at least one"),
        ({"COMMAND": "apply", "POLICIES": "a"}, "resources"),
        ({"COMMAND": "test", "POLICIES": "a", "RESOURCES": "b"}, "resources"),
    ],
)
def test_wrong_inputs(given: dict[str, str], said: str) -> None:
    with pytest.raises(SystemExit, match=said):
        run_action.build_call({f"LICTOR_{name}": value for name, value in given.items()})


def test_texts_of_others_are_no_commands() -> None:
    mark = run_action.Mark("error", HOSTILE, 3, HOSTILE, HOSTILE, HOSTILE)
    command = run_action.render_command(mark)
    assert len(command.splitlines()) == 1
    assert command.startswith("::error file=oh%0A%3A%3Aerror")
    _, place, message = command.split("::", 2)
    assert place.count("%3A%3A") == 4
    assert message.startswith("oh%0A::error::mine%0D%0A%250A|")


def test_texts_of_others_are_no_markdown() -> None:
    mark = run_action.Mark("error", HOSTILE, 3, HOSTILE, HOSTILE, HOSTILE)
    *_, row, last = run_action.render_summary("apply", 1, [mark]).split("\n")
    assert (row.count("|"), last) == (6, "")
    assert not set(row) & set("<>`[]@")


def test_a_long_list_is_cut_in_the_open() -> None:
    marks = [run_action.Mark("error", "f", 1, "r", "o", "t")] * (run_action.MOST_ROWS + 5)
    assert "5 more stand in the report" in run_action.render_summary("apply", 1, marks)


@pytest.mark.parametrize(
    ("status", "level", "mark"),
    [("fail", "note", "error"), ("error", "warning", "error"), ("warn", "warning", "warning")],
)
def test_what_fails_the_job_is_marked_as_an_error(status: str, level: str, mark: str) -> None:
    result = {"level": level, "message": {"text": "x"}, "properties": {"status": status}}
    (found,) = run_action.read_marks(json.dumps({"runs": [{"results": [result]}]}))
    assert found.level == mark
