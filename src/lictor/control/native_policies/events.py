"""What people are told when an admission policy of Kubernetes was made from a policy."""

from lictor.cluster.store import StoredPolicy
from lictor.convert.native import NativePair
from lictor.report.events import Event, ObjectReference, Outcome, Reason, Source


def tell_generated(policy: StoredPolicy, pair: NativePair) -> tuple[Event, Event]:
    """One event for the admission policy, one for its binding; both about the policy."""
    about = ObjectReference(
        policy.resource.api_version,
        policy.resource.kind,
        policy.name,
        policy.namespace,
        policy.uid,
    )
    family = "mutating" if pair.policy["kind"].startswith("Mutating") else "validating"
    words = f"successfully generated {family} admission policy"

    def tell(what: str, made: dict[str, str], name: str) -> Event:
        related = ObjectReference(made["apiVersion"], made["kind"], name)
        message = f"{what} {name} from policy {policy.name}"
        return Event(Reason.APPLIED, Outcome.GENERATED, message, about, related, Source.GENERATE)

    return (
        tell(words, pair.policy, pair.name),
        tell(f"{words} binding", pair.binding, f"{pair.name}-binding"),
    )
