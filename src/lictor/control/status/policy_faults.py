"""Why can a stored policy not be used, or not wholly? What its status must say."""

from collections.abc import Iterable

from lictor.cluster.store import CLASSIC_KINDS, PolicyStore, StoredPolicy
from lictor.lang.resource_names import ResourceNames
from lictor.lint.images import find_unsupported
from lictor.lint.policy import lint_policy
from lictor.model.finding import Finding, Severity, write_path

# What keeps a rule from being compiled; other mistakes only make it do something else.
_FATAL = frozenset(
    [
        *("bad-expression", "bad-selector", "bad-condition", "bad-pattern", "bad-pod-security"),
        *("unknown-function", "wrong-arguments"),
    ]
)


class FaultBook:
    """The faults of policies, found once for each generation of each."""

    def __init__(self, store: PolicyStore) -> None:
        self._store = store
        self._known: dict[str, tuple[int, tuple[str, ...]]] = {}

    def find(self, policy: StoredPolicy) -> tuple[str, ...]:
        """What is wrong with a policy; nothing where it is fine."""
        reason = self._store.find_reason(policy)
        if reason:
            return (reason,)
        known = self._known.get(policy.uid)
        if known is not None and known[0] == policy.generation:
            return known[1]
        found = _find_faults(policy, self._store.names)
        self._known[policy.uid] = (policy.generation, found)
        return found

    def forget(self, live: set[str]) -> None:
        """Keep only what is known of policies that are still there, by uid."""
        for uid in self._known.keys() - live:
            del self._known[uid]


def _find_faults(policy: StoredPolicy, names: ResourceNames) -> tuple[str, ...]:
    if policy.record is None:
        return tuple(
            f"{problem.field}: {problem.message}" if problem.path else problem.message
            for problem in policy.problems
            if problem.severity is Severity.ERROR
        )
    faults = [(each.path, each.message) for each in _lint(policy, names) if each.check in _FATAL]
    found = (*faults, *find_unsupported(policy.document))
    return tuple(f"{write_path(path)}: {message}" for path, message in found)


def _lint(policy: StoredPolicy, names: ResourceNames) -> Iterable[Finding]:
    if policy.resource in CLASSIC_KINDS:
        return lint_policy(policy.document)
    from lictor.lint.cel_policies import lint_cel_policy

    return lint_cel_policy(policy.document, names)
