"""The tier of tests on a real cluster: run when asked for.

    LICTOR_CLUSTER_TESTS=1 pytest tests/cluster        or just        pytest tests/cluster

`pytest` on everything leaves this folder out, as a control plane takes seconds to start and, the
first time, minutes to build.
"""

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from control_plane.cluster import Cluster
from control_plane.plane import ControlPlane
from control_plane.programs import NoControlPlaneError, Programs, find_programs

HERE = Path(__file__).parent
# The runner of chainsaw tests lives there, and is itself tested on a cluster.
sys.path.append(str(HERE.parent / "conformance"))
ASKED = "LICTOR_CLUSTER_TESTS"
# Kinds of cluster on which the same suite runs.
KINDS = ("real",)


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leave the folder out unless it was named, by the variable or on the command line."""
    if os.environ.get(ASKED) == "1" or HERE not in collection_path.parents:
        return None
    named = (Path(str(word).partition("::")[0]).absolute() for word in config.args)
    return None if any(path == HERE or HERE in path.parents for path in named) else True


@pytest.fixture(scope="session")
def programs(pytestconfig: pytest.Config) -> Programs:
    """The programs of the control plane; the tier is skipped where there are none."""
    capture = pytestconfig.pluginmanager.getplugin("terminalreporter")
    try:
        return find_programs(lambda line: capture.write_line(line) if capture else None)
    except NoControlPlaneError as absent:
        pytest.skip(str(absent))


@pytest.fixture(scope="session", params=KINDS)
def cluster(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    """A cluster for the whole session: tests use namespaces and names of their own."""
    with ControlPlane(request.getfixturevalue("programs")) as plane:
        yield plane


@pytest.fixture
def own_cluster(programs: Programs) -> Iterator[ControlPlane]:
    """A control plane for one test that breaks it."""
    with ControlPlane(programs) as plane:
        yield plane
