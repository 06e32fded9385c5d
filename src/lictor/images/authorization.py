"""Registry authentication: challenges, tokens and their lifetime."""

import re
import time
from base64 import b64encode
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from typing import TypeAlias
from urllib.parse import urlencode

import msgspec
import orjson

from lictor.core.errors import LookupFailedError
from lictor.core.ports import RegistryAccess
from lictor.core.raw import Json
from lictor.http.client import ClientResponse
from lictor.images.credentials import RegistryCredential
from lictor.images.pool import RegistryServer
from lictor.images.repository_name import Repository, is_loopback
from lictor.images.transport import RegistryRequest, split_url

_CHALLENGE = re.compile(r"(?:^|,\s*)(?P<scheme>Bearer|Basic)\b", re.IGNORECASE)
# re: linear - the first failure ends the scan
_PARAMETER = re.compile(
    r"\s*(?:,\s*)?(?P<name>[A-Za-z_]+)\s*=\s*"
    r'(?:"(?P<quoted>(?:[^"\\]|\\.)*)"|(?P<plain>[^\s,"]+))'
)
_MOST_TOKENS = 4096
_MOST_TOKEN_BYTES = 64 * 1024
# The default lifetime of a token in the specification.
_USUAL_SECONDS = 60.0
_LONGEST_SECONDS = 3600.0
_FORM = "application/x-www-form-urlencoded"
# The scope of a token: read, or read and write.
PULL = "pull"
PUSH = "pull,push"

Send: TypeAlias = Callable[[RegistryRequest], Awaitable[ClientResponse]]


class RegistryPermission(msgspec.Struct, frozen=True):
    """The credentials and the intended access to a repository."""

    server: RegistryServer
    repository: Repository
    access: RegistryAccess
    actions: str = PULL


class Challenge(msgspec.Struct, frozen=True):
    """The authentication that a registry requires."""

    scheme: str
    realm: str = ""
    service: str = ""


def parse_challenge(header: str) -> Challenge | None:
    """The supported challenge: Bearer before Basic; None if there is neither."""
    found: dict[str, Challenge] = {}
    for match in _CHALLENGE.finditer(header):
        scheme = match["scheme"].lower()
        parameters = _read_parameters(header, match.end())
        found[scheme] = Challenge(
            scheme, parameters.get("realm", ""), parameters.get("service", "")
        )
    return found.get("bearer") or found.get("basic")


def _read_parameters(header: str, start: int) -> dict[str, str]:
    parameters: dict[str, str] = {}
    while match := _PARAMETER.match(header, start):
        value = match["quoted"] if match["quoted"] is not None else match["plain"]
        parameters[match["name"].lower()] = re.sub(r"\\(.)", r"\1", value)
        start = match.end()
    return parameters


class Authorizer:
    """Caches the authorization header, for each repository and credential."""

    def __init__(self, send: Send) -> None:
        self._send = send
        # Expiry time, and value.
        self._kept: OrderedDict[RegistryPermission, tuple[float, str]] = OrderedDict()

    def recall(self, permission: RegistryPermission) -> str:
        """The header that worked before; empty if there is none."""
        until, header = self._kept.get(permission, (0.0, ""))
        return header if time.monotonic() < until else ""

    def forget(self, permission: RegistryPermission) -> None:
        self._kept.pop(permission, None)

    async def meet(
        self,
        header: str,
        request: RegistryRequest,
        permission: RegistryPermission,
        credential: RegistryCredential | None,
    ) -> str:
        """The header for a challenge; empty if it cannot be met."""
        challenge = parse_challenge(header)
        seconds = _LONGEST_SECONDS
        if challenge is None:
            return ""
        if credential is not None and credential.registry_token:
            made = f"Bearer {credential.registry_token}"
        elif challenge.scheme == "basic":
            made = _write_basic(credential)
        else:
            token, seconds = await self._fetch_token(challenge, request, permission, credential)
            made = f"Bearer {token}"
        if made:
            self._keep(permission, made, seconds)
        return made

    def _keep(self, key: RegistryPermission, header: str, seconds: float) -> None:
        self._kept[key] = time.monotonic() + seconds, header
        self._kept.move_to_end(key)
        if len(self._kept) > _MOST_TOKENS:
            self._kept.popitem(last=False)

    async def _fetch_token(
        self,
        challenge: Challenge,
        request: RegistryRequest,
        permission: RegistryPermission,
        credential: RegistryCredential | None,
    ) -> tuple[str, float]:
        token_request = _write_token_request(challenge, request, permission, credential)
        response = await self._send(token_request)
        if response.status_code != 200:
            raise LookupFailedError(
                f"{request.name}: {token_request.server.authority} returned no token but HTTP "
                f"{response.status_code}: check the credentials"
            )
        return _read_token(response.content, token_request.server.authority)


def _write_basic(credential: RegistryCredential | None) -> str:
    if credential is None or not (credential.username or credential.password):
        return ""
    pair = f"{credential.username}:{credential.password}"
    return f"Basic {b64encode(pair.encode()).decode()}"


def _write_token_request(
    challenge: Challenge,
    request: RegistryRequest,
    permission: RegistryPermission,
    credential: RegistryCredential | None,
) -> RegistryRequest:
    server, target = split_url(challenge.realm, request.name, request.server)
    _check_realm(server, request)
    # Regardless of the registry's proposal: only the needed access to this repository.
    scope = f"repository:{permission.repository.path}:{permission.actions}"
    words = {"service": challenge.service, "scope": scope}
    name = f"{request.name}: a token of {server.authority}"
    if credential is not None and credential.identity_token:
        form = {
            **words,
            "grant_type": "refresh_token",
            "client_id": "lictor",
            "refresh_token": credential.identity_token,
        }
        body = urlencode(form).encode()
        return RegistryRequest(server, target, name, method="POST", body=body, content_type=_FORM)
    query = urlencode({key: value for key, value in words.items() if value})
    target += ("&" if "?" in target else "?") + query
    return RegistryRequest(server, target, name, authorization=_write_basic(credential))


def _check_realm(server: RegistryServer, request: RegistryRequest) -> None:
    """Do not send passwords and tokens unencrypted, unless the registry itself has no TLS."""
    registry = request.server
    if server.is_secure or (server.host == registry.host and not registry.is_secure):
        return
    if is_loopback(server.host) and is_loopback(registry.host):
        return
    raise LookupFailedError(
        f"{request.name}: the registry requires a token of {server.authority} without HTTPS"
    )


def _read_token(content: bytes, authority: str) -> tuple[str, float]:
    try:
        found: Json = orjson.loads(content) if len(content) <= _MOST_TOKEN_BYTES else None
    except orjson.JSONDecodeError:
        found = None
    if not isinstance(found, dict):
        raise LookupFailedError(f"{authority} returned no token")
    token = found.get("token") or found.get("access_token")
    if not isinstance(token, str) or not token.isascii() or not token.isprintable():
        raise LookupFailedError(f"{authority} returned no token")
    seconds = found.get("expires_in")
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or seconds <= 0:
        seconds = _USUAL_SECONDS
    # A little less than its lifetime, for the latency of both requests.
    return token, min(seconds, _LONGEST_SECONDS) * 0.9
