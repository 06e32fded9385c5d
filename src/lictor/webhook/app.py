"""Requests in, replies out: the routing of paths, and the responses to invalid requests."""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Coroutine, Generator, Mapping
from http import HTTPStatus
from typing import Any

from lictor.core.errors import LoadError, TooLargeError
from lictor.core.load.review import Review, find_head, load_review
from lictor.core.report.admission_response import AdmissionAnswer, render_review
from lictor.http.limits import find_time_limit
from lictor.http.messages import JSON, HttpRequest, HttpResponse
from lictor.kubernetes.metrics import HTTP_SECONDS, NOT_EVALUATED, REVIEW_SECONDS
from lictor.kubernetes.process_log import FactLine, log_facts
from lictor.webhook.admission import AdmissionHandler
from lictor.webhook.counters import Counters, Labels
from lictor.webhook.evaluator import in_task
from lictor.webhook.payload_log import PayloadLog
from lictor.webhook.policy_webhooks import CLEANUP_PATH, InternalWebhooks
from lictor.webhook.tracing import Tracer
from lictor.webhook.webhook_routes import InternalWebhook, WebhookRoute, read_path

log = logging.getLogger(__name__)

_EVALUATED = FactLine(
    "admission evaluated", "uid", "kind", "namespace", "object", "operation", "allowed", "ms"
)
_WEBHOOKS = {True: "MutatingWebhookConfiguration", False: "ValidatingWebhookConfiguration"}
# Bytes of a review from which on its evaluation may take much longer than usual.
_LARGE = 64 * 1024
# Between two of these: time enough to hear what others have sent meanwhile.
_PAUSE = 0.002
_METHODS: Mapping[str, Labels] = {"GET": ("GET",), "POST": ("POST",)}
_OTHER_METHOD: Labels = ("other",)
_OK = HttpResponse(HTTPStatus.OK)
_NOT_LISTENING = HttpResponse(HTTPStatus.SERVICE_UNAVAILABLE, b"connections are not accepted\n")
_NOT_READY = HttpResponse(HTTPStatus.SERVICE_UNAVAILABLE, b"not ready\n")


class _StartedCoroutine:
    """A coroutine that ran without a task until it had to wait; `future` is what it waits for."""

    def __init__(self, coroutine: Coroutine[Any, Any, HttpResponse], future: object) -> None:
        self._coroutine = coroutine
        self._future = future

    def __await__(self) -> Generator[Any, Any, HttpResponse]:
        future = self._future
        try:
            while True:
                try:
                    received = yield future
                except BaseException as error:  # noqa: BLE001  (a cancellation is for the coroutine)
                    future = self._coroutine.throw(error)
                else:
                    future = self._coroutine.send(received)
        except StopIteration as done:
            reply: HttpResponse = done.value
            return reply


class App:
    """Answers the requests of one process."""

    def __init__(  # noqa: PLR0913  (the rim, where everything comes together)
        self,
        admission: AdmissionHandler,
        internal_webhooks: InternalWebhooks,
        counters: Counters,
        *,
        is_ready: Callable[[], bool],
        is_alive: Callable[[], bool] = lambda: True,
        timeout: float = 10.0,
        max_in_flight: int = 512,
        tracer: Tracer | None = None,
        payload_log: PayloadLog | None = None,
        make_room: Callable[[], None] = lambda: None,
    ) -> None:
        self._admission = admission
        self._internal_webhooks = internal_webhooks
        self._counters = counters
        self._is_ready = is_ready
        self._is_alive = is_alive
        self._timeout = timeout
        self._max_in_flight = max_in_flight
        self._in_flight = 0
        self._tracer = tracer
        self._payload_log = payload_log
        self._make_room = make_room
        self._large_turn = asyncio.Lock()

    def __call__(self, call: HttpRequest) -> HttpResponse | Awaitable[HttpResponse]:
        """The response; an awaitable only if something has to be awaited."""
        began = time.perf_counter()
        self._in_flight += 1
        answering = self._answer(call)
        future: object = None
        is_suspended = False
        try:
            future = answering.send(None)
            is_suspended = True
        except StopIteration as done:
            reply: HttpResponse = done.value
            return reply
        finally:
            if not is_suspended:
                self._in_flight -= 1
                label = _METHODS.get(call.method, _OTHER_METHOD)
                self._counters.observe(HTTP_SECONDS, label, time.perf_counter() - began)
        return self._resume(_StartedCoroutine(answering, future), call, began)

    async def _resume(
        self, answering: "_StartedCoroutine", call: HttpRequest, began: float
    ) -> HttpResponse:
        try:
            return await answering
        finally:
            self._in_flight -= 1
            label = _METHODS.get(call.method, _OTHER_METHOD)
            self._counters.observe(HTTP_SECONDS, label, time.perf_counter() - began)

    def _get(self, call: HttpRequest) -> HttpResponse:
        if call.method not in ("GET", "HEAD"):
            return _refuse(HTTPStatus.METHOD_NOT_ALLOWED, "send reviews by POST")
        if call.path == "/health/liveness":
            return _OK if self._is_alive() else _NOT_LISTENING
        if call.path == "/health/readiness":
            return _OK if self._is_ready() else _NOT_READY
        return _refuse(HTTPStatus.NOT_FOUND, "nothing here")

    async def _answer(self, call: HttpRequest) -> HttpResponse:
        if call.method != "POST":
            return self._get(call)
        began, target = time.monotonic(), read_path(call.path)
        if target is None:
            return _refuse(HTTPStatus.NOT_FOUND, "no webhook has this path")
        if not call.content_type.startswith(b"application/json"):
            return _refuse(
                HTTPStatus.UNSUPPORTED_MEDIA_TYPE, "a review has the content type application/json"
            )
        if call.is_cut:
            return self._refuse_unread(call, "the review is too large")
        if self._tracer is not None or len(call.body) > _LARGE:
            await self._begin_slowly(call)
        try:
            review = load_review(call.body)
        except LoadError as error:
            return self._refuse_unread(call, str(error))
        deadline = began + find_time_limit(call.query, self._timeout)
        answer: AdmissionAnswer | HttpResponse | None = None
        if (
            not isinstance(target, WebhookRoute)
            or target.per_policy
            or target.path == CLEANUP_PATH
            or not self._admission.state.is_ready
            or self._in_flight > self._max_in_flight
        ):
            await in_task()
            answer = await self._answer_early(target, review, deadline)
        if answer is None and isinstance(target, WebhookRoute):
            answer = await self._admission.answer(target, review, deadline)
        if isinstance(answer, AdmissionAnswer):
            return self._respond(call, target, review, answer, began)
        return answer or _refuse(HTTPStatus.NOT_FOUND, "no webhook has this path")

    async def _begin_slowly(self, call: HttpRequest) -> None:
        """Let small requests go first: they wait for one large request, not for all of them."""
        await in_task()
        if self._tracer is not None:
            # The context variables of the trace are those of the task.
            self._tracer.begin(call)
        if len(call.body) > _LARGE:
            async with self._large_turn:
                await asyncio.sleep(_PAUSE)

    async def _answer_early(
        self, target: WebhookRoute | InternalWebhook, review: Review, deadline: float
    ) -> AdmissionAnswer | HttpResponse | None:
        """An answer without policies; without a review in it, the failure policy decides."""
        if isinstance(target, InternalWebhook):
            return await self._internal_webhooks.answer(target, review)
        if not self._admission.state.is_ready and not await self._admission.wait_ready(deadline):
            return _refuse(HTTPStatus.SERVICE_UNAVAILABLE, "policies have not been read yet")
        if target.per_policy and not await self._admission.wait_for_policy(target, deadline):
            return _refuse(HTTPStatus.NOT_FOUND, "this policy is not there, or not ready yet")
        if target.path == CLEANUP_PATH and self._internal_webhooks.is_cleanup(review):
            return await self._internal_webhooks.review_cleanup(review)
        if self._in_flight > self._max_in_flight:
            return self._admission.refuse_overload(target)
        return None

    def _respond(
        self,
        call: HttpRequest,
        target: WebhookRoute | InternalWebhook,
        review: Review,
        answer: AdmissionAnswer,
        began: float,
    ) -> HttpResponse:
        try:
            body = render_review(review.uid, answer, review.api_version)
        except MemoryError:
            answer, body = self._render_again(review, answer)
        except TooLargeError as error:
            answer, body = _refuse_answer(review, str(error))
        seconds = time.monotonic() - began
        self._note(target, review, answer, seconds)
        if self._payload_log is not None:
            self._payload_log.write(review, answer)
        if self._tracer is not None:
            self._tracer.end(call.path, review, answer)
        return HttpResponse(HTTPStatus.OK, body, JSON)

    def _render_again(
        self, review: Review, answer: AdmissionAnswer
    ) -> tuple[AdmissionAnswer, bytes]:
        """The same answer with more memory for it, as another rule may have used all of it.

        Else a refusal: without an answer a failure policy would count, and let the request pass.
        """
        self._make_room()
        try:
            return answer, render_review(review.uid, answer, review.api_version)
        except MemoryError:
            return _refuse_answer(review, "out of memory")

    def _refuse_unread(self, call: HttpRequest, why: str) -> HttpResponse:
        """An answer if the uid of the review is known: without one, the failure policy decides.

        Otherwise authors could bypass policies with objects that are too deep or too large.
        """
        head = find_head(call.body)
        if head is None:
            return _refuse(HTTPStatus.BAD_REQUEST, why)
        self._counters.count(NOT_EVALUATED, ("unreadable",))
        log.warning("review not read", extra={"path": call.path, "uid": head[0], "why": why})
        answer = AdmissionAnswer(
            allowed=False, message=f"the request could not be evaluated: {why}"
        )
        return HttpResponse(HTTPStatus.OK, render_review(head[0], answer, head[1]), JSON)

    def _note(
        self,
        target: WebhookRoute | InternalWebhook,
        review: Review,
        answer: AdmissionAnswer,
        seconds: float,
    ) -> None:
        request = review.request
        asked = request.admission or {}
        kind, namespace = request.kind.kind, asked.get("namespace") or ""
        mutating = (
            target.mutating
            if isinstance(target, WebhookRoute)
            else target is InternalWebhook.HEARTBEAT
        )
        labels: Labels = (
            kind,
            str(namespace),
            request.operation.lower(),
            "true" if answer.allowed else "false",
            _WEBHOOKS[mutating],
        )
        self._counters.observe(REVIEW_SECONDS, labels, seconds)
        if log.isEnabledFor(logging.INFO):
            name, operation = asked.get("name") or "", request.operation
            took = round(seconds * 1000, 3)
            facts = (review.uid, kind, namespace, name, operation, answer.allowed, took)
            log_facts(log, logging.INFO, _EVALUATED, *facts)


def _refuse_answer(review: Review, why: str) -> tuple[AdmissionAnswer, bytes]:
    refusal = AdmissionAnswer(allowed=False, message=f"the answer is too large: {why}")
    return refusal, render_review(review.uid, refusal, review.api_version)


def _refuse(status: HTTPStatus, why: str) -> HttpResponse:
    return HttpResponse(status, f"{why}\n".encode())
