"""The language server: which request of an editor is answered by which part."""

import asyncio
from pathlib import Path

from lsprotocol import types
from pygls.lsp.server import LanguageServer
from pygls.workspace import TextDocument

from lictor.editor.checked_text import CheckedText, TextChecker
from lictor.editor.cursor import Cursor, find_cursor
from lictor.editor.diagnostics import (
    FIX_ALL,
    SOURCE,
    fix_everything,
    list_actions,
    list_diagnostics,
)
from lictor.editor.field_help import WordHelp, describe_field, describe_function, list_words
from lictor.editor.positions import TextPositions
from lictor.editor.references import (
    RUN_TEST,
    find_definition,
    find_token,
    list_test_lines,
    run_test,
)
from lictor.release import VERSION

# How long after the last change a text is linted: about the pause between two words.
PAUSE_SECONDS = 0.15


class PolicyLanguageServer(LanguageServer):
    """The texts that an editor has open, and what is known about them."""

    def __init__(self) -> None:
        super().__init__(SOURCE, VERSION)
        self.checker = TextChecker(self.read_open)
        self._waiting: dict[str, asyncio.TimerHandle] = {}

    def check(self, uri: str) -> tuple[CheckedText, TextPositions]:
        """What is known about a text, as it is now."""
        document = self.workspace.get_text_document(uri)
        checked = self.checker.check(document.path or uri, document.source)
        return checked, TextPositions(checked.text, document.position_codec)

    def read_cursor(self, uri: str, position: types.Position, *, whole: bool) -> Cursor:
        """Where a request points to; `whole`: at the end of the word there."""
        document = self.workspace.get_text_document(uri)
        positions = TextPositions(document.source.replace("\r\n", "\n"), document.position_codec)
        line, column = positions.read(position)
        if whole:
            content = positions.lines[line]
            while column < len(content) and (content[column].isalnum() or content[column] in "_:"):
                column += 1
        return find_cursor(positions.lines, line, column)

    def publish_soon(self, uri: str) -> None:
        """Lint a text when its author pauses; each change begins the pause anew."""
        self.cancel(uri)
        loop = asyncio.get_running_loop()
        self._waiting[uri] = loop.call_later(PAUSE_SECONDS, self.publish, uri)

    def cancel(self, uri: str) -> None:
        waiting = self._waiting.pop(uri, None)
        if waiting is not None:
            waiting.cancel()

    def publish(self, uri: str) -> None:
        """Tell the editor what is wrong with a text."""
        self.cancel(uri)
        document = self.workspace.get_text_document(uri)
        self._send(uri, list_diagnostics(*self.check(uri)), document.version)

    def publish_all(self) -> None:
        """A file was saved: what other texts name may be different now."""
        self.checker.forget()
        for uri in list(self.workspace.text_documents):
            self.publish(uri)

    def withdraw(self, uri: str) -> None:
        """A text was closed: nothing is told about it any more."""
        self.cancel(uri)
        self._send(uri, [], None)

    def _send(self, uri: str, found: list[types.Diagnostic], version: int | None) -> None:
        self.text_document_publish_diagnostics(types.PublishDiagnosticsParams(uri, found, version))

    def read_open(self, path: str) -> bytes | None:
        """The text of a file as the editor has it; None where it is not open."""
        for document in self.workspace.text_documents.values():
            if document.path == path:
                return _encode(document)
        return None


def _encode(document: TextDocument) -> bytes:
    return document.source.encode(errors="surrogatepass")


def build_server() -> PolicyLanguageServer:
    """A server that waits for an editor."""
    server = PolicyLanguageServer()
    _add_diagnostics(server)
    _add_actions(server)
    _add_help(server)
    _add_definitions(server)
    _add_lens(server)
    return server


def _add_diagnostics(server: PolicyLanguageServer) -> None:
    @server.feature(types.TEXT_DOCUMENT_DID_OPEN)
    def opened(ls: PolicyLanguageServer, params: types.DidOpenTextDocumentParams) -> None:
        ls.publish(params.text_document.uri)

    @server.feature(types.TEXT_DOCUMENT_DID_CHANGE)
    async def changed(ls: PolicyLanguageServer, params: types.DidChangeTextDocumentParams) -> None:
        ls.publish_soon(params.text_document.uri)

    @server.feature(types.TEXT_DOCUMENT_DID_SAVE)
    def saved(ls: PolicyLanguageServer, params: types.DidSaveTextDocumentParams) -> None:  # noqa: ARG001
        ls.publish_all()

    @server.feature(types.TEXT_DOCUMENT_DID_CLOSE)
    def closed(ls: PolicyLanguageServer, params: types.DidCloseTextDocumentParams) -> None:
        ls.withdraw(params.text_document.uri)


def _add_actions(server: PolicyLanguageServer) -> None:
    kinds: list[types.CodeActionKind | str] = [types.CodeActionKind.QuickFix, FIX_ALL]

    @server.feature(types.TEXT_DOCUMENT_CODE_ACTION, types.CodeActionOptions(kinds))
    def act(ls: PolicyLanguageServer, params: types.CodeActionParams) -> list[types.CodeAction]:
        uri, only = params.text_document.uri, params.context.only
        checked, positions = ls.check(uri)
        actions: list[types.CodeAction] = []
        if _wants(only, types.CodeActionKind.QuickFix.value):
            actions += list_actions(checked, positions, uri, params.range)
        if only and _wants(only, FIX_ALL):
            whole = fix_everything(ls.checker, checked, positions, uri)
            actions += [] if whole is None else [whole]
        return actions


def _wants(only: object, kind: str) -> bool:
    """Does the editor ask for this kind of action? `source` includes `source.fixAll`."""
    if not isinstance(only, (list, tuple)):
        return True
    words = [str(getattr(each, "value", each)) for each in only]
    return any(kind == word or kind.startswith(f"{word}.") for word in words)


def _add_help(server: PolicyLanguageServer) -> None:
    options = types.CompletionOptions(trigger_characters=[" ", "{"])

    @server.feature(types.TEXT_DOCUMENT_COMPLETION, options)
    def complete(
        ls: PolicyLanguageServer, params: types.CompletionParams
    ) -> list[types.CompletionItem]:
        cursor = ls.read_cursor(params.text_document.uri, params.position, whole=False)
        return [_offer(each) for each in list_words(cursor)]

    @server.feature(types.TEXT_DOCUMENT_HOVER)
    def hover(ls: PolicyLanguageServer, params: types.HoverParams) -> types.Hover | None:
        cursor = ls.read_cursor(params.text_document.uri, params.position, whole=True)
        found = describe_function(cursor.word) if cursor.in_variable else describe_field(cursor)
        return None if found is None else types.Hover(_write_help(found))


def _add_definitions(server: PolicyLanguageServer) -> None:
    @server.feature(types.TEXT_DOCUMENT_DEFINITION)
    def define(ls: PolicyLanguageServer, params: types.DefinitionParams) -> types.Location | None:
        uri = params.text_document.uri
        document = ls.workspace.get_text_document(uri)
        positions = TextPositions(document.source.replace("\r\n", "\n"), document.position_codec)
        line, column = positions.read(params.position)
        token = find_token(positions.lines[line], column)
        cursor = ls.read_cursor(uri, params.position, whole=True)
        root = ls.workspace.root_path or str(Path(document.path).parent)
        place = find_definition(cursor, token, document.path, root, ls.read_open)
        if place is None:
            return None
        # Names are plain: a column is the same however it is counted.
        start = types.Position(place.line, place.column)
        return types.Location(Path(place.path).absolute().as_uri(), types.Range(start, start))


def _add_lens(server: PolicyLanguageServer) -> None:
    @server.feature(types.TEXT_DOCUMENT_CODE_LENS)
    def show(ls: PolicyLanguageServer, params: types.CodeLensParams) -> list[types.CodeLens]:
        uri = params.text_document.uri
        lines = ls.workspace.get_text_document(uri).source.splitlines()
        command = types.Command("run this test", RUN_TEST, arguments=[uri])
        return [
            types.CodeLens(
                types.Range(types.Position(number, 0), types.Position(number, 0)), command
            )
            for number in list_test_lines(lines)
        ]

    @server.command(RUN_TEST)
    async def run(ls: PolicyLanguageServer, uri: str) -> None:
        answer = await run_test(ls.workspace.get_text_document(uri).path)
        ls.window_log_message(types.LogMessageParams(types.MessageType.Log, answer.output))
        kind = types.MessageType.Info if answer.is_good else types.MessageType.Error
        ls.window_show_message(types.ShowMessageParams(kind, answer.summary))


def _offer(word: WordHelp) -> types.CompletionItem:
    return types.CompletionItem(word.word, detail=word.detail, documentation=word.note or None)


def _write_help(word: WordHelp) -> types.MarkupContent:
    text = f"**{word.word}**: {word.detail}\n\n{word.note}".rstrip()
    return types.MarkupContent(types.MarkupKind.Markdown, text)
