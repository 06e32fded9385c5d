"""Turns errors into messages and exit codes, in one place, so that no user sees a traceback."""

import os
import signal
import sys
from collections.abc import Sequence

import click

from lictor.cli.flag_command import LogFlags, take_log_flags
from lictor.cli.lazy_group import suggest
from lictor.cli.main import COMPLETION_VARIABLE, LOGGING_COMMANDS, OWN_COMMANDS, PROGRAM, cli
from lictor.cli.terminal import guard_streams, show_plainly
from lictor.core.errors import LictorError, UsageError
from lictor.core.files import LOGIN

DEBUG_VARIABLE = "LICTOR_DEBUG"
_INTERRUPTED = 128 + signal.SIGINT
_BROKEN_PIPE = 128 + 13


def run(arguments: Sequence[str]) -> int:
    """Run a command line; return an exit code, and print the reason of a failure."""
    heeds_them = bool(arguments) and arguments[0] in LOGGING_COMMANDS
    given = LogFlags(tuple(arguments)) if heeds_them else take_log_flags(arguments)
    wrong_call = 2 if given.arguments and given.arguments[0] in OWN_COMMANDS else 1
    with guard_streams():
        try:
            code = _call(given, wrong_call)
            sys.stdout.flush()
        except BrokenPipeError:
            return _close_pipe()
        except KeyboardInterrupt:
            return _fail("interrupted", _INTERRUPTED)
        except Exception as error:  # noqa: BLE001  (no traceback may reach a user)
            return _report_error(error, wrong_call)
        return code


def _call(given: LogFlags, wrong_call: int) -> int:
    try:
        if COMPLETION_VARIABLE in os.environ:
            from lictor.cli.completion import answer_shell

            return answer_shell(cli, os.environ[COMPLETION_VARIABLE])
        # Not cli.main(): it would swallow broken pipes and interrupts, which have their own codes.
        # Messages and help show the program name as the user typed it.
        is_plugin = sys.argv[0].endswith(f"kubectl-{PROGRAM}")
        name = f"kubectl {PROGRAM}" if is_plugin else PROGRAM
        with cli.make_context(name, list(given.arguments), obj=given.verbosity) as context:
            return _read_code(cli.invoke(context))
    except SystemExit as error:
        return _read_code(error.code)
    except click.exceptions.Exit as error:
        return error.exit_code
    except click.UsageError as error:
        return _fail(_describe_usage(error), wrong_call)
    except click.Abort:
        return _fail("interrupted", _INTERRUPTED)
    except click.ClickException as error:
        return _fail(error.format_message(), 1)


def _read_code(code: object) -> int:
    """Return the exit code of a command; None and text have their meaning of `sys.exit`."""
    if isinstance(code, str):
        return _fail(code, 1)
    return code if isinstance(code, int) else 0


def _fail(message: str, code: int) -> int:
    sys.stdout.flush()
    click.echo(f"Error: {show_plainly(LOGIN.sub('', message))}", err=True)
    return code


def _report_error(error: Exception, wrong_call: int) -> int:
    if isinstance(error, LictorError):
        return _fail(str(error), wrong_call if isinstance(error, UsageError) else 1)
    if isinstance(error, OSError):
        return _fail(_describe_os_error(error), 1)
    if os.environ.get(DEBUG_VARIABLE):
        raise error
    if isinstance(error, RecursionError):
        return _fail("the input is nested too deeply", 1)
    if isinstance(error, MemoryError):
        return _fail("out of memory: give fewer files at once", 1)
    name = type(error).__name__
    return _fail(
        f"internal error: {name}: {error}; please report it ({DEBUG_VARIABLE}=1 shows a traceback)",
        1,
    )


def _close_pipe() -> int:
    """The reader has closed the pipe (`| head`): exit without an error at Python's last flush."""
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, sys.stdout.fileno())
    return _BROKEN_PIPE


def _describe_usage(error: click.UsageError) -> str:
    text = _translate(error)
    if error.ctx is None:
        return text
    return f"{text}\nRun '{error.ctx.command_path} --help' for usage."


def _translate(error: click.UsageError) -> str:
    """The messages of Kyverno's command line, which scripts and people know."""
    if isinstance(error, click.NoSuchOption):
        name = error.option_name
        if name.startswith("--"):
            known = [word for param in _params(error) for word in param.opts]
            return f"unknown flag: {name}{suggest(name, known)}"
        return f"unknown shorthand flag: '{name.lstrip('-')[:1]}' in {name}"
    if isinstance(error, click.BadOptionUsage) and "requires an argument" in error.message:
        name = error.option_name
        shown = name if name.startswith("--") else f"'{name.lstrip('-')}' in {name}"
        return f"flag needs an argument: {shown}"
    return error.format_message()


def _params(error: click.UsageError) -> list[click.Parameter]:
    return error.ctx.command.get_params(error.ctx) if error.ctx is not None else []


def _describe_os_error(error: OSError) -> str:
    reason = (error.strerror or str(error)).lower()
    return f"{error.filename}: {reason}" if error.filename else reason
