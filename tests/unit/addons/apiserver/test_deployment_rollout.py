"""How many Pods each ReplicaSet gets: one table."""

import pytest

from lictor.addons.apiserver.controllers.deployment_rollout import (
    plan_rollout,
    read_rollout,
    resolve,
)


def deployment(replicas, **strategy):
    return {"spec": {"replicas": replicas, "strategy": strategy}}


def rolling(surge, unavailable):
    return {
        "type": "RollingUpdate",
        "rollingUpdate": {"maxSurge": surge, "maxUnavailable": unavailable},
    }


def replica_set(name, size, available=0, replicas=None):
    status = {"replicas": size if replicas is None else replicas, "availableReplicas": available}
    return {"metadata": {"uid": name, "name": name}, "spec": {"replicas": size}, "status": status}


@pytest.mark.parametrize(
    ("value", "total", "up", "down"),
    [
        (1, 3, 1, 1),
        ("25%", 3, 1, 0),
        ("25%", 4, 1, 1),
        ("100%", 3, 3, 3),
        ("0%", 3, 0, 0),
        ("2", 9, 2, 2),
    ],
)
def test_percentages(value, total, up, down):
    assert resolve(value, total, rounds_up=True) == up
    assert resolve(value, total, rounds_up=False) == down


@pytest.mark.parametrize(
    ("wanted", "strategy", "new", "old", "expected"),
    [
        pytest.param(3, rolling("25%", "25%"), (0, 0), [], {"new": 3}, id="first set"),
        pytest.param(5, rolling("25%", "25%"), (3, 3), [], {"new": 5}, id="scaled up"),
        pytest.param(0, rolling("25%", "25%"), (3, 3), [], {"new": 0}, id="scaled to nothing"),
        pytest.param(2, rolling("25%", "25%"), (3, 0), [], {"new": 2}, id="scaled down"),
        pytest.param(3, rolling(1, 0), (0, 0), [(3, 3)], {"new": 1}, id="the new set begins"),
        pytest.param(3, rolling(1, 0), (1, 0), [(3, 3)], {}, id="waits for the first"),
        pytest.param(3, rolling(1, 0), (1, 1), [(3, 3)], {"old-0": 2}, id="one for one"),
        pytest.param(3, rolling(0, 1), (0, 0), [(3, 3)], {"old-0": 2}, id="old ones go first"),
        pytest.param(
            3, rolling(1, 1), (0, 0), [(3, 0)], {"new": 1, "old-0": 2}, id="idle ones go first"
        ),
        pytest.param(3, {"type": "Recreate"}, (0, 0), [(3, 3)], {"old-0": 0}, id="all go"),
        pytest.param(3, {"type": "Recreate"}, (0, 0), [(0, 0)], {"new": 3}, id="then all come"),
    ],
)
def test_plan(wanted, strategy, new, old, expected):
    rollout = read_rollout(deployment(wanted, **strategy))
    sets = [replica_set(f"old-{i}", *each) for i, each in enumerate(old)]
    planned = plan_rollout(rollout, replica_set("new", *new), sets)
    assert {each["metadata"]["name"]: size for each, size in planned} == expected
