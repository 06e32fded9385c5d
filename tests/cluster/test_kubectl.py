"""Real kubectl is the judge: its everyday commands, on every kind of cluster.

What is found on the embedded one is the table of docs/reference/kubectl.md. Where it is no longer true:

    LICTOR_WRITE_TABLE=1 LICTOR_CLUSTER=embedded pytest tests/cluster/test_kubectl.py
"""

import os
import subprocess
import time
from pathlib import Path

import pytest
from control_plane.embedded import EmbeddedCluster
from kubectl_table import ROWS, WIDGETS, render_table

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "kubectl.md"
BEGIN, END = "<!-- kubectl: begin -->\n", "<!-- kubectl: end -->"
# Those that only look may look again: controllers need a moment.
LOOKING = ("get", "describe", "explain", "api-resources", "wait", "rollout", "auth")
PATIENCE = 90.0


class Desk:
    """Someone who types commands in a namespace of their own."""

    def __init__(self, cluster, namespace):
        self.cluster = cluster
        self.namespace = namespace

    def run(self, *words, stdin=""):
        done = subprocess.run(
            self.cluster.command(
                "kubectl", f"--kubeconfig={self.cluster.kubeconfig}", "-n", self.namespace, *words
            ),
            env={
                **os.environ,
                "KUBE_EDITOR": "sed -i s/green/blue/",
                "HOME": str(self.cluster.folder),
            },
            input=stdin,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        return done.returncode, done.stdout + done.stderr

    def do(self, *words, stdin=""):
        code, text = self.run(*words, stdin=stdin)
        assert code == 0, text


@pytest.fixture(scope="module")
def outcomes(cluster):
    """What was found on this cluster, which has a kind of its own."""
    cluster.kubectl("apply", "-f", "-", stdin=WIDGETS)
    cluster.kubectl("wait", "crd/widgets.tests.lictor.io", "--for=condition=Established")
    yield {}
    cluster.kubectl("delete", "crd", "widgets.tests.lictor.io", "--wait=false")


@pytest.fixture
def desk(cluster, request):
    number = next(i for i, row in enumerate(ROWS) if row is request.getfixturevalue("row"))
    name = f"kubectl-{number}"
    cluster.kubectl("create", "namespace", name)
    cluster.kubectl("wait", "--for=create", "serviceaccount/default", "-n", name, "--timeout=30s")
    yield Desk(cluster, name)
    cluster.kubectl("delete", "namespace", name, "--wait=false")


def test_names_differ():
    assert len({row.name for row in ROWS}) == len(ROWS)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_command(row, desk, outcomes):
    outcomes[row.name] = False
    if row.first:
        desk.do(row.maker, "-f", "-", stdin=row.first)
    if row.why_not:
        code, text = desk.run(*row.command.split(" "), *row.words, stdin=row.stdin)
        assert code != 0 or row.code == -1, text
    else:
        check(row, desk)
    outcomes[row.name] = True


def check(row, desk):
    words = row.command.split(" ")
    deadline = time.monotonic() + PATIENCE
    while True:
        code, text = desk.run(*words, *row.words, stdin=row.stdin)
        is_right = row.code in (-1, code) and (bool(row.then) or row.shows in text)
        if is_right or words[0] not in LOOKING or time.monotonic() > deadline:
            break
        time.sleep(0.3)
    assert row.code in (-1, code), text
    if row.then:
        _, text = desk.run(*row.then.split(" "))
    assert row.shows in text


def test_page_says_what_was_found(cluster, outcomes):
    if not isinstance(cluster, EmbeddedCluster):
        pytest.skip("the page is about the embedded cluster")
    if len(outcomes) < len(ROWS):
        pytest.skip("not all commands were tried")
    before, begun, rest = PAGE.read_text(encoding="utf-8").partition(BEGIN)
    told, ended, after = rest.partition(END)
    assert begun, "the page has no place for the table"
    assert ended, "the page has no end of the table"
    found = render_table(outcomes)
    if os.environ.get("LICTOR_WRITE_TABLE") == "1":
        PAGE.write_text(f"{before}{BEGIN}{found}\n{END}{after}", encoding="utf-8")
        return
    assert told.strip() == found.strip()
