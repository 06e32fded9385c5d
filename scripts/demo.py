"""The main job in half a minute, on a separate cluster. Run by `make demo`.

Everything that is shown happens: `lictor up` runs a Kubernetes API with policies in force, and real
kubectl talks to it; where there is no kubectl, a few lines of Python do (demo_client.py).
"""

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import textwrap
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).parent.parent
HERE = Path(__file__).parent
PATIENCE = 30.0
WIDTH = 96
IS_TERMINAL = sys.stdout.isatty() and not os.environ.get("NO_COLOR")
BOLD, DIM, RED, GREEN, CYAN = "1", "2", "31", "32", "36"


def paint(text: str, colour: str) -> str:
    """Colour, where someone looks."""
    return f"\033[{colour}m{text}\033[0m" if IS_TERMINAL else text


def print_text(text: str = "") -> None:
    """A line at once, also into a pipe."""
    print(text, flush=True)


def print_title(title: str, *more: str) -> None:
    """What comes next, in a sentence."""
    print_text(f"\n{paint(title, BOLD)}")
    for line in more:
        print_text(paint(line, DIM))


class Demo:
    """One cluster, and someone who types."""

    def __init__(self, kubeconfig: Path) -> None:
        self._environment = {
            **os.environ,
            "KUBECONFIG": str(kubeconfig),
            "PYTHONWARNINGS": "ignore",
        }
        kubectl = shutil.which("kubectl")
        if kubectl is None:
            print_text(paint("  (no kubectl here: lictor's own client does the same)", DIM))
        self._program = [kubectl] if kubectl else [sys.executable, str(HERE / "demo_client.py")]

    def show(self, *words: str, colour: str = "", keep: Callable[[str], str] = str) -> str:
        """Print a command as typed, then its output."""
        typed = " ".join(f"'{word}'" if set(word) & set(" {}|*") else word for word in words)
        print_text(f"  {paint('$', DIM)} {paint(f'kubectl {typed}', CYAN)}")
        text = self.run(*words)
        for line in keep(text).splitlines():
            print_text(paint(f"  {line}".rstrip(), colour) if colour else f"  {line}".rstrip())
        return text

    def run(self, *words: str) -> str:
        """The output of a command, of both streams."""
        done = subprocess.run(
            [*self._program, *words],
            env=self._environment,
            cwd=ROOT,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        return done.stdout.strip()

    def wait(self, *words: str, until: Callable[[str], bool]) -> str:
        """Repeat a command until its output is as expected."""
        deadline = time.monotonic() + PATIENCE
        while not until(text := self.run(*words)):
            if time.monotonic() > deadline:
                raise SystemExit(f"demo: {' '.join(words)} still prints:\n{text}")
            time.sleep(0.1)
        return text


@contextmanager
def run_cluster() -> Iterator[Path]:
    """`lictor up` for as long as the block lasts; its kubeconfig."""
    with tempfile.TemporaryDirectory(prefix="lictor-demo-") as folder:
        kubeconfig, log = Path(folder) / "kubeconfig", Path(folder) / "log"
        with log.open("w") as output:
            command = [sys.executable, "-P", "-m", "lictor", "up", f"--kubeconfig={kubeconfig}"]
            process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=output, text=True)
        assert process.stdout is not None
        try:
            first = process.stdout.readline().strip()
            if not first:
                raise SystemExit(f"demo: lictor up ended\n{log.read_text()}")
            print_text(f"  {paint('$', DIM)} {paint('lictor up', CYAN)}")
            print_text(f"  {first}")
            yield kubeconfig
        finally:
            process.send_signal(signal.SIGINT)
            process.wait(20)


def show_what_was_there(demo: Demo) -> None:
    """Objects from before there were any policies."""
    print_title("Before there are policies, anything goes: a Pod with every right of its machine.")
    demo.show("create", "namespace", "shop")
    demo.show("apply", "-f", "examples/resources/pods.yaml")


def show_policies(demo: Demo) -> None:
    """Five policies come into force."""
    print_title("Now five policies come, as they are written for Kyverno.")
    demo.show("apply", "-f", "examples/policies")
    demo.wait("get", "clusterpolicy", until=lambda text: text.count(" True ") == 5)


def show_refusal(demo: Demo) -> None:
    """A Pod that is not let in."""
    print_title("1  Validate: the same Pod again is denied, with the reason.")
    demo.show(
        "run", "intruder", "-n", "shop", "--image=busybox", "--privileged",
        colour=RED, keep=fold,
    )  # fmt: skip


def show_mutation(demo: Demo) -> None:
    """A Pod that is let in, and better than it was sent."""
    print_title("2  Mutate: a Pod that keeps the rules gets safe defaults.")
    demo.show(
        "run",
        "checkout",
        "-n",
        "shop",
        "--image=ghcr.io/acme/checkout:1.0",
        "-l",
        "team=storefront",
    )
    words = ("get", "pod", "checkout", "-n", "shop", "-o", "yaml")
    demo.show(*words, colour=GREEN, keep=lambda text: cut(text, "resources", "securityContext"))


def show_generation(demo: Demo) -> None:
    """A namespace that is not born naked."""
    print_title("3  Generate: a new namespace starts closed.")
    demo.show("create", "namespace", "payments")
    words = ("get", "networkpolicy", "-n", "payments")
    demo.wait(*words, until=lambda text: "deny-ingress" in text)
    demo.show(*words, colour=GREEN)


def show_report(demo: Demo) -> None:
    """Existing objects are evaluated too."""
    print_title("4  Report: existing objects are evaluated, too, and not changed.")
    words = ("get", "policyreport", "-n", "shop")
    demo.wait(*words, until=lambda text: has_verdict(text, "debug", fails=3))
    demo.show(*words)
    columns = "custom-columns=POD:.scope.name,RESULT:.results[*].result,POLICY:.results[*].policy"
    demo.show(*words, "-o", columns, keep=unfold)


def has_verdict(table: str, name: str, *, fails: int) -> bool:
    """Does the table of reports have so many failures for this object?"""
    for line in table.splitlines():
        cells = line.split()
        if name in cells and "Pod" in cells:
            return cells[cells.index(name) + 2] == str(fails)
    return False


def unfold(table: str) -> str:
    """One line for each verdict of the Pod that was there."""
    rows: list[str] = []
    for line in table.splitlines()[1:]:
        pod, results, policies = line.split()
        for result, policy in zip(results.split(","), policies.split(","), strict=False):
            if pod == "debug":
                colour = RED if result == "fail" else GREEN
                rows.append(f"{pod}  {paint(result.ljust(4), colour)}  {policy}")
    return "\n".join(rows)


def cut(text: str, *names: str) -> str:
    """Only these fields of a YAML text, with all that is below them."""
    kept: list[str] = []
    depth = -1
    for line in text.splitlines():
        indent = len(line) - len(line.lstrip())
        if depth >= 0 and indent > depth:
            kept.append(line)
            continue
        depth = indent if line.strip().rstrip(":") in names else -1
        if depth >= 0:
            kept += ["  ...", line]
    return "\n".join(kept)


def fold(text: str) -> str:
    """Long lines, as a terminal can show them."""
    lines: list[str] = []
    for line in text.splitlines():
        lines += textwrap.wrap(line, WIDTH, subsequent_indent="  ") or [""]
    return "\n".join(lines)


STEPS: Sequence[Callable[[Demo], None]] = (
    show_what_was_there,
    show_policies,
    show_refusal,
    show_mutation,
    show_generation,
    show_report,
)


def main() -> None:
    """From nothing to a verdict on everything."""
    began = time.monotonic()
    print_title("A Kubernetes API with policies in force, in one program and without containers.")
    with run_cluster() as kubeconfig:
        demo = Demo(kubeconfig)
        for step in STEPS:
            step(demo)
    print_text()
    print_text(paint(f"All of that took {time.monotonic() - began:.0f} s.", BOLD) + " Your turn:")
    print_text("  .venv/bin/lictor up --policies examples/policies")


if __name__ == "__main__":
    main()
