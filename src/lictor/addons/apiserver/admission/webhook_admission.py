"""Calls of admission webhooks: mutating ones in sequence, validating ones in parallel."""

import asyncio
import logging
from collections.abc import Mapping

from lictor.addons.apiserver.admission.webhook_calls import WebhookCaller
from lictor.addons.apiserver.admission.webhooks import MatchedWebhook, Webhook, WebhookIndex
from lictor.addons.apiserver.json_fields import read_object, read_text
from lictor.addons.apiserver.kind import ObjectReader
from lictor.addons.apiserver.status_errors import internal_error, missing_namespace
from lictor.addons.apiserver.submission import (
    MutationPasses,
    Submission,
    WebhookAnswer,
    read_review,
    write_review,
)
from lictor.core.errors import (
    CompileError,
    EvaluationError,
    LookupFailedError,
    RefusedRequestError,
    TooLargeError,
)
from lictor.core.lang.patch.json_patch import apply_json_patch
from lictor.core.model.request import Operation
from lictor.core.raw import Json, JsonObject

log = logging.getLogger(__name__)
_HARMLESS = ("None", "NoneOnDryRun")
_KNOWN_VERSIONS = ("v1", "v1beta1")


class WebhookAdmission:
    """Calls the webhooks of one server."""

    def __init__(
        self, reader: ObjectReader, mutating: WebhookIndex, validating: WebhookIndex
    ) -> None:
        self._reader = reader
        self._mutating = mutating
        self._validating = validating
        self._caller = WebhookCaller(reader)

    async def close(self) -> None:
        """End the connections to webhooks."""
        await self._caller.close()

    async def mutate(
        self, submission: Submission, rounds: MutationPasses, warnings: list[str]
    ) -> None:
        """Let each webhook change the object, as those before it left it."""
        candidates = self._mutating.candidates(submission)
        if not candidates:
            return
        memory = rounds.webhooks
        memory.begin(submission.document, again=rounds.is_again)
        for candidate in candidates:
            hook = candidate.hook
            if rounds.is_again and not memory.wants(hook):
                continue
            if not self._concerns(candidate, submission):
                continue
            if await self._change(candidate, submission, warnings):
                memory.note_change()
                rounds.wants_another = True
            if hook.is_reinvoked:
                memory.note_call(hook)
        memory.end(submission.document)

    async def validate(self, submission: Submission, warnings: list[str]) -> None:
        """Call all webhooks in parallel; the first refusal counts."""
        called = [
            candidate
            for candidate in self._validating.candidates(submission)
            if self._concerns(candidate, submission)
        ]
        if not called:
            return
        if len(called) == 1:
            await self._check(called[0], submission, warnings)
            return
        calls = (self._check(candidate, submission, warnings) for candidate in called)
        for outcome in await asyncio.gather(*calls, return_exceptions=True):
            if isinstance(outcome, BaseException):
                raise outcome

    # --- does a webhook want to see it?

    def _concerns(self, candidate: MatchedWebhook, submission: Submission) -> bool:
        hook = candidate.hook
        try:
            fits = self._fits_labels(hook, submission)
        except CompileError as error:
            raise internal_error(error.message) from error
        if not fits or hook.conditions is None:
            return fits
        try:
            return hook.conditions(submission, candidate.place)
        except (EvaluationError, LookupFailedError, TooLargeError) as error:
            raise submission.forbid(str(error)) from error

    def _fits_labels(self, hook: Webhook, submission: Submission) -> bool:
        if (
            hook.fits_namespace is not None
            and submission.namespace
            and not hook.fits_namespace(self._namespace_labels(submission))
        ):
            return False
        if hook.fits_object is None:
            return True
        return any(
            document is not None and hook.fits_object(_labels(document))
            for document in (submission.document, submission.old)
        )

    def _namespace_labels(self, submission: Submission) -> Mapping[str, str]:
        kind = submission.attributes.kind
        if (
            kind.is_namespace
            and not submission.attributes.subresource
            and submission.operation in (Operation.CREATE, Operation.UPDATE)
        ):
            return _labels(submission.document)
        namespace = self._reader.get("", "namespaces", "", submission.namespace)
        if namespace is None:
            raise missing_namespace(submission.namespace)
        return _labels(namespace)

    # --- calls

    async def _change(
        self, candidate: MatchedWebhook, submission: Submission, warnings: list[str]
    ) -> bool:
        """Whether the webhook has changed the object."""
        hook = candidate.hook
        answer = await self._call(candidate, submission, is_mutating=True)
        if answer is None:
            return False
        warnings += answer.warnings
        if not answer.is_allowed:
            raise _refusal(hook, answer)
        if not answer.patch:
            return False
        before = submission.document
        if before is None:
            raise internal_error(
                f'admission webhook "{hook.name}" attempted to modify the object, which is not '
                "supported for this operation"
            )
        after = submission.reread(_apply(before, answer.patch))
        if after == before:
            return False
        submission.replace(after)
        return True

    async def _check(
        self, candidate: MatchedWebhook, submission: Submission, warnings: list[str]
    ) -> None:
        answer = await self._call(candidate, submission, is_mutating=False)
        if answer is None:
            return
        warnings += answer.warnings
        if not answer.is_allowed:
            raise _refusal(candidate.hook, answer)

    async def _call(
        self, candidate: MatchedWebhook, submission: Submission, *, is_mutating: bool
    ) -> WebhookAnswer | None:
        """The answer of a webhook; None if it failed and its failures are ignored."""
        hook = candidate.hook
        if submission.attributes.dry_run and hook.side_effects not in _HARMLESS:
            detail = f'admission webhook "{hook.name}" does not support dry run'
            raise RefusedRequestError(detail, code=400, reason="BadRequest")
        try:
            return await self._exchange(candidate, submission, is_mutating=is_mutating)
        except LookupFailedError as error:
            detail = f'failed calling webhook "{hook.name}": {error}'
            if not hook.is_ignored:
                raise internal_error(detail) from error
            log.warning("webhook did not answer", extra={"webhook": hook.name, "why": detail})
            return None

    async def _exchange(
        self, candidate: MatchedWebhook, submission: Submission, *, is_mutating: bool
    ) -> WebhookAnswer:
        hook = candidate.hook
        version = next((each for each in hook.versions if each in _KNOWN_VERSIONS), "")
        if not version:
            raise LookupFailedError(
                "could not create admission objects: webhook does not accept known "
                "AdmissionReview versions (v1, v1beta1)"
            )
        uid, body = write_review(submission, candidate.place, version)
        try:
            content = await self._caller.call(hook, body)
        except LookupFailedError as error:
            raise LookupFailedError(f"failed to call webhook: {error}") from error
        return read_review(content, uid, version, is_mutating=is_mutating)


def _apply(before: JsonObject, patch: list[Json]) -> JsonObject:
    try:
        after = apply_json_patch(before, patch, must_pass_tests=True)
    except EvaluationError as error:
        raise internal_error(str(error)) from error
    if not isinstance(after, dict):
        raise internal_error("Object 'Kind' is missing")
    return after


def _refusal(hook: Webhook, answer: WebhookAnswer) -> RefusedRequestError:
    status = answer.status
    denied = f'admission webhook "{hook.name}" denied the request'
    why = read_text(status, "message") or read_text(status, "reason")
    code = status.get("code")
    return RefusedRequestError(
        f"{denied}: {why}" if why else f"{denied} without explanation",
        code=code if isinstance(code, int) and code >= 400 else 400,
        reason=read_text(status, "reason"),
        details=status.get("details") if isinstance(status.get("details"), dict) else None,
    )


def _labels(document: JsonObject | None) -> Mapping[str, str]:
    return read_object(read_object(document, "metadata"), "labels")
