"""Values that do not fit into a process's memory are an error, not the end of the process."""

import subprocess
import sys

import pytest

_LIMITED = """
import resource, sys
from pathlib import Path
{imports}
value = {{'a': ['x' * 1000] * 2500}}
data = int(Path("/proc/self/statm").read_text().split()[5]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_DATA, (data + {room} * 1024 * 1024, -1))
try:
    {call}
except MemoryError:
    sys.exit(7)
"""


@pytest.mark.parametrize(
    ("imports", "call"),
    [
        ("from lictor.core.lang.cel.library.plain import take_in", "take_in(value)"),
        (
            "from lictor.core.evaluate.expressions import remember_compiled",
            "remember_compiled(lambda filled: None)(value)",
        ),
        (
            "from lictor.core.report.admission_response import AdmissionAnswer, render_review",
            "render_review('1', AdmissionAnswer(patch=(value,)))",
        ),
    ],
)
@pytest.mark.parametrize(("room", "code"), [(4, 7), (400, 0)])
def test_too_large_for_the_process(imports: str, call: str, room: int, code: int) -> None:
    script = _LIMITED.format(imports=imports, room=room, call=call)
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == code
