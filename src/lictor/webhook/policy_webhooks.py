"""Our own webhooks: reviews of policies, exceptions, TTL labels, and of the health Lease."""

import asyncio
import logging
import re
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from functools import partial
from typing import Protocol

import msgspec

from lictor.core.errors import LictorError
from lictor.core.facts.resource_names import ResourceNames, builtin_names
from lictor.core.families.kind_facts import Role
from lictor.core.families.registry import registry
from lictor.core.lang.schedule import find_deletion_time
from lictor.core.load.review import Review
from lictor.core.model.request import Operation
from lictor.core.raw import JsonObject
from lictor.core.report.admission_response import ALLOWED, AdmissionAnswer
from lictor.kubernetes.flags import Flags
from lictor.kubernetes.metrics import DEPRECATED_REQUESTS
from lictor.kubernetes.names import Names
from lictor.kubernetes.rbac import AccessCheck
from lictor.policies.trial_jobs import compile_alone
from lictor.policies.trials import (
    Job,
    Trials,
    current_trials,
    find_namespace,
    format_failure,
)
from lictor.webhook.counters import Counters
from lictor.webhook.permission_admission import ControllerAccounts, review_permissions
from lictor.webhook.policy_admission import (
    is_untouched,
    list_deprecations,
    review_policy,
    warn_deprecation,
)
from lictor.webhook.review_result import ACCEPTED, ReviewResult
from lictor.webhook.webhook_routes import InternalWebhook

log = logging.getLogger(__name__)

_INDEX = re.compile(r"\[\d+\]")
_STAMP = "kyverno.io/last-request-time"
# Needed by requests: found once.
_CLEANUP_KINDS = frozenset(
    kind.key for kind in registry().with_role(Role.DELETION) if not kind.is_listed
)


class InternalWebhooks:
    """Answers requests on the paths of `InternalWebhook`."""

    def __init__(
        self, reviewer: "PolicyReviewer", names: Names, counters: Counters | None = None
    ) -> None:
        self._reviewer = reviewer
        self._counters = counters or Counters()
        self._names = names

    async def answer(self, webhook: InternalWebhook, review: Review) -> AdmissionAnswer:
        """The answer to a review."""
        if webhook is InternalWebhook.HEARTBEAT:
            return self._stamp(review)
        return await self._review_safely(webhook.value, review)

    def is_cleanup(self, review: Review) -> bool:
        """Is it a cleanup policy? Kyverno reviews these on a path with another use here."""
        kind = review.request.kind
        return (kind.group, kind.kind) in _CLEANUP_KINDS

    async def review_cleanup(self, review: Review) -> AdmissionAnswer:
        """A cleanup policy."""
        return await self._review_safely(CLEANUP_PATH, review)

    async def _review_safely(self, path: str, review: Review) -> AdmissionAnswer:
        try:
            return await self._review(path, review)
        except LictorError as error:
            return AdmissionAnswer(allowed=False, message=str(error))
        except Exception as error:
            log.exception("review failed", extra={"path": path, "uid": review.uid})
            told = f"this should not have happened ({type(error).__name__}: {error})"
            return AdmissionAnswer(allowed=False, message=told)

    async def _review(self, path: str, review: Review) -> AdmissionAnswer:
        request = review.request
        # A deleted policy needs no opinion, and a status is ours to write.
        if request.operation is Operation.DELETE or request.subresource:
            return ALLOWED
        result = await self._reviewer.review(path, request.object, request.old_object)
        for field, _ in list_deprecations(request.object or {}):
            kind, name = request.kind, _INDEX.sub("[]", field)
            self._counters.count(DEPRECATED_REQUESTS, (kind.group, kind.version, kind.kind, name))
        return AdmissionAnswer(result.allowed, result.message, result.warnings)

    def _stamp(self, review: Review) -> AdmissionAnswer:
        request = review.request
        asked: JsonObject = request.admission or {}
        own = (self._names.namespace, self._names.health_lease)
        if (asked.get("namespace"), asked.get("name")) != own:
            return ALLOWED
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        metadata = (request.object or {}).get("metadata") or {}
        if isinstance(metadata.get("annotations"), dict):
            path = f"/metadata/annotations/{_STAMP.replace('/', '~1')}"
            return AdmissionAnswer(patch=({"op": "add", "path": path, "value": now},))
        value = {_STAMP: now}
        return AdmissionAnswer(
            patch=({"op": "add", "path": "/metadata/annotations", "value": value},)
        )


class PolicyReview(msgspec.Struct, frozen=True):
    """What the review of a policy needs."""

    document: JsonObject
    old: JsonObject | None = None
    crds: tuple[JsonObject, ...] = ()
    allow_http: bool = False


async def review_within_limits(review: PolicyReview, trials: Trials) -> ReviewResult:
    """The opinion of another process; where it has none in time, that is the opinion."""
    outcome = await trials.review(msgspec.msgpack.encode(review), find_namespace(review.document))
    if not outcome.failure:
        found = msgspec.msgpack.decode(outcome.result, type=ReviewResult)
        if found.allowed:
            job = Job(review.document, crds=review.crds)
            trials.add_harmless(job, is_light=outcome.is_light)
        return found
    result = ReviewResult((format_failure(outcome),))
    if review.old is not None and is_untouched(review.document, review.old):
        # What is stored may always be labelled and deleted.
        return result.soften()
    return result


def run_review(data: bytes) -> bytes:
    """The helper's side: review a policy, and compile it to see what that takes."""
    review = msgspec.msgpack.decode(data, type=PolicyReview)
    names = builtin_names().with_crds(review.crds)
    result = review_policy(review.document, review.old, names, allow_http=review.allow_http)
    if result.allowed:
        compile_alone(Job(review.document, crds=review.crds))
    return msgspec.msgpack.encode(result)


TTL_LABEL = "cleanup.kyverno.io/ttl"
_ANY_TIME = datetime(2000, 1, 1, tzinfo=UTC)


def review_ttl(document: JsonObject) -> ReviewResult:
    """A warning at most: a label is no reason to refuse an object."""
    metadata = document.get("metadata")
    labels = metadata.get("labels") if isinstance(metadata, dict) else None
    value = labels.get(TTL_LABEL) if isinstance(labels, dict) else None
    if not isinstance(value, str):
        return ACCEPTED
    try:
        find_deletion_time(value, _ANY_TIME)
    except ValueError as error:
        told = f"{TTL_LABEL} label value cannot be parsed as any recognizable format ({error})"
        return ReviewResult(warnings=(told,))
    return ACCEPTED


_DISABLED = "PolicyException resources would not be processed until it is enabled."
_ELSEWHERE = "PolicyException resource namespace must match the defined namespace."
_NOWHERE = "The exceptionNamespace flag is not set"


def review_exception(document: JsonObject, old: JsonObject | None, flags: Flags) -> ReviewResult:
    """A PolicyException of either family. Where exceptions are off, that is a warning only."""
    result = review_policy(document, old)
    if len(result.errors) > 1:
        # Several faults are one list to Kyverno, and scripts compare it.
        result = ReviewResult((f"[{', '.join(result.errors)}]",), result.warnings)
    return result + _review_namespace(document, flags)


def _review_namespace(document: JsonObject, flags: Flags) -> ReviewResult:
    if not flags.enable_policy_exception:
        return ReviewResult(warnings=(_DISABLED,))
    if not flags.exception_namespace:
        return ReviewResult(warnings=(_NOWHERE,))
    namespace = str((document.get("metadata") or {}).get("namespace") or "")
    if flags.exception_namespace not in ("*", namespace):
        return ReviewResult(warnings=(_ELSEWHERE,))
    return ACCEPTED


# Seconds between attempts to find a missing right.
_PAUSES = (0.1, 0.3, 0.6)
EXCEPTION_PATHS = frozenset(["/exceptionvalidate", "/celexception/validate"])
# Of the cleanup controller's own server.
CLEANUP_PATH = "/validate"
TTL_PATH = "/verifyttl"


class KnownNames(Protocol):
    """Knows the kinds of the cluster, such as a store of policies."""

    @property
    def names(self) -> ResourceNames: ...


class PolicyReviewer:
    """Answers for policies and what belongs to them, by the path of the request."""

    def __init__(
        self,
        flags: Flags,
        policies: KnownNames,
        *,
        allows: AccessCheck | None = None,
        cleanup_account: str = "",
        crds: Callable[[], Iterable[JsonObject]] | None = None,
    ) -> None:
        self._flags = flags
        self._policies = policies
        # The definitions of custom kinds, where there is a cluster.
        self._crds = crds
        self._allows = allows
        self._accounts = ControllerAccounts(
            background=flags.background_service_account_name,
            reports=flags.reports_service_account_name,
            cleanup=cleanup_account,
        )

    async def review(
        self, path: str, document: JsonObject | None, old: JsonObject | None
    ) -> ReviewResult:
        """The review of an object that is created or changed; a deleted one is accepted."""
        if document is None or path == "/policymutate":
            return ACCEPTED
        if path == TTL_PATH:
            return review_ttl(document).shorten()
        if path in EXCEPTION_PATHS:
            result = await asyncio.to_thread(review_exception, document, old, self._flags)
        else:
            result = await self._review_policy(document, old)
        if self._flags.deprecation_warnings:
            result += warn_deprecation(document)
        return result.shorten()

    async def _review_text(
        self, document: JsonObject, old: JsonObject | None, names: ResourceNames
    ) -> ReviewResult:
        """From the text alone: in another process where there is one, as it may take for ever."""
        allow_http = self._flags.allow_http_in_namespaced_policies
        trials = current_trials()
        if trials is None or self._crds is None:
            review = partial(review_policy, allow_http=allow_http)
            return await asyncio.to_thread(review, document, old, names)
        asked = PolicyReview(document, old, tuple(self._crds()), allow_http)
        return await review_within_limits(asked, trials)

    async def _review_policy(self, document: JsonObject, old: JsonObject | None) -> ReviewResult:
        names = self._policies.names
        result = await self._review_text(document, old, names)
        # What is wrong anyhow needs no questions to the API server.
        if self._allows is None or not result.allowed:
            return result
        granted = await self._review_permissions(document, names, self._allows)
        is_same = old is not None and document.get("spec") == old.get("spec")
        return result + (granted.soften() if is_same else granted)

    async def _review_permissions(
        self, document: JsonObject, names: ResourceNames, allows: AccessCheck
    ) -> ReviewResult:
        """A right that was granted just before counts: the API server needs a moment for it."""
        for pause in _PAUSES:
            granted = await review_permissions(document, self._accounts, names, allows)
            if granted.allowed:
                return granted
            await asyncio.sleep(pause)
        return await review_permissions(document, self._accounts, names, allows)
