"""An AdmissionReview in, an answer out: what is exempt, what is protected, what policies say."""

import asyncio
import logging
import time
from collections.abc import Awaitable, Mapping

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
from lictor.webhook.evaluator import Evaluator
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


class _Question(msgspec.Struct, frozen=True):
    """A request with what the API server does not send (owner kind, roles, labels), and limits."""

    policy_set: PolicySet
    request: Request
    size: int
    deadline: float
    # Were exceptions that had just been created waited for?
    is_renewed: bool = False

    def with_labels(self, labels: Mapping[str, str]) -> "_Question":
        return replace(self, request=replace(self.request, namespace_labels=labels))


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
        """Is the policy of this path there, and ready to be asked?

        Its webhook may be known to the API server a moment before the policy is known here.
        """
        until = min(deadline, time.monotonic() + _POLICY_SECONDS)
        while self._policy_sets.open(route).is_missing:
            if time.monotonic() >= until:
                return False
            await asyncio.sleep(_POLICY_PAUSE)
        return True

    def answer(
        self, route: WebhookRoute, review: Review, deadline: float
    ) -> AdmissionAnswer | Awaitable[AdmissionAnswer]:
        """What the API server is told about a request: at once, or as soon as it is known."""
        policy_set = self._policy_sets.by_path.get(route.path) or self._policy_sets.open(route)
        try:
            answer = self._answer(policy_set, review, deadline)
        except SlowRequestError:
            return self._ask_elsewhere(policy_set, review.request, deadline)
        except Exception as error:  # noqa: BLE001  (it is told, and where it should be, logged)
            return self._explain(policy_set, review, error)
        if isinstance(answer, AdmissionAnswer):
            return answer
        return self._wait(answer, policy_set, review, deadline)

    async def _wait(
        self,
        answer: Awaitable[AdmissionAnswer],
        policy_set: PolicySet,
        review: Review,
        deadline: float,
    ) -> AdmissionAnswer:
        try:
            return await answer
        except SlowRequestError:
            return await self._ask_elsewhere(policy_set, review.request, deadline)
        except Exception as error:  # noqa: BLE001  (it is told, and where it should be, logged)
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
        """The answer where nobody has time to evaluate."""
        return self.give_up(self._policy_sets.open(route), "overload", "too many requests at once")

    def give_up(
        self, policy_set: PolicySet, reason: str, why: str, *, always: bool = False
    ) -> AdmissionAnswer:
        """What the policies' failure policy says of a request that could not be evaluated.

        `always`: it is refused whatever they say. Whoever makes an object can make it large or slow
        to evaluate, and must not get past a policy by that.
        """
        self._counters.count(NOT_EVALUATED, (reason,))
        if reason != "overload":
            log.warning("request not judged", extra={"path": policy_set.route.path, "why": why})
        if always or policy_set.fails_closed:
            return AdmissionAnswer(allowed=False, message=f"the request could not be judged: {why}")
        return AdmissionAnswer(warnings=(f"policies were not asked: {why}",))

    def _answer(
        self, policy_set: PolicySet, review: Review, deadline: float
    ) -> AdmissionAnswer | Awaitable[AdmissionAnswer]:
        route, request = policy_set.route, review.request
        namespace = str((request.admission or {}).get("namespace") or "")
        is_deleted = request.operation is Operation.DELETE
        if (is_deleted and route.skips_deletes) or (route.namespaced and not namespace):
            return ALLOWED
        # What is stored comes from the API server alone; only what is to be stored can be changed.
        if _is_displaced(request.old_object if is_deleted else request.object, namespace):
            return _DISPLACED
        if request.subresource:
            request = _place_options(self._raise_kind(request), namespace)
        caller = request.caller
        if caller is not None and (policy_set.needs_roles or self.state.needs_roles):
            roles, cluster_roles = self.state.roles_of(caller, namespace)
            caller = replace(caller, roles=roles, cluster_roles=cluster_roles)
            request = replace(request, caller=caller)
        question = _Question(policy_set, request, review.size, deadline)
        if not namespace or request.kind.kind == "Namespace":
            return self._judge(question)
        labels = self.state.recall_labels(namespace)
        if labels is None:
            return self._find_labels(question, namespace)
        return self._judge(question.with_labels(labels) if labels else question)

    async def _find_labels(self, question: "_Question", namespace: str) -> AdmissionAnswer:
        """The answer where the namespace of the request has not been heard of yet."""
        labels = await self.state.find_labels(namespace)
        known = UnknownNamespace(namespace) if labels is None else labels
        answer = self._judge(question.with_labels(known))
        return answer if isinstance(answer, AdmissionAnswer) else await answer

    def _judge(self, question: "_Question") -> AdmissionAnswer | Awaitable[AdmissionAnswer]:
        """What policies say of a request that is complete."""
        policy_set, request = question.policy_set, question.request
        route = policy_set.route
        if self._flags.protect_managed_resources and self._is_protected(request):
            return _PROTECTED
        is_exempt = not route.per_policy and self.state.is_exempt(request)
        if is_exempt or (route.skips_own_changes and self._is_own(request)):
            return ALLOWED
        verdict = self._evaluator.evaluate_here(
            policy_set.blocking, request, question.deadline, size=question.size
        )
        return self._judge_on_thread(question) if verdict is None else self._say(question, verdict)

    async def _judge_on_thread(self, question: "_Question") -> AdmissionAnswer:
        verdict = await self._evaluator.evaluate_on_thread(
            question.policy_set.blocking, question.request, question.deadline
        )
        answer = self._say(question, verdict)
        return answer if isinstance(answer, AdmissionAnswer) else await answer

    async def _judge_again(self, question: "_Question", verdict: Verdict) -> AdmissionAnswer:
        """The answer to a request that is refused, unless an exception has just been created."""
        policy_set = await self._policy_sets.renew(question.policy_set, question.deadline)
        renewed = replace(question, is_renewed=True)
        if policy_set is None:
            answer = self._say(renewed, verdict)
        else:
            answer = self._judge(replace(renewed, policy_set=policy_set))
        return answer if isinstance(answer, AdmissionAnswer) else await answer

    def _say(
        self, question: "_Question", verdict: Verdict
    ) -> AdmissionAnswer | Awaitable[AdmissionAnswer]:
        policy_set, request = question.policy_set, question.request
        answer = build_answer(verdict, policy_set.answer_options)
        if not answer.allowed and self._policy_sets.can_lag and not question.is_renewed:
            return self._judge_again(question, verdict)
        if not (request.admission or {}).get("dryRun") and not policy_set.route.is_audit:
            mutating = policy_set.route.mutating
            outcome = AdmissionOutcome(request, answer.allowed, mutating, verdict)
            self._post_admission.follow(policy_set, outcome, question.size)
        return answer

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
        """Changes that policies made themselves are not changed again."""
        own = self._flags.background_service_account_name
        username = request.caller.username if request.caller is not None else ""
        return bool(own) and username == own


def _is_displaced(document: JsonObject | None, namespace: str) -> bool:
    """Does an object claim another namespace than the one that its author has rights in?

    The API server refuses that before and after mutation. In between, one webhook may show it to
    the next: policies, reports and what is triggered would be about somebody else's namespace.
    """
    metadata = document.get("metadata") if document is not None else None
    claimed = metadata.get("namespace") if isinstance(metadata, dict) else None
    return bool(claimed) and claimed != namespace


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
