"""The documentation site in Chromium: search, images, small screens, and nothing from other hosts.

Run by `make test-page`, which builds the site first.
"""

import http.server
import os
import shutil
import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect, sync_playwright

SITE = Path(__file__).parents[2] / "build" / "site"
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or ""
PAGES = [
    "index.html",
    *sorted(
        str(path.relative_to(SITE))
        for path in SITE.glob("*/*.html")
        # All rules have one form.
        if path.parent.name != "rules" or path.stem in ("LIC101", "README", "index")
    ),
]
NARROW = {"width": 390, "height": 844}

pytestmark = [
    pytest.mark.skipif(
        not os.environ.get("LICTOR_PAGE_TESTS"),
        reason="the site is tested in a browser by make test-page",
    ),
    pytest.mark.skipif(not CHROMIUM, reason="there is no chromium here: apt-get install chromium"),
]


class Quiet(http.server.SimpleHTTPRequestHandler):
    """Serves the site without a log."""

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    assert (SITE / "index.html").is_file(), "build it first: make docs"
    handler = partial(Quiet, directory=str(SITE))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


@pytest.fixture(scope="module")
def page() -> Iterator[Page]:
    """A page that makes no request to another host and has no script error."""
    problems: list[str] = []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        made = browser.new_page(viewport=NARROW)
        made.on("pageerror", lambda error: problems.append(str(error)))
        made.on("request", lambda request: problems.append(request.url))
        yield made
        browser.close()
    assert [each for each in problems if not each.startswith(("http://127.0.0.1:", "data:"))] == []


def test_search_finds_exceptions(page: Page, address: str) -> None:
    page.set_viewport_size({"width": 1280, "height": 900})
    page.goto(f"{address}/index.html")
    found = page.locator("a[href*='guides/exceptions.html']:visible")
    # It is in no menu here.
    expect(found).to_have_count(0)
    page.keyboard.press("/")
    page.keyboard.type("exception")
    expect(found.first).to_be_visible()


@pytest.mark.parametrize("name", PAGES)
def test_a_page_fits_a_phone_and_has_its_images(page: Page, address: str, name: str) -> None:
    page.set_viewport_size(NARROW)
    page.goto(f"{address}/{name}")
    overflow = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
    assert page.evaluate(overflow) <= 0
    broken = "[...document.images].filter(i => !i.complete || !i.naturalWidth).map(i => i.src)"
    page.wait_for_load_state("load")
    assert page.evaluate(broken) == []


def test_colors_can_be_switched(page: Page, address: str) -> None:
    page.set_viewport_size({"width": 1280, "height": 900})
    page.goto(f"{address}/index.html")
    scheme = "document.body.getAttribute('data-md-color-scheme')"
    before = page.evaluate(scheme)
    page.locator("form[data-md-component=palette] label:visible").first.click()
    assert {before, page.evaluate(scheme)} == {"default", "slate"}
