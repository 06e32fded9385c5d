"""An AdmissionReview in, an answer out: exemptions, protection, policies."""

import asyncio
import logging
import time

import msgspec
from msgspec.structs import replace

from lictor.core.errors import (
    DeadlineError,
    LictorError,
    SlowRequestError,
    TooLargeError,
    TooSlowError,
)
from lictor.core.load.review import Review
from lictor.core.model.request import GroupVersionKind, Operation, Request, UnknownNamespace
from lictor.core.model.result import Verdict
from lictor.core.raw import JsonObject
from lictor.core.report.admission_response import ALLOWED, AdmissionAnswer, build_answer
from lictor.kubernetes.flags import Flags
from lictor.kubernetes.metrics import NOT_EVALUATED
from lictor.kubernetes.names import Names
from lictor.webhook.backend import ClusterState
from lictor.webhook.counters import Counters
from lictor.webhook.evaluator import Evaluator, in_task
from lictor.webhook.policy_sets import PolicySet, PolicySets
from lictor.webhook.post_admission import AdmissionOutcome, PostAdmission
from lictor.webhook.slow_requests import SlowRequests
from lictor.webhook.webhook_routes import WebhookRoute

log = logging.getLogger(__name__)

_POLICY_SECONDS = 2.0
_POLICY_PAUSE = 0.1
_NAMESPACE_CONTROLLER = "system:serviceaccount:kube-system:namespace-controller"
_MANAGED_BY = "app.kubernetes.io/managed-by"
_OWNER = "kyverno"
_PROTECTED = AdmissionAnswer(
    allowed=False, message="A kyverno managed resource can only be modified by kyverno"
)
_DISPLACED = AdmissionAnswer(
    allowed=False,
    message="metadata.namespace of the object is not the namespace of the request: "
    "a mutating webhook or policy has changed it",
)


class AdmissionServices(msgspec.Struct, frozen=True):
    """What answers a request, counts it, and works on after the answer."""

    policy_sets: PolicySets
    evaluator: Evaluator
    post_admission: PostAdmission
    counters: Counters
    slow: SlowRequests = SlowRequests("")


class AdmissionHandler:
    """Answers the AdmissionReviews of all webhook routes."""

    def __init__(
        self, state: ClusterState, services: AdmissionServices, flags: Flags, names: Names
    ) -> None:
        self.state = state
        self._policy_sets = services.policy_sets
        self._evaluator = services.evaluator
        self._post_admission = services.post_admission
        self._counters = services.counters
        self._slow = services.slow
        self._flags = flags
        self._own_accounts = f"system:serviceaccount:{names.namespace}:"

    async def wait_ready(self, deadline: float) -> bool:
        """Whether all policies have been read once, waiting for that until the deadline.

        A process that has just started knows none, and none would mean that all is allowed.
        """
        try:
            async with asyncio.timeout(deadline - time.monotonic()):
                await self.state.wait()
        except TimeoutError:
            return False
        return True

    async def wait_for_policy(self, route: WebhookRoute, deadline: float) -> bool:
        """Is the policy of this path there, and ready to be evaluated?

        Its webhook may be known to the API server a moment before the policy is known here.
        """
        until = min(deadline, time.monotonic() + _POLICY_SECONDS)
        while self._policy_sets.open(route).is_missing:
            if time.monotonic() >= until:
                return False
            await asyncio.sleep(_POLICY_PAUSE)
        return True

    async def answer(self, route: WebhookRoute, review: Review, deadline: float) -> AdmissionAnswer:
        """The answer to a request; does not suspend if no rule waits for anything."""
        policy_set = self._policy_sets.by_path.get(route.path) or self._policy_sets.open(route)
        try:
            return await self._evaluate(policy_set, review, deadline)
        except SlowRequestError:
            await in_task()
            return await self._ask_elsewhere(policy_set, review.request, deadline)
        except Exception as error:  # noqa: BLE001  (returned, and logged if it is a bug)
            return self._explain(policy_set, review, error)

    def _explain(self, policy_set: PolicySet, review: Review, error: Exception) -> AdmissionAnswer:
        """The answer to a request whose evaluation failed."""
        match error:
            case TooLargeError():
                return self.give_up(policy_set, "large", str(error), always=True)
            case TooSlowError():
                return self.give_up(policy_set, "slow", str(error), always=True)
            case DeadlineError():
                return self.give_up(policy_set, "deadline", str(error))
            case LictorError():
                return self.give_up(policy_set, "lookup", str(error))
            case MemoryError():
                return self.give_up(policy_set, "memory", "out of memory", always=True)
        facts = {"path": policy_set.route.path, "uid": review.uid}
        log.error("admission failed", extra=facts, exc_info=error)
        told = f"this should not have happened ({type(error).__name__})"
        return self.give_up(policy_set, "error", told)

    async def _ask_elsewhere(
        self, policy_set: PolicySet, request: Request, deadline: float
    ) -> AdmissionAnswer:
        """Where evaluating would keep others waiting, a process that has time does it."""
        try:
            return await self._slow.ask(policy_set.route.path, request, deadline)
        except SlowRequestError as error:
            return self.give_up(policy_set, "slow", str(error), always=True)

    def refuse_overload(self, route: WebhookRoute) -> AdmissionAnswer:
        """The answer if too many requests are being evaluated."""
        return self.give_up(self._policy_sets.open(route), "overload", "too many requests at once")

    def give_up(
        self, policy_set: PolicySet, reason: str, why: str, *, always: bool = False
    ) -> AdmissionAnswer:
        """The answer of the failure policy to a request that could not be evaluated.

        `always`: it is denied with any failure policy. The author of an object can make it large or
        slow to evaluate, and must not bypass a policy by that.
        """
        self._counters.count(NOT_EVALUATED, (reason,))
        if reason != "overload":
            log.warning("request not evaluated", extra={"path": policy_set.route.path, "why": why})
        if always or policy_set.fails_closed:
            return AdmissionAnswer(
                allowed=False, message=f"the request could not be evaluated: {why}"
            )
        return AdmissionAnswer(warnings=(f"policies were not evaluated: {why}",))

    async def _evaluate(
        self, policy_set: PolicySet, review: Review, deadline: float
    ) -> AdmissionAnswer:
        route, request = policy_set.route, review.request
        namespace = str((request.admission or {}).get("namespace") or "")
        if (known := _answer_without_policies(route, request, namespace)) is not None:
            return known
        if request.subresource:
            request = _place_options(self._raise_kind(request), namespace)
        if policy_set.needs_roles or self.state.needs_roles:
            request = self._add_roles(request, namespace)
        if namespace and self.state.has_namespaces and request.kind.kind != "Namespace":
            request = await self._add_labels(request, namespace)
        if self._flags.protect_managed_resources and self._is_protected(request):
            return _PROTECTED
        is_exempt = self.state.is_exempt
        if not route.per_policy and is_exempt is not None and is_exempt(request):
            return ALLOWED
        if route.skips_own_changes and self._is_own(request):
            # For a change that policies made themselves, those that evaluate these, too.
            policy_set = policy_set.own_changes
        verdict = await self._evaluator.evaluate(
            policy_set.blocking, request, deadline, size=review.size
        )
        answer = build_answer(verdict, policy_set.answer_options)
        if not answer.allowed and self._policy_sets.can_lag:
            policy_set, verdict = await self._renew(policy_set, verdict, deadline, review.size)
            answer = build_answer(verdict, policy_set.answer_options)
        if policy_set.has_follow_up or self._post_admission.has_sinks:
            outcome = AdmissionOutcome(request, answer.allowed, route.mutating, verdict)
            self._post_admission.follow(policy_set, outcome, review.size)
        return answer

    async def _renew(
        self, policy_set: PolicySet, verdict: Verdict, deadline: float, size: int
    ) -> tuple[PolicySet, Verdict]:
        """The verdict of a denied request with exceptions that were created just before."""
        await in_task()
        renewed = await self._policy_sets.renew(policy_set, deadline)
        if renewed is None:
            return policy_set, verdict
        request, evaluate = verdict.request, self._evaluator.evaluate
        return renewed, await evaluate(renewed.blocking, request, deadline, size=size)

    def _add_roles(self, request: Request, namespace: str) -> Request:
        caller = request.caller
        if caller is None:
            return request
        roles, cluster_roles = self.state.roles_of(caller, namespace)
        return replace(request, caller=replace(caller, roles=roles, cluster_roles=cluster_roles))

    async def _add_labels(self, request: Request, namespace: str) -> Request:
        labels = self.state.recall_labels(namespace)
        if labels is None:
            await in_task()
            found = await self.state.find_labels(namespace)
            labels = UnknownNamespace(namespace) if found is None else found
        elif not labels:
            return request
        return replace(request, namespace_labels=labels)

    def _raise_kind(self, request: Request) -> Request:
        """What is sent to a subresource (a Scale, PodExecOptions) is not of its owner's kind."""
        asked = (request.admission or {}).get("resource")
        if not isinstance(asked, dict):
            return request
        group, version = str(asked.get("group") or ""), str(asked.get("version") or "")
        names = self.state.policies.names
        owner = names.of_resource(group, version, str(asked.get("resource") or ""))
        if owner is None:
            return request
        return replace(request, kind=GroupVersionKind(group, version, owner.kind))

    def _is_protected(self, request: Request) -> bool:
        username = request.caller.username if request.caller is not None else ""
        if request.operation is Operation.DELETE and username == _NAMESPACE_CONTROLLER:
            return False
        if username.startswith(self._own_accounts):
            return False
        return any(map(_is_managed, (request.object, request.old_object)))

    def _is_own(self, request: Request) -> bool:
        """Did a policy make the change itself?"""
        own = self._flags.background_service_account_name
        username = request.caller.username if request.caller is not None else ""
        return bool(own) and username == own


def _answer_without_policies(
    route: WebhookRoute, request: Request, namespace: str
) -> AdmissionAnswer | None:
    """The answer to a request that no policy of the route can concern.

    An object that names another namespace than its request is denied: its author has no rights
    there. The API server denies it before and after mutation; in between, one webhook may show it
    to the next, and policies, reports and triggers would be about the other namespace.
    """
    is_deleted = request.operation is Operation.DELETE
    if (is_deleted and route.skips_deletes) or (route.namespaced and not namespace):
        return ALLOWED
    # The API server itself sends the old object; only the new one can be changed on its way.
    document = request.old_object if is_deleted else request.object
    metadata = document.get("metadata") if document is not None else None
    claimed = metadata.get("namespace") if isinstance(metadata, dict) else None
    return _DISPLACED if claimed and claimed != namespace else None


def _place_options(request: Request, namespace: str) -> Request:
    """The options of `exec` and the like, in the namespace of their Pod: they name none."""
    options = request.object
    if request.operation is not Operation.CONNECT or options is None or not namespace:
        return request
    metadata = options.get("metadata")
    placed = {**(metadata if isinstance(metadata, dict) else {}), "namespace": namespace}
    return replace(request, object={**options, "metadata": placed})


def _is_managed(document: JsonObject | None) -> bool:
    metadata = (document or {}).get("metadata")
    labels = metadata.get("labels") if isinstance(metadata, dict) else None
    return isinstance(labels, dict) and labels.get(_MANAGED_BY) == _OWNER
