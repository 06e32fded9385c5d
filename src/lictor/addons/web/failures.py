"""Where does a resource break a rule, what was expected there and what was found?

Reports do not contain it. The resource is read again with the viewer's credentials, and the rule
is evaluated on it, in a separate process with limits on time and memory.
"""

import asyncio
import sys
import time
from collections import Counter, OrderedDict
from collections.abc import Callable, Mapping
from hashlib import sha256
from typing import TypeAlias

import msgspec

from lictor.addons.web.records import ReportedResult, ShownPolicy, Viewer
from lictor.core.model.result import Failure
from lictor.core.raw import Json, JsonObject
from lictor.core.report.json_text import render_json
from lictor.kubernetes.config import ClusterConfig

# The viewer's credentials for a cluster; None if they are not available here.
FindConfig: TypeAlias = Callable[[Viewer, str], ClusterConfig | None]

HIDDEN = "(hidden)"
# A viewer waits for the page, which shows everything else in any case.
_WALL_SECONDS = 20.0
_MOST_AT_ONCE = 2
_MOST_WAITING = 6
# Of one viewer: others look, too.
_MOST_OF_ONE = 2
# The page of a result repeats the request with every live update.
_KEPT_SECONDS = 30.0
_MOST_KEPT = 64
_LONGEST_VALUE = 4000
_MOST_BYTES = 16 * 1024 * 1024
_PROCESS = "lictor.addons.web.failure_process"


class ViewerCredentials(msgspec.Struct, frozen=True):
    """A ClusterConfig as it is now, that can be sent to another process."""

    server: str
    ca: str
    certificate: str
    key: str
    token: str
    username: str
    password: str
    verify: bool
    tls_server_name: str
    impersonate: str
    impersonate_groups: tuple[str, ...]
    impersonate_uid: str
    impersonate_extra: Mapping[str, tuple[str, ...]]
    proxy: str


class FailureJob(msgspec.Struct, frozen=True):
    """A result whose resource is evaluated again, for the process."""

    text: str
    result: ReportedResult
    # With whose rights the resource is read; None where it is given.
    credentials: ViewerCredentials | None = None
    resource: JsonObject | None = None


class FailureAnswer(msgspec.Struct, frozen=True):
    """What the process found; nothing where it could not look."""

    # Where the resource breaks the rule.
    broken: Failure | None = None


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
    """Calls the process, a few jobs at a time, and caches its answers briefly."""

    def __init__(self) -> None:
        self._turns = asyncio.Semaphore(_MOST_AT_ONCE)
        # By the name of the viewer.
        self._waiting: Counter[str] = Counter()
        # By all parameters, including the credentials.
        self._kept: OrderedDict[bytes, tuple[float, Failure | None]] = OrderedDict()

    async def find_in_cluster(
        self, result: ReportedResult, policy: ShownPolicy, viewer: Viewer, find_config: FindConfig
    ) -> Failure | None:
        """None where we have no credentials of the viewer's, or they may not read the resource."""
        config = find_config(viewer, result.cluster)
        if config is None:
            return None
        credentials = await read_credentials(config)
        return await self._evaluate(FailureJob(policy.text, result, credentials), viewer.name)

    async def find_in_file(
        self, result: ReportedResult, policy: ShownPolicy, resource: JsonObject
    ) -> Failure | None:
        """The same for a resource that was read from a file."""
        return await self._evaluate(FailureJob(policy.text, result, resource=resource))

    async def _evaluate(self, job: FailureJob, viewer: str = "") -> Failure | None:
        text = msgspec.json.encode(job)
        key = sha256(text).digest()
        kept = self._kept.get(key)
        if kept is not None and time.monotonic() < kept[0]:
            return kept[1]
        if self._waiting.total() >= _MOST_WAITING or self._waiting[viewer] >= _MOST_OF_ONE:
            return None
        self._waiting[viewer] += 1
        try:
            async with self._turns:
                answer = await call_process(text, _WALL_SECONDS)
        finally:
            self._waiting[viewer] -= 1
            self._waiting += Counter()
        self._kept[key] = time.monotonic() + _KEPT_SECONDS, answer.broken
        self._kept.move_to_end(key)
        if len(self._kept) > _MOST_KEPT:
            self._kept.popitem(last=False)
        return answer.broken


async def read_credentials(config: ClusterConfig) -> ViewerCredentials:
    """They can be sent to the process then."""
    # A token may come from a program that has to be run.
    return await asyncio.to_thread(_read_credentials, config)


def _read_credentials(config: ClusterConfig) -> ViewerCredentials:
    certificate, key = config.certificate, config.key
    if config.identity is not None:
        certificate, key = config.identity(False)  # noqa: FBT003  (it has no name)
    known = {
        name: getattr(config, name)
        for name in ViewerCredentials.__struct_fields__
        if name not in ("certificate", "key", "token")
    }
    token = config.token(False) if config.token is not None else ""  # noqa: FBT003
    return ViewerCredentials(certificate=certificate, key=key, token=token, **known)


async def call_process(job: bytes, seconds: float) -> FailureAnswer:
    """What the process answers; it is ended when it takes longer."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-P", "-m", _PROCESS),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
        limit=_MOST_BYTES,
    )
    try:
        async with asyncio.timeout(seconds):
            answer, _ = await process.communicate(job)
    except TimeoutError:
        return FailureAnswer()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    try:
        return msgspec.json.decode(answer, type=FailureAnswer)
    except msgspec.DecodeError:
        # It died of its limits.
        return FailureAnswer()
