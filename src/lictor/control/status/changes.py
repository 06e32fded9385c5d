"""Which policies came, changed and went while this process ran? Counted for the metrics."""

from collections.abc import Iterable, Mapping

from lictor.cluster.metrics import POLICY_CHANGES, label_policy, open_counter
from lictor.cluster.store import PolicyStore
from lictor.cluster.stored_policy import StoredPolicy

# By uid: the generation of a policy, and its labels.
_Known = Mapping[str, tuple[int, tuple[str, ...]]]


class PolicyChanges:
    """Compares the policies of now with those of the time before."""

    def __init__(self) -> None:
        # Those that are there from the beginning are no change.
        self._known: _Known | None = None

    def note(self, policies: Iterable[StoredPolicy]) -> None:
        """Count what differs from what was there when this was called last."""
        now = {each.uid: (each.generation, label_policy(each)) for each in policies}
        before, self._known = self._known, now
        if before is None:
            return
        for uid, (generation, labels) in now.items():
            if uid not in before:
                _count(labels, "created")
            elif before[uid][0] != generation:
                # A status is written without another generation.
                _count(labels, "updated")
        for uid in before.keys() - now.keys():
            _count(before[uid][1], "deleted")


def follow_changes(store: PolicyStore) -> None:
    """Count the changes of all policies from now on."""
    changes = PolicyChanges()

    def note() -> None:
        if store.is_synced:
            changes.note(store.policies)

    store.listen(note)


def _count(labels: tuple[str, ...], what: str) -> None:
    open_counter(POLICY_CHANGES).labels(*labels, what).inc()
