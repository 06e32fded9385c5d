"""An engine is made also where memory is limited, and takes no more than it uses."""

import subprocess
import sys
from pathlib import Path

import pytest

_SOURCES = Path(__file__).parents[4] / "wasm"
_PROGRAM = """
import resource, sys
sys.path.insert(0, {sources!r})
from wat_guests import wapc
from lictor.addons.kubewarden.runtime.engine import compile_module, make_engine
from lictor.addons.kubewarden.runtime import open_guest
from lictor.core.lang.wasm_module import reserved_bytes
from lictor.core.lang.wasm_records import ExecutionMode, GuestLimits, NoHostCalls
{prepare}
engine = make_engine()
guest = open_guest(compile_module(wapc(), engine), ExecutionMode.WAPC, GuestLimits(), NoHostCalls())
assert guest.validate({{}}, {{}}).accepted
{check}
print("done")
"""
_DATA = """
import wasmtime
from lictor.webhook.capacity import ProcessMemory, _read_data
before = _read_data()
memory = ProcessMemory(0)
"""
_HAS_ROOM = """
assert reserved_bytes() > 2**30
soft, _ = resource.getrlimit(resource.RLIMIT_DATA)
memory.note_connections(64)
memory.note_connections(0)
assert resource.getrlimit(resource.RLIMIT_DATA)[0] == soft
# What it has by now is little, and it cannot have much more.
assert _read_data() - before < 150 * 2**20, _read_data() - before
try:
    bytearray(2**30)
except MemoryError:
    pass
else:
    sys.exit("the limit does not hold")
"""
_ADDRESSES = """
import wasmtime
resource.setrlimit(resource.RLIMIT_AS, (16 * 2**30, 16 * 2**30))
"""
_HARD = """
import wasmtime
resource.setrlimit(resource.RLIMIT_DATA, (2**30, 2**30))
"""
_HAS_NONE = "assert reserved_bytes() == 0"


@pytest.mark.parametrize(
    ("prepare", "check"),
    [("", "assert reserved_bytes() > 0"), (_DATA, _HAS_ROOM), (_ADDRESSES, _HAS_NONE), (_HARD, _HAS_NONE)],
    ids=["no limit", "a process of the webhook", "few addresses", "a hard limit"],
)  # fmt: skip
def test_engines_where_memory_is_limited(prepare, check):
    program = _PROGRAM.format(sources=str(_SOURCES), prepare=prepare, check=check)
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    assert done.stdout == "done\n", done.stderr
