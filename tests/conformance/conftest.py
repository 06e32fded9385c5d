"""Cases that others wrote, with real Kyverno's answers: run where they lie beside the project."""

from pathlib import Path

SHARED = Path(__file__).parents[3] / "shared"
CASES = SHARED / "conformance"

# Elsewhere there is nothing to compare with; test_presence.py says so in one line.
collect_ignore = (
    [] if CASES.is_dir() else ["test_admission_tables.py", "test_golden.py", "test_suites.py"]
)
