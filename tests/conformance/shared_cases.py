"""Where cases that others wrote lie: beside the project, or nowhere."""

from pathlib import Path

SHARED = Path(__file__).parents[3] / "shared"
CASES = SHARED / "conformance"
