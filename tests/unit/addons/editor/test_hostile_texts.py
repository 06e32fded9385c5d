"""Texts and requests that no editor should send: an answer, and nothing read that is not open."""

import time

import pytest
from lsprotocol import types
from pygls.workspace import PositionCodec

from lictor.addons.editor.checked_text import CheckedText
from lictor.addons.editor.outline import find_cursor
from lictor.addons.editor.positions import TextPositions
from lictor.addons.editor.server import build_server
from lictor.addons.editor.symbols import list_symbols
from lictor.core.errors import LoadError

POLICY = (
    "apiVersion: kyverno.io/v1\nkind: ClusterPolicy\nmetadata: {name: a}\nspec:\n  rules:\n"
    "  - name: x\n    match: {any: [{resources: {kinds: [Pod]}}]}\n"
)


@pytest.mark.parametrize("line_end", ["\r", "\x85", "\u2028"])
def test_an_outline_has_no_places_behind_the_text(line_end: str) -> None:
    text = POLICY.replace("\n", line_end)
    positions = TextPositions(text, PositionCodec())
    (found,) = list_symbols(text.encode(), "f", positions)
    assert found.name == "a"
    assert found.range.end.line < len(positions.lines)


def test_half_a_character_has_places_too() -> None:
    content = POLICY.replace("x", "\ud800").encode(errors="surrogatepass")
    assert CheckedText("f", content, ()).text.count("\n") == POLICY.count("\n")


def test_what_is_not_open_is_not_read() -> None:
    server = build_server()
    params = types.InitializeParams(types.ClientCapabilities())
    list(server.protocol.lsp_initialize(params))
    with pytest.raises(LoadError, match="is not open"):
        server.find_document("file:///dev/zero")


def test_braces_without_end_cost_time_by_their_number() -> None:
    lines = [*POLICY.split("\n"), "{" * 40_000]
    begun = time.thread_time()
    find_cursor(lines, len(lines) - 1, 40_000)
    # Takes a third of a second; by the square of their number it took most of a minute.
    assert time.thread_time() - begun < 8
