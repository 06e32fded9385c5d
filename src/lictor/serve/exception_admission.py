"""May this exception be stored, and will anyone heed it?"""

from lictor.cluster.flags import Flags
from lictor.raw import JsonObject
from lictor.serve.opinion import ACCEPTED, Opinion
from lictor.serve.policy_admission import review_policy

_DISABLED = "PolicyException resources would not be processed until it is enabled."
_ELSEWHERE = "PolicyException resource namespace must match the defined namespace."
_NOWHERE = "The exceptionNamespace flag is not set"


def review_exception(document: JsonObject, old: JsonObject | None, flags: Flags) -> Opinion:
    """A PolicyException of either family. Where exceptions are off, that is a warning only."""
    opinion = review_policy(document, old)
    if len(opinion.errors) > 1:
        # Several faults are one list to Kyverno, and scripts compare it.
        opinion = Opinion((f"[{', '.join(opinion.errors)}]",), opinion.warnings)
    return opinion + _review_place(document, flags)


def _review_place(document: JsonObject, flags: Flags) -> Opinion:
    if not flags.enable_policy_exception:
        return Opinion(warnings=(_DISABLED,))
    if not flags.exception_namespace:
        return Opinion(warnings=(_NOWHERE,))
    namespace = str((document.get("metadata") or {}).get("namespace") or "")
    if flags.exception_namespace not in ("*", namespace):
        return Opinion(warnings=(_ELSEWHERE,))
    return ACCEPTED
