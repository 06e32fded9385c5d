"""Draw the README's pictures: real output of real commands, as SVG."""

import re
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

from rich.console import Console
from rich.text import Text

ROOT = Path(__file__).parent.parent
FOLDER = ROOT / "docs" / "img"
WIDTH = 132
EXPLAIN = (
    [
        "apply", "examples/policies/no-privileged-pods.yaml", "examples/policies/team-label.yaml",
        "-r", "examples/resources/pods.yaml",
    ],
    [
        "explain", "examples/policies/no-privileged-pods.yaml",
        "-r", "examples/resources/pods.yaml", "--rule", "not-privileged",
    ],
)  # fmt: skip


def run(*words: str) -> str:
    """What a command prints."""
    done = subprocess.run(
        [sys.executable, "-P", *words], cwd=ROOT, capture_output=True, text=True, check=False
    )
    return done.stdout.strip("\n")


def show_explain() -> Iterable[Text]:
    """Two commands, each before what it printed."""
    for words in EXPLAIN:
        yield Text(f"$ lictor {' '.join(words)}", style="bold green")
        yield Text(run("-m", "lictor", *words))
        yield Text()


def show_demo() -> Iterable[Text]:
    """The demo, with its commands and headings set off."""
    yield Text("$ make demo", style="bold green")
    for line in run("scripts/demo.py").splitlines():
        is_heading = bool(line) and not line.startswith(" ")
        style = "bold green" if line.startswith("  $") else "bold" if is_heading else ""
        yield Text(line, style=style)


def draw(name: str, lines: Iterable[Text]) -> None:
    """Write a picture of these lines."""
    with open("/dev/null", "w", encoding="utf-8") as nowhere:
        console = Console(record=True, width=WIDTH, file=nowhere, force_terminal=True)
        for line in lines:
            console.print(line)
        drawn = console.export_svg(title="lictor", unique_id=name)
    FOLDER.mkdir(parents=True, exist_ok=True)
    # A picture must not make a reader's browser load fonts from other hosts.
    drawn = re.sub(r"@font-face \{.*?\}|<!--.*?-->", "", drawn, flags=re.DOTALL)
    (FOLDER / f"{name}.svg").write_text(drawn, encoding="utf-8")


if __name__ == "__main__":
    draw("explain", show_explain())
    draw("demo", show_demo())
