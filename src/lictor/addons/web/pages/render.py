"""Which page an address means: the one function that turns a request into a page."""

from collections.abc import Awaitable, Callable
from http import HTTPStatus
from inspect import isawaitable
from typing import TypeAlias

from lictor.addons.web.pages import addresses
from lictor.addons.web.pages.details import render_result
from lictor.addons.web.pages.exceptions import render_exception_list
from lictor.addons.web.pages.layout import build_page
from lictor.addons.web.pages.lists import (
    render_cluster_list,
    render_namespace_list,
    render_policy_list,
    render_resource_list,
    render_result_list,
)
from lictor.addons.web.pages.other_pages import render_boards, render_history, render_printed
from lictor.addons.web.pages.overview import render_overview
from lictor.addons.web.pages.page import PageContext, PageRequest, Section, WebPage
from lictor.addons.web.pages.subjects import render_namespace, render_policy, render_resource_page
from lictor.addons.web.records import ResultFilter, Viewer
from lictor.addons.web.sources.page_data import PageData
from lictor.core.errors import LictorError

_Render: TypeAlias = Callable[[PageContext, ResultFilter], Section | Awaitable[Section]]

_PAGES: dict[str, _Render] = {
    addresses.OVERVIEW: render_overview,
    addresses.RESULTS: render_result_list,
    addresses.RESULT: render_result,
    addresses.POLICIES: render_policy_list,
    addresses.POLICY: render_policy,
    addresses.NAMESPACES: render_namespace_list,
    addresses.NAMESPACE: render_namespace,
    addresses.RESOURCES: render_resource_list,
    addresses.RESOURCE: render_resource_page,
    addresses.CLUSTERS: render_cluster_list,
    addresses.EXCEPTIONS: lambda context, _: render_exception_list(context),
    addresses.BOARDS: lambda context, _: render_boards(context),
    addresses.HISTORY: lambda context, _: render_history(context),
    addresses.PRINT: render_printed,
}


async def render_page(request: PageRequest, state: PageData, viewer: Viewer) -> WebPage:
    """The requested page, or one with the reason why it cannot be shown."""
    context = PageContext(request, state, viewer)
    wrong = addresses.find_unreadable(request.query)
    if request.path not in _PAGES:
        section = _describe_problem(HTTPStatus.NOT_FOUND, "Page not found")
    elif wrong:
        section = _describe_problem(HTTPStatus.BAD_REQUEST, "Invalid address", "; ".join(wrong))
    else:
        section = await _render(context)
    return build_page(context, section)


async def _render(context: PageContext) -> Section:
    chosen = addresses.read_filter(context.request.query)
    try:
        made = _PAGES[context.request.path](context, chosen)
        return await made if isawaitable(made) else made
    except LictorError as error:
        # A selector that cannot be parsed, or a cluster that does not answer.
        title = "This page cannot be shown"
        return _describe_problem(HTTPStatus.BAD_REQUEST, title, str(error))


def _describe_problem(status: HTTPStatus, title: str, text: str = "") -> Section:
    return Section(title, "problem.html", {"text": text}, status)
