"""The language server: which request of an editor is answered by which part."""

import asyncio
import re
from pathlib import Path

from lsprotocol import types
from pygls.lsp.server import LanguageServer
from pygls.workspace import TextDocument

from lictor.addons.editor.checked_text import (
    FIX_ALL,
    SOURCE,
    CheckedText,
    RulePages,
    TextChecker,
    fix_everything,
    list_actions,
    list_diagnostics,
)
from lictor.addons.editor.field_help import describe_word, list_words
from lictor.addons.editor.outline import Cursor, find_cursor
from lictor.addons.editor.positions import TextPositions
from lictor.addons.editor.references import (
    Definition,
    NamedLocation,
    find_definition,
    find_token,
    list_uses,
)
from lictor.addons.editor.run_tests import RUN_TEST, list_lenses, run_test, show_answer
from lictor.addons.editor.symbols import list_symbols
from lictor.addons.editor.word_help import WordHelp, WordKind
from lictor.addons.editor.workspace_files import WorkspaceFiles
from lictor.core.errors import LoadError
from lictor.core.release import VERSION

# How long after the last change a text is linted: about the pause between two words.
PAUSE_SECONDS = 0.15
# The end of a word, with what may close a key: `=(name):`.
# re: linear - all of it is optional, so that the first try succeeds
_REST = re.compile(r"[\w-]*\)?[\"']?:?")
_PARTIAL = re.compile(r"(?<![\w-])[\w-]*$")


class PolicyLanguageServer(LanguageServer):
    """The texts that an editor has open, and what is known about them."""

    def __init__(self) -> None:
        super().__init__(SOURCE, VERSION)
        self.files = WorkspaceFiles(self.read_open)
        self.checker = TextChecker(self.read_open, self.files)
        self.pages = RulePages()
        self._waiting: dict[str, asyncio.TimerHandle] = {}

    def find_document(self, uri: str) -> TextDocument:
        """A text that the editor has open: no file is read because someone names it."""
        found: TextDocument | None = self.workspace.text_documents.get(uri)
        if found is None:
            raise LoadError("is not open in the editor", where=uri)
        return found

    def check(self, uri: str) -> tuple[CheckedText, TextPositions]:
        """What is known about a text, as it is now."""
        document = self.find_document(uri)
        checked = self.checker.check(document.path or uri, document.source)
        return checked, TextPositions(checked.text, document.position_codec)

    def read_cursor(self, uri: str, position: types.Position, *, whole: bool) -> Cursor:
        """Where a request points to; `whole`: at the end of the word there."""
        positions = self.read_positions(uri)
        line, column = positions.read(position)
        if whole:
            found = _REST.match(positions.lines[line], column)
            column = found.end() if found else column
        return find_cursor(positions.lines, line, column)

    def read_positions(self, uri: str) -> TextPositions:
        document = self.find_document(uri)
        return TextPositions(document.source.replace("\r\n", "\n"), document.position_codec)

    def read_place(self, uri: str, position: types.Position) -> NamedLocation:
        """The name that a request points to."""
        document = self.find_document(uri)
        positions = self.read_positions(uri)
        line, column = positions.read(position)
        return NamedLocation(
            self.read_cursor(uri, position, whole=True),
            find_token(positions.lines[line], column),
            document.path,
            line,
            self.workspace.root_path or str(Path(document.path).parent),
            self.files,
        )

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
        """Publish the diagnostics of a text."""
        self.cancel(uri)
        document = self.find_document(uri)
        self._send(uri, list_diagnostics(*self.check(uri), self.pages), document.version)

    def publish_all(self) -> None:
        """A file was saved: what other texts name may be different now."""
        self.files.forget()
        self.checker.forget()
        for uri in list(self.workspace.text_documents):
            self.publish(uri)

    def withdraw(self, uri: str) -> None:
        """A text was closed: remove its diagnostics."""
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
    _add_settings(server)
    _add_diagnostics(server)
    _add_actions(server)
    _add_help(server)
    _add_definitions(server)
    _add_lens(server)
    return server


def _add_settings(server: PolicyLanguageServer) -> None:
    @server.feature(types.INITIALIZE)
    def begin(ls: PolicyLanguageServer, params: types.InitializeParams) -> None:
        options = params.initialization_options
        address = options.get("rules") if isinstance(options, dict) else None
        ls.pages = RulePages(address if isinstance(address, str) else "")
        ls.files.set_root(ls.workspace.root_path)


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
    """Whether the editor requests this kind of action; `source` includes `source.fixAll`."""
    if not isinstance(only, (list, tuple)):
        return True
    words = [str(getattr(each, "value", each)) for each in only]
    return any(kind == word or kind.startswith(f"{word}.") for word in words)


def _add_help(server: PolicyLanguageServer) -> None:
    options = types.CompletionOptions(trigger_characters=[" ", "{", ".", "(", "/", "["])

    @server.feature(types.TEXT_DOCUMENT_COMPLETION, options)
    def complete(
        ls: PolicyLanguageServer, params: types.CompletionParams
    ) -> list[types.CompletionItem]:
        cursor = ls.read_cursor(params.text_document.uri, params.position, whole=False)
        return [_offer(each, cursor, params.position) for each in list_words(cursor, ls.files)]

    @server.feature(types.TEXT_DOCUMENT_HOVER)
    def hover(ls: PolicyLanguageServer, params: types.HoverParams) -> types.Hover | None:
        cursor = ls.read_cursor(params.text_document.uri, params.position, whole=True)
        found = describe_word(cursor, ls.files)
        return None if found is None else types.Hover(_write_help(found))


def _add_definitions(server: PolicyLanguageServer) -> None:
    @server.feature(types.TEXT_DOCUMENT_DEFINITION)
    def define(ls: PolicyLanguageServer, params: types.DefinitionParams) -> types.Location | None:
        found = find_definition(ls.read_place(params.text_document.uri, params.position))
        return None if found is None else _point_to(found)

    @server.feature(types.TEXT_DOCUMENT_REFERENCES)
    def refer(ls: PolicyLanguageServer, params: types.ReferenceParams) -> list[types.Location]:
        location = ls.read_place(params.text_document.uri, params.position)
        return [_point_to(each) for each in list_uses(location)]

    @server.feature(types.TEXT_DOCUMENT_DOCUMENT_SYMBOL)
    def outline(
        ls: PolicyLanguageServer, params: types.DocumentSymbolParams
    ) -> list[types.DocumentSymbol]:
        uri = params.text_document.uri
        document = ls.find_document(uri)
        return list_symbols(_encode(document), document.path, ls.read_positions(uri))


def _point_to(location: Definition) -> types.Location:
    # Names are plain: a column is the same however it is counted.
    start = types.Position(location.line, location.column)
    return types.Location(Path(location.path).absolute().as_uri(), types.Range(start, start))


def _add_lens(server: PolicyLanguageServer) -> None:
    @server.feature(types.TEXT_DOCUMENT_CODE_LENS)
    def show(ls: PolicyLanguageServer, params: types.CodeLensParams) -> list[types.CodeLens]:
        uri = params.text_document.uri
        return list_lenses(ls.read_positions(uri).lines, uri)

    @server.command(RUN_TEST)
    async def run(ls: PolicyLanguageServer, uri: str) -> None:
        answer = await run_test(ls.find_document(uri).path)
        show_answer(ls, answer)


_ITEM_KINDS = {
    WordKind.FIELD: types.CompletionItemKind.Field,
    WordKind.VALUE: types.CompletionItemKind.EnumMember,
    WordKind.KIND: types.CompletionItemKind.Class,
    WordKind.FUNCTION: types.CompletionItemKind.Function,
    WordKind.VARIABLE: types.CompletionItemKind.Variable,
    WordKind.OPERATOR: types.CompletionItemKind.Operator,
}


def _offer(word: WordHelp, cursor: Cursor, position: types.Position) -> types.CompletionItem:
    """The word that replaces the written part, for any definition of a word in the editor."""
    written = _find_written(word.word, cursor.word)
    start = types.Position(position.line, position.character - len(written))
    return types.CompletionItem(
        word.word,
        kind=_ITEM_KINDS[word.kind],
        detail=word.detail,
        documentation=_write_note(word),
        sort_text=f"{_RANKS[word.kind] - word.is_required}{word.word}",
        text_edit=types.TextEdit(types.Range(start, position), word.word),
    )


# Words required here come before those allowed anywhere.
_RANKS = {
    WordKind.FIELD: 2, WordKind.VALUE: 2, WordKind.KIND: 2, WordKind.OPERATOR: 2,
    WordKind.VARIABLE: 3, WordKind.FUNCTION: 4,
}  # fmt: skip


def _find_written(word: str, before: str) -> str:
    """The part before the cursor that a word replaces: `apps/v1/De` for a word with slashes."""
    if "/" in word or "." in word:
        parts = re.split(r"(?<=[./])", before)
        ends = ("".join(parts[number:]) for number in range(len(parts)))
        found = next((end for end in ends if end and word.startswith(end)), None)
        if found is not None:
            return found
    partial = _PARTIAL.search(before)
    return partial[0] if partial else ""


def _write_note(word: WordHelp) -> types.MarkupContent | None:
    example = f"```yaml\n{word.example}\n```" if word.example else ""
    text = "\n\n".join(part for part in (word.note, example) if part)
    return types.MarkupContent(types.MarkupKind.Markdown, text) if text else None


def _write_help(word: WordHelp) -> types.MarkupContent:
    note = _write_note(word)
    detail = f"{word.detail}, required" if word.is_required else word.detail
    head = f"**{word.word}**: {detail}" if detail else f"**{word.word}**"
    text = f"{head}\n\n{note.value}" if note else head
    return types.MarkupContent(types.MarkupKind.Markdown, text)
