"""Take the pictures of the web UI for the documentation, from the sample data of its tests."""

import json
import random
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from playwright.sync_api import sync_playwright

ROOT = Path(__file__).parent.parent
FOLDER = ROOT / "docs" / "img"
sys.path.insert(0, str(ROOT / "tests" / "page"))

from sample import list_policy_documents, list_reports  # noqa: E402


def main() -> int:
    """Write page-overview.png and page-result.png."""
    chromium = shutil.which("chromium")
    if chromium is None:
        print("page_pictures: chromium is missing: apt-get install chromium", file=sys.stderr)
        return 1
    items = [*list_policy_documents(), *list_reports(random.Random(7), int(time.time()))]
    with tempfile.TemporaryDirectory() as folder:
        reports = Path(folder, "production.json")
        reports.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": items}))
        web = [sys.executable, "-P", "-m", "lictor", "web", "--port", "0", "--report", reports.name]
        with subprocess.Popen(web, stdout=subprocess.PIPE, text=True, cwd=folder) as server:
            try:
                take_pictures(chromium, server.stdout.readline() if server.stdout else "")
            finally:
                server.terminate()
    return 0


def take_pictures(chromium: str, line: str) -> None:
    """`line`: what the server printed, with its address."""
    found = re.search(r"(http://127\.0\.0\.1:[0-9]+)/\?key=\S+", line)
    if found is None:
        raise SystemExit(f"page_pictures: lictor web printed no address, but: {line}")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 1280, "height": 860})
        page.goto(found[0])
        page.screenshot(path=FOLDER / "page-overview.png")
        page.goto(f"{found[1]}/results?status=fail&policy=no-privileged-pods")
        page.locator("a[href*='result?']").first.click()
        page.screenshot(path=FOLDER / "page-result.png")
        browser.close()


if __name__ == "__main__":
    sys.exit(main())
