"""The connections to all registries: one pool, with a share for each registry.

A slow or dead registry uses up its own share only.
"""

import asyncio
import contextlib
import random
import time
from collections import OrderedDict
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import TypeAlias

import msgspec

from lictor.core.errors import LookupFailedError
from lictor.http.addresses import Chooser
from lictor.http.client import ClientConnection, ClientResponse
from lictor.images.settings import RegistrySettings

_MOST_SERVERS = 1024
# The timeout of each step of a request.
_STEP_SECONDS = 30.0
# After this many timeouts in a row, a registry is skipped for this many seconds.
_SILENCES = 3
_REST = 5.0
# Errors of concurrent requests to a silent registry are spread over this many seconds.
_LONG_WAIT = 2.0
_LONGEST_SPREAD = 1.0


class RegistryServer(msgspec.Struct, frozen=True):
    """The target of a connection, and its TLS settings."""

    host: str
    port: int
    is_secure: bool = True
    # Whether its certificate is verified.
    is_verified: bool = True
    # Whether it may be any machine, including internal ones.
    chooser: Chooser = Chooser.OPERATOR

    @property
    def authority(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        usual = 443 if self.is_secure else 80
        return host if self.port == usual else f"{host}:{self.port}"


Dial: TypeAlias = Callable[[RegistryServer], Awaitable[ClientConnection]]


class _Share:
    """The share of one server in the pool."""

    def __init__(self, settings: RegistrySettings) -> None:
        self.room = asyncio.Semaphore(settings.connections_per_registry)
        # Before its first response, it has less.
        self.first_room = asyncio.Semaphore(settings.connections_per_stranger)
        self.idle: list[ClientConnection] = []
        self.waiting = 0
        self.busy = 0
        # Whether it has ever answered.
        self.is_known = False
        # The number of timeouts in a row, and since when it is skipped.
        self.silences = 0
        self.given_up = 0.0

    @property
    def is_unused(self) -> bool:
        return not self.waiting and not self.busy

    def check(self, server: RegistryServer) -> None:
        """Raises LookupFailedError while an unresponsive registry is skipped."""
        if self.silences >= _SILENCES and time.monotonic() < self.given_up + _REST:
            raise LookupFailedError(
                f"{server.authority} did not answer {self.silences} times in a row; next attempt "
                f"in {_REST:g} s"
            )

    def note_silence(self) -> None:
        self.silences += 1
        self.given_up = time.monotonic()
        if self.silences >= _SILENCES:
            self.is_known = False

    def close(self) -> None:
        while self.idle:
            self.idle.pop().close()


class ConnectionPool:
    """Connections by server, each used by one request at a time. Belongs to one event loop."""

    def __init__(self, settings: RegistrySettings, dial: Dial) -> None:
        self._settings = settings
        self._dial = dial
        self._room = asyncio.Semaphore(settings.connections)
        self._strangers = asyncio.Semaphore(settings.connections_to_strangers)
        self._shares: OrderedDict[RegistryServer, _Share] = OrderedDict()

    async def exchange(
        self, server: RegistryServer, message: bytes, most_bytes: int
    ) -> ClientResponse:
        """Send a request; raises OSError if the connection breaks or takes too long."""
        share = self._share(server)
        share.check(server)
        began = time.monotonic()
        try:
            return await self._exchange_in_turn(share, server, message, most_bytes)
        except (OSError, LookupFailedError):
            if time.monotonic() - began > _LONG_WAIT:
                # Hundreds may have waited for the same silent registry: if all of them failed at
                # the same moment, they would block the loop for everyone else.
                await asyncio.sleep(random.uniform(0.0, _LONGEST_SPREAD))  # noqa: S311
            raise

    async def _exchange_in_turn(
        self, share: _Share, server: RegistryServer, message: bytes, most_bytes: int
    ) -> ClientResponse:
        async with self._hold(share, server):
            # It may have been marked unresponsive meanwhile.
            share.check(server)
            try:
                return await self._exchange(share, server, message, most_bytes)
            except TimeoutError:
                share.note_silence()
                raise

    async def _exchange(
        self, share: _Share, server: RegistryServer, message: bytes, most_bytes: int
    ) -> ClientResponse:
        connection = await self._take(share, server)
        try:
            async with asyncio.timeout(self._settings.exchange_seconds):
                response = await connection.exchange(message, _STEP_SECONDS, most_bytes)
        except BaseException:
            # Part of a response may be in flight: this connection cannot be reused.
            connection.close()
            raise
        share.is_known, share.silences = True, 0
        self._give_back(share, connection)
        return response

    @contextlib.asynccontextmanager
    async def _hold(self, share: _Share, server: RegistryServer) -> AsyncIterator[None]:
        """A slot in the share and in the pool."""
        if share.waiting >= self._settings.waiting_per_registry:
            raise LookupFailedError(
                f"{server.authority}: too many requests are waiting for this registry"
            )
        share.waiting += 1
        try:
            await share.room.acquire()
        finally:
            share.waiting -= 1
        share.busy += 1
        try:
            if share.is_known:
                async with self._room:
                    yield
            else:
                # Registries that never answered share a limit, so that slots remain for the others.
                async with share.first_room, self._strangers, self._room:
                    yield
        finally:
            share.busy -= 1
            share.room.release()

    async def _take(self, share: _Share, server: RegistryServer) -> ClientConnection:
        while share.idle:
            connection = share.idle.pop()
            if connection.is_fresh:
                return connection
            connection.close()
        async with asyncio.timeout(self._settings.connect_seconds):
            return await self._dial(server)

    def _give_back(self, share: _Share, connection: ClientConnection) -> None:
        if connection.is_reusable:
            connection.since = time.monotonic()
            share.idle.append(connection)
        else:
            connection.close()

    def close(self) -> None:
        """Close all idle connections; the others end with their requests."""
        for share in self._shares.values():
            share.close()

    def _share(self, server: RegistryServer) -> _Share:
        found = self._shares.get(server)
        if found is None:
            if len(self._shares) >= _MOST_SERVERS:
                self._drop_one()
            found = self._shares[server] = _Share(self._settings)
        self._shares.move_to_end(server)
        return found

    def _drop_one(self) -> None:
        """Drop the server that was unused for the longest time."""
        for server, share in self._shares.items():
            if share.is_unused:
                share.close()
                del self._shares[server]
                return
