"""The page with every flag and setting says what the program says."""

import runpy
from pathlib import Path

import msgspec

from lictor.kubernetes.flags import IGNORED, REASONS, Flags
from lictor.kubernetes.settings import Settings

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / "scripts" / "make_reference.py"


def test_the_page_is_what_the_program_says() -> None:
    made = runpy.run_path(str(SCRIPT))
    written = made["PAGE"].read_text()
    assert written == made["render_page"](), "run scripts/make_reference.py"


def test_nothing_is_missing() -> None:
    text = (ROOT / "docs" / "reference" / "commands.md").read_text()
    flags = [field.encode_name for field in msgspec.structs.fields(Flags)]
    assert [name for name in flags if f"`--{name}`" not in text] == []
    assert [name for name in IGNORED if f"`{name}`" not in text] == []
    assert REASONS.keys() == IGNORED.keys()
    settings = [f.encode_name for f in msgspec.structs.fields(Settings) if f.name != "problems"]
    # Two of them stand in one entry.
    assert text.count("\n| `") > len(flags) + len(settings) - 1
