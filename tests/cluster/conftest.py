"""The tier of tests on a cluster: run when asked for.

    LICTOR_CLUSTER_TESTS=1 pytest tests/cluster        or just        pytest tests/cluster
    LICTOR_CLUSTER=embedded pytest tests/cluster       only on the cluster inside lictor

The same tests run on the embedded cluster and on a real control plane. `pytest` on everything leaves
this folder out, as a control plane takes seconds to start and, the first time, minutes to build.
"""

import os
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest
from control_plane.choice import choose_kinds
from control_plane.cluster import Cluster
from control_plane.embedded import EmbeddedCluster
from control_plane.local import LocalCluster
from control_plane.plane import ControlPlane
from control_plane.programs import NoControlPlaneError, Programs, find_programs

HERE = Path(__file__).parent
# The runner of chainsaw tests lives there, and is itself tested on a cluster.
sys.path.append(str(HERE.parent / "conformance"))
ASKED = "LICTOR_CLUSTER_TESTS"
Open = Callable[..., LocalCluster]


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leave the folder out unless it was named, by the variable or on the command line."""
    if os.environ.get(ASKED) == "1" or HERE not in collection_path.parents:
        return None
    named = (Path(str(word).partition("::")[0]).absolute() for word in config.args)
    return None if any(path == HERE or HERE in path.parents for path in named) else True


# Files that take minutes begin first: at the end, one of them would be waited for alone.
LONGEST = (
    "test_siege.py",
    "test_policy_servers.py",
    "test_helm.py",
    "test_migrate.py",
    "test_reports.py",
)


def _rank(item: pytest.Item) -> int:
    return LONGEST.index(item.path.name) if item.path.name in LONGEST else len(LONGEST)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Sockets of watches that were cancelled may outlive their loop by a moment.

    The collector finds them in whichever test comes next, which has nothing to do with them. Whether
    clients close what they open is asked of them in tests/unit.
    """
    items.sort(key=_rank)
    calm = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(calm)


@pytest.fixture(scope="session")
def programs(pytestconfig: pytest.Config) -> Programs:
    """The programs of the control plane; the tier is skipped where there are none."""
    capture = pytestconfig.pluginmanager.getplugin("terminalreporter")
    try:
        return find_programs(lambda line: capture.write_line(line) if capture else None)
    except NoControlPlaneError as absent:
        pytest.skip(str(absent))


@pytest.fixture(scope="session", params=choose_kinds())
def open_cluster(request: pytest.FixtureRequest) -> Open:
    """How a cluster of a kind is made: one for each test or file that takes it for itself."""
    if request.param == "embedded":
        return EmbeddedCluster
    return partial(ControlPlane, request.getfixturevalue("programs"))


@pytest.fixture(scope="session")
def cluster(open_cluster: Open) -> Iterator[Cluster]:
    """A cluster for the whole session: tests use namespaces and names of their own."""
    with open_cluster() as plane:
        yield plane


@pytest.fixture
def own_cluster(open_cluster: Open) -> Iterator[LocalCluster]:
    """A cluster for one test that breaks it."""
    with open_cluster() as plane:
        yield plane
