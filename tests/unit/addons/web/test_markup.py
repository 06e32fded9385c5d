"""HTML made by calls: no text from outside can become a tag, an attribute or a script."""

from html.parser import HTMLParser

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lictor.addons.web.markup import Html, element, escape, is_safe_address, join

HOSTILE = "</script><img src=x onerror=alert(1)>\"'`&\u202e\x00\ud800"


@pytest.mark.parametrize(
    ("made", "expected"),
    [
        (element("p", "a < b & c"), "<p>a &lt; b &amp; c</p>"),
        (element("p", None, ["x", [1, None]]), "<p>x1</p>"),
        (element("input", name="q", value='"><b'), '<input name="q" value="&quot;&gt;&lt;b">'),
        (element("label", "L", for_="x", class_="c"), '<label for="x" class="c">L</label>'),
        (element("button", hidden=True, disabled=False), "<button hidden></button>"),
        (element("i", aria_label="a'b"), '<i aria-label="a&#39;b"></i>'),
        (element("b", Html("<u>x</u>")), "<b><u>x</u></b>"),
        (join("<", Html("<br>"), None, 3), "&lt;<br>3"),
        (escape("tab\tand\nline"), "tab\tand\nline"),
        (escape("a\x00b\u202ec\ud800d\re"), "a\ufffdb\ufffdc\ufffdd e"),
    ],
)
def test_elements_are_written(made: str, expected: str) -> None:
    assert made == expected


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
def test_links_lead_to_pages_only(address, is_safe):
    assert is_safe_address(address) is is_safe
    assert ("href" in element("a", "x", href=address)) is is_safe


@pytest.mark.parametrize("name", ["onclick", "onerror", "style", "a b", "x>"])
def test_attributes_that_run_something_are_refused(name: str) -> None:
    with pytest.raises(ValueError, match="not an attribute"):
        element("a", **{name: "x"})


class Reader(HTMLParser):
    """Notes what a browser would see."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: list[tuple[str, list[str]]] = []
        self.text = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, [name for name, _ in attrs]))

    def handle_data(self, data: str) -> None:
        self.text += data


@given(st.text() | st.just(HOSTILE))
def test_whatever_the_text_there_is_one_tag(text: str) -> None:
    reader = Reader()
    reader.feed(element("p", text, title=text))
    reader.close()
    assert reader.tags == [("p", ["title"])]
    assert element("p", text).encode()
