"""Whoever has no policy in CEL never loads its engine."""

import subprocess
import sys

SCRIPT = """
import sys
from lictor.core.assembly import compile_documents
from lictor.core.engine import Engine
Engine(compile_documents([])).evaluate({"apiVersion": "v1", "kind": "Pod"})
print([name for name in sys.modules if "cel_expr" in name or name.startswith("lictor.core.lang.cel")])
"""


def test_no_policy_no_engine():
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"
