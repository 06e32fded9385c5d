"""The request for a page, the page itself, and what its parts share."""

from collections.abc import Mapping
from http import HTTPStatus

import msgspec

from lictor.addons.web.pages.addresses import write_query
from lictor.addons.web.records import Board, ResultFilter, Viewer
from lictor.addons.web.sources.page_data import PageData


class PageRequest(msgspec.Struct, frozen=True):
    """Which page someone wants."""

    # Below `base`, from its `/` on.
    path: str
    query: tuple[tuple[str, str], ...] = ()
    # The fields of a form that was sent; empty where none was.
    form: Mapping[str, str] = {}
    # The path of the page on its host: empty, or `/lictor`.
    base: str = ""
    # Seconds since 1970.
    now: int = 0
    boards: tuple[Board, ...] = ()
    # Is there a session that can end, and a feed of changes?
    can_sign_out: bool = False
    is_live: bool = False

    def read(self, name: str) -> str:
        """The last value of a parameter of the query; empty where there is none."""
        return next((value for key, value in reversed(self.query) if key == name), "")


class WebPage(msgspec.Struct, frozen=True):
    """A whole page."""

    status: HTTPStatus
    title: str
    # The document, from its doctype on.
    body: str


class PageContext(msgspec.Struct, frozen=True):
    """Who looks at what."""

    request: PageRequest
    state: PageData
    viewer: Viewer

    @property
    def clusters(self) -> tuple[str, ...]:
        """Those of which the viewer may see something."""
        known = self.viewer.namespaces
        return tuple(name for name in self.state.list_clusters() if name in known)

    @property
    def is_plural(self) -> bool:
        """Are there several clusters, so that each result names its own?"""
        return len(self.clusters) > 1

    def link(self, path: str, chosen: ResultFilter | None = None, **more: str) -> str:
        """The address of another page."""
        query = write_query(chosen or ResultFilter(), **more)
        return f"{self.request.base}{path}{f'?{query}' if query else ''}"


class Section(msgspec.Struct, frozen=True):
    """The content of a page: a template and its values, before head and navigation are added."""

    title: str
    template: str
    values: Mapping[str, object] = {}
    status: HTTPStatus = HTTPStatus.OK
    # Has it nothing around it, as it is for printing?
    is_bare: bool = False
