"""The API server: a port, who may come in, and whom they are sent to."""

import asyncio
import contextlib
import logging
import secrets
import socket
import ssl
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from http import HTTPStatus
from pathlib import Path
from typing import TypeAlias

import msgspec
import orjson

from lictor.addons.apiserver.access.access_reviews import AccessReviews
from lictor.addons.apiserver.access.authentication import HEADERS, IMPERSONATE_EXTRA, Authentication
from lictor.addons.apiserver.access.authorization import Authorization
from lictor.addons.apiserver.admission.chain import AdmissionChain
from lictor.addons.apiserver.bootstrap import create_bootstrap_objects
from lictor.addons.apiserver.context import ServerContext
from lictor.addons.apiserver.controllers.definitions import DefinitionController
from lictor.addons.apiserver.controllers.garbage_collector import GarbageCollector
from lictor.addons.apiserver.controllers.kind_controllers import (
    AGGREGATOR,
    STATUS_KEEPER,
    PolicyStatusController,
    RoleAggregation,
)
from lictor.addons.apiserver.controllers.namespaces import NamespaceController
from lictor.addons.apiserver.handlers import JSON_TYPE, RequestHandlers, write_warnings
from lictor.addons.apiserver.kind import ObjectReader
from lictor.addons.apiserver.kinds.catalogue import KindCatalogue, build_catalogue
from lictor.addons.apiserver.kinds.discovery import Documents
from lictor.addons.apiserver.loopback_client import LoopbackClient
from lictor.addons.apiserver.persistence import Database, SqliteJournal, open_store
from lictor.addons.apiserver.request import ApiUser, find_route, is_resource_path
from lictor.addons.apiserver.service_account_tokens import ServiceTokens, TokenRequests
from lictor.addons.apiserver.status_errors import build_status, internal_error
from lictor.addons.apiserver.store import Store
from lictor.addons.apiserver.subresources import SubresourceHandlers
from lictor.addons.apiserver.watches import Watches
from lictor.core.errors import RefusedRequestError, UsageError
from lictor.core.raw import Json, JsonObject
from lictor.http.listener import Listener
from lictor.http.messages import HttpRequest, HttpResponse, StreamedResponse
from lictor.http.server import HttpServer

# Runs until it is cancelled.
ControllerLoop: TypeAlias = Callable[[], Awaitable[None]]


def build_controllers(
    api: LoopbackClient, store: Store, catalogue: KindCatalogue, authority: str
) -> tuple[ControllerLoop, ...]:
    """All of them; `authority` is the certificate by which clients know the server."""
    reader = ObjectReader(store, catalogue)
    roles = _build_write(api, catalogue, AGGREGATOR, "")
    statuses = _build_write(api, catalogue, STATUS_KEEPER, "status")
    return (
        NamespaceController(api, store, catalogue, authority).run,
        GarbageCollector(api, store, catalogue).run,
        RoleAggregation(reader, roles).run,
        PolicyStatusController(reader, statuses).run,
    )


def _build_write(
    api: LoopbackClient, catalogue: KindCatalogue, user: ApiUser, subresource: str
) -> Callable[[JsonObject], Awaitable[object]]:
    async def write(document: JsonObject) -> object:
        kind = catalogue.find_kind(document["apiVersion"], document["kind"])
        if kind is None:
            return None
        return await api.update(user, kind, document, subresource=subresource)

    return write


log = logging.getLogger(__name__)
_MAX_BODY = 3 * 1024 * 1024
_DRAIN_SECONDS = 2.0
_BACKLOG = 1024
_KEPT_HEADERS = HEADERS | {b"accept", b"user-agent"}
_LOOPBACK = frozenset(("127.0.0.1", "::1", "localhost"))
_TOKEN_KEY = "token-key"  # noqa: S105  (the name of the setting)
# Anonymous clients may call these, so no reason is given. A restart would not help: `/livez` is ok.
_READINESS = frozenset(("/healthz", "/readyz"))
_NOT_READY = b"[-]storage failed: reason withheld\ncheck failed\n"


class ServerSettings(msgspec.Struct, frozen=True):
    """Where to listen, whom to know, and where to keep things."""

    address: str = "127.0.0.1"
    # 0: any that is free.
    port: int = 0
    # Files of the server's certificate and key; without them it speaks plain HTTP.
    certificate: Path | None = None
    key: Path | None = None
    # Client certificates of this authority are accepted.
    client_authority: Path | None = None
    tokens: Mapping[str, ApiUser] = {}
    # None: all is forgotten at the end.
    database: Path | None = None
    # A port that is bound already, instead of the address.
    listener: socket.socket | None = None
    # A second door, without TLS, for other processes of this program; on loopback only.
    plain_listener: socket.socket | None = None


class Server:
    """All parts, put together."""

    def __init__(self, settings: ServerSettings) -> None:
        _check_exposure(settings)
        self._settings = settings
        self._database = None if settings.database is None else Database(settings.database)
        self.store, self._journal = _open_store(self._database)
        self.catalogue = build_catalogue()
        reader = ObjectReader(self.store, self.catalogue)
        self._authorization = Authorization(self.store, self.catalogue)
        service_tokens = ServiceTokens(_find_key(self._database), reader)
        self._authentication = Authentication(self._authorization, service_tokens, settings.tokens)
        self._admission = AdmissionChain(self.store, self.catalogue, self._authorization)
        context = ServerContext(self.store, self.catalogue, self._authorization, self._admission)
        self.api = LoopbackClient(context)
        self._definitions = DefinitionController(self.api, self.store, self.catalogue)
        self.watches = Watches(context)
        subresources = SubresourceHandlers(context, self.api, TokenRequests(reader, service_tokens))
        reviews = AccessReviews(self._authentication, self._authorization, service_tokens)
        self._handlers = RequestHandlers(context, self.api, self.watches, subresources, reviews)
        self._documents = Documents(self.catalogue, f"{settings.address}:{settings.port}")
        self._http = HttpServer(
            self._answer,
            max_body=_MAX_BODY,
            keeps_headers=_KEPT_HEADERS,
            keeps_prefix=IMPERSONATE_EXTRA,
        )
        self._port = settings.port
        self._socket: socket.socket | None = None
        self._listeners: list[Listener] = []
        self._tasks: list[asyncio.Task[None]] = []

    @property
    def url(self) -> str:
        """Where clients find it."""
        scheme = "http" if self._settings.certificate is None else "https"
        host = self._settings.address
        return f"{scheme}://{f'[{host}]' if ':' in host else host}:{self._port}"

    async def prepare(self) -> socket.socket:
        """Bind the port, and make what every cluster has; clients wait at the port from now on."""
        if self._socket is None:
            self._socket = self._settings.listener or _bind(self._settings)
            self._port = self._socket.getsockname()[1]
            await create_bootstrap_objects(self.api, self.store, self.catalogue, self._port)
        return self._socket

    async def start(self) -> None:
        """Listen and start the controllers; returns when the server accepts requests."""
        bound = await self.prepare()
        self._open(bound, _make_context(self._settings))
        if self._settings.plain_listener is not None:
            self._open(self._settings.plain_listener, None)
        self._keep(self._http.sweep())
        trusted = _read_authority(self._settings)
        controllers = build_controllers(self.api, self.store, self.catalogue, trusted)
        for controller in (self._definitions.run, *controllers):
            self._keep(_run_controller(controller))

    def _open(self, bound: socket.socket, context: ssl.SSLContext | None) -> None:
        listener = Listener(bound, self._http, context)
        self._listeners.append(listener)
        self._keep(listener.run())

    def _keep(self, work: Coroutine[Json, Json, None]) -> None:
        self._tasks.append(asyncio.get_running_loop().create_task(work))

    async def stop(self) -> None:
        """End in good order: what was acknowledged is kept."""
        for listener in self._listeners:
            listener.stop(for_all=True)
        self.watches.end_all()
        await self._http.drain(_DRAIN_SECONDS)
        for task in self._tasks:
            task.cancel()
        for task in self._tasks:
            with contextlib.suppress(asyncio.CancelledError):
                await task
        for bound in (self._socket, self._settings.plain_listener):
            if bound is not None:
                bound.close()
        await self._admission.close()
        if self._journal is not None:
            await self._journal.close()

    async def _answer(self, call: HttpRequest) -> HttpResponse | StreamedResponse:
        try:
            user = self._authentication.identify(call)
            if is_resource_path(call.path):
                return await self._handlers.answer(
                    call, user, find_route(self.catalogue, call.path)
                )
            return self._answer_document(call, user)
        except RefusedRequestError as error:
            return _reply_refusal(error)
        except RecursionError:
            return _reply_refusal(internal_error("the request is nested too deeply"))
        except Exception:
            log.exception("request failed", extra={"path": call.path, "method": call.method})
            return _reply_refusal(internal_error("this should not have happened"))

    def _answer_document(self, call: HttpRequest, user: ApiUser) -> HttpResponse:
        self._authorization.check_path(user, call.method.lower(), call.path)
        if call.path in _READINESS and self._journal is not None and self._journal.problem:
            return HttpResponse(HTTPStatus.INTERNAL_SERVER_ERROR, _NOT_READY)
        accept = b",".join(call.headers.get(b"accept", ())).decode("latin-1")
        found = self._documents.find(call.path, accept)
        if found is None or call.method not in ("GET", "HEAD"):
            return HttpResponse(HTTPStatus.NOT_FOUND, b"404 page not found\n")
        return HttpResponse(HTTPStatus.OK, found.body, found.content_type)


async def _run_controller(controller: ControllerLoop) -> None:
    """Log the failure of a controller; the server continues without it."""
    try:
        await controller()
    except Exception:
        log.exception("the server no longer looks after something")


def _open_store(database: Database | None) -> tuple[Store, SqliteJournal | None]:
    return (Store(), None) if database is None else open_store(database)


def _find_key(database: Database | None) -> bytes:
    """The key of tokens: they stay good as long as the objects do."""
    found = None if database is None else database.read_setting(_TOKEN_KEY)
    if found is not None:
        return found
    made = secrets.token_bytes(32)
    if database is not None:
        database.write_setting(_TOKEN_KEY, made)
    return made


def _check_exposure(settings: ServerSettings) -> None:
    door = settings.plain_listener
    if door is not None and door.getsockname()[0] not in _LOOPBACK:
        raise UsageError("without TLS the server only listens on this machine")
    if settings.address in _LOOPBACK:
        return
    knows = settings.tokens or settings.client_authority
    if settings.certificate is None or not knows:
        raise UsageError(
            f"to listen on {settings.address}, the server needs a certificate, and tokens or an "
            "authority to know its clients by; without them it only listens on this machine"
        )


def _bind(settings: ServerSettings) -> socket.socket:
    family = socket.AF_INET6 if ":" in settings.address else socket.AF_INET
    return socket.create_server((settings.address, settings.port), family=family, backlog=_BACKLOG)


def _read_authority(settings: ServerSettings) -> str:
    """The certificate by which clients in the cluster know the server."""
    path = settings.client_authority or settings.certificate
    return "" if path is None else path.read_text()


def _make_context(settings: ServerSettings) -> ssl.SSLContext | None:
    if settings.certificate is None:
        return None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.load_cert_chain(settings.certificate, settings.key)
    if settings.client_authority is not None:
        context.load_verify_locations(settings.client_authority)
        context.verify_mode = ssl.CERT_OPTIONAL
    return context


def _reply_refusal(error: RefusedRequestError) -> HttpResponse:
    body = orjson.dumps(build_status(error)) + b"\n"
    headers = write_warnings(error.warnings)
    if seconds := (error.details or {}).get("retryAfterSeconds"):
        headers.append((b"retry-after", str(seconds).encode()))
    return HttpResponse(_choose_status(error.code), body, JSON_TYPE, headers=tuple(headers))


def _choose_status(code: int) -> HTTPStatus:
    """The code of a refusal; a webhook may have thought of one that HTTP does not have."""
    try:
        return HTTPStatus(code)
    except ValueError:
        is_client = HTTPStatus.BAD_REQUEST <= code < HTTPStatus.INTERNAL_SERVER_ERROR
        return HTTPStatus.BAD_REQUEST if is_client else HTTPStatus.INTERNAL_SERVER_ERROR
