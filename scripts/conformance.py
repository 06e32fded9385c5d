"""Print how lictor answers compared with real Kyverno and Kubewarden. Run by `make conformance`."""

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path.append(str(ROOT / "tests" / "conformance"))

import kubewarden_guests  # noqa: E402
import kwctl_rows  # noqa: E402
import policy_server_rows  # noqa: E402
from image_rows import NoRegistryError, compare, served_corpus  # noqa: E402

DIFFERENCES = ROOT / "docs" / "differences.md"
LICTOR = str(Path(sys.executable).parent / "lictor")


def judge(tool: Path, *words: str) -> None:
    """Run one of the judges and show what it says."""
    print(f"== {tool.name} {' '.join(words[1:])}", flush=True)
    subprocess.run([sys.executable, str(tool), LICTOR, *words], check=False)


def judge_images(shared: Path) -> None:
    """Show how verdicts on signed images compare."""
    images = shared / "conformance" / "images"
    print("== signed images", flush=True)
    try:
        with (
            served_corpus(images, shared / "tools" / "serve_registry.py"),
            tempfile.TemporaryDirectory() as scratch,
        ):
            found = compare(images, DIFFERENCES, Path(scratch))
    except NoRegistryError as error:
        print(f"conformance: no signed images to compare: {error}")
        return
    listed = len(found.differences) - len(found.unlisted)
    softer = sum(each.is_softer for each in found.unlisted)
    good = found.total - len(found.unlisted)
    print(f"rows that agree or are listed: {good}/{found.total} = {100 * found.rate:.2f} %")
    print(f"listed in docs/differences.md: {listed}; softer than Kyverno and not listed: {softer}")
    for each in found.unlisted[:15]:
        print("   ", each)


def judge_kubewarden() -> None:
    """Show how the policy server and the commands for modules compare, and Rego with OPA."""
    guests = kubewarden_guests.build_guests()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for part in ("servers", "commands"):
            (folder / part).mkdir()
        print("== policies in WebAssembly: answers of policy-server", flush=True)
        _tell(policy_server_rows.compare(guests, DIFFERENCES, folder / "servers"))
        print("== policies in WebAssembly: command lines of kwctl", flush=True)
        _tell(kwctl_rows.compare(folder / "commands", guests, DIFFERENCES))
    print("== policies in WebAssembly: Rego", flush=True)
    rego = ROOT / "tests" / "conformance" / "test_rego_wasm.py"
    subprocess.run([sys.executable, "-m", "pytest", "-q", str(rego)], check=False, cwd=ROOT)


def _tell(found: "policy_server_rows.Comparison | kwctl_rows.Comparison") -> None:
    good = found.total - len(found.unlisted)
    listed = len(found.differences) - len(found.unlisted)
    print(f"rows that agree or are listed: {good}/{found.total} = {100 * found.rate:.2f} %")
    print(f"listed in docs/differences.md: {listed}; not run here: {len(found.skipped)}")
    for each in found.unlisted[:15]:
        print("   ", each)


def main() -> None:
    """The suites of Test files, the golden tables, signed images, then policies in Wasm."""
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
    judge_images(arguments.shared)
    judge_kubewarden()


if __name__ == "__main__":
    main()
