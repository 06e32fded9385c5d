"""What does a path of the webhook server ask for?"""

from enum import Enum
from functools import lru_cache

import msgspec
from msgspec.structs import replace

from lictor.cluster.routes import FINE_GRAINED, Family
from lictor.report.admission_response import AnswerStyle

_VALIDATING = (Family.VALIDATING, Family.NAMESPACED_VALIDATING)
_MUTATING = (Family.MUTATING, Family.NAMESPACED_MUTATING)
_GENERATING = (Family.GENERATING, Family.NAMESPACED_GENERATING)
_IMAGES = (Family.IMAGE_VALIDATING, Family.NAMESPACED_IMAGE_VALIDATING)
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
    """A path on which policies are asked about a request."""

    path: str
    style: AnswerStyle
    mutating: bool
    # None: each policy by its own failure policy.
    fails_closed: bool | None = None
    # Only requests in namespaces concern these policies.
    namespaced: bool = False
    # One policy, by its name, whose webhook the API server keeps to what it names.
    fine_grained: bool = False
    # What goes away is not changed any more, unless a MutatingPolicy names that operation.
    skips_deletes: bool = False
    # Changes that the background makes for policies are not changed again.
    skips_own_changes: bool = False


@lru_cache(maxsize=1024)
def read_path(path: str) -> WebhookRoute | InternalWebhook | None:
    """The route or the internal webhook of a path; None where there is none."""
    path = path.rstrip("/")
    first, *rest = path.strip("/").split("/")
    if first in ("validate", "mutate"):
        return _read_classic(path, rest, mutating=first == "mutate")
    webhook = next((webhook for webhook in InternalWebhook if webhook.value == path), None)
    return webhook if webhook is not None else _read_cel(path, first, rest)


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


def _read_cel(path: str, first: str, rest: list[str]) -> WebhookRoute | None:
    try:
        family = Family(first)
    except ValueError:
        return None
    route = WebhookRoute(
        path, AnswerStyle.CEL_VALIDATING, mutating=False, namespaced=first.startswith("n")
    )
    if family in _VALIDATING or family in _GENERATING:
        # What is generated comes after the answer, so that there is nothing to say.
        return route
    if family in _MUTATING:
        return replace(route, style=AnswerStyle.CEL_MUTATING, mutating=True, skips_own_changes=True)
    if family in _IMAGES and rest[:1] in (["validate"], ["mutate"]):
        mutating = rest[0] == "mutate"
        return replace(route, mutating=mutating, skips_deletes=mutating)
    return None
