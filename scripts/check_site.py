"""Check the documentation site: `check_site.py FOLDER` prints broken links and foreign files."""

import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urldefrag, urlsplit

_FOREIGN = ("http:", "https:", "//")
_LOADED = {"script": "src", "img": "src", "iframe": "src", "link": "href", "source": "src"}


class Page(HTMLParser):
    """The links, loaded files and anchors of one page."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.links: list[str] = []
        self.loaded: list[str] = []
        self.anchors = {"", "__toc", "__nav"}
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = {name: value or "" for name, value in attrs}
        self.anchors |= {found[name] for name in ("id", "name") if name in found}
        if tag == "a" and "href" in found:
            self.links.append(found["href"])
        if tag in _LOADED and found.get(_LOADED[tag]) and found.get("rel") != "canonical":
            self.loaded.append(found[_LOADED[tag]])


def find_problems(site: Path) -> Iterator[str]:
    """Every link, anchor or file of a site that does not exist or comes from another host."""
    pages = {path: Page(path) for path in sorted(site.rglob("*.html"))}
    for path, page in pages.items():
        name = path.relative_to(site)
        for address in page.loaded:
            if address.startswith(_FOREIGN):
                yield f"{name}: loads {address} from another host"
            elif not address.startswith("data:") and not _resolve(path, address, site).exists():
                yield f"{name}: {address} does not exist"
        yield from (f"{name}: {each}" for each in _find_broken(path, page, pages, site))


def _find_broken(path: Path, page: Page, pages: dict[Path, Page], site: Path) -> Iterator[str]:
    for link in page.links:
        if urlsplit(link).scheme or link.startswith("//"):
            continue
        address, anchor = urldefrag(link)
        target = _resolve(path, address, site) if address else path
        if target not in pages:
            if not target.exists():
                yield f"link to {link}: no such page or file"
        elif unquote(anchor) not in pages[target].anchors:
            yield f"link to {link}: no such anchor"


def _resolve(path: Path, address: str, site: Path) -> Path:
    text = unquote(urlsplit(address).path)
    target = site / text.lstrip("/") if text.startswith("/") else path.parent / text
    target = target.resolve()
    return target / "index.html" if target.is_dir() else target


def main(folder: str) -> int:
    """Print all problems; 1 if there are any."""
    site = Path(folder).resolve()
    problems = list(find_problems(site))
    for problem in problems:
        print(problem)
    print(f"{len(list(site.rglob('*.html')))} pages, {len(problems)} problems")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
