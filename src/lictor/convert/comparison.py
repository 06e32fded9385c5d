"""Do two forms of a policy say the same? Both judge the same requests; what differs is told."""

from collections.abc import Callable, Iterable, Iterator
from typing import TypeAlias

import msgspec

from lictor.model.request import Request
from lictor.model.result import RuleType, Status, Verdict
from lictor.raw import Json, JsonObject

Judge: TypeAlias = Callable[[Request], Verdict]

_REFUSING = (Status.FAIL, Status.ERROR)
# Labels by which Kyverno finds what it made; each form has its own.
_OWN_LABELS = ("generate.kyverno.io/", "app.kubernetes.io/managed-by")


class Said(msgspec.Struct, frozen=True):
    """What one form of a policy says of a request, as far as both forms must agree."""

    refuses: bool
    # Whether the request may go on though something was refused.
    allows: bool
    changed: Json = None
    made: tuple[JsonObject, ...] = ()


class Difference(msgspec.Struct, frozen=True):
    """A request of which two forms say different things."""

    request: Request
    before: Said
    after: Said
    words_before: tuple[str, ...]
    words_after: tuple[str, ...]


class Comparison(msgspec.Struct, frozen=True):
    """How many requests were judged, how many of them were refused, and the differences."""

    judged: int
    refused: int
    differences: tuple[Difference, ...]


def compare_forms(before: Judge, after: Judge, requests: Iterable[Request]) -> Comparison:
    """Judge every request by both forms."""
    judged = refused = 0
    differences = []
    for request in requests:
        old, new = before(request), after(request)
        said, says = listen(old), listen(new)
        judged += 1
        refused += said.refuses
        if said != says:
            words = (tuple(_words(old)), tuple(_words(new)))
            differences.append(Difference(request, said, says, *words))
    return Comparison(judged, refused, tuple(differences))


def listen(verdict: Verdict) -> Said:
    """What a verdict comes down to.

    A rule that cannot be decided refuses as one that is broken does; passing and not being
    concerned are the same.
    """
    refuses = any(result.status in _REFUSING for result in verdict.results)
    blocked = any(
        result.type is RuleType.VALIDATION
        and result.status in _REFUSING
        and str(result.action) == "Enforce"
        for result in verdict.results
    )
    original, patched = verdict.request.object, verdict.patched
    changed = patched if patched is not None and patched != original else None
    made = [each for result in verdict.results for each in result.generated]
    return Said(refuses, not blocked, changed, tuple(sorted(map(_plain, made), key=_order)))


def _order(made: JsonObject) -> bytes:
    return msgspec.json.encode(made, order="deterministic")


def _plain(made: JsonObject) -> JsonObject:
    metadata = made.get("metadata")
    if not isinstance(metadata, dict):
        return made
    labels = metadata.get("labels")
    kept = {
        key: value
        for key, value in (labels.items() if isinstance(labels, dict) else ())
        if not key.startswith(_OWN_LABELS)
    }
    rest = {key: value for key, value in metadata.items() if key != "labels"}
    return {**made, "metadata": {**rest, "labels": kept} if kept else rest}


def _words(verdict: Verdict) -> Iterator[str]:
    for result in verdict.results:
        name = f"{result.policy.name}/{result.rule}" if result.rule else result.policy.name
        yield f"{name}: {result.status} {result.message}".rstrip()
