"""Installs the family of `required_labels.py` as a package would, into a folder of its own."""

import os
import shutil
from pathlib import Path

ENTRY_POINTS = """\
[lictor.families]
required_labels = required_labels:FAMILY
[lictor.commands]
count-labels = required_labels:count_labels
"""
METADATA = "Metadata-Version: 2.1\nName: required-labels\nVersion: 1.0\n"


def install_family(folder: Path, entry_points: str = ENTRY_POINTS) -> dict[str, str]:
    """The environment of processes that have the family."""
    shutil.copy(Path(__file__).with_name("required_labels.py"), folder)
    info = folder / "required_labels-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(METADATA)
    (info / "entry_points.txt").write_text(entry_points)
    return {**os.environ, "PYTHONPATH": str(folder)}
