"""Requests of browsers -> answers: routes, the headers of every answer, exports, live updates.

`pages` renders the pages; `access` decides who sees what.
"""

import asyncio
import gzip
import logging
import time
from collections.abc import AsyncGenerator, Callable, Iterator
from http import HTTPStatus
from typing import Final

import msgspec

from lictor.addons.web.access import ViewerSource
from lictor.addons.web.live_feed import LiveFeed
from lictor.addons.web.pages import addresses
from lictor.addons.web.pages.layout import read_static
from lictor.addons.web.pages.other_pages import render_message, render_sign_in
from lictor.addons.web.pages.page import PageRequest, WebPage
from lictor.addons.web.pages.render import render_page
from lictor.addons.web.records import Board, ExportFormat, Viewer
from lictor.addons.web.request_checks import (
    NOT_STORED,
    SECURITY_HEADERS,
    SiteRules,
    find_refusal,
    is_led_from_elsewhere,
    is_own_path,
    read_form,
    read_header,
    read_query,
)
from lictor.addons.web.results_export import export_results
from lictor.addons.web.sign_in import (
    CURRENT,
    TOO_MANY,
    WANTED,
    WRONG,
    RateLimit,
    SignedIn,
    SignIn,
    SignInProblem,
)
from lictor.addons.web.sources.page_data import PageData
from lictor.core.errors import ApiError, TooManyAttemptsError
from lictor.http.messages import TEXT, HttpRequest, HttpResponse, StreamedResponse

log = logging.getLogger(__name__)

_HTML: Final = b"text/html; charset=utf-8"
_EVENTS: Final = b"text/event-stream; charset=utf-8"
_EXPORTS: Final = {
    addresses.EXPORT_CSV: (ExportFormat.CSV, b"text/csv; charset=utf-8"),
    addresses.EXPORT_JSON: (ExportFormat.JSON, b"application/json; charset=utf-8"),
}
# Limits the requests of one viewer, because all share one processor.
_PAGES_BURST: Final = 60
_PAGES_PER_SECOND: Final = 10.0
# An export is in memory as a whole.
_MOST_EXPORTS: Final = 2
# Who takes it a byte at a time does not keep its place for ever.
_EXPORT_SECONDS: Final = 300.0
_SMALLEST_COMPRESSED: Final = 1024
_LEVEL: Final = 5
_KEY: Final = "key"
_ICON: Final = "/favicon.ico"

Reply = HttpResponse | StreamedResponse
Headers = tuple[tuple[bytes, bytes], ...]


class PageApp:
    """Answers all requests. Belongs to one event loop."""

    def __init__(
        self,
        state: PageData,
        sign_in: SignIn,
        viewers: ViewerSource,
        rules: SiteRules,
        *,
        list_boards: Callable[[], tuple[Board, ...]] = tuple,
    ) -> None:
        self._state = state
        self._sign_in = sign_in
        self._viewers = viewers
        self._rules = rules
        self._list_boards = list_boards
        self._feed = LiveFeed(state.results, state.is_ready)
        self._pages = RateLimit(_PAGES_BURST, _PAGES_PER_SECOND)
        # Viewers who are exporting; one export each, so that no viewer uses all places.
        self._exports: set[str] = set()

    async def __call__(self, call: HttpRequest) -> Reply:
        """The answer, with the headers that all answers have."""
        if call.path.startswith("/health/"):
            return self._answer_health(call)
        try:
            reply = await self._answer(call)
        except ApiError as error:
            log.warning("rights are unavailable", extra={"why": str(error)})
            reply = self._build_message(
                call, HTTPStatus.SERVICE_UNAVAILABLE,
                "The API server does not answer, so your rights are unknown. Try again soon.",
            )  # fmt: skip
        except TooManyAttemptsError:
            reply = self._require_sign_in(call, TOO_MANY)
        except Exception:
            log.exception("page failed", extra={"path": call.path})
            reply = self._build_message(
                call, HTTPStatus.INTERNAL_SERVER_ERROR, "This should not have happened."
            )
        return _finish(call, reply)

    def _answer_health(self, call: HttpRequest) -> HttpResponse:
        is_ready = call.path == "/health/readiness" and self._state.is_ready()
        if call.path == "/health/liveness" or is_ready:
            return HttpResponse(HTTPStatus.OK, b"ok")
        known = call.path == "/health/readiness"
        return HttpResponse(HTTPStatus.SERVICE_UNAVAILABLE if known else HTTPStatus.NOT_FOUND)

    async def _answer(self, call: HttpRequest) -> Reply:
        refusal = find_refusal(call, self._rules)
        if refusal is not None:
            return self._build_message(call, refusal.status, refusal.message)
        path = self._find_path(call)
        if path == _ICON or path.startswith(addresses.STATIC):
            return _answer_static(call, path)
        if call.method == "POST" and path == addresses.SIGN_IN:
            return await self._begin_session(call)
        if call.method == "POST" and path == addresses.SIGN_OUT:
            cookie = self._sign_in.end(call)
            return self._redirect(addresses.OVERVIEW, cookie)
        query = read_query(call)
        if query is None:
            return self._build_message(call, HTTPStatus.BAD_REQUEST, "The address cannot be read.")
        if self._sign_in.takes_key and call.method == "GET" and any(n == _KEY for n, _ in query):
            return await self._take_key(call, path, query)
        known = await self._sign_in.find(call)
        if known is None:
            return self._require_sign_in(call, WANTED)
        return await self._answer_known(call, known, path, query)

    async def _answer_known(
        self, call: HttpRequest, known: SignedIn, path: str, query: tuple[tuple[str, str], ...]
    ) -> Reply:
        viewer = await self._viewers.find(known.user)
        if not self._pages.take(known.user.name):
            return self._build_message(
                call, HTTPStatus.TOO_MANY_REQUESTS, "Too many requests. Wait a moment."
            )
        if path == addresses.LIVE and call.method == "GET":
            return self._open_feed(call, known, viewer)
        if path in _EXPORTS and call.method == "GET":
            return self._export(call, path, query, viewer)
        if path == addresses.SIGN_IN:
            return self._redirect(addresses.OVERVIEW)
        return await self._show(call, known, path, query, viewer)

    # --- pages

    async def _show(
        self,
        call: HttpRequest,
        known: SignedIn,
        path: str,
        query: tuple[tuple[str, str], ...],
        viewer: Viewer,
    ) -> Reply:
        form = read_form(call) if call.method == "POST" else {}
        if form is None:
            return self._build_message(
                call, HTTPStatus.UNSUPPORTED_MEDIA_TYPE, "Only forms are accepted here."
            )
        request = PageRequest(
            path=path,
            query=query,
            form=form,
            base=self._rules.base,
            now=int(time.time()),
            boards=self._list_boards(),
            can_sign_out=bool(known.session),
            is_live=True,
        )
        CURRENT.set(known)
        return _send_page(await render_page(request, self._state, viewer))

    def _build_message(self, call: HttpRequest, status: HTTPStatus, message: str) -> HttpResponse:
        return _send_page(render_message(self._plain(call), status, message))

    def _plain(self, call: HttpRequest) -> PageRequest:
        return PageRequest(path=self._find_path(call), base=self._rules.base)

    def _find_path(self, call: HttpRequest) -> str:
        """The path below our base; a proxy may have taken that off already."""
        base = self._rules.base
        if base and (call.path == base or call.path.startswith(f"{base}/")):
            return call.path[len(base) :] or "/"
        return call.path

    # --- signing in

    def _require_sign_in(self, call: HttpRequest, problem: SignInProblem) -> HttpResponse:
        back = f"{self._find_path(call)}?{call.query.decode('latin-1')}".rstrip("?")
        if call.method != "GET" or not is_own_path(back):
            back = addresses.OVERVIEW
        page = render_sign_in(self._plain(call), problem, back)
        headers: Headers = ((b"www-authenticate", b"Bearer"),)
        if is_led_from_elsewhere(call) and not self._sign_in.has_cookie(call):
            # The browser kept our cookie to itself, as another site led here. From our own page it
            # sends it.
            headers += ((b"refresh", f"0; url={self._rules.base}{back}".encode()),)
        return _send_page(page, headers)

    async def _begin_session(self, call: HttpRequest) -> HttpResponse:
        form = read_form(call) or {}
        cookie = await self._sign_in.begin(form.get("token", "").strip(), call.address)
        if cookie is None:
            return self._require_sign_in(call, WRONG)
        back = form.get("back", "")
        return self._redirect(back if is_own_path(back) else addresses.OVERVIEW, cookie)

    async def _take_key(
        self, call: HttpRequest, path: str, query: tuple[tuple[str, str], ...]
    ) -> HttpResponse:
        """The address that the program printed: from now on without the key in it."""
        key = next(value for name, value in query if name == _KEY)
        cookie = await self._sign_in.begin(key, call.address)
        if cookie is None:
            return self._require_sign_in(call, WRONG)
        return self._redirect(path if is_own_path(path) else addresses.OVERVIEW, cookie)

    def _redirect(self, path: str, cookie: bytes = b"") -> HttpResponse:
        headers: Headers = ((b"location", f"{self._rules.base}{path}".encode()),)
        if cookie:
            headers += ((b"set-cookie", cookie),)
        return HttpResponse(HTTPStatus.SEE_OTHER, headers=headers)

    # --- live updates, exports

    def _open_feed(self, call: HttpRequest, known: SignedIn, viewer: Viewer) -> Reply:
        async def renew() -> Viewer | None:
            try:
                again = await self._sign_in.renew(known, call)
                return None if again is None else await self._viewers.find(again.user)
            except (ApiError, TooManyAttemptsError):
                return None

        pieces = self._feed.open(viewer, renew)
        if pieces is None:
            return HttpResponse(HTTPStatus.SERVICE_UNAVAILABLE, b"too many pages are open\n")
        return StreamedResponse(pieces, content_type=_EVENTS)

    def _export(
        self,
        call: HttpRequest,
        path: str,
        query: tuple[tuple[str, str], ...],
        viewer: Viewer,
    ) -> Reply:
        wrong = addresses.find_unreadable(query)
        if wrong:
            return self._build_message(call, HTTPStatus.BAD_REQUEST, "; ".join(wrong))
        if len(self._exports) >= _MOST_EXPORTS or viewer.name in self._exports:
            return self._build_message(
                call, HTTPStatus.SERVICE_UNAVAILABLE, "There are exports going on. Try again soon."
            )
        form, content_type = _EXPORTS[path]
        rows = self._state.results.export(addresses.read_filter(query), viewer)
        name = f'attachment; filename="lictor-results.{form}"'.encode()
        return StreamedResponse(
            self._count_export(viewer.name, export_results(rows, form)),
            content_type=content_type,
            headers=((b"content-disposition", name),),
        )

    async def _count_export(
        self, name: str, pieces: Iterator[bytes]
    ) -> AsyncGenerator[bytes, None]:
        end = time.monotonic() + _EXPORT_SECONDS
        self._exports.add(name)
        try:
            for piece in pieces:
                yield piece
                # Others have their turn.
                await asyncio.sleep(0)
                if time.monotonic() > end:
                    raise TimeoutError
        finally:
            self._exports.discard(name)


def _answer_static(call: HttpRequest, path: str) -> HttpResponse:
    if path == _ICON:
        # Browsers request it automatically.
        return HttpResponse(HTTPStatus.NO_CONTENT)
    found = read_static(path.removeprefix(addresses.STATIC))
    if found is None or call.method == "POST":
        return HttpResponse(HTTPStatus.NOT_FOUND, b"not found\n", TEXT)
    tag = f'"{found.tag}"'.encode()
    # Addresses in pages change with the content.
    headers: Headers = ((b"etag", tag), (b"cache-control", b"public, max-age=31536000, immutable"))
    if read_header(call, b"if-none-match").encode() == tag:
        return HttpResponse(HTTPStatus.NOT_MODIFIED, headers=headers)
    return HttpResponse(HTTPStatus.OK, found.body, found.content_type.encode(), headers=headers)


def _send_page(page: WebPage, headers: Headers = ()) -> HttpResponse:
    return HttpResponse(page.status, page.body.encode(errors="replace"), _HTML, headers=headers)


def _finish(call: HttpRequest, reply: Reply) -> Reply:
    headers = (*SECURITY_HEADERS, *reply.headers)
    if all(name != b"cache-control" for name, _ in reply.headers):
        headers += (NOT_STORED,)
    if isinstance(reply, StreamedResponse):
        return msgspec.structs.replace(reply, headers=headers)
    body = reply.body
    if len(body) >= _SMALLEST_COMPRESSED and _takes_gzip(call):
        # Pages hold no secrets that one could guess at by their compressed length.
        body = gzip.compress(body, _LEVEL, mtime=0)
        headers += ((b"content-encoding", b"gzip"), (b"vary", b"accept-encoding"))
    return msgspec.structs.replace(reply, headers=headers, body=body)


def _takes_gzip(call: HttpRequest) -> bool:
    offered = [part.strip().lower() for part in read_header(call, b"accept-encoding").split(",")]
    return "gzip" in offered
