"""Print how lictor's answers compare with real Kyverno's. Run by `make conformance`."""

import argparse
import subprocess
import sys
from pathlib import Path

LICTOR = str(Path(sys.executable).parent / "lictor")


def judge(tool: Path, *words: str) -> None:
    """Run one of the judges and show what it says."""
    print(f"== {tool.name} {' '.join(words[1:])}", flush=True)
    subprocess.run([sys.executable, str(tool), LICTOR, *words], check=False)


def main() -> None:
    """The suites of Test files, then the golden tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--shared", type=Path, default=Path("../shared"))
    parser.add_argument("--family", default="classic")
    parser.add_argument("--tables", default="patterns,conditions,crashes,jmespath,matrix")
    arguments = parser.parse_args()
    cases = arguments.shared / "conformance"
    tools = arguments.shared / "tools"
    if not cases.is_dir():
        print(f"conformance: {cases} is not here; nothing to compare with")
        return
    judge(
        tools / "suite_check.py", str(cases), str(cases / "index.jsonl"),
        "--family", arguments.family,
    )  # fmt: skip
    judge(
        tools / "golden_check.py", str(cases / "golden"), *arguments.tables.split(","),
        "--library", str(cases / "policy-library"),
        "--resources", str(cases / "golden" / "matrix-resources.yaml"),
    )  # fmt: skip


if __name__ == "__main__":
    main()
