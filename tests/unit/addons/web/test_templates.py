"""Templates: no value from a report can become a tag, an attribute or a script."""

import re
from html.parser import HTMLParser
from importlib.resources import files

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lictor.addons.web.pages.page import PageRequest, Section
from lictor.addons.web.pages.templates import is_safe_address, render_template

HOSTILE = "</script><img src=x onerror=alert(1)>\"'`&\u202e\x00\ud800"
TEMPLATES = sorted(files("lictor.addons.web").joinpath("templates").iterdir(), key=str)
STATIC = dict.fromkeys(("icon.svg", "page.css", "page.js"), "/static/x")


def render_message(text: str) -> str:
    section = Section("Sign in", "sign-in.html")
    request = PageRequest(path="/sign-in")
    return render_template(
        section.template, request=request, section=section, static=STATIC, message=text, back=text
    )


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a < b & c", "a &lt; b &amp; c"),
        ("\"'", "&#34;&#39;"),
        ("tab\tand\nline", "tab\tand\nline"),
        ("a\x00b\u202ec\ud800d\re", "a\ufffdb\ufffdc\ufffdd e"),
        ("{{ 7 * 7 }}{% x %}", "{{ 7 * 7 }}{% x %}"),
    ],
)
def test_values_are_escaped(text: str, expected: str) -> None:
    page = render_message(text)
    assert f'class="problem">{expected}</p>' in page
    assert f'name="back" value="{expected}"' in page


@pytest.mark.parametrize(
    ("address", "is_safe"),
    [
        ("/results?status=fail", True),
        ("#rule", True),
        ("?page=2", True),
        ("https://example.com/a?b=c", True),
        ("//example.com", False),
        ("/\\example.com", False),
        ("javascript:alert(1)", False),
        (" javascript:alert(1)", False),
        ("JaVaScRiPt:alert(1)", False),
        ("java\nscript:alert(1)", False),
        ("data:text/html,x", False),
        ("vbscript:x", False),
        ("results", False),
        ("", False),
    ],
)
def test_links_lead_to_pages_only(address: str, is_safe) -> None:
    assert is_safe_address(address) is is_safe


@pytest.mark.parametrize("template", TEMPLATES, ids=lambda each: each.name)
def test_templates_cannot_bypass_escaping(template) -> None:
    text = template.read_text(encoding="utf-8")
    assert not re.findall(r"\|\s*safe\b|autoescape|Markup|xmlattr", text)
    # The Content-Security-Policy blocks scripts and styles in attributes.
    assert not re.findall(r"\s(?:on[a-z]+|style)\s*=", text)
    # A value in an attribute without quotes could add another attribute.
    assert not re.findall(r"=\{\{", text)


@pytest.mark.parametrize("template", TEMPLATES, ids=lambda each: each.name)
def test_addresses_in_templates_are_built_by_the_page(template) -> None:
    text = template.read_text(encoding="utf-8")
    found = re.findall(r'\b(?:href|src|action|formaction)="\{\{ *([\w.]+)', text)
    known = {"context.link", "link.href", "link_policy", "link_resource", "link_result", "href"}
    known |= {"static", "request.base", "tile.href"}
    # Checked by `is safe_address`.
    checked = {"address"} if template.name == "parts.html" else set()
    assert set(found) <= known | checked


class Reader(HTMLParser):
    """Collects what a browser would see."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: list[tuple[str, list[str]]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, [name for name, _ in attrs]))


def list_tags(page: str) -> list[tuple[str, list[str]]]:
    reader = Reader()
    reader.feed(page)
    reader.close()
    return reader.tags


@given(st.text(min_size=1) | st.just(HOSTILE))
def test_no_text_adds_a_tag_or_an_attribute(text: str) -> None:
    page = render_message(text)
    assert list_tags(page) == list_tags(render_message("x"))
    assert page.encode()
