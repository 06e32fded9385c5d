"""What is around the content of every page: head, navigation, and who looks at it."""

from functools import cache
from hashlib import sha256
from importlib.resources import files

import msgspec

from lictor.addons.web.markup import Html, element, join
from lictor.addons.web.pages import addresses
from lictor.addons.web.pages.page import PageContext, PageRequest, Section, WebPage
from lictor.core.release import VERSION

_TYPES = {
    "css": "text/css; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "svg": "image/svg+xml",
}
_STATIC_NAMES = ("page.css", "page.js", "icon.svg")
_DOCTYPE = "<!doctype html>\n"
_FOOTER = element("footer", element("p", f"lictor {VERSION} · read-only"))

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
    # What was sent by a form cannot be asked for again; what is printed must not change.
    is_live = request.is_live and not request.form and not section.is_bare
    live = context.link(addresses.LIVE) if is_live else None
    body = element(
        "body",
        element("a", "Skip to content", href="#content", class_="to-content"),
        None if section.is_bare else _render_header(context),
        element(
            "main",
            _render_notice(context),
            section.content,
            id="content",
            tabindex="-1",
            data_live=live,
        ),
        None if section.is_bare else _FOOTER,
    )
    return _wrap(request, section, body, class_="bare" if section.is_bare else None)


def build_plain_page(request: PageRequest, section: Section) -> WebPage:
    """A page for someone who is not known (yet): to sign in, or to read what went wrong."""
    header = element("header", _render_brand(request), class_="top")
    main = element("main", section.content, id="content", tabindex="-1", class_="narrow")
    return _wrap(request, section, element("body", header, main))


def _wrap(request: PageRequest, section: Section, body: Html, class_: str | None = None) -> WebPage:
    head = element(
        "head",
        element("meta", charset="utf-8"),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("meta", name="color-scheme", content="light dark"),
        element("title", f"{section.title} · lictor"),
        element("link", rel="icon", type="image/svg+xml", href=_link_static(request, "icon.svg")),
        element("link", rel="stylesheet", href=_link_static(request, "page.css")),
        # Not deferred: it sets the chosen colours before anything is drawn.
        element("script", src=_link_static(request, "page.js")),
    )
    document = element("html", head, body, lang="en", class_=class_)
    return WebPage(section.status, section.title, _DOCTYPE + document)


def _link_static(request: PageRequest, name: str) -> str:
    found = read_static(name)
    return f"{request.base}{addresses.STATIC}{name}?{found.tag if found else ''}"


def _render_brand(request: PageRequest) -> Html:
    mark = element(
        "svg",
        element("path", d="M4 3h3v14h9v3H4z"),
        element("path", d="M11 3h3v10h-3zM17 3h3v10h-3z", class_="second"),
        viewBox="0 0 24 24",
        aria_hidden="true",
    )
    return element("a", mark, "lictor", href=f"{request.base}/", class_="brand")


def _render_header(context: PageContext) -> Html:
    request = context.request
    return element(
        "header",
        _render_brand(request),
        element(
            "nav",
            element("ul", [_render_entry(context, *entry) for entry in _list_entries(context)]),
            aria_label="Main",
        ),
        element(
            "div",
            element("span", "", id="live", role="status", class_="live"),
            element("button", "Colours", type="button", id="theme", hidden=True),
            _render_person(context),
            class_="person",
        ),
        class_="top",
    )


def _list_entries(context: PageContext) -> list[tuple[str, str, tuple[str, ...]]]:
    shown = {
        "Clusters": context.is_plural,
        "Boards": bool(context.request.boards),
    }
    return [entry for entry in _ENTRIES if shown.get(entry[0], True)]


def _render_entry(context: PageContext, name: str, path: str, paths: tuple[str, ...]) -> Html:
    current = "page" if context.request.path in paths else None
    return element("li", element("a", name, href=context.link(path), aria_current=current))


def _render_person(context: PageContext) -> Html:
    name = element("span", context.viewer.name, class_="viewer") if context.viewer.name else None
    if not context.request.can_sign_out:
        return join(name)
    leave = element("button", "Sign out", type="submit")
    action = context.link(addresses.SIGN_OUT)
    return join(name, element("form", leave, method="post", action=action))


def _render_notice(context: PageContext) -> Html | None:
    """What is missing on this page, so that nobody takes it for all there is."""
    told = list(context.state.list_problems())
    if not context.state.is_ready():
        told.append("Reports are still being read: numbers grow until that is done.")
    if context.viewer.unsettled:
        names = ", ".join(context.viewer.unsettled)
        told.append(f"What you may see is not known in full yet, so less is shown: {names}.")
    if not told:
        return None
    return element("div", [element("p", text) for text in told], class_="notice", role="status")
