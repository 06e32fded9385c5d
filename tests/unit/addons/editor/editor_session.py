"""An editor for tests: pygls' client, which speaks the protocol to a real `lictor lsp` over stdio."""

import asyncio
import sys
from pathlib import Path
from typing import Any

from lsprotocol import types
from pygls.lsp.client import LanguageClient

DEADLINE = 60


class EditorSession:
    """One process of the server, and the texts that are open in it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.loop = asyncio.new_event_loop()
        self.client = LanguageClient("tests", "1")
        self.told: dict[str, list[types.PublishDiagnosticsParams]] = {}
        self.versions: dict[str, int] = {}

        @self.client.feature(types.TEXT_DOCUMENT_PUBLISH_DIAGNOSTICS)
        def note(params: types.PublishDiagnosticsParams) -> None:
            self.told.setdefault(params.uri, []).append(params)

        self._heard: dict[str, list[Any]] = {}
        self.capabilities = self.wait(self._start())

    def listen(self, notification: str) -> list[Any]:
        """What the server tells from now on, of one sort; the same list each time."""
        if notification not in self._heard:
            heard = self._heard[notification] = []

            @self.client.feature(notification)
            def note(params: Any) -> None:
                heard.append(params)

        return self._heard[notification]

    def wait(self, work):
        return self.loop.run_until_complete(asyncio.wait_for(work, DEADLINE))

    def tell(self, send, params) -> None:
        """Send a notification; from within the loop, where the client writes."""

        async def run() -> None:
            send(params)
            await asyncio.sleep(0)

        self.wait(run())

    async def _start(self) -> types.ServerCapabilities:
        await self.client.start_io(sys.executable, "-m", "lictor", "lsp", "--stdio")
        root = self.folder.as_uri()
        params = types.InitializeParams(types.ClientCapabilities(), root_uri=root)
        answer = await self.client.initialize_async(params)
        self.client.initialized(types.InitializedParams())
        return answer.capabilities

    def close(self) -> int | None:
        self.wait(self.client.shutdown_async(None))
        self.tell(self.client.exit, None)
        server = self.client._server
        code = self.wait(server.wait())
        self.wait(self.client.stop())
        self.loop.close()
        return code

    def open(self, name: str, text: str) -> str:
        """Open a text; the file need not exist."""
        uri = (self.folder / name).as_uri()
        self.versions[uri] = 1
        item = types.TextDocumentItem(uri, "yaml", 1, text)
        self.tell(self.client.text_document_did_open, types.DidOpenTextDocumentParams(item))
        return uri

    def change(self, uri: str, *changes: types.TextDocumentContentChangeEvent) -> None:
        self.versions[uri] += 1
        document = types.VersionedTextDocumentIdentifier(self.versions[uri], uri)
        params = types.DidChangeTextDocumentParams(document, list(changes))
        self.tell(self.client.text_document_did_change, params)

    def replace(self, uri: str, text: str) -> None:
        self.change(uri, types.TextDocumentContentChangeWholeDocument(text))

    def diagnostics(self, uri: str) -> list[types.Diagnostic]:
        """What the server says of the newest version."""

        async def look() -> list[types.Diagnostic]:
            while True:
                for told in self.told.get(uri, ()):
                    if told.version == self.versions[uri]:
                        return list(told.diagnostics)
                await asyncio.sleep(0.01)

        return self.wait(look())

    def actions(self, uri: str, line: int, only=None) -> list[types.CodeAction]:
        place = types.Range(types.Position(line, 0), types.Position(line, 0))
        context = types.CodeActionContext([], only=only)
        document = types.TextDocumentIdentifier(uri)
        params = types.CodeActionParams(document, place, context)
        return list(self.wait(self.client.text_document_code_action_async(params)))

    def cpu_seconds(self) -> float:
        """What the threads of the server have used, from the kernel."""
        tasks = Path(f"/proc/{self.client._server.pid}/task")
        return sum(int(each.read_text().split()[0]) for each in tasks.glob("*/schedstat")) / 1e9


def apply_action(text: str, action: types.CodeAction, uri: str) -> str:
    """The text after an action, as an editor would make it (ASCII only)."""
    lines = text.split("\n")
    starts = [sum(len(line) + 1 for line in lines[:number]) for number in range(len(lines))]
    edits = sorted(
        action.edit.changes[uri], key=lambda e: (e.range.start.line, e.range.start.character)
    )
    for edit in reversed(edits):
        start, end = (starts[p.line] + p.character for p in (edit.range.start, edit.range.end))
        text = text[:start] + edit.new_text + text[end:]
    return text
