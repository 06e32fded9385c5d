"""Is a policy harmless to compile? Tried in a process of its own, within limits of time and memory.

What a trial finds is a reason why not, or nothing. Other work of the same kind, such as looking for
mistakes in a policy that is about to be stored, is done in the same way.
"""

import asyncio
import contextlib
import logging
import os
import socket
from collections.abc import Callable, Sequence
from hashlib import sha256
from typing import TYPE_CHECKING

import msgspec
import orjson

from lictor.core.errors import LictorError
from lictor.core.raw import JsonObject
from lictor.policies.helper_lane import JobOutcome, Limits
from lictor.policies.helper_process import Helper, HelperProcess, SharedHelper, serve_several

if TYPE_CHECKING:
    from lictor.core.facts.resource_names import ResourceNames

# What else a process has done within the same limits.
Review = Callable[[bytes], bytes]

log = logging.getLogger(__name__)


class Job(msgspec.Struct, frozen=True):
    """A policy, and what belongs to it."""

    policy: JsonObject
    # Exceptions from it.
    exceptions: tuple[JsonObject, ...] = ()
    # Definitions of custom kinds, without their schemas.
    crds: tuple[JsonObject, ...] = ()

    @property
    def namespace(self) -> str:
        """Whose policy it is; empty for the whole cluster."""
        return find_namespace(self.policy)


def find_namespace(document: JsonObject) -> str:
    """The namespace of a policy; empty for one of the whole cluster."""
    metadata = document.get("metadata")
    return str(metadata.get("namespace") or "") if isinstance(metadata, dict) else ""


class TrialResult(msgspec.Struct, frozen=True):
    """What is known about a policy before it is compiled."""

    # Why it must not be compiled; empty where it may be.
    reason: str = ""
    # It was tried, and took little: where a process dies over it, that may well be an accident.
    is_light: bool = False


class Trials:
    """Tries policies, in a helper of this process or in one that several share."""

    def __init__(
        self,
        review: Review | None = None,
        limits: Limits | None = None,
        helper: Helper | None = None,
    ) -> None:
        self._limits = limits or Limits()
        self._helper = helper or HelperProcess(lambda data: _work(data, review), _rehearse)
        # What was tried and found harmless, the oldest first. Trying costs more than compiling, and
        # the same policy comes by when it is admitted and for everyone here who keeps it compiled.
        self._harmless: dict[bytes, TrialResult] = {}
        self._telling: set[asyncio.Task[None]] = set()

    async def try_policies(self, jobs: Sequence[Job]) -> list[TrialResult]:
        """For each policy whether it may be compiled."""
        prints = [_fingerprint(job) for job in jobs]
        known = [self._harmless.get(each) for each in prints]
        unknown = [number for number, result in enumerate(known) if result is None]
        results = [result or TrialResult() for result in known]
        if unknown:
            marks = [prints[number] for number in unknown]
            found = await self._try([jobs[number] for number in unknown], marks)
            for number, result in zip(unknown, found, strict=True):
                results[number] = result
        return results

    def note_harmless(self, job: Job, *, is_light: bool) -> None:
        """It was compiled in a process of its own, within the same limits."""
        mark = _fingerprint(job)
        self._remember(mark, TrialResult(is_light=is_light))
        # Nobody waits for that: others would only try it once more.
        task = asyncio.get_running_loop().create_task(self._tell(mark, is_light=is_light))
        self._telling.add(task)
        task.add_done_callback(self._telling.discard)

    async def _tell(self, mark: bytes, *, is_light: bool) -> None:
        with contextlib.suppress(OSError):
            await self._helper.note(mark, is_light=is_light)

    def _remember(self, mark: bytes, result: TrialResult) -> None:
        self._harmless[mark] = result
        while len(self._harmless) > _MOST_KNOWN:
            del self._harmless[next(iter(self._harmless))]

    async def _try(self, jobs: Sequence[Job], marks: Sequence[bytes]) -> list[TrialResult]:
        try:
            asked = [_TRY + msgspec.msgpack.encode(job) for job in jobs]
            owners = [job.namespace for job in jobs]
            outcomes = await self._helper.run(asked, self._limits, marks, owners)
        except OSError as error:
            # Expressions have limits of their own: better without this one than no policies.
            log.exception("policies not tried before they are compiled", exc_info=error)
            return [TrialResult() for _ in jobs]
        results = [TrialResult(tell_failure(each), each.is_light) for each in outcomes]
        for mark, result in zip(marks, results, strict=True):
            if not result.reason:
                self._remember(mark, result)
        return results

    async def review(self, data: bytes, namespace: str = "") -> JobOutcome:
        """What the review of this process says of something; OSError where nobody can tell."""
        limits = msgspec.structs.replace(
            self._limits, wall_seconds=_REVIEW_SECONDS, most_orders=_MOST_REVIEWS
        )
        (outcome,) = await self._helper.run([_REVIEW + data], limits, owners=[namespace])
        return outcome

    def close(self) -> None:
        self._helper.close()


_MOST_KNOWN = 4096
# Of the metadata only these say something to a compiler.
_TOLD = ("name", "namespace", "labels", "annotations")


def _fingerprint(job: Job) -> bytes:
    """The same for the same content, whatever the API server has added to it."""
    documents = [
        (each.get("apiVersion"), each.get("kind"), each.get("spec"), _pick_metadata(each))
        for each in (job.policy, *job.exceptions)
    ]
    kinds = [(each["metadata"].get("uid"), each["spec"]) for each in job.crds]
    try:
        data = orjson.dumps([documents, kinds], option=orjson.OPT_SORT_KEYS)
    except (TypeError, ValueError):
        # What is too deep, or a number too large, is like nothing else.
        return os.urandom(32)
    return sha256(data).digest()


def _pick_metadata(document: JsonObject) -> JsonObject:
    metadata = document.get("metadata") or {}
    return {name: metadata.get(name) for name in _TOLD}


_TRY, _REVIEW = b"t", b"r"
# Shorter than an API server waits for the answer of a webhook.
_REVIEW_SECONDS = 7.0
# Of one namespace, at once: each may take seconds, and nobody waits for more.
_MOST_REVIEWS = 8


def _rehearse() -> None:
    """Load what most policies need."""
    for job in _list_samples():
        _work(_TRY + msgspec.msgpack.encode(job), None)


def rehearse_compiling() -> None:
    """Load what most policies need to be compiled; processes that are forked later share it."""
    for job in _list_samples():
        compile_alone(job)


def _list_samples() -> list[Job]:
    from lictor.core.families.registry import registry

    return [Job(kind.sample) for kind in registry().kinds if kind.sample]


def _work(data: bytes, review: Review | None) -> bytes:
    if data[:1] == _REVIEW and review is not None:
        return review(data[1:])
    job = msgspec.msgpack.decode(data[1:], type=Job)
    names = compile_alone(job)
    _look_for_mistakes(job.policy, names)
    return b""


def tell_failure(outcome: JobOutcome) -> str:
    """Why a policy was not compiled; empty where it was."""
    if not outcome.failure:
        return ""
    return f"the policy cannot be compiled within the limits: {outcome.failure}"


def compile_alone(job: Job) -> "ResourceNames":
    """Compile a policy as if there were no cluster, for nothing but to see how that goes."""
    from lictor.core.assembly import compile_cleanups, compile_documents
    from lictor.core.facts.resource_names import builtin_names
    from lictor.core.load.policies import Loaded, load_documents

    names = builtin_names().with_crds(job.crds)
    loaded = Loaded()
    for document in (job.policy, *job.exceptions):
        loaded += load_documents(msgspec.json.encode(document), "policy")
    compile_documents(loaded.records, resource_names=names)
    # What is wrong with it is told by whoever compiles it in earnest.
    with contextlib.suppress(LictorError):
        compile_cleanups(loaded.records, resource_names=names)
    return names


def _look_for_mistakes(document: JsonObject, names: "ResourceNames") -> None:
    from lictor.core.families.registry import registry
    from lictor.lint.documents_by_kind import LintContext, lint_document

    group = str(document.get("apiVersion")).rpartition("/")[0]
    kind = registry().get(group, str(document.get("kind")))
    tuple(lint_document(kind, document, LintContext(lambda: names)))


_current: list[Trials] = []


def start_trials(review: Review | None = None, address: str = "") -> Trials:
    """Begin to try policies in this process, before it has threads; once is enough.

    `address`: the Unix socket of a process that does so for several.
    """
    if not _current:
        _current.append(Trials(review, helper=SharedHelper(address) if address else None))
    return _current[0]


def serve_trials(door: socket.socket, review: Review) -> None:
    """The whole life of that process; it never returns."""
    serve_several(door, lambda data: _work(data, review), _rehearse)


def current_trials() -> Trials | None:
    """The trials of this process; None where policies are compiled without."""
    return _current[0] if _current else None


async def find_reason(document: JsonObject) -> str:
    """Why a policy must not be compiled in this process; empty where it may be."""
    trials = current_trials()
    if trials is None:
        return ""
    (result,) = await trials.try_policies([Job(document)])
    return result.reason
