"""What would a policy that is not in force say of what is in a cluster? Nothing is written.

Whoever asks is a stranger to us, and so is the policy. It is compiled and asked in a process of its
own, within limits of time and memory, with the credentials of whoever asks: neither the policy nor
its author reads here what they could not read by themselves. Services, registries and modules are
not asked: that would be with our place in the network.
"""

import asyncio
import sys
from collections.abc import Callable, Mapping
from typing import TypeAlias

import msgspec

from lictor.cluster.config import ClusterConfig
from lictor.errors import LictorError, UsageError
from lictor.model.result import Failure
from lictor.raw import JsonObject
from lictor.web.records import PolicyImpact, ReportedResult, Viewer

# With which credentials a viewer asks a cluster; None where we have none of theirs.
FindConfig: TypeAlias = Callable[[Viewer, str], ClusterConfig | None]

_LONGEST_TEXT = 256 * 1024
_MOST_WAITING = 4
_MOST_NAMESPACES = 100
_MOST_BYTES = 16 * 1024 * 1024
# Judging stops earlier, and tells how far it came.
_WALL_SECONDS = 60.0
_PROCESS = "lictor.web.preview_process"


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


class PreviewJob(msgspec.Struct, frozen=True, tag="preview"):
    """What the process is told of policies to try."""

    cluster: str
    text: str
    credentials: ViewerCredentials
    # None: all of them.
    namespaces: tuple[str, ...] | None
    # How many more namespaces the viewer sees.
    left_out: int = 0


class FailureJob(msgspec.Struct, frozen=True, tag="failure"):
    """What the process is told of a result whose resource is to be looked at again."""

    text: str
    result: ReportedResult
    # With whose rights the resource is read; None where it is given.
    credentials: ViewerCredentials | None = None
    resource: JsonObject | None = None
    namespace_labels: Mapping[str, str] = {}


class PreviewAnswer(msgspec.Struct, frozen=True):
    """What the process found, or why it found nothing."""

    impact: PolicyImpact | None = None
    failure: str = ""
    # Where the resource breaks the rule.
    broken: Failure | None = None


class PolicyPreviews:
    """Tries policies, one after the other."""

    def __init__(self, find_config: FindConfig) -> None:
        self._find_config = find_config
        self._lock = asyncio.Lock()
        self._waiting = 0

    async def run(self, cluster: str, text: str, viewer: Viewer) -> PolicyImpact:
        """LictorError where there is no policy to try, or it cannot be tried now."""
        job = await self._prepare(cluster, text, viewer)
        if self._waiting >= _MOST_WAITING:
            raise UsageError("others are trying policies at the moment: try again later")
        self._waiting += 1
        try:
            async with self._lock:
                answer = await ask_process(msgspec.json.encode(job), _WALL_SECONDS)
        finally:
            self._waiting -= 1
        if answer.impact is None:
            raise LictorError(answer.failure)
        return answer.impact

    async def _prepare(self, cluster: str, text: str, viewer: Viewer) -> PreviewJob:
        if len(text) > _LONGEST_TEXT:
            raise UsageError(f"the policy is longer than {_LONGEST_TEXT // 1024} KiB")
        visible = viewer.namespaces.get(cluster)
        config = self._find_config(viewer, cluster) if visible is not None else None
        if visible is None or config is None:
            raise UsageError(
                f"nothing of {cluster} can be read with your credentials: log in with a token"
            )
        credentials = await read_credentials(config)
        listed = None if visible.all_namespaces else tuple(sorted(visible.names))
        chosen = None if listed is None else listed[:_MOST_NAMESPACES]
        left_out = len(listed or ()) - len(chosen or ())
        return PreviewJob(cluster, text, credentials, chosen, left_out)


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


async def ask_process(job: bytes, seconds: float) -> PreviewAnswer:
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
        return PreviewAnswer(failure=f"the policy cannot be tried within {seconds:g} s")
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    try:
        return msgspec.json.decode(answer, type=PreviewAnswer)
    except msgspec.DecodeError:
        code = process.returncode
        return PreviewAnswer(failure=f"the policy cannot be tried within the limits (code {code})")
