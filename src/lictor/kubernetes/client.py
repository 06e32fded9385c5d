"""The verbs of the Kubernetes API, as one small asynchronous client."""

import asyncio
import random
import time
from collections.abc import AsyncIterator, Callable, Mapping
from enum import StrEnum

import httpx2
import msgspec
import orjson
from msgspec.structs import replace

from lictor.core.errors import ApiError, ConflictError, GoneError, NotFoundError, UnreachableError
from lictor.core.raw import Json, JsonObject
from lictor.http.client import ClientResponse
from lictor.kubernetes.config import ClusterConfig
from lictor.kubernetes.connection import TIMEOUT, ApiConnection, ApiRequest, Params
from lictor.kubernetes.resource import Resource

_PAGE = 500
_METADATA_LIST = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
# How long to retry after "too many requests" before the caller gets the error.
_PATIENCE = 5.0
_WATCH_SECONDS = 290
_MAX_LINE = 64 * 1024 * 1024
# Lease renewals are never delayed by the rate limit: the holder would lose its lease.
_LEASES = "/apis/coordination.k8s.io/"


class PatchType(StrEnum):
    """The content types of a patch."""

    JSON = "application/json-patch+json"
    MERGE = "application/merge-patch+json"
    STRATEGIC = "application/strategic-merge-patch+json"
    APPLY = "application/apply-patch+yaml"


class WatchEvent(msgspec.Struct, frozen=True):
    """A watch event: ADDED, MODIFIED, DELETED or BOOKMARK, and the object."""

    type: str
    object: JsonObject


class TokenBucket:
    """A rate per second, and a burst; zero is no limit."""

    def __init__(
        self, rate: float, burst: int, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._rate = rate
        self._burst = max(burst, 1)
        self._clock = clock
        self._tokens = float(self._burst)
        self._at = clock()

    async def take(self) -> None:
        """Wait for a token."""
        if self._rate <= 0:
            return
        now = self._clock()
        self._tokens = min(self._burst, self._tokens + (now - self._at) * self._rate)
        self._at = now
        # Below zero is a debt: later callers wait longer.
        self._tokens -= 1
        if self._tokens < 0:
            await asyncio.sleep(-self._tokens / self._rate)


class Client:
    """A client of one API server. Belongs to one event loop."""

    def __init__(
        self,
        config: ClusterConfig,
        *,
        field_manager: str = "lictor",
        rate: TokenBucket | None = None,
    ) -> None:
        """`rate`: requests per second, including watches; None: no limit."""
        self.config = config
        self._rate = rate
        self.field_manager = field_manager
        self._connection = ApiConnection(config)
        self._quiet_until = 0.0

    async def close(self) -> None:
        await self._connection.close()

    async def request(  # noqa: PLR0913  (one HTTP request has so many parts)
        self,
        method: str,
        path: str,
        *,
        body: Json = None,
        params: Params | None = None,
        content_type: str = "application/json",
        accept: str = "",
        timeout: float = TIMEOUT,  # noqa: ASYNC109  (the limit of one HTTP request)
    ) -> Json:
        """Send a request and return its JSON response; raises ApiError unless it succeeded."""
        content = None if body is None else orjson.dumps(body)
        outgoing = ApiRequest(method, path, content, content_type, params, timeout, accept)
        patience = time.monotonic() + min(_PATIENCE, timeout)
        may_renew = self.config.token is not None or self.config.identity is not None
        renew = False
        if self._rate is not None and not path.startswith(_LEASES):
            await self._rate.take()
        while True:
            await self._wait_for_quiet(patience)
            response = await self._connection.send(outgoing, renew=renew)
            if response.status_code == 401 and may_renew and not renew:
                renew = True
                continue
            if response.status_code == 429 and time.monotonic() < patience:
                self._heed(response)
                continue
            return _read_answer(response)

    def _heed(self, response: httpx2.Response | ClientResponse) -> None:
        wait = _read_retry_after(response) or 1.0
        self._quiet_until = max(self._quiet_until, time.monotonic() + wait)

    async def _wait_for_quiet(self, patience: float) -> None:
        pause = min(self._quiet_until, patience) - time.monotonic()
        if pause > 0:
            # Jitter, so that delayed clients do not all return at once.
            await asyncio.sleep(pause + random.uniform(0, 0.2))  # noqa: S311

    async def get(self, resource: Resource, name: str, namespace: str = "") -> JsonObject:
        """One object; raises NotFoundError if it does not exist."""
        return _expect_object(await self.request("GET", resource.path(namespace, name)))

    async def find(self, resource: Resource, name: str, namespace: str = "") -> JsonObject | None:
        """One object; None if it does not exist."""
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
        metadata_only: bool = False,
    ) -> AsyncIterator[JsonObject]:
        """The List responses of a collection, page by page; items have apiVersion and kind."""
        params: dict[str, str | int] = {"limit": page, **_select(labels, fields)}
        path, accept = resource.path(namespace), _METADATA_LIST if metadata_only else ""
        while True:
            answer = _expect_object(
                await self.request("GET", path, params=params, accept=accept, timeout=60.0)
            )
            kind = resource.kind or str(answer.get("kind") or "").removesuffix("List")
            for item in answer.get("items") or ():
                item.setdefault("apiVersion", resource.api_version)
                item.setdefault("kind", kind)
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

    async def count(self, resource: Resource, namespace: str = "") -> int:
        """The current number of objects in a collection."""
        pages = self.list_pages(resource, namespace, page=1, metadata_only=True)
        first = await anext(pages)
        rest = (first.get("metadata") or {}).get("remainingItemCount") or 0
        return len(first.get("items") or ()) + int(rest)

    async def create(self, resource: Resource, body: JsonObject, namespace: str = "") -> JsonObject:
        """Create an object; raises ConflictError if it exists."""
        where = namespace or _namespace_of(body)
        return _expect_object(
            await self.request("POST", resource.path(where), body=body, params=self._manager())
        )

    async def replace(
        self, resource: Resource, body: JsonObject, *, subresource: str = ""
    ) -> JsonObject:
        """Replace an object; raises ConflictError if it has changed since it was read."""
        path = resource.path(_namespace_of(body), body["metadata"]["name"], subresource)
        return _expect_object(await self.request("PUT", path, body=body, params=self._manager()))

    async def patch(
        self,
        resource: Resource,
        name: str,
        patch: Json,
        *,
        namespace: str = "",
        kind: PatchType = PatchType.MERGE,
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
        """Server-side apply: lictor becomes owner of the fields in `body`; others are unchanged."""
        path = resource.path(_namespace_of(body), body["metadata"]["name"], subresource)
        body = {"apiVersion": resource.api_version, "kind": resource.kind, **body}
        params = {**self._manager(), "force": "true" if force else "false"}
        return _expect_object(
            await self.request(
                "PATCH", path, body=body, params=params, content_type=PatchType.APPLY
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
        """Delete an object; False if it did not exist. Preconditions: uid, resourceVersion."""
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
        """Changes since a resource version, until the server closes; GoneError if too old."""
        seconds = random.randint(_WATCH_SECONDS // 2, _WATCH_SECONDS)  # noqa: S311
        params: dict[str, str | int] = {
            "watch": "true",
            "resourceVersion": since,
            "allowWatchBookmarks": "true",
            "timeoutSeconds": seconds,
            **_select(labels, fields),
        }
        async with self._connection.stream(
            resource.path(namespace), params, seconds + 15.0
        ) as response:
            if response.status_code >= 400:
                await response.aread()
                _read_answer(response)
            async for line in _read_lines(response):
                yield _read_event(line)

    def _manager(self) -> dict[str, str | int]:
        return {"fieldManager": self.field_manager}


async def _read_lines(response: httpx2.Response) -> AsyncIterator[bytes]:
    rest = b""
    async for chunk in response.aiter_bytes():
        *lines, rest = (rest + chunk).split(b"\n")
        for line in lines:
            if line:
                yield line
        if len(rest) > _MAX_LINE:
            raise UnreachableError("a watch event of more than 64 MiB")


def _read_event(line: bytes) -> WatchEvent:
    try:
        event = orjson.loads(line)
        kind, item = event["type"], event["object"]
    except (orjson.JSONDecodeError, KeyError, TypeError) as error:
        raise UnreachableError("invalid watch event") from error
    if kind == "ERROR" or not isinstance(item, dict):
        raise _build_error(item, 0)
    return WatchEvent(kind, item)


def _select(labels: str, fields: str) -> dict[str, str]:
    chosen = {"labelSelector": labels, "fieldSelector": fields}
    return {name: text for name, text in chosen.items() if text}


def _namespace_of(body: JsonObject) -> str:
    namespace = (body.get("metadata") or {}).get("namespace")
    return namespace if isinstance(namespace, str) else ""


def _expect_object(answer: Json) -> JsonObject:
    if isinstance(answer, dict):
        return answer
    raise ApiError("the API server's response is not an object")


def _read_answer(response: httpx2.Response | ClientResponse) -> Json:
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
    error = kind(str(said.get("message") or reason), status=status, reason=reason)
    details = said.get("details")
    causes = details.get("causes") if isinstance(details, dict) else None
    error.causes = frozenset(
        str(cause.get("reason") or "") for cause in causes or () if isinstance(cause, dict)
    )
    return error


def _read_retry_after(response: httpx2.Response | ClientResponse) -> float | None:
    try:
        return float(response.headers["retry-after"])
    except (KeyError, ValueError):
        return None


_LIST = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
_WATCH = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"


class MetadataClient(Client):
    """For watches of many kinds of which only names, labels and times are needed."""

    def __init__(self, config: ClusterConfig) -> None:
        super().__init__(config)
        self._connection = _MetadataConnection(config)


class _MetadataConnection(ApiConnection):
    # Aggregated APIs may not support partial metadata: then complete objects are sent.

    def _open(self) -> None:
        super()._open()
        self._watches.headers["accept"] = f"{_WATCH},application/json"

    async def send(
        self, outgoing: ApiRequest, *, renew: bool = False
    ) -> httpx2.Response | ClientResponse:
        asked = replace(outgoing, accept=outgoing.accept or f"{_LIST},application/json")
        return await super().send(asked, renew=renew)
