"""Cases that others wrote, with real Kyverno's answers, are run where they lie beside the project."""

from pathlib import Path

# Elsewhere there is nothing to compare with; conformance/test_presence.py says so in one line.
_NEED_CASES = ("test_admission_tables.py", "test_golden.py", "test_suites.py")
collect_ignore = (
    []
    if (Path(__file__).parents[2] / "shared" / "conformance").is_dir()
    else [f"conformance/{name}" for name in _NEED_CASES]
)
