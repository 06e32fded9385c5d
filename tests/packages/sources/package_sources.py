"""The sources that packages are built from, and what comes of them."""

import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[3]


@dataclass(frozen=True)
class Built:
    """What `python -m build` made, and the sources that it was made from."""

    source: Path
    wheel: Path
    sdist: Path


def copy_sources(target: Path) -> Path:
    """What git has of this tree, as it is now; building leaves no traces in the tree itself."""
    listed = subprocess.run(
        ["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    for name in filter(None, listed.stdout.split("\0")):
        if (ROOT / name).is_file() and not name.startswith("tests/"):
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, target / name)
    return target
