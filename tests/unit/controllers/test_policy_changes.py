"""Changes of policies are counted once each, and a status is none."""

import pytest
from prometheus_client import REGISTRY

from lictor.controllers.status.policies import PolicyChanges
from lictor.core.families.registry import registry
from lictor.kubernetes.metrics import POLICY_CHANGES, label_policy
from lictor.kubernetes.resource import find_resource
from lictor.kubernetes.stored_policy import StoredPolicy

KIND = find_resource(registry().get("kyverno.io", "ClusterPolicy"))


def make(name: str, generation: int = 1, **status: str) -> StoredPolicy:
    metadata = {"name": name, "uid": f"uid-{name}", "generation": generation}
    return StoredPolicy(KIND, {"metadata": metadata, "spec": {}, "status": status}, None)


def read(policy: StoredPolicy, what: str) -> float:
    names = ("policy_validation_mode", "policy_type", "policy_background_mode", "policy_namespace")
    labels = dict(zip((*names, "policy_name"), label_policy(policy), strict=True))
    found = REGISTRY.get_sample_value(
        f"{POLICY_CHANGES}_total", {**labels, "policy_change_type": what}
    )
    return found or 0.0


@pytest.mark.parametrize(
    ("name", "before", "after", "expected"),
    [
        ("there-at-the-start", None, 1, (0, 0, 0)),
        ("new", (), 1, (1, 0, 0)),
        ("changed", 1, 2, (0, 1, 0)),
        ("same", 1, 1, (0, 0, 0)),
        ("gone", 1, (), (0, 0, 1)),
    ],
)
def test_changes(name: str, before: object, after: object, expected: tuple[int, int, int]) -> None:
    changes = PolicyChanges()
    other = make("other")
    if before is not None:
        changes.note([other, *([make(name, before)] if isinstance(before, int) else [])])
    changes.note([other, *([make(name, after, ready="yes")] if isinstance(after, int) else [])])
    policy = make(name)
    assert tuple(read(policy, what) for what in ("created", "updated", "deleted")) == expected
    assert [read(other, what) for what in ("created", "updated", "deleted")] == [0, 0, 0]
