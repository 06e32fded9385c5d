"""Pages for somebody who is not known yet: signing in, and what went wrong."""

from http import HTTPStatus

from lictor.web.markup import Html, element, join
from lictor.web.pages import addresses
from lictor.web.pages.layout import build_plain_page
from lictor.web.pages.page import PageRequest, Section, WebPage
from lictor.web.sign_in import SignInProblem


def render_message(request: PageRequest, status: HTTPStatus, message: str) -> WebPage:
    """One sentence, and the way back."""
    content = join(
        element("h1", f"{status.value} {status.phrase}"),
        element("p", message),
        element("p", element("a", "To the overview", href=f"{request.base}/")),
    )
    return build_plain_page(request, Section(status.phrase, content, status))


def render_sign_in(request: PageRequest, problem: SignInProblem, back: str) -> WebPage:
    """The form; `back` is where it leads to."""
    told = (
        element("p", problem.message, role="alert", class_="problem") if problem.message else None
    )
    content = join(element("h1", "Sign in"), told, _render_form(request, back), _render_advice())
    return build_plain_page(request, Section("Sign in", content, problem.status))


def _render_form(request: PageRequest, back: str) -> Html:
    return element(
        "form",
        element("label", "Token", for_="token"),
        element(
            "input",
            # So that it is hidden; no browser shall keep it.
            type="password",
            id="token",
            name="token",
            autocomplete="off",
            spellcheck="false",
            required=True,
            autofocus=True,
        ),
        element("input", type="hidden", name="back", value=back),
        element("button", "Sign in", type="submit"),
        method="post",
        action=f"{request.base}{addresses.SIGN_IN}",
    )


def _render_advice() -> Html:
    return join(
        element(
            "p",
            "Use a token of the cluster, such as ",
            element("code", "kubectl create token NAME"),
            " prints for a service account. You see the reports that its user may list.",
        ),
        element(
            "p", "If you started this page yourself, open the address that lictor has printed."
        ),
    )
