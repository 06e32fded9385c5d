"""The frame of every page: head, navigation, notices and static files."""

from functools import cache
from hashlib import sha256
from importlib.resources import files

import msgspec

from lictor.addons.web.pages import addresses
from lictor.addons.web.pages.page import PageContext, PageRequest, Section, WebPage
from lictor.addons.web.pages.templates import render_template

_TYPES = {
    "css": "text/css; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "svg": "image/svg+xml",
}
_STATIC_NAMES = ("page.css", "page.js", "icon.svg")

_ENTRIES = (
    ("Overview", addresses.OVERVIEW, (addresses.OVERVIEW,)),
    ("Results", addresses.RESULTS, (addresses.RESULTS, addresses.RESULT)),
    ("Policies", addresses.POLICIES, (addresses.POLICIES, addresses.POLICY)),
    ("Namespaces", addresses.NAMESPACES, (addresses.NAMESPACES, addresses.NAMESPACE)),
    ("Resources", addresses.RESOURCES, (addresses.RESOURCES, addresses.RESOURCE)),
    ("Exceptions", addresses.EXCEPTIONS, (addresses.EXCEPTIONS,)),
    ("Clusters", addresses.CLUSTERS, (addresses.CLUSTERS,)),
    ("Boards", addresses.BOARDS, (addresses.BOARDS,)),
    ("History", addresses.HISTORY, (addresses.HISTORY,)),
)


class StaticFile(msgspec.Struct, frozen=True):
    """A style or a script of the page; it may be cached for as long as its address is the same."""

    body: bytes
    content_type: str
    # Changes with the content.
    tag: str


@cache
def read_static(name: str) -> StaticFile | None:
    """The file of that name; None where there is none."""
    if name not in _STATIC_NAMES:
        return None
    body = files("lictor.addons.web").joinpath("static", name).read_bytes()
    return StaticFile(body, _TYPES[name.rpartition(".")[2]], sha256(body).hexdigest()[:16])


def build_page(context: PageContext, section: Section) -> WebPage:
    """The whole document."""
    request = context.request
    # The answer to a form cannot be requested again; a page for printing must not change.
    is_live = request.is_live and not request.form and not section.is_bare
    return _render(
        request,
        section,
        context=context,
        live=context.link(addresses.LIVE) if is_live else "",
        entries=_list_entries(context),
        notices=_list_notices(context),
    )


def build_plain_page(request: PageRequest, section: Section) -> WebPage:
    """A page without navigation, for a viewer who is not signed in, or for an error."""
    return _render(request, section)


def _render(request: PageRequest, section: Section, **values: object) -> WebPage:
    static = {name: _link_static(request, name) for name in _STATIC_NAMES}
    body = render_template(
        section.template,
        request=request,
        section=section,
        static=static,
        **values,
        **section.values,
    )
    return WebPage(section.status, section.title, body)


def _link_static(request: PageRequest, name: str) -> str:
    found = read_static(name)
    return f"{request.base}{addresses.STATIC}{name}?{found.tag if found else ''}"


def _list_entries(context: PageContext) -> list[tuple[str, str, bool]]:
    """Name, address and whether it is the current one, of each entry of the navigation."""
    shown = {"Clusters": context.is_plural, "Boards": bool(context.request.boards)}
    return [
        (name, context.link(path), context.request.path in paths)
        for name, path, paths in _ENTRIES
        if shown.get(name, True)
    ]


def _list_notices(context: PageContext) -> list[str]:
    """What is missing on this page."""
    notices = list(context.state.list_problems())
    if not context.state.is_ready():
        notices.append("Reports are still being read: numbers grow until that is done.")
    if context.viewer.unsettled:
        names = ", ".join(context.viewer.unsettled)
        notices.append(f"Your rights are not known completely yet, so less is shown: {names}.")
    return notices
