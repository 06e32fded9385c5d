"""The main job in one minute: judge, explain, fix. Run by `make demo`."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent
LICTOR = [sys.executable, "-m", "lictor"]


def run(title: str, *words: str) -> None:
    """Show a command, then its output. A refused resource is what we came to see."""
    print(f"\n\033[1m# {title}\033[0m" if sys.stdout.isatty() else f"\n# {title}")
    print(f"$ lictor {' '.join(words)}", flush=True)
    done = subprocess.run([*LICTOR, *words], cwd=ROOT, check=False)
    if done.returncode not in (0, 1):
        raise SystemExit(done.returncode)


def main() -> None:
    """Five example policies on four example resources."""
    run("Are the policies right?", "lint", "examples/policies")
    run(
        "Judge: which resources keep which rules?",
        "apply", "examples/policies/no-privileged-pods.yaml", "examples/policies/team-label.yaml",
        "examples/policies/known-registries.yaml", "-r", "examples/resources", "--table",
    )  # fmt: skip
    run(
        "Explain: why is the Pod `debug` refused?",
        "explain", "examples/policies/no-privileged-pods.yaml",
        "-r", "examples/resources/pods.yaml", "--rule", "not-privileged",
    )  # fmt: skip
    run(
        "Fix: what does the Pod look like with safe defaults?",
        "apply", "examples/policies/safe-defaults.yaml", "-r", "examples/resources/pods.yaml",
    )  # fmt: skip
    run(
        "Generate: what would a new namespace get?",
        "apply", "examples/policies/namespace-network-policy.yaml",
        "-r", "examples/resources/workloads.yaml",
    )  # fmt: skip


if __name__ == "__main__":
    main()
