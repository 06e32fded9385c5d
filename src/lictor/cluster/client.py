"""The verbs of the Kubernetes API, as one small asynchronous client."""

import asyncio
import random
import ssl
import tempfile
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from enum import StrEnum
from typing import TypeAlias

import httpx
import msgspec
import orjson

from lictor.cluster.config import ClusterConfig
from lictor.cluster.resource import Resource
from lictor.errors import ApiError, ConflictError, GoneError, NotFoundError, UnreachableError
from lictor.raw import Json, JsonObject

Params: TypeAlias = Mapping[str, str | int]

_PAGE = 500
_TIMEOUT = 10.0
_CONNECTIONS = 64
# How long the server's "too many requests" is waited for before the caller hears of it.
_PATIENCE = 5.0
_WATCH_SECONDS = 290
_MAX_LINE = 64 * 1024 * 1024


class PatchKind(StrEnum):
    """The content types of a patch."""

    JSON = "application/json-patch+json"
    MERGE = "application/merge-patch+json"
    STRATEGIC = "application/strategic-merge-patch+json"
    APPLY = "application/apply-patch+yaml"


class WatchEvent(msgspec.Struct, frozen=True):
    """What a watch tells: ADDED, MODIFIED, DELETED or BOOKMARK, and the object."""

    type: str
    object: JsonObject


class Client:
    """Speaks to one API server. Belongs to one event loop."""

    def __init__(self, config: ClusterConfig, *, field_manager: str = "lictor") -> None:
        self.config = config
        self.field_manager = field_manager
        context = build_ssl_context(config)
        self._http = _build_http(config, context, _CONNECTIONS)
        # A watch holds its connection for minutes: it must not starve the other requests.
        self._watches = _build_http(config, context, None)
        self._quiet_until = 0.0

    async def close(self) -> None:
        await self._http.aclose()
        await self._watches.aclose()

    async def request(
        self,
        method: str,
        path: str,
        *,
        body: Json = None,
        params: Params | None = None,
        content_type: str = "application/json",
        timeout: float = _TIMEOUT,  # noqa: ASYNC109  (the limit of one HTTP request)
    ) -> Json:
        """One request and its JSON answer; raises ApiError for whatever is no success."""
        content = None if body is None else orjson.dumps(body)
        headers = {"content-type": content_type} if content is not None else {}
        patience = time.monotonic() + min(_PATIENCE, timeout)
        renew = False
        while True:
            await self._wait_for_quiet(patience)
            response = await self._send(method, path, content, headers, params, timeout, renew)
            if response.status_code == 401 and self.config.token is not None and not renew:
                renew = True
                continue
            if response.status_code == 429 and time.monotonic() < patience:
                self._heed(response)
                continue
            return _read_answer(response)

    async def _send(  # noqa: PLR0913, PLR0917  (one HTTP request has so many parts)
        self,
        method: str,
        path: str,
        content: bytes | None,
        headers: Mapping[str, str],
        params: Params | None,
        limit: float,
        renew: bool,  # noqa: FBT001
    ) -> httpx.Response:
        try:
            return await self._http.request(
                method,
                path,
                content=content,
                params=params,
                headers={**headers, **await self._authorize(renew=renew)},
                timeout=limit,
            )
        except (httpx.HTTPError, OSError) as error:
            raise UnreachableError(
                f"{method} {path}: {type(error).__name__} {error}".rstrip()
            ) from error

    async def _authorize(self, *, renew: bool = False) -> dict[str, str]:
        headers: dict[str, str] = {}
        if self.config.token is not None:
            token = await asyncio.to_thread(self.config.token, renew)
            headers["authorization"] = f"Bearer {token}"
        if self.config.impersonate:
            headers["impersonate-user"] = self.config.impersonate
        return headers

    def _heed(self, response: httpx.Response) -> None:
        wait = _read_retry_after(response) or 1.0
        self._quiet_until = max(self._quiet_until, time.monotonic() + wait)

    async def _wait_for_quiet(self, patience: float) -> None:
        pause = min(self._quiet_until, patience) - time.monotonic()
        if pause > 0:
            # Spread, so that everyone who was told to wait does not come back at once.
            await asyncio.sleep(pause + random.uniform(0, 0.2))  # noqa: S311

    async def get(self, resource: Resource, name: str, namespace: str = "") -> JsonObject:
        """One object; NotFoundError where it is not."""
        return _expect_object(await self.request("GET", resource.path(namespace, name)))

    async def find(self, resource: Resource, name: str, namespace: str = "") -> JsonObject | None:
        """One object, or None where it is not."""
        try:
            return await self.get(resource, name, namespace)
        except NotFoundError:
            return None

    async def list_pages(
        self,
        resource: Resource,
        namespace: str = "",
        *,
        labels: str = "",
        fields: str = "",
        page: int = _PAGE,
    ) -> AsyncIterator[JsonObject]:
        """The List answers of a collection, page by page; items have apiVersion and kind."""
        params: dict[str, str | int] = {"limit": page, **_select(labels, fields)}
        while True:
            answer = _expect_object(
                await self.request("GET", resource.path(namespace), params=params, timeout=60.0)
            )
            for item in answer.get("items") or ():
                item.setdefault("apiVersion", resource.api_version)
                item.setdefault("kind", resource.kind)
            yield answer
            token = (answer.get("metadata") or {}).get("continue")
            if not token:
                return
            params["continue"] = token

    async def list(
        self, resource: Resource, namespace: str = "", *, labels: str = "", fields: str = ""
    ) -> list[JsonObject]:
        """All objects of a collection; for collections that are known to be small."""
        items: list[JsonObject] = []
        async for page in self.list_pages(resource, namespace, labels=labels, fields=fields):
            items += page.get("items") or ()
        return items

    async def create(self, resource: Resource, body: JsonObject, namespace: str = "") -> JsonObject:
        """Create an object; ConflictError where one of its name exists."""
        where = namespace or _namespace_of(body)
        return _expect_object(
            await self.request("POST", resource.path(where), body=body, params=self._manager())
        )

    async def replace(
        self, resource: Resource, body: JsonObject, *, subresource: str = ""
    ) -> JsonObject:
        """Put a whole object; ConflictError where it has changed since it was read."""
        path = resource.path(_namespace_of(body), body["metadata"]["name"], subresource)
        return _expect_object(await self.request("PUT", path, body=body, params=self._manager()))

    async def patch(
        self,
        resource: Resource,
        name: str,
        patch: Json,
        *,
        namespace: str = "",
        kind: PatchKind = PatchKind.MERGE,
        subresource: str = "",
    ) -> JsonObject:
        """Change parts of an object."""
        return _expect_object(
            await self.request(
                "PATCH",
                resource.path(namespace, name, subresource),
                body=patch,
                params=self._manager(),
                content_type=kind,
            )
        )

    async def apply(
        self, resource: Resource, body: JsonObject, *, force: bool = True, subresource: str = ""
    ) -> JsonObject:
        """Server-side apply: the fields in `body` become ours, the others stay as they are."""
        path = resource.path(_namespace_of(body), body["metadata"]["name"], subresource)
        body = {"apiVersion": resource.api_version, "kind": resource.kind, **body}
        params = {**self._manager(), "force": "true" if force else "false"}
        return _expect_object(
            await self.request(
                "PATCH", path, body=body, params=params, content_type=PatchKind.APPLY
            )
        )

    async def delete(
        self,
        resource: Resource,
        name: str,
        namespace: str = "",
        *,
        propagation: str = "",
        preconditions: Mapping[str, str] | None = None,
    ) -> bool:
        """Delete an object; False where it was gone. Preconditions: uid, resourceVersion."""
        options: JsonObject = {"apiVersion": "v1", "kind": "DeleteOptions"}
        if propagation:
            options["propagationPolicy"] = propagation
        if preconditions:
            options["preconditions"] = dict(preconditions)
        try:
            await self.request("DELETE", resource.path(namespace, name), body=options)
        except NotFoundError:
            return False
        return True

    async def watch(
        self,
        resource: Resource,
        *,
        since: str,
        namespace: str = "",
        labels: str = "",
        fields: str = "",
    ) -> AsyncIterator[WatchEvent]:
        """Changes since a resource version until the server ends it; GoneError if too old."""
        seconds = random.randint(_WATCH_SECONDS // 2, _WATCH_SECONDS)  # noqa: S311
        params: dict[str, str | int] = {
            "watch": "true",
            "resourceVersion": since,
            "allowWatchBookmarks": "true",
            "timeoutSeconds": seconds,
            **_select(labels, fields),
        }
        async with self._stream(resource.path(namespace), params, seconds + 15.0) as response:
            async for line in _read_lines(response):
                event = orjson.loads(line)
                if event.get("type") == "ERROR":
                    raise _build_error(event.get("object") or {}, 0)
                yield WatchEvent(event["type"], event["object"])

    @asynccontextmanager
    async def _stream(
        self, path: str, params: Params, read_timeout: float
    ) -> AsyncIterator[httpx.Response]:
        try:
            async with self._watches.stream(
                "GET",
                path,
                params=params,
                headers=await self._authorize(),
                timeout=httpx.Timeout(_TIMEOUT, read=read_timeout),
            ) as response:
                if response.status_code >= 400:
                    await response.aread()
                    _read_answer(response)
                yield response
        except (httpx.HTTPError, OSError) as error:
            raise UnreachableError(f"watch of {path}: {type(error).__name__} {error}") from error

    def _manager(self) -> dict[str, str | int]:
        return {"fieldManager": self.field_manager}


def build_ssl_context(config: ClusterConfig) -> ssl.SSLContext:
    """TLS towards the API server: its authority, and our certificate where there is one."""
    context = ssl.create_default_context(cadata=config.ca or None)
    if not config.verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    if config.certificate:
        # The ssl module reads keys from files only.
        with tempfile.NamedTemporaryFile("w", suffix=".pem") as file:
            file.write(f"{config.certificate.strip()}\n{config.key.strip()}\n")
            file.flush()
            context.load_cert_chain(file.name)
    return context


def _build_http(
    config: ClusterConfig, context: ssl.SSLContext, connections: int | None
) -> httpx.AsyncClient:
    return httpx.AsyncClient(
        base_url=config.server,
        verify=context,
        proxy=config.proxy or None,
        trust_env=False,
        headers={"accept": "application/json", "user-agent": "lictor"},
        limits=httpx.Limits(max_connections=connections, max_keepalive_connections=connections),
        timeout=_TIMEOUT,
    )


async def _read_lines(response: httpx.Response) -> AsyncIterator[bytes]:
    rest = b""
    async for chunk in response.aiter_bytes():
        *lines, rest = (rest + chunk).split(b"\n")
        for line in lines:
            if line:
                yield line
        if len(rest) > _MAX_LINE:
            raise UnreachableError("a watch event of more than 64 MiB")


def _select(labels: str, fields: str) -> dict[str, str]:
    chosen = {"labelSelector": labels, "fieldSelector": fields}
    return {name: text for name, text in chosen.items() if text}


def _namespace_of(body: JsonObject) -> str:
    namespace = (body.get("metadata") or {}).get("namespace")
    return namespace if isinstance(namespace, str) else ""


def _expect_object(answer: Json) -> JsonObject:
    if isinstance(answer, dict):
        return answer
    raise ApiError("the API server answered with something that is no object")


def _read_answer(response: httpx.Response) -> Json:
    try:
        answer = orjson.loads(response.content) if response.content else None
    except orjson.JSONDecodeError:
        answer = response.text
    if response.status_code < 400:
        return answer
    error = _build_error(answer, response.status_code)
    error.retry_after = _read_retry_after(response)
    raise error


def _build_error(answer: Json, status: int) -> ApiError:
    said = answer if isinstance(answer, dict) else {"message": str(answer or "no reason given")}
    code = said.get("code")
    status = code if isinstance(code, int) else status
    reason = str(said.get("reason") or "")
    kinds: dict[int, type[ApiError]] = {404: NotFoundError, 409: ConflictError, 410: GoneError}
    kind = kinds.get(status, GoneError if reason == "Expired" else ApiError)
    return kind(str(said.get("message") or reason), status=status, reason=reason)


def _read_retry_after(response: httpx.Response) -> float | None:
    try:
        return float(response.headers["retry-after"])
    except (KeyError, ValueError):
        return None
