"""A policy that is about to be stored, looked at in a process of its own, within limits."""

import msgspec

from lictor.cluster.compile_trial import Job, Trials, compile_alone, tell_failure
from lictor.lang.resource_names import builtin_names
from lictor.raw import JsonObject
from lictor.serve.change_admission import is_untouched
from lictor.serve.opinion import Opinion
from lictor.serve.policy_admission import review_policy


class PolicyReview(msgspec.Struct, frozen=True):
    """What must be known to say something about a policy."""

    document: JsonObject
    old: JsonObject | None = None
    crds: tuple[JsonObject, ...] = ()
    allow_http: bool = False


async def review_within_limits(review: PolicyReview, trials: Trials) -> Opinion:
    """The opinion of another process; where it has none in time, that is the opinion."""
    outcome = await trials.review(msgspec.msgpack.encode(review))
    if not outcome.failure:
        found = msgspec.msgpack.decode(outcome.result, type=Opinion)
        if found.allowed:
            trials.note_harmless(Job(review.document, crds=review.crds))
        return found
    opinion = Opinion((tell_failure(outcome),))
    if review.old is not None and is_untouched(review.document, review.old):
        # What is stored may always be labelled and deleted.
        return opinion.soften()
    return opinion


def review_here(data: bytes) -> bytes:
    """The other side: say what is wrong with a policy, and compile it to see how that goes."""
    review = msgspec.msgpack.decode(data, type=PolicyReview)
    names = builtin_names().with_crds(review.crds)
    opinion = review_policy(review.document, review.old, names, allow_http=review.allow_http)
    if opinion.allowed:
        compile_alone(Job(review.document, crds=review.crds))
    return msgspec.msgpack.encode(opinion)
