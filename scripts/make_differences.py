"""Write docs/reference/differences.md from scripts/differences.txt; a test compares the two."""

import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path.append(str(ROOT / "tests" / "conformance"))

from listed_differences import read_sections  # noqa: E402

from lictor.core.release import REFERENCES  # noqa: E402

PAGE = ROOT / "docs" / "reference" / "differences.md"
HEAD = f"""\
# Differences in full

Every deliberate difference from Kyverno {REFERENCES["kyverno"]} and Kubewarden
{REFERENCES["kubewarden"]}, the releases that `lictor version -o json` prints. Policies and test
files of Kyverno 1.17 and 1.18 still work. The page
[Differences](../explanation/differences.md) explains the ten that matter most. Anything else that
differs is a bug: please report it. Written by `scripts/make_differences.py`.
"""


def render_page() -> str:
    """The whole page; the sections about Kubewarden have one heading."""
    lines = [HEAD]
    for title, rows in read_sections().items():
        family, _, part = title.partition(": ")
        if part and f"## {family}" not in lines:
            lines += [f"## {family}", ""]
        lines += [f"### {part}" if part else f"## {title}", ""]
        lines += [f"| {family if part else 'Kyverno'} | lictor |", "|---|---|"]
        lines += [f"| {each.theirs} | {each.ours} |" for each in rows] + [""]
    return "\n".join(lines)


if __name__ == "__main__":
    PAGE.write_text(render_page(), encoding="utf-8")
    print(f"{PAGE} written")
