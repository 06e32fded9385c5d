"""The page of a live cluster in Chromium: `lictor up` and kubectl, as people use them."""

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect, sync_playwright

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or ""
KUBECTL = shutil.which("kubectl") or ""
URL = re.compile(r"http://127\.0\.0\.1:[0-9]+/\?key=\S+")
# The machine may do other things beside.
PATIENCE = 60_000
POLICY = """
apiVersion: kyverno.io/v1
kind: ClusterPolicy
metadata: {name: need-team}
spec:
  rules:
  - name: team
    match: {any: [{resources: {kinds: [ConfigMap], namespaces: [default]}}]}
    validate:
      message: the label team is missing
      pattern: {metadata: {labels: {team: "?*"}}}
"""
BARE = """
apiVersion: v1
kind: ConfigMap
metadata: {name: NAME, namespace: default, labels: {size: small}}
"""

pytestmark = [
    pytest.mark.skipif(
        not os.environ.get("LICTOR_PAGE_TESTS"),
        reason="the page is tested in a browser by make test-page",
    ),
    pytest.mark.skipif(not CHROMIUM, reason="there is no chromium here: apt-get install chromium"),
    pytest.mark.skipif(not KUBECTL, reason="there is no kubectl here"),
]


class RunningCluster:
    """A `lictor up`, and kubectl for it."""

    def __init__(self, page: str, kubeconfig: Path) -> None:
        self.page = page
        self.kubeconfig = kubeconfig

    def apply(self, text: str) -> None:
        command = [KUBECTL, f"--kubeconfig={self.kubeconfig}", "apply", "-f", "-"]
        done = subprocess.run(
            command, input=text, text=True, timeout=60, capture_output=True, check=False
        )
        assert not done.returncode, done.stderr


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningCluster]:
    folder = tmp_path_factory.mktemp("up")
    file = folder / "kubeconfig"
    command = [sys.executable, "-m", "lictor", "up", "--port", "0", "--kubeconfig", str(file)]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdout=pipe, stderr=subprocess.STDOUT, text=True) as process:
        try:
            told = ""
            while not (found := URL.search(told)):
                line = process.stdout.readline()
                assert line, f"lictor up printed no address of the page, but: {told}"
                told += line
            yield RunningCluster(found[0], file)
        finally:
            process.terminate()


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        made = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield made
        made.close()


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    context = browser.new_context(viewport={"width": 1440, "height": 900})
    made = context.new_page()
    made.set_default_timeout(PATIENCE)
    yield made
    context.close()


def open_at(page: Page, site: str, address: str) -> None:
    page.goto(site)
    page.goto(f"{site.partition('/?key=')[0]}{address}")


def test_what_kubectl_applies_appears_by_itself(page: Page, cluster: RunningCluster) -> None:
    cluster.apply(POLICY)
    open_at(page, cluster.page, "/results?policy=need-team&status=fail&name=late")
    expect(page.locator("#live")).to_contain_text("Live")
    expect(page.locator(".results tbody tr")).to_have_count(0)
    page.evaluate("window.isSamePage = true")
    cluster.apply(BARE.replace("NAME", "late"))
    expect(page.locator(".results tbody tr")).to_have_count(1, timeout=PATIENCE)
    assert page.evaluate("window.isSamePage") is True
    page.locator(".results td[data-label=Policy] a").first.click()
    cause = page.locator(".cause")
    expect(cause).to_contain_text("/metadata/labels/team")
    expect(cause).to_contain_text("Expected")
    expect(cause.locator(".expected")).to_have_text("?*")


def test_clusters_stand_side_by_side(page: Page, tmp_path: Path) -> None:
    for name, failed in (("east", 2), ("west", 1)):
        entries = [
            {"policy": "need-team", "rule": "team", "result": "fail" if number < failed else "pass"}
            for number in range(4)
        ]
        head = {"apiVersion": "wgpolicyk8s.io/v1alpha2", "kind": "PolicyReport"}
        report = {**head, "metadata": {"name": "r", "namespace": "shop"}, "results": entries}
        (tmp_path / f"{name}.json").write_text(json.dumps(report))
    command = [sys.executable, "-m", "lictor", "web", "--port", "0", "--report", str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            site = URL.search(process.stdout.readline())
            assert site is not None
            open_at(page, site[0], "/clusters")
            text = page.locator("main").inner_text()
            assert "east.json" in text
            assert "west.json" in text
            rows = page.locator("main tbody tr").all_inner_texts()
            assert any("need-team" in row and "2" in row and "1" in row for row in rows), rows
        finally:
            process.terminate()
