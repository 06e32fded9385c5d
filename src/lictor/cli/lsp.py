"""`lsp`: tells an editor about mistakes in policies as they are written."""

import os
import sys
from importlib.util import find_spec

import click

from lictor.cli.flag_command import FlagCommand

_EXAMPLES = """\
# What an editor runs; it speaks over standard input and output
lictor lsp"""
_MISSING = "lictor lsp needs pygls; install it with: pip install 'lictor[editor]'"


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
    from lictor.editor.server import build_server

    # The server closes what it writes to, and standard output is still flushed after it.
    with os.fdopen(os.dup(sys.stdout.fileno()), "wb") as output:
        build_server().start_io(stdout=output)
    return 0
