"""Requests and patches whole in the log, without what Secrets hold: `--dumpPayload`."""

import logging

from lictor.core.load.review import Review
from lictor.core.raw import Json, JsonObject
from lictor.core.report.admission_response import AdmissionAnswer

log = logging.getLogger(__name__)

_LEFT_OUT = "**REDACTED**"


class PayloadLog:
    """What `--dumpPayload` and `--dumpPatches` write."""

    def __init__(self, *, payload: bool, patches: bool) -> None:
        self._payload = payload
        self._patches = patches

    def write(self, review: Review, answer: AdmissionAnswer) -> None:
        """Log one request."""
        is_secret = review.request.kind.kind == "Secret"
        if self._payload:
            request = review.request.admission or {}
            shown = {
                name: _redact(value) if is_secret and name in ("object", "oldObject") else value
                for name, value in request.items()
            }
            log.info("admission request", extra={"uid": review.uid, "request": shown})
        if self._patches and answer.patch:
            patch: Json = _LEFT_OUT if is_secret else list(answer.patch)
            log.info("admission patch", extra={"uid": review.uid, "patch": patch})


def build_payload_log(*, payload: bool, patches: bool) -> PayloadLog | None:
    """None if it is switched off."""
    return PayloadLog(payload=payload, patches=patches) if payload or patches else None


def _redact(document: JsonObject | None) -> JsonObject | None:
    """A Secret without what it holds, nor what kubectl noted of that."""
    if not isinstance(document, dict):
        return None
    hidden = {
        name: dict.fromkeys(value, _LEFT_OUT)
        if name in ("data", "stringData") and isinstance(value, dict)
        else value
        for name, value in document.items()
    }
    metadata = hidden.get("metadata")
    if isinstance(metadata, dict) and isinstance(metadata.get("annotations"), dict):
        hidden["metadata"] = {
            **metadata,
            "annotations": dict.fromkeys(metadata["annotations"], _LEFT_OUT),
        }
    return hidden
