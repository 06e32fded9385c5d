"""Reviews that are not judged by policies: those of policies themselves, and of our heartbeat."""

import logging
from datetime import UTC, datetime

from lictor.cluster.names import Names
from lictor.errors import LictorError
from lictor.load.review import Review
from lictor.model.request import Operation
from lictor.raw import JsonObject
from lictor.report.admission_response import ALLOWED, Answer
from lictor.serve.paths import Desk
from lictor.serve.policy_reviewer import CLEANUP_PATH, PolicyReviewer

log = logging.getLogger(__name__)

_STAMP = "kyverno.io/last-request-time"
_CLEANUP_KINDS = ("CleanupPolicy", "ClusterCleanupPolicy")


class Desks:
    """Answers what is asked on the paths of `Desk`."""

    def __init__(self, reviewer: PolicyReviewer, names: Names) -> None:
        self._reviewer = reviewer
        self._names = names

    async def answer(self, desk: Desk, review: Review) -> Answer:
        """What the API server is told."""
        if desk is Desk.HEARTBEAT:
            return self._stamp(review)
        return await self._review_safely(desk.value, review)

    def is_cleanup(self, path: str, review: Review) -> bool:
        """Kyverno's cleanup controller is asked about its policies on a path we use otherwise."""
        kind = review.request.kind
        return path == CLEANUP_PATH and kind.group == "kyverno.io" and kind.kind in _CLEANUP_KINDS

    async def review_cleanup(self, review: Review) -> Answer:
        """A cleanup policy."""
        return await self._review_safely(CLEANUP_PATH, review)

    async def _review_safely(self, path: str, review: Review) -> Answer:
        try:
            return await self._review(path, review)
        except LictorError as error:
            return Answer(allowed=False, message=str(error))
        except Exception as error:
            log.exception("review failed", extra={"path": path, "uid": review.uid})
            told = f"this should not have happened ({type(error).__name__}: {error})"
            return Answer(allowed=False, message=told)

    async def _review(self, path: str, review: Review) -> Answer:
        request = review.request
        # A deleted policy needs no opinion, and a status is ours to write.
        if request.operation is Operation.DELETE or request.subresource:
            return ALLOWED
        opinion = await self._reviewer.review(path, request.object, request.old_object)
        return Answer(opinion.allowed, opinion.message, opinion.warnings)

    def _stamp(self, review: Review) -> Answer:
        request = review.request
        asked: JsonObject = request.admission or {}
        own = (self._names.namespace, self._names.health_lease)
        if (asked.get("namespace"), asked.get("name")) != own:
            return ALLOWED
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        metadata = (request.object or {}).get("metadata") or {}
        if isinstance(metadata.get("annotations"), dict):
            path = f"/metadata/annotations/{_STAMP.replace('/', '~1')}"
            return Answer(patch=({"op": "add", "path": path, "value": now},))
        value = {_STAMP: now}
        return Answer(patch=({"op": "add", "path": "/metadata/annotations", "value": value},))
