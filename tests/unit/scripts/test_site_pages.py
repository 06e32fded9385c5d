"""Generated pages are up to date, and the check of the site finds what is broken."""

import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parents[3] / "scripts"))
import check_site
import make_crds
import make_differences


@pytest.mark.parametrize("script", [make_crds, make_differences], ids=lambda each: each.__name__)
def test_a_generated_page_is_up_to_date(script) -> None:
    assert script.PAGE.read_text(encoding="utf-8") == script.render_page()


PAGE = '<a href="b.html#here">b</a><h2 id="top">A</h2>'


@pytest.mark.parametrize(
    ("other", "problem"),
    [
        ('<h2 id="here">B</h2><a href="a.html#top">a</a><img src="data:x">', None),
        ('<h2 id="there">B</h2>', "a.html: link to b.html#here: no such anchor"),
        ('<h2 id="here">B</h2><a href="c.html">c</a>', "b.html: link to c.html: no such page"),
        ('<h2 id="here">B</h2><img src="no.png">', "b.html: no.png does not exist"),
        ('<h2 id="here">B</h2><script src="https://x.example/a.js">', "from another host"),
    ],
)
def test_the_check_of_the_site(tmp_path: Path, other: str, problem: str | None) -> None:
    (tmp_path / "a.html").write_text(PAGE)
    (tmp_path / "b.html").write_text(other)
    found = list(check_site.find_problems(tmp_path))
    assert len(found) == (1 if problem else 0)
    assert problem is None or problem in found[0]
