"""How much memory a policy may take that is asked beside the page."""

from pathlib import Path

import pytest

from lictor.addons.web.failure_process import find_room

MIB = 1024 * 1024


@pytest.mark.parametrize(
    ("limit", "room"),
    [
        (str(256 * MIB), 100 + 256 - 180 - 24),
        (str(190 * MIB), 100),
        (str(4096 * MIB), 768),
        ("max", 768),
        (None, 768),
    ],
)
def test_a_policy_that_is_asked_leaves_room_for_the_page(
    tmp_path: Path, limit: str | None, room: int
) -> None:
    status = tmp_path / "status"
    status.write_text(f"Name:\tpython\nVmData:\t{100 * 1024} kB\n")
    if limit is not None:
        (tmp_path / "memory.max").write_text(f"{limit}\n")
        (tmp_path / "memory.stat").write_text(f"anon {180 * MIB}\nfile 5\n")
    assert find_room(tmp_path, status) == room * MIB
