"""The main job in half a minute, on a cluster of its own. Run by `make demo`.

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


def say(text: str = "") -> None:
    """A line at once, also into a pipe."""
    print(text, flush=True)


def tell(title: str, *more: str) -> None:
    """What comes next, in a sentence."""
    say(f"\n{paint(title, BOLD)}")
    for line in more:
        say(paint(line, DIM))


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
            say(paint("  (no kubectl here: lictor's own client does the same)", DIM))
        self._program = [kubectl] if kubectl else [sys.executable, str(HERE / "demo_client.py")]

    def show(self, *words: str, colour: str = "", keep: Callable[[str], str] = str) -> str:
        """Show a command as it would be typed, then what it says."""
        typed = " ".join(f"'{word}'" if set(word) & set(" {}|*") else word for word in words)
        say(f"  {paint('$', DIM)} {paint(f'kubectl {typed}', CYAN)}")
        text = self.run(*words)
        for line in keep(text).splitlines():
            say(paint(f"  {line}".rstrip(), colour) if colour else f"  {line}".rstrip())
        return text

    def run(self, *words: str) -> str:
        """What a command says, on either stream."""
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
        """Ask again and again until the answer is what we wait for."""
        deadline = time.monotonic() + PATIENCE
        while not until(text := self.run(*words)):
            if time.monotonic() > deadline:
                raise SystemExit(f"demo: {' '.join(words)} still says:\n{text}")
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
            say(f"  {paint('$', DIM)} {paint('lictor up', CYAN)}")
            say(f"  {first}")
            yield kubeconfig
        finally:
            process.send_signal(signal.SIGINT)
            process.wait(20)


def show_what_was_there(demo: Demo) -> None:
    """Objects from before there were any policies."""
    tell("Before there are policies, anything goes: a Pod with every right of its machine.")
    demo.show("create", "namespace", "shop")
    demo.show("apply", "-f", "examples/resources/pods.yaml")


def show_policies(demo: Demo) -> None:
    """Five policies come into force."""
    tell("Now five policies come, as they are written for Kyverno.")
    demo.show("apply", "-f", "examples/policies")
    demo.wait("get", "clusterpolicy", until=lambda text: text.count(" True ") == 5)


def show_refusal(demo: Demo) -> None:
    """A Pod that is not let in."""
    tell("1  Validate: the same Pod again is refused, and told why.")
    demo.show(
        "run", "intruder", "-n", "shop", "--image=busybox", "--privileged",
        colour=RED, keep=fold,
    )  # fmt: skip


def show_mutation(demo: Demo) -> None:
    """A Pod that is let in, and better than it was sent."""
    tell("2  Mutate: a Pod that keeps the rules gets safe defaults that nobody had to write.")
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
    tell("3  Generate: a new namespace starts closed.")
    demo.show("create", "namespace", "payments")
    words = ("get", "networkpolicy", "-n", "payments")
    demo.wait(*words, until=lambda text: "deny-ingress" in text)
    demo.show(*words, colour=GREEN)


def show_report(demo: Demo) -> None:
    """What was there already is judged too."""
    tell("4  Report: existing objects are evaluated, too, and not changed.")
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
    tell("A Kubernetes API with policies in force, in one program and without containers.")
    with run_cluster() as kubeconfig:
        demo = Demo(kubeconfig)
        for step in STEPS:
            step(demo)
    say()
    say(paint(f"All of that took {time.monotonic() - began:.0f} s.", BOLD) + " Your turn:")
    say("  .venv/bin/lictor up --policies examples/policies")


if __name__ == "__main__":
    main()
