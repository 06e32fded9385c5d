"""Requests to a policy server in, responses out: which path evaluates which policy."""

import logging
import time
from collections.abc import Callable
from functools import partial
from http import HTTPStatus
from typing import Final, Literal
from urllib.parse import unquote

import msgspec

from lictor.addons.kubewarden.family.entries import (
    AdmissionStatus,
    GroupEntry,
    MemberEntry,
    PolicyEntry,
    PolicyMode,
    PolicyResponse,
)
from lictor.addons.kubewarden.family.policy import (
    OpenEntry,
    finish_response,
    read_uid,
    refuse_request,
)
from lictor.addons.kubewarden.server.metrics import EvaluationMetrics
from lictor.addons.kubewarden.server.policies import ServedPolicies
from lictor.addons.kubewarden.server.reviews import (
    UnreadableBodyError,
    read_admission,
    read_raw,
    refuse_large,
)
from lictor.addons.kubewarden.server.runner import PolicyRunner
from lictor.addons.kubewarden.server.spans import SpanSink
from lictor.core.errors import SlowRequestError
from lictor.core.evaluations import EVALUATIONS, QUARANTINED
from lictor.core.raw import Json
from lictor.http.limits import find_time_limit
from lictor.http.messages import HttpRequest, HttpResponse
from lictor.webhook.counters import Labels

log = logging.getLogger(__name__)

_JSON: Final = b"application/json"
# The timeout of an API server without a configured one.
_WAITING_SECONDS: Final = 10.0
_NOT_FOUND: Final = HttpResponse(HTTPStatus.NOT_FOUND)
_NO_METHOD: Final = HttpResponse(HTTPStatus.METHOD_NOT_ALLOWED, headers=((b"allow", b"POST"),))

Origin = Literal["validate", "audit", "validate_raw"]
_ORIGINS: Final[dict[str, Origin]] = {
    "validate": "validate", "audit": "audit", "validate_raw": "validate_raw"
}  # fmt: skip


class AdmissionReviewAnswer(msgspec.Struct, frozen=True):
    """The answer to the API server."""

    response: PolicyResponse
    kind: str = "AdmissionReview"
    api_version: str = msgspec.field(default="admission.k8s.io/v1", name="apiVersion")


class RawReviewAnswer(msgspec.Struct, frozen=True):
    """The response to clients that are no API server."""

    response: PolicyResponse


class Question(msgspec.Struct, frozen=True):
    """One request to one policy."""

    policy: str
    origin: Origin
    request: Json
    # An AdmissionRequest, or nothing where the request is raw.
    admission: dict[str, Json]


class PolicyServerApp:
    """Answers the requests of one process."""

    def __init__(
        self,
        policies: ServedPolicies,
        runner: PolicyRunner,
        metrics: EvaluationMetrics,
        *,
        accepted_namespace: str = "",
        spans: SpanSink | None = None,
        make_room: Callable[[], None] = lambda: None,
    ) -> None:
        """`make_room` is called if memory is exhausted, before the error is returned."""
        self._policies = policies
        self._runner = runner
        self._metrics = metrics
        self._accepted_namespace = accepted_namespace
        self._spans = spans
        self._make_room = make_room
        self._encode = msgspec.json.Encoder().encode

    async def __call__(self, call: HttpRequest) -> HttpResponse:
        began = time.perf_counter()
        found = _read_path(call.path)
        if found is None:
            return _NOT_FOUND
        if call.method != "POST":
            return _NO_METHOD
        origin, policy = found
        try:
            question = _read_question(call, origin, policy)
        except UnreadableBodyError as error:
            return self._refuse_unread(call, origin, error)
        opened = self._policies.table.opened.get(policy)
        if opened is None:
            if policy.count("/") > 1:
                return _build_error_response(
                    HTTPStatus.INTERNAL_SERVER_ERROR, "a policy has one name or two"
                )
            return _build_error_response(HTTPStatus.NOT_FOUND, f"unknown policy: {policy}")
        said, told = await self._ask(call, question, opened)
        seconds = time.perf_counter() - began
        self._metrics.note(_label(question, opened, said), seconds)
        if log.isEnabledFor(logging.INFO):
            _log_answer(question, opened, said, told, seconds)
        if self._spans is not None:
            self._spans.note(question.policy, question.origin, question.admission, told, seconds)
        return self._answer(origin, told)

    async def _ask(
        self, call: HttpRequest, question: Question, opened: OpenEntry
    ) -> tuple[PolicyResponse, PolicyResponse]:
        """The answer of the policy, and the response to the client."""
        namespace = self._accepted_namespace
        if namespace and question.admission.get("namespace") == namespace:
            accepted = PolicyResponse(uid=read_uid(question.request), allowed=True)
            return accepted, accepted
        raw = question.origin == "validate_raw"
        identity = self._policies.identify(question.policy)
        if EVALUATIONS.holds(identity):
            return _refuse(question, QUARANTINED)
        evaluate = partial(_evaluate, identity, opened, question.request, raw=raw)
        try:
            said = await self._runner.run(
                question.policy,
                evaluate,
                patience=find_time_limit(call.query, _WAITING_SECONDS),
            )
        except SlowRequestError as error:
            # It was not evaluated: that is no answer of the policy, which may be ignored.
            return _refuse(question, str(error))
        except MemoryError:
            self._make_room()
            log.error("out of memory", extra={"policy": question.policy})
            return _refuse(question, "there is no memory left for this request")
        except Exception:
            log.exception("evaluation failed", extra={"policy": question.policy})
            return _refuse(question, "internal server error")
        return said, _finish(said, opened, question.origin)

    def _answer(self, origin: Origin, told: PolicyResponse) -> HttpResponse:
        review = RawReviewAnswer(told) if origin == "validate_raw" else AdmissionReviewAnswer(told)
        return HttpResponse(HTTPStatus.OK, self._encode(review), _JSON)

    def _refuse_unread(
        self, call: HttpRequest, origin: Origin, error: UnreadableBodyError
    ) -> HttpResponse:
        if error.uid is None:
            return _build_error_response(error.status, error.why)
        log.warning("request not read", extra={"path": call.path, "why": error.why})
        return self._answer(origin, refuse_request(error.uid, error.why))


def _read_path(path: str) -> tuple[Origin, str] | None:
    empty, _, rest = path.partition("/")
    name, _, policy = rest.partition("/")
    origin = _ORIGINS.get(name)
    if empty or origin is None or not policy or "/" in policy:
        return None
    return origin, unquote(policy) if "%" in policy else policy


def _read_question(call: HttpRequest, origin: Origin, policy: str) -> Question:
    if call.content_type != _JSON and not _is_json(call.content_type):
        why = "the content type must be application/json"
        raise UnreadableBodyError(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, why)
    if call.is_cut:
        raise refuse_large(call.body)
    if origin == "validate_raw":
        return Question(policy, origin, read_raw(call.body), {})
    request: dict[str, Json] = {**read_admission(call.body)}
    return Question(policy, origin, request, request)


def _is_json(content_type: bytes) -> bool:
    media = content_type.partition(b";")[0].strip().lower()
    return media == _JSON or (media.startswith(b"application/") and media.endswith(b"+json"))


def _evaluate(identity: bytes, opened: OpenEntry, request: Json, *, raw: bool) -> PolicyResponse:
    with EVALUATIONS.evaluating(identity):
        return opened.evaluate(request, raw=raw)


def _finish(said: PolicyResponse, opened: OpenEntry, origin: Origin) -> PolicyResponse:
    """Audits show the policy's answer; so do requests to a member, or to an unusable policy."""
    entry = opened.entry
    if origin == "audit" or not isinstance(entry, (PolicyEntry, GroupEntry)):
        return said
    if isinstance(entry, PolicyEntry) and opened.settings_error:
        return said
    return finish_response(said, entry, opened.name)


def _build_error_response(status: HTTPStatus, why: str) -> HttpResponse:
    body = msgspec.json.encode({"message": why, "status": status.value})
    return HttpResponse(status, body, _JSON)


def _mode_of(entry: MemberEntry | GroupEntry) -> PolicyMode:
    return getattr(entry, "policy_mode", PolicyMode.PROTECT)


def _refuse(question: Question, why: str) -> tuple[PolicyResponse, PolicyResponse]:
    said = refuse_request(read_uid(question.request), why)
    return said, said


def _label(question: Question, opened: OpenEntry, said: PolicyResponse) -> Labels:
    asked = question.admission
    code = said.status.code if said.status else None
    return (
        question.policy,
        _mode_of(opened.entry).value,
        asked["kind"].get("kind", "") if asked else "",
        asked.get("namespace", ""),
        asked.get("operation", ""),
        "true" if said.allowed else "false",
        "false" if said.patch is msgspec.UNSET else "true",
        "" if not asked else question.origin,
        "" if code is None else str(code),
    )


def _log_answer(
    question: Question,
    opened: OpenEntry,
    said: PolicyResponse,
    told: PolicyResponse,
    seconds: float,
) -> None:
    """Neither the object nor settings: they may hold secrets."""
    asked = question.admission
    status = said.status or AdmissionStatus()
    log.info(
        "policy evaluated",
        extra={
            "policy": question.policy,
            "origin": question.origin,
            "mode": _mode_of(opened.entry).value,
            "uid": told.uid,
            "kind": asked["kind"].get("kind", "") if asked else "",
            "namespace": asked.get("namespace", ""),
            "object": asked.get("name", ""),
            "operation": asked.get("operation", ""),
            "allowed": told.allowed,
            "accepted": said.allowed,
            "mutated": told.patch is not msgspec.UNSET,
            "code": status.code,
            "ms": round(seconds * 1000, 3),
        },
    )
