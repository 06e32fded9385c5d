"""Where does a resource break a rule, what was expected there and what was found?

Reports do not say it. The one resource is asked for again, as the viewer, and the one rule is
asked about it, in the same bounded process in which policies are tried.
"""

import asyncio
import time
from collections import OrderedDict
from hashlib import sha256

import msgspec

from lictor.model.result import Failure
from lictor.raw import Json, JsonObject
from lictor.report.json_text import render_json
from lictor.web.preview import FailureJob, FindConfig, ask_process, read_credentials
from lictor.web.records import ReportedResult, ShownPolicy, Viewer

HIDDEN = "(hidden)"
# Somebody waits for the page, which shows the rest in any case.
_WALL_SECONDS = 20.0
_MOST_AT_ONCE = 2
_MOST_WAITING = 6
# The page of a result asks again with every live update.
_KEPT_SECONDS = 30.0
_MOST_KEPT = 64
_LONGEST_VALUE = 4000


def hide_values(failure: Failure, kind: str) -> Failure:
    """As it may be shown: nothing of what is in a Secret, nor a reason, which may quote it."""
    if kind == "Secret":
        found = None if failure.found is None else HIDDEN
        return Failure(_cut(failure.path), _bound(failure.expected), found)
    expected, found = _bound(failure.expected), _bound(failure.found)
    return Failure(_cut(failure.path), expected, found, _cut(failure.reason))


def _bound(value: Json) -> Json:
    """A value that is large as text, cut."""
    text = value if isinstance(value, str) else render_json(value)
    return value if len(text) <= _LONGEST_VALUE else _cut(text)


def _cut(text: str) -> str:
    return text if len(text) <= _LONGEST_VALUE else f"{text[:_LONGEST_VALUE]}..."


class FailureFinder:
    """Asks the process, a few at a time; what it said is kept for a moment."""

    def __init__(self) -> None:
        self._turns = asyncio.Semaphore(_MOST_AT_ONCE)
        self._waiting = 0
        # By everything that was asked, with whose credentials.
        self._kept: OrderedDict[bytes, tuple[float, Failure | None]] = OrderedDict()

    async def find_in_cluster(
        self, result: ReportedResult, policy: ShownPolicy, viewer: Viewer, find_config: FindConfig
    ) -> Failure | None:
        """None where we have no credentials of the viewer's, or they may not read the resource."""
        config = find_config(viewer, result.cluster)
        if config is None:
            return None
        credentials = await read_credentials(config)
        return await self._ask(FailureJob(policy.text, result, credentials))

    async def find_in_file(
        self, result: ReportedResult, policy: ShownPolicy, resource: JsonObject
    ) -> Failure | None:
        """The same for a resource that was read from a file."""
        return await self._ask(FailureJob(policy.text, result, resource=resource))

    async def _ask(self, job: FailureJob) -> Failure | None:
        text = msgspec.json.encode(job)
        key = sha256(text).digest()
        kept = self._kept.get(key)
        if kept is not None and time.monotonic() < kept[0]:
            return kept[1]
        if self._waiting >= _MOST_WAITING:
            return None
        self._waiting += 1
        try:
            async with self._turns:
                answer = await ask_process(text, _WALL_SECONDS)
        finally:
            self._waiting -= 1
        self._kept[key] = time.monotonic() + _KEPT_SECONDS, answer.broken
        self._kept.move_to_end(key)
        if len(self._kept) > _MOST_KEPT:
            self._kept.popitem(last=False)
        return answer.broken
