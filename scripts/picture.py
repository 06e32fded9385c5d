"""Draw the README's picture: real output of real commands, as SVG."""

import re
import subprocess
import sys
from pathlib import Path

from rich.console import Console
from rich.text import Text

ROOT = Path(__file__).parent.parent
PICTURE = ROOT / "docs" / "img" / "explain.svg"
COMMANDS = (
    [
        "apply", "examples/policies/no-privileged-pods.yaml", "examples/policies/team-label.yaml",
        "-r", "examples/resources/pods.yaml",
    ],
    [
        "explain", "examples/policies/no-privileged-pods.yaml",
        "-r", "examples/resources/pods.yaml", "--rule", "not-privileged",
    ],
)  # fmt: skip


def main() -> None:
    """Run the commands and draw what they print."""
    with open("/dev/null", "w", encoding="utf-8") as nowhere:
        console = Console(record=True, width=132, file=nowhere, force_terminal=True)
        for words in COMMANDS:
            console.print(Text(f"$ lictor {' '.join(words)}", style="bold green"))
            done = subprocess.run(
                [sys.executable, "-m", "lictor", *words],
                cwd=ROOT, capture_output=True, text=True, check=False,
            )  # fmt: skip
            console.print(Text(done.stdout.strip("\n")))
            console.print()
        PICTURE.parent.mkdir(parents=True, exist_ok=True)
        drawn = console.export_svg(title="lictor")
        # A picture must not make a reader's browser ask anyone for fonts.
        drawn = re.sub(r"@font-face \{.*?\}", "", drawn, flags=re.DOTALL)
        PICTURE.write_text(re.sub(r"<!--.*?-->", "", drawn, flags=re.DOTALL), encoding="utf-8")


if __name__ == "__main__":
    main()
