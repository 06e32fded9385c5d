"""The process that evaluates a policy again: a job comes in, the failure goes out."""

import asyncio
import resource
import sys
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path

import msgspec

from lictor.addons.web.failures import FailureAnswer, FailureJob, ViewerCredentials, hide_values
from lictor.addons.web.records import ReportedResult
from lictor.controllers.existing_objects import evaluate_now
from lictor.core.assembly import compile_documents
from lictor.core.engine import Engine
from lictor.core.errors import ApiError, LictorError, LookupFailedError, UsageError
from lictor.core.facts.resource_names import ResourceNames, ResourceType, builtin_names
from lictor.core.families.registry import registry
from lictor.core.load.policies import load_documents, refuse_errors
from lictor.core.model.metadata import PolicyRecord
from lictor.core.model.program import Phase, Program
from lictor.core.model.request import Request
from lictor.core.model.result import Failure, Status, Verdict
from lictor.core.ports import DEFAULT_ACCESS, ApiCall, Registries, RegistryAccess
from lictor.core.raw import Json, JsonObject
from lictor.kubernetes.client import Client
from lictor.kubernetes.config import ClusterConfig
from lictor.kubernetes.discovery import Discovery
from lictor.kubernetes.flags import Flags
from lictor.kubernetes.resource import NAMESPACE
from lictor.lookups.lookups import ClusterLookups

_CPU_SECONDS = 15
_MEMORY = 768 * 1024 * 1024
# For the page, which goes on beside it.
_MARGIN = 24 * 1024 * 1024
_GROUP = Path("/sys/fs/cgroup")
_OWN_STATUS = Path("/proc/self/status")
_CHECKING = (Phase.VALIDATE, Phase.VERIFY_IMAGES)
_NOT_HERE = "is not called for a page"


class ViewerLookups(ClusterLookups):
    """The requests to the cluster that a viewer may send; no other is sent."""

    def call_api(self, call: ApiCall) -> Json:
        if not call.url_path:
            raise LookupFailedError(f"the service {call.service_url[:200]} {_NOT_HERE}")
        return super().call_api(call)

    def image_data(self, reference: str, access: RegistryAccess = DEFAULT_ACCESS) -> JsonObject:  # noqa: ARG002
        raise LookupFailedError(f"the registry of {reference[:200]} {_NOT_HERE}")

    def registries(self) -> Registries:
        raise LookupFailedError(f"a registry {_NOT_HERE}")

    def resolve_host(self, host: str) -> tuple[str, ...]:
        raise LookupFailedError(f"the address of {host[:200]} {_NOT_HERE}")


def main() -> None:
    """Read a job, do it, write the answer."""
    _limit()
    job = msgspec.json.decode(sys.stdin.buffer.read(), type=FailureJob)
    failure = None
    # The page shows the rest in any case.
    with suppress(LictorError, MemoryError):
        failure = asyncio.run(_find_failure(job))
    shown = None if failure is None else hide_values(failure, job.result.kind)
    sys.stdout.buffer.write(msgspec.json.encode(FailureAnswer(shown)))


def _limit() -> None:
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_CPU, (_CPU_SECONDS, _CPU_SECONDS + 1))
    most = find_room()
    resource.setrlimit(resource.RLIMIT_DATA, (most, most))


def find_room(group: Path = _GROUP, own: Path = _OWN_STATUS) -> int:
    """Bytes that this process may have: where a container is full, the page would be ended too."""
    try:
        total = int((group / "memory.max").read_text())
        used = _read_number(group / "memory.stat", "anon")
        has = _read_number(own, "VmData:") * 1024
    except (OSError, ValueError):
        # No limit, or none that we can see.
        return _MEMORY
    return min(_MEMORY, has + max(total - used - _MARGIN, 0))


def _read_number(file: Path, name: str) -> int:
    for line in file.read_text().splitlines():
        key, *values = line.split()
        if key == name:
            return int(values[0])
    raise ValueError(name)


def _connect(known: ViewerCredentials) -> ClusterConfig:
    fields = msgspec.structs.asdict(known)
    token = fields.pop("token")
    return ClusterConfig(**fields, token=(lambda _: token) if token else None)


def _load(text: str) -> list[PolicyRecord]:
    loaded = load_documents(text, "policy")
    refuse_errors(loaded)
    records = [each.record for each in loaded.listed if not registry().of(each.record).is_native]
    if not records:
        raise UsageError("the text contains no policy that can be evaluated")
    return records


def _list_names(discovery: Discovery) -> ResourceNames:
    """The names of resources, with those of the cluster's own kinds."""
    return builtin_names().with_resources(
        ResourceType(each.group, each.version, each.kind, each.plural, each.namespaced)
        for each in discovery.list_kinds()
    )


async def _read_labels(client: Client, namespace: str) -> Mapping[str, str]:
    """The labels of a namespace; none if the viewer may not read it."""
    with suppress(ApiError):
        found = await client.find(NAMESPACE, namespace) if namespace else None
        return (found or {}).get("metadata", {}).get("labels") or {}
    return {}


async def _find_failure(job: FailureJob) -> Failure | None:
    if job.credentials is None:
        request = Request.of(job.resource or {})
        programs = compile_documents(_load(job.text))
        return _pick(evaluate_now(_keep_rule(programs, job.result), request), job.result)
    client = Client(_connect(job.credentials))
    try:
        return await _look_again(client, job)
    finally:
        await client.close()


async def _look_again(client: Client, job: FailureJob) -> Failure | None:
    discovery = Discovery(client)
    await discovery.ensure()
    found = await _read_object(client, discovery, job.result)
    if found is None:
        return None
    labels = await _read_labels(client, job.result.namespace)
    request = Request.of(found, namespace_labels=labels)
    lookups = ViewerLookups(
        client, asyncio.get_running_loop(), Flags(enable_config_map_caching=False)
    )
    names = _list_names(discovery)

    def evaluate() -> Verdict:
        programs = compile_documents(_load(job.text), lookups=lookups, resource_names=names)
        return evaluate_now(_keep_rule(programs, job.result), request)

    try:
        return _pick(await asyncio.to_thread(evaluate), job.result)
    finally:
        await lookups.close()


async def _read_object(
    client: Client, discovery: Discovery, result: ReportedResult
) -> JsonObject | None:
    """The resource, if it is still the same one and the viewer may read it."""
    group = result.api_version.rpartition("/")[0]
    same = [
        each
        for each in discovery.list_kinds()
        if (each.group, each.kind) == (group, result.kind)
        and each.namespaced == bool(result.namespace)
    ]
    if not same or not result.name:
        return None
    found = await client.find(same[0], result.name, result.namespace)
    if found is None or (result.uid and found["metadata"].get("uid") != result.uid):
        return None
    return found


def _keep_rule(programs: Iterable[Program], result: ReportedResult) -> Engine:
    """Only what the result is about: other rules might change the resource before."""
    kept = []
    for program in programs:
        rules = tuple(each for each in program.rules if each.name == result.rule)
        rules = tuple(each for each in rules if each.phase in _CHECKING)
        kept.append(msgspec.structs.replace(program, rules=rules))
    return Engine(kept)


def _pick(verdict: Verdict, result: ReportedResult) -> Failure | None:
    for each in verdict.results:
        if each.rule == result.rule and each.status is Status.FAIL and each.failure is not None:
            return each.failure
    return None


if __name__ == "__main__":
    main()
