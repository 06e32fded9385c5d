"""Five minutes of attacks by policies of one namespace; `make siege` is the long run.

LICTOR_SIEGE_SECONDS sets another time. On the embedded cluster: what is attacked is lictor, not the API server.
"""

import json
import os
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parents[2] / "tools" / "siege"))
from siege import Siege, besiege, open_cluster

SECONDS = float(os.environ.get("LICTOR_SIEGE_SECONDS", "300"))
SEED = 20_261_115


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Siege]:
    """A cluster that nobody attacks, with everyone watching."""
    folder = tmp_path_factory.mktemp("violations")
    with (
        open_cluster("embedded") as cluster,
        closing(Siege(cluster, folder, is_crowded=False)) as siege,
    ):
        yield siege


def test_nobody_outside_is_harmed(tmp_path: Path) -> None:
    siege = besiege("embedded", tmp_path, SECONDS, SEED, is_crowded=False)
    told = "\n".join(siege.describe())
    print(told)  # noqa: T201
    harm = dict(siege.violations.counts)
    # Other tests run beside this one, on the same processors: `make siege` counts answers that
    # take more than 50 ms. Here, none takes long.
    harm.pop("slow answer", 0)
    assert harm == {}, told
    assert siege.foreign.answers.slowest_own["webhook"] < 1000, told
    # An attack that nobody carried out proves nothing.
    assert siege.attacker.tally.accepted.total() > SECONDS / 10
    assert siege.foreign.answers.count["webhook"] > SECONDS


def test_harm_would_be_seen(small: Siege) -> None:
    """Each kind of harm, done by the administrator, is noticed."""
    site, kubectl = small.site, small.site.cluster.kubectl
    word = site.markers["blue"]
    kubectl("create", "configmap", "planted", "-n", "blue")
    kubectl("label", "namespace", "blue", "touched=yes")
    kubectl("delete", "configmap", "vault", "-n", "kube-system")
    kubectl("create", "configmap", "told", "-n", "red", f"--from-literal=word={word[::-1]}")
    small.oracle.search(json.dumps({"message": f"found {word}"}), "an answer")
    with small.watched():
        kubectl("delete", "clusterpolicy", "guard")
        time.sleep(3)
    assert set(small.violations.counts) >= {
        "object created",
        "object changed",
        "object deleted",
        "secret shown",
        "wrong answer",
    }
    assert small.violations.counts["secret shown"] == 2
