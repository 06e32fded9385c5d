"""The process of the web UI: reads reports, reviews rights, and serves until it is stopped."""

import asyncio
import contextlib
import logging
import signal
import socket
from collections.abc import Callable, Mapping
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING, Final

from lictor.addons.web.access import (
    OwnRights,
    ReportRights,
    ReviewedRights,
    TokenReviews,
    ViewerSource,
)
from lictor.addons.web.app import PageApp
from lictor.addons.web.boards import ClusterBoards, read_boards_file
from lictor.addons.web.options import WebOptions, check_options, load_clusters, name_host
from lictor.addons.web.records import Board, Viewer, VisibleNamespaces
from lictor.addons.web.request_checks import KEPT_HEADERS, SiteRules
from lictor.addons.web.sign_in import CURRENT, AccessKey, SignIn, TokenCheck, choose_cookie
from lictor.addons.web.sources.page_data import PageData
from lictor.core.errors import UsageError
from lictor.http.limits import ListenerLimits
from lictor.http.listener import Listener, open_port
from lictor.http.messages import HttpRequest, HttpResponse
from lictor.http.server import HttpServer, serve_port
from lictor.http.serving_certificate import LiveCertificate, make_temporary
from lictor.kubernetes.client import Client
from lictor.kubernetes.config import ClusterConfig

if TYPE_CHECKING:
    from lictor.addons.web.notifications.notifier import NotificationTask

log = logging.getLogger(__name__)

# A form to sign in is the largest thing that comes.
_MOST_BYTES: Final = 64 * 1024
# Of all requests together: who has not signed in can send them as well.
_MOST_HELD: Final = 16 * 1024 * 1024
_MOST_CONNECTIONS: Final = 768
_METRICS_CONNECTIONS: Final = 32
_LIMITS: Final = ListenerLimits(silent=512, silent_per_address=128, waiting=256)
_LOOK_SECONDS: Final = 10.0
_DRAIN_SECONDS: Final = 2.0


class PageServer:
    """One web UI: bound to its port first, so that its address can be printed."""

    def __init__(self, options: WebOptions, bound: socket.socket | None = None) -> None:
        check_options(options)
        self._options = options
        self._configs = {} if options.reports else load_clusters(options)
        # Read before anything starts, to report errors at once.
        self._boards = read_boards_file(options.boards) if options.boards else ()
        self._notifications = _load_notifications(options)
        self._certificate = _load_certificate(options) if options.is_secure else None
        self._state = _read_files(options.reports) if options.reports else None
        self.bound = bound or _bind(options.address, options.port)
        self.access_key = None if options.requires_login else AccessKey(options.access_key)

    @property
    def port(self) -> int:
        number: int = self.bound.getsockname()[1]
        return number

    @property
    def url(self) -> str:
        """What to open in a browser; with the key where one is needed."""
        host = name_host(self._options.address)
        scheme = "https" if self._options.is_secure else "http"
        key = f"?key={self.access_key.text}" if self.access_key else ""
        return f"{scheme}://{host}:{self.port}{self._options.base}/{key}"

    async def run(self) -> None:
        """Serve until SIGTERM or SIGINT."""
        task = asyncio.current_task()
        loop = asyncio.get_running_loop()
        if task is not None:
            for name in (signal.SIGTERM, signal.SIGINT):
                loop.add_signal_handler(name, task.cancel)
        async with contextlib.AsyncExitStack() as stack:
            clients = {name: Client(config) for name, config in self._configs.items()}
            for client in clients.values():
                stack.push_async_callback(client.close)
            with contextlib.suppress(asyncio.CancelledError):
                await self._run_parts(clients)

    async def _run_parts(self, clients: Mapping[str, Client]) -> None:
        options = self._options
        async with asyncio.TaskGroup() as group:
            state = self._state or self._follow_clusters(clients, group)
            boards = self._find_boards(clients, group)
            app = PageApp(
                state,
                self._build_sign_in(clients),
                self._build_viewers(clients, state),
                SiteRules(options.known_hosts, options.base),
                list_boards=boards,
            )
            group.create_task(self._serve(app))
            if options.metrics_port:
                group.create_task(_serve_metrics(options))
            if self._notifications is not None:
                first = next(iter(clients.values()), None)
                group.create_task(self._notifications.run(state, first, options.names))

    # --- parts

    def _follow_clusters(self, clients: Mapping[str, Client], group: asyncio.TaskGroup) -> PageData:
        from lictor.addons.web.history import TotalsHistory
        from lictor.addons.web.sources.cluster_reports import ClusterReports

        folder = self._options.history
        history = TotalsHistory(folder) if folder else None
        reports = ClusterReports(clients, history=history, find_config=self._find_config)
        group.create_task(reports.run())
        return reports

    def _find_config(self, _: Viewer, cluster: str) -> ClusterConfig | None:
        """The viewer's credentials, with which an object is read again; never those of the page."""
        config = self._configs[cluster]
        if not self._options.requires_login:
            return config
        known = CURRENT.get()
        # A token goes nowhere but to the API server that it is for.
        if known is None or not known.token or cluster != next(iter(self._configs)):
            return None
        token = known.token
        return ClusterConfig(
            server=config.server,
            ca=config.ca,
            verify=config.verify,
            tls_server_name=config.tls_server_name,
            proxy=config.proxy,
            token=lambda _: token,
        )

    def _build_sign_in(self, clients: Mapping[str, Client]) -> SignIn:
        check: TokenCheck = self.access_key or TokenReviews(next(iter(clients.values())))
        return SignIn(
            check,
            choose_cookie(self.port, is_secure=self._options.is_secure),
            takes_certificates=self._options.client_authority is not None,
        )

    def _build_viewers(self, clients: Mapping[str, Client], state: PageData) -> ViewerSource:
        if not self._options.requires_login:
            return OwnRights(state.list_clusters)
        return ReviewedRights(
            {
                name: ReportRights(client, _list_namespaces(state, name))
                for name, client in clients.items()
            }
        )

    def _find_boards(
        self, clients: Mapping[str, Client], group: asyncio.TaskGroup
    ) -> Callable[[], tuple[Board, ...]]:
        if self._boards or not self._options.requires_login:
            return lambda: self._boards
        names = self._options.names
        boards = ClusterBoards(
            next(iter(clients.values())), names.namespace, names.boards_config_map
        )
        group.create_task(boards.run())
        return boards.list

    async def _serve(self, app: PageApp) -> None:
        server = HttpServer(
            app,
            max_body=_MOST_BYTES,
            max_connections=_MOST_CONNECTIONS,
            keeps_headers=KEPT_HEADERS,
        )
        server.max_held = _MOST_HELD
        context = self._certificate.context if self._certificate else None
        log.info("page served", extra={"port": self.port})
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(Listener(self.bound, server, context, _LIMITS).run())
                group.create_task(server.sweep())
                if self._certificate is not None:
                    group.create_task(_follow_files(self._options, self._certificate))
        finally:
            await server.drain(_DRAIN_SECONDS)


def _read_files(paths: tuple[Path, ...]) -> PageData:
    from lictor.addons.web.sources.report_files import read_report_files

    return read_report_files(map(str, paths))


def _list_namespaces(state: PageData, cluster: str) -> Callable[[], tuple[str, ...]]:
    everyone = Viewer("", {cluster: VisibleNamespaces(all_namespaces=True)})
    return lambda: tuple(state.list_namespaces(cluster, everyone))


def _bind(address: str, port: int) -> socket.socket:
    try:
        return open_port(address, port)
    except OSError as error:
        why = error.strerror or error
        raise UsageError(
            f"cannot listen on {address}:{port}: {why}; choose another --port"
        ) from None


# --- TLS


def _load_notifications(options: WebOptions) -> "NotificationTask | None":
    if options.notifications is None:
        return None
    from lictor.addons.web.notifications.notifier import NotificationTask
    from lictor.addons.web.notifications.settings import load_notifications

    settings = load_notifications(options.notifications)
    return NotificationTask(settings, options.notifications_folder, options.requires_login)


def _load_certificate(options: WebOptions) -> LiveCertificate:
    clients = _read_file(options.client_authority).decode() if options.client_authority else ""
    try:
        live = LiveCertificate(clients)
    except ValueError as error:
        raise UsageError(f"--client-ca {options.client_authority}: {error}") from error
    pair = _read_pair(options) or make_temporary(tuple(sorted(options.known_hosts)))
    if not live.load(*pair):
        raise UsageError(f"{options.certificate}, {options.key}: not a certificate and its key")
    return live


def _read_pair(options: WebOptions) -> tuple[bytes, bytes] | None:
    if options.certificate is None or options.key is None:
        return None
    return _read_file(options.certificate), _read_file(options.key)


def _read_file(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror or error}") from error


async def _follow_files(options: WebOptions, live: LiveCertificate) -> None:
    """Certificates are renewed by others; who is connected keeps the former one."""
    while True:
        await asyncio.sleep(_LOOK_SECONDS)
        with contextlib.suppress(UsageError):
            pair = _read_pair(options)
            if pair is not None and live.load(*pair):
                log.info("certificate renewed")
            if options.client_authority is not None:
                live.load_clients(_read_file(options.client_authority).decode(errors="replace"))


# --- metrics


async def _serve_metrics(options: WebOptions) -> None:
    turn = asyncio.Lock()

    async def answer(call: HttpRequest) -> HttpResponse:
        if call.method != "GET" or call.path != "/metrics":
            return HttpResponse(HTTPStatus.NOT_FOUND)
        from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

        async with turn:
            body = await asyncio.to_thread(generate_latest)
        return HttpResponse(HTTPStatus.OK, body, CONTENT_TYPE_LATEST.encode())

    server = HttpServer(answer, max_body=0, max_connections=_METRICS_CONNECTIONS)
    await serve_port(_bind("", options.metrics_port), server)
