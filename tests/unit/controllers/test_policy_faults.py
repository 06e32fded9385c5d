"""What the status of a policy says where it is not compiled."""

import asyncio
from typing import Any, cast

from lictor.controllers.status.policies import PolicyFaults
from lictor.core.facts.resource_names import builtin_names
from lictor.core.families.policy_status import PolicyFacts
from lictor.core.families.registry import registry
from lictor.kubernetes.resource import find_resource
from lictor.kubernetes.stored_policy import StoredPolicy
from lictor.policies.store import PolicyStore

CLUSTER_POLICY = find_resource(registry().get("kyverno.io", "ClusterPolicy"))

REASON = "the policy cannot be compiled within the limits: it takes more than 3 s of CPU time"


class _Store:
    """A store that has tried a policy."""

    names = builtin_names()
    reason = REASON

    def find_reason(self, _: StoredPolicy) -> str:
        return self.reason


def test_the_reason_is_told_until_it_is_gone() -> None:
    document: dict[str, Any] = {
        "apiVersion": "kyverno.io/v1",
        "kind": "ClusterPolicy",
        "metadata": {"name": "p", "uid": "1", "generation": 1},
        "spec": {"rules": []},
    }
    policy = StoredPolicy(CLUSTER_POLICY, document, None)
    store = _Store()
    faults = PolicyFaults(cast("PolicyStore", store))
    problems = asyncio.run(faults.find(policy))
    assert problems == (REASON,)
    facts = PolicyFacts(webhook=True, problems=problems)
    kind = registry().get("kyverno.io", "ClusterPolicy")
    status = kind.family.build_status(kind, None, {}, facts, "2026-01-01T00:00:00Z")
    (condition,) = status["conditions"]
    assert condition["status"] == "False"
    assert condition["message"] == REASON
    store.reason = ""
    assert asyncio.run(faults.find(policy)) == ()
