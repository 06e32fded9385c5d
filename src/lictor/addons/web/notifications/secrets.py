"""What do secrets of targets hold? Read when needed, kept for a minute, and never shown."""

import asyncio
import binascii
import time
from base64 import b64decode
from pathlib import Path

from lictor.addons.web.notifications.settings import SecretSource
from lictor.core.errors import ApiError, NotFoundError, UndeliveredError
from lictor.kubernetes.client import Client
from lictor.kubernetes.resource import SECRET

_KEPT_SECONDS = 60.0
_LARGEST = 256 * 1024


class SecretReader:
    """Reads Secrets of one namespace, and files. Belongs to one event loop."""

    def __init__(self, client: Client | None, namespace: str) -> None:
        self._client = client
        self._namespace = namespace
        self._kept: dict[SecretSource, tuple[float, str]] = {}

    async def read(self, source: SecretSource) -> str:
        """Its text without line ends around it; UndeliveredError where there is none."""
        until, kept = self._kept.get(source, (0.0, ""))
        if time.monotonic() < until:
            return kept
        text = await self._read(source)
        self._kept[source] = time.monotonic() + _KEPT_SECONDS, text
        return text

    def forget(self) -> None:
        """Someone was refused with what is kept: it may have been replaced meanwhile."""
        self._kept.clear()

    async def _read(self, source: SecretSource) -> str:
        reference = source.secret_key_ref
        if reference is None:
            data, name = await asyncio.to_thread(_read_file, source.file), f"file {source.file}"
        else:
            name = f"key {reference.key} of Secret {self._namespace}/{reference.name}"
            data = await self._read_key(reference.name, reference.key, name)
        try:
            text = data.decode().strip("\r\n")
        except UnicodeDecodeError:
            raise UndeliveredError(f"{name} holds no text") from None
        if not text:
            raise UndeliveredError(f"{name} is empty")
        return text

    async def _read_key(self, secret: str, key: str, name: str) -> bytes:
        if self._client is None:
            raise UndeliveredError(f"{name} cannot be read: there is no cluster; name a file")
        try:
            found = await self._client.get(SECRET, secret, self._namespace)
        except NotFoundError:
            raise UndeliveredError(f"there is no Secret {self._namespace}/{secret}") from None
        except ApiError as error:
            # Its text is the API server's, which does not show what Secrets hold.
            raise UndeliveredError(f"{name} cannot be read: {str(error)[:200]}") from None
        data = found.get("data")
        encoded = data.get(key) if isinstance(data, dict) else None
        if not isinstance(encoded, str):
            raise UndeliveredError(f"Secret {self._namespace}/{secret} has no key {key}")
        try:
            return b64decode(encoded, validate=True)
        except binascii.Error:
            raise UndeliveredError(f"{name} cannot be decoded") from None


def _read_file(path: str) -> bytes:
    try:
        with Path(path).open("rb") as file:
            data = file.read(_LARGEST + 1)
    except OSError as error:
        raise UndeliveredError(f"file {path} cannot be read: {error.strerror}") from None
    if len(data) > _LARGEST:
        raise UndeliveredError(f"file {path} is too large for a secret")
    return data
