"""Tests that run from where they stand: which lines have one, and does it pass?"""

import asyncio
import contextlib
import re
import sys

import msgspec
from lsprotocol.types import (
    CodeLens,
    Command,
    LogMessageParams,
    MessageType,
    Position,
    Range,
    ShowMessageParams,
)
from pygls.lsp.server import LanguageServer

RUN_TEST = "lictor.runTest"
_LONGEST_SECONDS = 120.0


def list_lenses(lines: list[str], uri: str) -> list[CodeLens]:
    """A command above each line that marks a document as a test."""
    command = Command("run this test", RUN_TEST, arguments=[uri])
    starts = [
        Position(number, 0)
        for number, line in enumerate(lines)
        if re.match(r"kind:\s*Test\s*(#.*)?$", line)
    ]
    return [CodeLens(Range(start, start), command) for start in starts]


class TestAnswer(msgspec.Struct, frozen=True):
    """What a run printed, its last words, and whether all went well."""

    # pytest must not take this for a test class.
    __test__ = False

    output: str
    summary: str
    is_good: bool


async def run_test(path: str) -> TestAnswer:
    """Run the tests of one file as `lictor test` does."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-P", "-m", "lictor", "test", path, "--remove-color",
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )  # fmt: skip
    try:
        async with asyncio.timeout(_LONGEST_SECONDS):
            output, _ = await process.communicate()
    except TimeoutError:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()
        return TestAnswer("", f"no result within {_LONGEST_SECONDS:g} s", is_good=False)
    text = output.decode(errors="replace")
    lines = [line for line in text.splitlines() if line.strip()]
    found = next((line for line in reversed(lines) if line.startswith("Test Summary")), "")
    summary = found or (lines[-1] if lines else "no output")
    return TestAnswer(text, summary, is_good=process.returncode == 0)


def show_answer(server: LanguageServer, answer: TestAnswer) -> None:
    """The summary as a message, the whole output in the log."""
    server.window_log_message(LogMessageParams(MessageType.Log, answer.output))
    kind = MessageType.Info if answer.is_good else MessageType.Error
    server.window_show_message(ShowMessageParams(kind, answer.summary))
