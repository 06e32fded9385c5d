"""A webhook server of lictor's beside Kyverno, which the API server does not know of."""

import asyncio
import socket
import ssl
import sys
import tempfile
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import httpx2
import orjson

from lictor.core.errors import LookupFailedError
from lictor.core.raw import Json, JsonObject
from lictor.http import keys
from lictor.http.keys import Algorithm
from lictor.kubernetes.connection import build_transport
from lictor.kubernetes.names import Names

_HOST = "127.0.0.1"
_READY = "/health/readiness"
# Until all policies are read and compiled.
_START_SECONDS = 180.0
_ANSWER_SECONDS = 15.0
_PAUSE = 0.2
_LIFETIME = timedelta(days=30)


class LictorServer:
    """`lictor serve` without its controllers, with the settings and flags of an installation."""

    def __init__(self, names: Names, arguments: tuple[str, ...]) -> None:
        self._names = names
        self._arguments = arguments
        self._process: asyncio.subprocess.Process | None = None
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        self._client: httpx2.AsyncClient | None = None

    async def start(self) -> None:
        """Return when it knows all policies."""
        port = _find_free_port()
        self._folder = tempfile.TemporaryDirectory(prefix="lictor-compare-")
        folder = Path(self._folder.name)
        self._client = _prepare(folder, port)
        files = [f"--tls{end}={folder / end}" for end in ("Cert", "Key")]
        self._process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-P",
            "-m",
            "lictor",
            "serve",
            "--no-control",
            "--workers=1",
            f"--namespace={self._names.namespace}",
            f"--prefix={self._names.prefix}",
            *self._arguments,
            f"--webhookServerHost={_HOST}",
            f"--webhookServerPort={port}",
            "--disableMetrics",
            *files,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.DEVNULL,
        )
        await self._wait_ready()

    async def _wait_ready(self) -> None:
        until = time.monotonic() + _START_SECONDS
        while time.monotonic() < until and self._is_running():
            try:
                if self._client and (await self._client.get(_READY)).status_code == 200:
                    return
            except httpx2.HTTPError:
                pass
            await asyncio.sleep(_PAUSE)
        raise LookupFailedError("lictor's own webhook server did not start: try lictor serve")

    def _is_running(self) -> bool:
        return self._process is not None and self._process.returncode is None

    async def ask(self, path: str, review: JsonObject) -> Json:
        """Its response to a review."""
        if self._client is None:
            raise LookupFailedError("it has not been started")
        headers = {"content-type": "application/json"}
        try:
            answer = await self._client.post(path, content=orjson.dumps(review), headers=headers)
            answer.raise_for_status()
            response = orjson.loads(answer.content)["response"]
        except (httpx2.HTTPError, orjson.JSONDecodeError, KeyError, TypeError) as error:
            raise LookupFailedError(f"no answer to {path}: {error}") from error
        return response

    async def stop(self) -> None:
        """End it, and forget its files."""
        if self._client is not None:
            await self._client.aclose()
        if self._process is not None and self._is_running():
            self._process.terminate()
            await self._process.wait()
        if self._folder is not None:
            self._folder.cleanup()


def _prepare(folder: Path, port: int) -> httpx2.AsyncClient:
    """Certificate and key in files, and a client that trusts them alone."""
    now = datetime.now(UTC)
    authority = keys.make_authority("compare", Algorithm.ECDSA, now, _LIFETIME)
    pair = keys.make_serving(authority, [_HOST], Algorithm.ECDSA, now, _LIFETIME)
    (folder / "Cert").write_text(pair.certificate_pem, encoding="ascii")
    # The folder is ours alone.
    (folder / "Key").write_text(pair.key_pem, encoding="ascii")
    context = ssl.create_default_context(cadata=authority.certificate_pem)
    return httpx2.AsyncClient(
        base_url=f"https://{_HOST}:{port}",
        transport=build_transport(context, httpx2.Limits()),
        timeout=_ANSWER_SECONDS,
        trust_env=False,
    )


def _find_free_port() -> int:
    with socket.socket() as server:
        server.bind((_HOST, 0))
        return int(server.getsockname()[1])
