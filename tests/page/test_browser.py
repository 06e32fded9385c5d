"""Every page in Chromium, served by a real `lictor web`: what it shows, for keyboards and screen readers too.

Run by `make test-page`. axe-core comes through npm, into the usual cache.
"""

import json
import os
import random
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect, sync_playwright
from sample import (
    HOSTILE,
    build_hostile_report,
    list_many_reports,
    list_policy_documents,
    list_reports,
)

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or ""
AXE_VERSION = "4.10.3"
MANY = 100_000
URL = re.compile(r"http://127\.0\.0\.1:[0-9]+/\?key=\S+")


pytestmark = [
    pytest.mark.skipif(
        not os.environ.get("LICTOR_PAGE_TESTS"),
        reason="the page is tested in a browser by make test-page",
    ),
    pytest.mark.skipif(not CHROMIUM, reason="there is no chromium here: apt-get install chromium"),
]


@contextmanager
def serve(*arguments: str) -> Iterator[tuple[str, int]]:
    """A running `lictor web`: its address with the key, and the id of its process."""
    command = [sys.executable, "-m", "lictor", "web", "--port", "0", *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            line = process.stdout.readline()
            found = URL.search(line)
            assert found, f"lictor web printed no address, but: {line}"
            yield found[0], process.pid
        finally:
            process.terminate()


def write_list(path: Path, documents: list[dict]) -> Path:
    path.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": documents}))
    return path


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("reports")


@pytest.fixture(scope="session")
def site(folder: Path) -> Iterator[str]:
    """One cluster with a few hundred results, and boards."""
    now = int(time.time())
    documents = [*list_policy_documents(), *list_reports(random.Random(7), now)]
    file = write_list(folder / "production.json", documents)
    boards = folder / "boards.yaml"
    boards.write_text("- {name: payments, title: Team payments, filter: {labels: team=payments}}\n")
    with serve("--report", str(file), "--boards", str(boards)) as (url, _):
        yield url


@pytest.fixture(scope="session")
def hostile_site(folder: Path) -> Iterator[str]:
    """Reports that try to run something in the browser."""
    file = write_list(folder / "hostile.json", [build_hostile_report()])
    with serve("--report", str(file)) as (url, _):
        yield url


@pytest.fixture(scope="session")
def large_site(folder: Path) -> Iterator[tuple[str, int]]:
    """100,000 results; with the id of the process."""
    file = write_list(folder / "large.json", list(list_many_reports(MANY)))
    with serve("--report", str(file)) as served:
        yield served


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        made = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield made
        made.close()


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    """A page on which no script may fail and nothing may come from elsewhere."""
    context = browser.new_context(viewport={"width": 1440, "height": 900})
    made = context.new_page()
    problems: list[str] = []
    made.on("pageerror", lambda error: problems.append(str(error)))
    made.on("console", lambda line: problems.append(line.text) if line.type == "error" else None)
    made.on("dialog", lambda dialog: problems.append(f"dialog: {dialog.message}"))
    made.on(
        "request",
        lambda request: (
            None
            if request.url.startswith(("http://127.0.0.1:", "file:"))
            else problems.append(f"asked {request.url}")
        ),
    )
    yield made
    context.close()
    # A page that is not there is a status, which the browser tells as an error.
    assert not [problem for problem in problems if "status of 40" not in problem]


@pytest.fixture(scope="session")
def axe() -> str:
    """The script of axe-core, fetched once through npm into the usual cache."""
    root = os.environ.get("LICTOR_CACHE")
    home = (Path(root) if root else Path.home() / ".cache" / "lictor") / "axe-core" / AXE_VERSION
    script = home / "node_modules" / "axe-core" / "axe.min.js"
    if not script.exists():
        if not shutil.which("npm"):
            pytest.skip("there is no npm here, by which axe-core comes")
        home.mkdir(parents=True, exist_ok=True)
        command = ["npm", "install", "--prefix", str(home), f"axe-core@{AXE_VERSION}"]
        done = subprocess.run(
            [*command, "--no-audit", "--no-fund", "--ignore-scripts"],
            check=False,
            capture_output=True,
            text=True,
            timeout=120,
        )
        if done.returncode:
            pytest.skip(f"npm does not fetch axe-core: {done.stderr.strip()[-200:]}")
    return script.read_text(encoding="utf-8")


PAGES = (
    "/", "/results", "/results?status=fail&severity=high", "/policies", "/policy?policy=team-label", "/policy?policy=safe-defaults",
    "/namespaces", "/namespace?namespace=cart-dev", "/namespace?namespace=-", "/resources",
    "/exceptions", "/boards", "/history", "/print", "/results?q=nothing-fits-this",
)  # fmt: skip


def go(page: Page, site: str, address: str) -> None:
    """Open an address of a site; the first time with its key."""
    base, _, _ = site.partition("/?key=")
    if not page.context.cookies(base):
        page.goto(site)
    page.goto(f"{base}{address}")


def open_result(page: Page, site: str, chosen: str = "status=fail&policy=team-label") -> None:
    go(page, site, f"/results?{chosen}")
    page.locator(".results td[data-label=Policy] a").first.click()


@pytest.mark.parametrize("address", PAGES)
def test_pages_are_shown(page: Page, site: str, address: str) -> None:
    go(page, site, address)
    expect(page.locator("h1")).to_have_count(1)
    assert page.locator("main").inner_text().strip()


@pytest.mark.parametrize(
    ("scheme", "width", "addresses"),
    [
        ("light", 1440, (*PAGES, "result")),
        (
            "dark",
            320,
            ("/", "/results?status=fail", "result", "/namespaces", "/policies", "/clusters"),
        ),
    ],
)
def test_nothing_serious_is_wrong_for_screen_readers(
    browser: Browser, site: str, axe: str, scheme: str, width: int, addresses: tuple[str, ...]
) -> None:
    """Contrast, names, order of headings, landmarks: as axe-core sees them."""
    context = browser.new_context(
        viewport={"width": width, "height": 900}, color_scheme=scheme, bypass_csp=True
    )
    page = context.new_page()
    wrong = []
    for address in addresses:
        if address == "result":
            open_result(page, site)
        else:
            go(page, site, address)
        page.evaluate(axe)
        found = page.evaluate("axe.run({resultTypes: ['violations']})")["violations"]
        wrong += [
            (address, each["id"], [node["html"][:200] for node in each["nodes"][:3]])
            for each in found
            if each["impact"] in ("serious", "critical", "moderate")
        ]
    context.close()
    assert not wrong


@pytest.mark.parametrize("width", [320, 390, 1440])
def test_no_page_is_wider_than_the_screen(browser: Browser, site: str, width: int) -> None:
    """320 px is what WCAG demands (1.4.10): a phone, or a screen of 1280 px enlarged four times."""
    context = browser.new_context(viewport={"width": width, "height": 900})
    page = context.new_page()
    wide = []
    for address in (*PAGES, "/clusters", "/nothing-here", "/result", "result"):
        if address == "result":
            open_result(page, site)
        else:
            go(page, site, address)
        found = page.evaluate("document.documentElement.scrollWidth")
        if found > width:
            wide.append((address, found))
    context.close()
    assert not wide


def test_filters_are_in_the_address(page: Page, site: str) -> None:
    go(page, site, "/results")
    page.get_by_label("Fail").check(force=True)
    page.wait_for_url("**/results?status=fail")
    page.get_by_role("searchbox", name="Search").fill("read-only")
    page.get_by_role("searchbox", name="Search").press("Enter")
    page.wait_for_url("**q=read-only**")
    assert set(page.locator(".results .status").all_inner_texts()) == {"Fail"}
    assert set(page.locator(".results td[data-label=Policy] a").all_inner_texts()) == {
        "read-only-root"
    }
    page.get_by_role("link", name="Status: fail").click()
    page.wait_for_url("**/results?q=read-only")


def test_pages_follow_each_other(page: Page, site: str) -> None:
    go(page, site, "/results")
    first = page.locator(".results tbody tr").first.inner_text()
    page.get_by_role("link", name="Next").click()
    page.wait_for_url("**page=2**")
    assert page.locator(".results tbody tr").first.inner_text() != first
    page.get_by_role("link", name="Previous").click()
    assert page.locator(".results tbody tr").first.inner_text() == first


def test_one_result_tells_everything(page: Page, site: str) -> None:
    open_result(page, site)
    for heading in ("Cause", "How to fix it", "Policy", "Exception"):
        expect(page.get_by_role("heading", name=heading)).to_be_visible()
    expect(page.locator(".text .marked").first).to_be_visible()
    assert "has-team" in page.locator(".text").inner_text()
    assert "kind: PolicyException" in page.locator("pre.yaml").inner_text()


def test_a_policy_without_results_is_found(page: Page, site: str) -> None:
    go(page, site, "/policies")
    row = page.get_by_role("row").filter(has_text="no-privileged-pods")
    expect(row.locator(".severity")).to_have_text("Enforce")
    page.get_by_role("link", name="namespace-network-policy").click()
    expect(page.get_by_text("There are no results.")).to_be_visible()


def test_exports_lead_somewhere(page: Page, site: str) -> None:
    go(page, site, "/results?status=fail")
    for name in ("CSV", "JSON"):
        with page.expect_download() as download:
            page.get_by_role("link", name=name).click()
        assert "team-label" in Path(download.value.path()).read_text()


def test_keyboards_get_everywhere(page: Page, site: str) -> None:
    go(page, site, "/results")
    page.keyboard.press("Tab")
    expect(page.get_by_text("Skip to content")).to_be_focused()
    page.keyboard.press("Enter")
    page.keyboard.press("/")
    expect(page.get_by_role("searchbox", name="Search")).to_be_focused()


def test_colours_are_chosen_and_kept(page: Page, site: str) -> None:
    go(page, site, "/")
    button = page.get_by_role("button", name="Colours")
    button.click()
    button.click()
    dark = page.evaluate("getComputedStyle(document.body).backgroundColor")
    page.reload()
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == dark
    assert page.get_attribute("html", "data-theme") == "dark"


def test_it_works_without_a_script(browser: Browser, site: str) -> None:
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    go(page, site, "/results")
    page.locator("input[name=status][value=fail]").check(force=True)
    page.get_by_role("button", name="Apply").click()
    assert set(page.locator(".results .status").all_inner_texts()) == {"Fail"}
    page.locator(".results td[data-label=Policy] a").first.click()
    expect(page.get_by_role("heading", name="How to fix it")).to_be_visible()
    context.close()


@pytest.mark.parametrize(
    "address", ["/", "/results", "/policies", "/resources", "/print", "/namespaces"]
)
def test_hostile_reports_run_nothing(page: Page, hostile_site: str, address: str) -> None:
    go(page, hostile_site, address)
    links = page.locator("main a").evaluate_all("all => all.map(one => one.getAttribute('href'))")
    for link in {
        link for link in links if link.startswith("/") and not link.startswith("/results.")
    }:
        go(page, hostile_site, link)
        assert page.evaluate("window.hacked") is None
        assert page.locator("img").count() == 0
    assert all(link.startswith(("/", "#")) for link in links)


def test_a_hostile_name_is_shown_as_it_is(page: Page, hostile_site: str) -> None:
    go(page, hostile_site, "/results?status=fail")
    shown = page.locator(".results td[data-label=Message]").first.inner_text()
    assert shown == HOSTILE.replace("\u202e", "\ufffd")


def test_a_hundred_thousand_results_are_quick(page: Page, large_site: tuple[str, int]) -> None:
    site, pid = large_site
    go(page, site, "/")
    before = read_cpu(pid)
    began = time.monotonic()
    for address in ("/results?status=fail", "/namespaces"):
        go(page, site, address)
    sizes = page.evaluate("performance.getEntriesByType('navigation')[0].transferSize")
    assert sizes < 100_000
    # Two pages, on a machine that does other things beside.
    assert read_cpu(pid) - before < 1.5, time.monotonic() - began
    expect(page.locator(".compact li")).to_have_count(300)


def read_cpu(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / 100


def test_the_file_of_apply_needs_nothing_else(page: Page, tmp_path: Path) -> None:
    file = tmp_path / "report.html"
    examples = Path(__file__).parents[2] / "examples"
    command = ["apply", str(examples / "policies"), "-r", str(examples / "resources")]
    subprocess.run([sys.executable, "-m", "lictor", *command, "--output-format", "html", "-o", str(file)], check=False)  # fmt: skip
    page.goto(f"file://{file}")
    findings = page.locator(".finding")
    expect(findings).to_have_count(3)
    page.get_by_role("searchbox", name="Search").fill("privileged")
    assert [each.is_visible() for each in findings.all()].count(True) == 1
    page.locator(".finding:visible summary").first.click()
    text = page.locator(".finding:visible").inner_text()
    assert "/spec/containers/0/securityContext/privileged" in text
    assert "pods.yaml:" in text
    assert (
        page.evaluate("getComputedStyle(document.querySelector('.tile')).borderTopWidth") == "4px"
    )
    page.set_viewport_size({"width": 320, "height": 900})
    assert page.evaluate("document.documentElement.scrollWidth") == 320
