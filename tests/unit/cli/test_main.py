"""Exit codes: wrong calls, broken files and pipes end in words and exit codes, never in a traceback."""

import os
import signal
import subprocess
import sys
import time

import click
import pytest

from lictor.cli import exit_codes
from lictor.cli import main as tree
from lictor.cli.flag_command import (
    FlagCommand,
    read_bool,
    slice_option,
    split_commas,
    take_log_flags,
)
from lictor.cli.lazy_group import LazyCommand, LazyGroup
from lictor.core.errors import EvaluationError, LoadError, UsageError
from lictor.core.release import VERSION

FAKES = {}


@pytest.fixture
def run(capsys, monkeypatch):
    """Run one of our own fakes, or the real tree, through the exit_codes."""

    def call(*arguments, fake=None, name="apply"):
        if fake is not None:
            FAKES[name] = fake
            lazy = {name: LazyCommand(__name__, f"fake_{name}", "")}
            monkeypatch.setattr(sys.modules[__name__], f"fake_{name}", fake, raising=False)
            monkeypatch.setattr(exit_codes, "cli", LazyGroup(name="lictor", lazy=lazy))
        code = exit_codes.run(list(arguments))
        out, err = capsys.readouterr()
        return code, out, err

    return call


def fake_that_raises(error):
    @click.command(cls=FlagCommand)
    def fake():
        raise error

    return fake


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["foo"], 1, 'unknown command "foo" for "lictor"'),
        (["jp", "foo"], 1, 'unknown command "foo" for "lictor jp"'),
        (["version", "foo"], 1, 'unknown command "foo" for "lictor version"'),
        (["version", "--xx"], 1, "unknown flag: --xx"),
        (["version", "-x"], 1, "unknown shorthand flag: 'x' in -x"),
        (["create", "test", "-o"], 1, "flag needs an argument: 'o' in -o"),
        (["create", "test", "--output"], 1, "flag needs an argument: --output"),
        (["create", "exception", "x"], 1, 'required flag(s) "policy-rules" not set'),
        (["create", "exception", "--policy-rules", "p,r"], 1, "accepts 1 arg(s), received 0"),
        (
            ["create", "exception", "x", "-b=maybe"],
            1,
            'invalid argument "maybe" for "-b, --background" flag',
        ),
        (
            ["create", "cluster-role"],
            1,
            'required flag(s) "api-groups", "resources", "verbs" not set',
        ),
        (["fix", "policy"], 1, "requires at least 1 arg(s), only received 0"),
        (["fix", "policy", "/no/such/folder"], 1, "/no/such/folder: no such file or directory"),
        (["docs"], 1, 'required flag(s) "output" not set'),
        (["completion"], 1, "accepts 1 arg(s), received 0"),
        (["completion", "tcsh"], 1, 'invalid argument "tcsh" for "lictor completion"'),
        (["help", "nope"], 1, 'unknown command "nope" for "lictor"'),
    ],
)
def test_wrong_calls(run, arguments, code, message):
    got, out, err = run(*arguments)
    assert (got, out) == (code, "")
    assert err.startswith(f"Error: {message}")


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["-h"],
        ["--help"],
        ["help"],
        ["jp"],
        ["create", "-h"],
        ["version", "-h"],
        ["help", "jp", "query"],
    ],
)
def test_help(run, arguments):
    code, out, err = run(*arguments)
    assert (code, err) == (0, "")
    assert out.startswith("Usage: lictor")


def test_help_lists_every_command_without_importing_it(run):
    before = set(sys.modules)
    _, out, _ = run("--help")
    assert all(f"  {name} " in out for name in tree.COMMANDS)
    assert not {name for name in set(sys.modules) - before if name.startswith("lictor.cli.")}


@pytest.mark.parametrize(
    ("error", "code", "message"),
    [
        (LoadError("no YAML", where="a.yaml:3"), 1, "a.yaml:3: no YAML"),
        (EvaluationError("cannot"), 1, "cannot"),
        (UsageError("say more"), 1, "say more"),
        (
            FileNotFoundError(2, "No such file or directory", "a.yaml"),
            1,
            "a.yaml: no such file or directory",
        ),
        (PermissionError(13, "Permission denied", "b.yaml"), 1, "b.yaml: permission denied"),
        (IsADirectoryError(21, "Is a directory", "c"), 1, "c: is a directory"),
        (OSError("odd"), 1, "odd"),
        (RecursionError("x"), 1, "the input is nested too deeply"),
        (MemoryError(), 1, "out of memory"),
        (KeyboardInterrupt(), 130, "interrupted"),
        (click.Abort(), 130, "interrupted"),
        (click.ClickException("hm"), 1, "hm"),
        (KeyError("bug"), 1, "internal error: KeyError: 'bug'"),
    ],
)
def test_errors(run, error, code, message):
    got, out, err = run("apply", fake=fake_that_raises(error))
    assert (got, out) == (code, "")
    assert err.startswith(f"Error: {message}")
    assert "Traceback" not in err


@pytest.mark.parametrize(
    ("given", "code"),
    [(SystemExit(3), 3), (SystemExit(), 0), (SystemExit("why"), 1), (click.exceptions.Exit(4), 4)],
)
def test_exit_codes_pass(run, given, code):
    assert run("apply", fake=fake_that_raises(given))[0] == code


@pytest.mark.parametrize(("name", "code"), [("apply", 1), ("lint", 2), ("explain", 2)])
def test_wrong_calls_of_our_own_commands(run, name, code):
    assert run(name, fake=fake_that_raises(UsageError("no")), name=name)[0] == code
    assert run(name, "--nope", fake=fake_that_raises(UsageError("no")), name=name)[0] == code


def test_debug_shows_where(run, monkeypatch):
    monkeypatch.setenv(exit_codes.DEBUG_VARIABLE, "1")
    with pytest.raises(KeyError):
        run("apply", fake=fake_that_raises(KeyError("bug")))


@pytest.mark.parametrize(
    ("arguments", "kept"),
    [
        (["-v", "4", "apply", "x"], ["apply", "x"]),
        (["apply", "-v=4", "x", "-v4", "--v=6", "--v", "2"], ["apply", "x"]),
        (
            ["apply", "--logtostderr", "x", "--stderrthreshold", "3", "--skip_headers=true"],
            ["apply", "x"],
        ),
        (["apply", "--vmodule", "a=1", "--log_file=x"], ["apply"]),
        (["jp", "query", "--", "-v", "x"], ["jp", "query", "--", "-v", "x"]),
        (
            ["apply", "-f", "values", "--values-file=x", "v"],
            ["apply", "-f", "values", "--values-file=x", "v"],
        ),
        (["apply", "-v"], ["apply"]),
    ],
)
def test_log_flags_are_dropped(arguments, kept):
    assert list(take_log_flags(arguments).arguments) == kept


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("", []),
        ("a", ["a"]),
        ("a,b", ["a", "b"]),
        ('"a,b",c', ["a,b", "c"]),
        ("a,,b", ["a", "", "b"]),
    ],
)
def test_split_commas(text, parts):
    assert split_commas(text) == parts


@pytest.mark.parametrize(
    ("text", "value"), [("true", True), ("1", True), ("F", False), ("yes", None), ("", None)]
)
def test_read_bool(text, value):
    assert read_bool(text) is value


@pytest.mark.parametrize(
    ("arguments", "seen"),
    [
        ([], ((), False, True, ())),
        (["-r", "a,b", "--resource", "c"], (("a", "b", "c"), False, True, ())),
        (["--quick", "x", "y"], ((), True, True, ("x", "y"))),
        (["--quick=false", "--sound=false"], ((), False, False, ())),
        (["-q=true", "--", "--quick=false"], ((), True, True, ("--quick=false",))),
    ],
)
def test_flags(run, arguments, seen):
    @click.command(cls=FlagCommand, arity=(0, None))
    @slice_option("-r", "--resource", "resources", help="")
    @click.option("-q", "--quick", is_flag=True)
    @click.option("--sound", is_flag=True, default=True)
    def fake(*, arguments, resources, quick, sound):
        click.echo(repr((resources, quick, sound, arguments)))

    assert run("apply", *arguments, fake=fake) == (0, f"{seen!r}\n", "")


def start(*arguments, **more):
    return subprocess.Popen(
        [sys.executable, "-m", "lictor", *arguments], stderr=subprocess.PIPE, text=True, **more
    )


def test_broken_pipe_is_quiet():
    reader, writer = os.pipe()
    os.close(reader)
    process = start("--help", stdout=writer)
    os.close(writer)
    assert process.communicate()[1] == ""
    assert process.returncode == 141


def test_interrupt():
    # Where the tests themselves run in the background, their shell has them ignore interrupts.
    heard = signal.signal(signal.SIGINT, signal.default_int_handler)
    process = start("jp", "query", "a", stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    signal.signal(signal.SIGINT, heard)
    # It has asked for input: now it waits.
    assert process.stdout.readline() == "Reading from terminal input.\n"
    time.sleep(0.1)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert (process.returncode, err) == (130, "Error: interrupted\n")


@pytest.mark.parametrize(
    ("arguments", "kept", "verbosity"),
    [
        (["apply", "p.yaml"], ["apply", "p.yaml"], 0),
        (["apply", "-v", "p.yaml"], ["apply", "p.yaml"], 1),
        (["apply", "p.yaml", "-v"], ["apply", "p.yaml"], 1),
        (["apply", "-v", "-r", "x"], ["apply", "-r", "x"], 1),
        (["apply", "-v", "4", "p.yaml"], ["apply", "p.yaml"], 4),
        (["apply", "-v=4"], ["apply"], 4),
        (["apply", "-v4"], ["apply"], 4),
        (["apply", "--v=0", "--v", "2"], ["apply"], 2),
        (["apply", "--vmodule=x=5", "--vmodule", "y=4"], ["apply"], 0),
        (["apply", "--", "-v"], ["apply", "--", "-v"], 0),
    ],
)
def test_how_much_is_told(arguments, kept, verbosity):
    taken = take_log_flags(arguments)
    assert (list(taken.arguments), taken.verbosity) == (kept, verbosity)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["aply"], 'unknown command "aply" for "lictor" (did you mean "apply"?)'),
        (["jp", "qery"], 'unknown command "qery" for "lictor jp" (did you mean "query"?)'),
        (["zzz"], 'unknown command "zzz" for "lictor"\n'),
        (["apply", "--resorce", "x"], 'unknown flag: --resorce (did you mean "--resource"?)'),
        (["apply", "--zzzzz"], "unknown flag: --zzzzz\n"),
    ],
)
def test_what_may_have_been_meant(capsys, arguments, said):
    assert exit_codes.run(arguments) == 1
    assert said in capsys.readouterr().err


def test_the_version_is_a_flag_too(capsys):
    assert exit_codes.run(["--version"]) == 0
    assert capsys.readouterr().out == f"lictor {VERSION}\n"
