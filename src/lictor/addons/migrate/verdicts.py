"""Two answers to the same AdmissionReview: do they mean the same?

They do where both allow or both refuse, and where both leave the same object behind. Messages and
warnings are worded in each program's own way, and do not count.
"""

import binascii
from base64 import b64decode
from collections import Counter

import msgspec
import orjson

from lictor.core.errors import LictorError
from lictor.core.lang.patch.kyverno_patch import compile_json_patch
from lictor.core.raw import Json, JsonObject

# Differences that are kept to be shown; all are counted.
_MOST_SHOWN = 200
_LONGEST = 500
# Kyverno writes down in the object what its policies have changed.
_NOTES = frozenset(("policies.kyverno.io/last-applied-patches",))


class VerdictDifference(msgspec.Struct, frozen=True, rename="camel"):
    """A request that the two programs would not have answered alike."""

    path: str
    kind: str
    namespace: str
    name: str
    operation: str
    user: str
    kyverno: str
    lictor: str


class Tally(msgspec.Struct, rename="camel"):
    """How often two programs agreed."""

    compared: int = 0
    same: int = 0
    different: int = 0

    def count(self, *, is_same: bool) -> bool:
        """Count an answer; returns whether it is a difference that is kept to be shown."""
        self.compared += 1
        if is_same:
            self.same += 1
            return False
        self.different += 1
        return self.different <= _MOST_SHOWN


class Comparison(Tally, rename="camel"):
    """How often Kyverno and lictor agreed about requests."""

    # Arrived faster than they could be evaluated.
    left_out: int = 0
    # One of the two gave no answer: by which, and why.
    unanswered: Counter[str] = msgspec.field(default_factory=Counter)
    differences: list[VerdictDifference] = msgspec.field(default_factory=list)

    @property
    def is_alike(self) -> bool:
        """Have both answered, and always alike?"""
        return bool(self.compared) and not self.different and not self.unanswered

    def note(
        self, path: str, request: JsonObject, kyverno: Json, lictor: Json
    ) -> VerdictDifference | None:
        """Compare two responses to a request; what differs is given back."""
        theirs, ours = (describe_answer(request, answer) for answer in (kyverno, lictor))
        is_kept = self.count(is_same=theirs == ours)
        if theirs == ours:
            return None
        found = _describe(
            path, request, _format_response(kyverno, theirs), _format_response(lictor, ours)
        )
        if is_kept:
            self.differences.append(found)
        return found


class AnswerEffect(msgspec.Struct, frozen=True):
    """What an answer does: allow or refuse, and what becomes of the object."""

    allowed: bool
    object: Json = None
    fault: str = ""


def describe_answer(request: JsonObject, response: Json) -> AnswerEffect:
    """What a response does to a request."""
    answer: JsonObject = response if isinstance(response, dict) else {}
    if not answer.get("allowed"):
        return AnswerEffect(allowed=False)
    document = request.get("object")
    if not answer.get("patch"):
        return AnswerEffect(allowed=True, object=_drop_notes(document))
    try:
        change = compile_json_patch(orjson.loads(b64decode(answer["patch"])))
        return AnswerEffect(allowed=True, object=_drop_notes(change(document)))
    except (LictorError, binascii.Error, orjson.JSONDecodeError) as error:
        return AnswerEffect(allowed=True, fault=f"its patch cannot be applied: {error}")


def _drop_notes(document: Json) -> Json:
    """The object without what a program notes about itself."""
    metadata = document.get("metadata") if isinstance(document, dict) else None
    if not isinstance(metadata, dict) or not isinstance(metadata.get("annotations"), dict):
        return document
    kept = {k: v for k, v in metadata["annotations"].items() if k not in _NOTES}
    rest = {name: value for name, value in metadata.items() if name != "annotations"}
    return {**document, "metadata": {**rest, **({"annotations": kept} if kept else {})}}


def _format_response(response: Json, effect: AnswerEffect) -> str:
    if effect.fault:
        return effect.fault
    if not effect.allowed:
        status = response.get("status") if isinstance(response, dict) else None
        message = " ".join(str((status or {}).get("message") or "").split())
        return f"refused: {message}"[:_LONGEST]
    patch = response.get("patch")
    if not patch:
        return "allowed"
    return f"allowed, changed: {b64decode(patch).decode(errors='replace')}"[:_LONGEST]


def _describe(path: str, request: JsonObject, kyverno: str, lictor: str) -> VerdictDifference:
    document = request.get("object") or request.get("oldObject") or {}
    name = request.get("name") or (document.get("metadata") or {}).get("generateName") or ""
    return VerdictDifference(
        path=path,
        kind=str((request.get("kind") or {}).get("kind") or ""),
        namespace=str(request.get("namespace") or ""),
        name=str(name),
        operation=str(request.get("operation") or ""),
        user=str((request.get("userInfo") or {}).get("username") or ""),
        kyverno=kyverno,
        lictor=lictor,
    )
