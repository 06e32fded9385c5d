"""Completion scripts for five shells, and the answers they get."""

import subprocess
import sys

import pytest

from lictor.cli import exit_codes


@pytest.mark.parametrize(
    ("shell", "words"),
    [
        ("bash", ["_LICTOR_COMPLETE=bash_complete", "complete -o nosort"]),
        ("zsh", ["#compdef lictor"]),
        ("elvish", ["edit:completion:arg-completer[lictor]", "elvish_complete"]),
        ("fish", ["complete --no-files --command lictor"]),
        (
            "powershell",
            ["Register-ArgumentCompleter -Native -CommandName lictor", "powershell_complete"],
        ),
    ],
)
def test_scripts(capsys, shell, words):
    assert exit_codes.run(["completion", shell]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    assert all(word in out for word in words)
    assert "%(" not in out


@pytest.mark.parametrize(
    ("environment", "answers"),
    [
        (
            {"_LICTOR_COMPLETE": "elvish_complete", "COMP_WORDS": '["lictor", "wasm", "scaf"]'},
            ["plain\tscaffold\tPrint files to start from."],
        ),
        (
            {"_LICTOR_COMPLETE": "bash_complete", "COMP_WORDS": "lictor vers", "COMP_CWORD": "1"},
            ["plain,version"],
        ),
        (
            {
                "_LICTOR_COMPLETE": "bash_complete",
                "COMP_WORDS": "lictor create ",
                "COMP_CWORD": "2",
            },
            [
                "plain,cluster-role",
                "plain,exception",
                "plain,metrics-config",
                "plain,policy",
                "plain,test",
                "plain,user-info",
                "plain,values",
            ],
        ),
        (
            {
                "_LICTOR_COMPLETE": "bash_complete",
                "COMP_WORDS": "lictor create test --na",
                "COMP_CWORD": "3",
            },
            ["plain,--name"],
        ),
        (
            {
                "_LICTOR_COMPLETE": "powershell_complete",
                "COMP_WORDS": "lictor create test --na",
                "COMP_WORD": "--na",
            },
            ["plain\t--name\tName of the test."],
        ),
    ],
)
def test_answers(environment, answers):
    script = "import sys; sys.argv = ['lictor']; from lictor.__main__ import main; sys.exit(main())"
    run = subprocess.run(
        [sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=False
    )
    assert run.stdout.splitlines() == answers
    assert run.stderr == ""
