"""What a path of the webhook server is for."""

from enum import Enum
from functools import lru_cache

import msgspec

from lictor.core.report.admission_response import AnswerStyle
from lictor.policies.routes import FINE_GRAINED, find_path_kind, is_unique_name

_FAILURES = ("fail", "ignore")


class InternalWebhook(Enum):
    """Paths that are not about policies' verdicts, but about policies and about ourselves."""

    POLICY = "/policyvalidate"
    POLICY_CHANGE = "/policymutate"
    EXCEPTION = "/exceptionvalidate"
    CEL_EXCEPTION = "/celexception/validate"
    GLOBAL_CONTEXT = "/globalcontextvalidate"
    LIFETIME = "/verifyttl"
    HEARTBEAT = "/verifymutate"


class WebhookRoute(msgspec.Struct, frozen=True):
    """A path on which policies are evaluated."""

    path: str
    style: AnswerStyle
    mutating: bool
    # None: each policy by its own failure policy.
    fails_closed: bool | None = None
    # Only requests in namespaces concern these policies.
    namespaced: bool = False
    # One policy, by its name, whose webhook the API server keeps to what it names.
    fine_grained: bool = False
    # What goes away is not changed any more, unless a policy in CEL names that operation.
    skips_deletes: bool = False
    # Changes that the background makes for policies are not changed again.
    skips_own_changes: bool = False
    # One policy that has this path for itself: no settings exempt from it, and if it is not
    # there, no review is returned.
    per_policy: bool = False
    # Evaluates the policy alone on a request: its mode does not count.
    is_audit: bool = False


@lru_cache(maxsize=1024)
def read_path(path: str) -> WebhookRoute | InternalWebhook | None:
    """The route or the internal webhook of a path; None where there is none."""
    path = path.rstrip("/")
    first, *rest = path.strip("/").split("/")
    if first in ("validate", "audit") and len(rest) == 1 and is_unique_name(rest[0]):
        is_audit = first == "audit"
        style = AnswerStyle.OWN_AUDIT if is_audit else AnswerStyle.OWN_PATH
        return WebhookRoute(path, style, mutating=False, per_policy=True, is_audit=is_audit)
    if first in ("validate", "mutate"):
        return _read_classic(path, rest, mutating=first == "mutate")
    webhook = next((webhook for webhook in InternalWebhook if webhook.value == path), None)
    return webhook if webhook is not None else _read_named(path, first, rest)


def _read_classic(path: str, rest: list[str], *, mutating: bool) -> WebhookRoute | None:
    style = AnswerStyle.CLASSIC_MUTATING if mutating else AnswerStyle.CLASSIC_VALIDATING
    if not rest:
        return WebhookRoute(path, style, mutating, skips_deletes=mutating)
    if rest[0] not in _FAILURES or (rest[1:] and (rest[1] != FINE_GRAINED or not rest[2:])):
        return None
    return WebhookRoute(
        path,
        style,
        mutating,
        rest[0] == "fail",
        fine_grained=bool(rest[1:]),
        skips_deletes=mutating,
    )


def _read_named(path: str, first: str, rest: list[str]) -> WebhookRoute | None:
    kind = find_path_kind(first)
    if kind is None or kind.path is None:
        return None
    mutating, only_mutates = kind.path.mutating, not kind.path.validating
    if kind.path.names_stage:
        if rest[:1] not in (["validate"], ["mutate"]):
            return None
        mutating = rest[0] == "mutate"
    return WebhookRoute(
        path,
        AnswerStyle.CEL_MUTATING if only_mutates else AnswerStyle.CEL_VALIDATING,
        mutating=mutating,
        namespaced=kind.namespaced,
        skips_own_changes=only_mutates,
        skips_deletes=mutating and not only_mutates,
    )
