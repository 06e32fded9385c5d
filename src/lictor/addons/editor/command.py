"""`lsp`: reports mistakes in policies to an editor as they are written."""

import os
import re
import sys
from importlib.util import find_spec
from typing import BinaryIO, cast

import click

from lictor.cli.flag_command import FlagCommand

_EXAMPLES = """\
# What an editor runs; it speaks over standard input and output
lictor lsp"""
_MISSING = "lictor lsp needs pygls; install it with: pip install 'lictor[editor]'"
_LENGTH = re.compile(rb"content-length: *([0-9]{1,9})\r\n", re.IGNORECASE)
_HEADER = re.compile(rb"[A-Za-z-]{1,64}:[^\r\n]*\r\n")
_LONGEST_HEADER = 1024
_LARGEST = 64 * 1024 * 1024


@click.command(cls=FlagCommand, examples=_EXAMPLES)
@click.option("--stdio", is_flag=True, help="Over standard input and output; always so.")
def lsp(*, stdio: bool) -> int:  # noqa: ARG001  (editors give it to every language server)
    """Serve an editor: mistakes as you type, fixes, help, completion.

    Speaks the Language Server Protocol over standard input and output; the editor starts and ends
    it. Exits with 1 where pygls is not installed.
    """
    if find_spec("pygls") is None:
        click.echo(_MISSING, err=True)
        return 1
    from lictor.addons.editor.server import build_server

    # The server closes what it writes to, and standard output is still flushed after it.
    source = _MessageInput(sys.stdin.buffer)
    with os.fdopen(os.dup(sys.stdout.fileno()), "wb") as output:
        build_server().start_io(stdin=cast("BinaryIO", source), stdout=output)
    if source.fault:
        click.echo(f"lictor lsp: {source.fault}", err=True)
    return 1 if source.fault else 0


class _MessageInput:
    """Reads headers and bodies of messages; after a fault, nothing more comes."""

    def __init__(self, source: BinaryIO) -> None:
        self._source = source
        self._length = 0
        # Why the session ended; empty where the editor ended it.
        self.fault = ""

    def readline(self) -> bytes:
        """A line of headers, with its length in the one form that pygls knows."""
        line = self._source.readline(_LONGEST_HEADER)
        found = _LENGTH.fullmatch(line)
        if found is not None:
            self._length = int(found[1])
            if not 0 < self._length <= _LARGEST:
                return self._end(f"Content-Length must be 1 to {_LARGEST}, not {self._length}")
            return b"Content-Length: %d\r\n" % self._length
        if line == b"\r\n" and not self._length:
            return self._end("a message needs a Content-Length")
        if line and line != b"\r\n" and not _HEADER.fullmatch(line):
            hint = "the Content-Length before it is too small, or this is no message"
            return self._end(f"expected a header, found {line[:40]!r}: {hint}")
        return line

    def read(self, size: int) -> bytes:
        """A body."""
        body = self._source.read(size)
        self._length = 0
        if len(body) < size:
            return self._end(f"Content-Length is {size}, but only {len(body)} bytes came")
        if body.lstrip()[:1] != b"{" or body.rstrip()[-1:] != b"}":
            return self._end(f"{size} bytes of Content-Length hold no message: {body[:40]!r}")
        return body

    def _end(self, fault: str) -> bytes:
        self.fault = self.fault or fault
        return b""
