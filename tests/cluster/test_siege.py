"""Attacks by policies of one namespace: would harm to others be seen? `make siege` carries them out."""

import json
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parents[1] / "siege"))
from siege import Siege, open_cluster


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Siege]:
    """A cluster that nobody attacks, with everyone watching."""
    with open_cluster("embedded") as cluster:
        yield Siege(cluster, tmp_path_factory.mktemp("violations"))


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
    assert set(small.ledger.counts) >= {
        "object created",
        "object changed",
        "object deleted",
        "secret shown",
        "wrong answer",
    }
    assert small.ledger.counts["secret shown"] == 2
