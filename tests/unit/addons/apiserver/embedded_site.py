"""A server for one test, and a client that knows no more than HTTP and JSON."""

import asyncio
import json
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

from lictor.addons.apiserver.request import ApiUser
from lictor.addons.apiserver.server import Server, ServerSettings
from lictor.core.raw import Json, JsonObject
from lictor.http.client import ClientResponse, HttpClient

TOKEN = "secret"
PATIENCE = 90.0


class Answer:
    """What came back."""

    def __init__(self, reply: ClientResponse) -> None:
        self.status = reply.status_code
        self.headers = reply.headers
        self.text = reply.text

    @property
    def json(self) -> JsonObject:
        return json.loads(self.text)

    @property
    def message(self) -> str:
        return self.json.get("message", "")


class Site:
    """The server, and someone who may do all."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self._wire = HttpClient(server.url, ssl.create_default_context(), connections=8)

    async def ask(
        self,
        method: str,
        path: str,
        body: Json = None,
        content_type: str = "application/json",
        **headers: str,
    ) -> Answer:
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        named = {"authorization": f"Bearer {TOKEN}", "content-type": content_type}
        named |= {name.replace("_", "-"): value for name, value in headers.items()}
        reply = await self._wire.send(
            method,
            path,
            content=None if body is None else content,
            params=None,
            headers=named.items(),
            limit=PATIENCE,
        )
        return Answer(reply)

    async def get(self, path: str, **headers: str) -> Answer:
        return await self.ask("GET", path, **headers)

    async def create(self, path: str, document: JsonObject) -> JsonObject:
        answer = await self.ask("POST", path, document)
        assert answer.status == 201, answer.text
        return answer.json

    async def patch(self, path: str, patch: Json, kind: str = "merge-patch+json") -> Answer:
        return await self.ask("PATCH", path, patch, f"application/{kind}")

    async def delete(self, path: str, options: JsonObject | None = None) -> Answer:
        return await self.ask("DELETE", path, options)

    async def watch(self, path: str, count: int) -> list[JsonObject]:
        """The first so many events of a watch."""
        events = []
        async with asyncio.timeout(PATIENCE):
            async for event in self.follow(path):
                events.append(event)
                if len(events) == count:
                    break
        return events

    async def follow(self, path: str) -> AsyncIterator[JsonObject]:
        port = int(self.server.url.rpartition(":")[2])
        reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1 << 22)
        head = f"GET {path} HTTP/1.1\r\nhost: h\r\nauthorization: Bearer {TOKEN}\r\n\r\n"
        writer.write(head.encode())
        try:
            await reader.readuntil(b"\r\n\r\n")
            text = b""
            while size := int((await reader.readline()).strip() or b"0", 16):
                text += (await reader.readexactly(size + 2))[:-2]
                *lines, text = text.split(b"\n")
                for line in lines:
                    yield json.loads(line)
        finally:
            writer.close()

    async def until(self, path: str, fits: Callable[[Answer], bool]) -> Answer:
        """Ask until the answer is as it should become."""
        async with asyncio.timeout(PATIENCE):
            while True:
                answer = await self.get(path)
                if fits(answer):
                    return answer
                await asyncio.sleep(0.01)

    async def close(self) -> None:
        await self._wire.close()


@asynccontextmanager
async def open_site(database: Path | None = None) -> AsyncIterator[Site]:
    settings = ServerSettings(
        tokens={TOKEN: ApiUser("admin", ("system:masters",))}, database=database
    )
    server = Server(settings)
    await server.start()
    site = Site(server)
    try:
        yield site
    finally:
        await site.close()
        await server.stop()


def run_on_site(work: Callable[[Site], Awaitable[None]], database: Path | None = None) -> None:
    """Run one test on a server of its own."""

    async def run() -> None:
        async with open_site(database) as site:
            await work(site)

    asyncio.run(run())


CONFIG_MAPS = "/api/v1/namespaces/default/configmaps"


def config_map(name: str, **more: Json) -> JsonObject:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, **more}
