"""Can a policy server answer: do all its Pods run what they should, or does lictor itself?"""

import asyncio
import ipaddress
from collections.abc import Callable, Iterable, Mapping
from http import HTTPStatus

import msgspec

from lictor.addons.kubewarden.controller.objects import REPLICA_SET
from lictor.addons.kubewarden.family.entries import (
    POLICIES_PATH,
    LoadReport,
    LoadStage,
    read_report,
)
from lictor.addons.kubewarden.family.policy_server import CONFIG_VERSION, SERVER_LABEL, PolicyServer
from lictor.controllers.webhook_configuration.draft import WebhookEndpoint
from lictor.core.errors import LookupFailedError
from lictor.core.model.finding import Severity
from lictor.core.raw import JsonObject
from lictor.http.addresses import Destination, open_stream
from lictor.http.client import ClientConnection, write_head
from lictor.kubernetes.client import Client
from lictor.kubernetes.resource import DEPLOYMENT, Resource
from lictor.kubernetes.stored_policy import StoredPolicy
from lictor.policies.store import PolicyStore

POD = Resource("", "v1", "pods", "Pod")
_REVISION = "deployment.kubernetes.io/revision"
_TEMPLATE_HASH = "pod-template-hash"
_OVER = ("Succeeded", "Failed")
# Read from their port for probes, without security risk: a policy that is not loaded denies.
_AT_ONCE = 8
_MOST_BYTES = 4 * 1024 * 1024
# For one Pod, and for all of a run.
_POD_SECONDS, _ALL_SECONDS = 3.0, 10.0


class Workloads(msgspec.Struct, frozen=True):
    """The Deployments, ReplicaSets and Pods of all policy servers at one moment."""

    deployments: tuple[JsonObject, ...] = ()
    replica_sets: tuple[JsonObject, ...] = ()
    pods: tuple[JsonObject, ...] = ()

    def explain_wait(self, server: PolicyServer, version: str) -> str:
        """Why requests may still meet Pods without this version; empty where they cannot."""
        deployment = next(iter(_of(server, self.deployments)), None)
        if deployment is None:
            return f"Deployment {server.full_name} is not there yet"
        if _read_annotation(deployment, CONFIG_VERSION) != version:
            return f"Deployment {server.full_name} does not have the policy yet"
        revision = _read_annotation(deployment, _REVISION)
        current = [
            _read_label(each, _TEMPLATE_HASH)
            for each in _of(server, self.replica_sets)
            if revision
            and _read_annotation(each, _REVISION) == revision
            and _read_template(each) == version
        ]
        if not current:
            return f"Deployment {server.full_name} is being rolled out"
        return self._explain_pods(server, current[0])

    def list_ready(self, server: PolicyServer) -> list[JsonObject]:
        """The Pods that get requests."""
        return [
            pod
            for pod in _of(server, self.pods)
            if _is_ready(pod)
            and not pod["metadata"].get("deletionTimestamp")
            and (pod.get("status") or {}).get("phase") not in _OVER
        ]

    def _explain_pods(self, server: PolicyServer, template: str) -> str:
        pods = [
            pod
            for pod in _of(server, self.pods)
            if (pod.get("status") or {}).get("phase") not in _OVER
        ]
        if not pods:
            return f"Deployment {server.full_name} has no Pods"
        if any(_read_label(pod, _TEMPLATE_HASH) != template for pod in pods):
            return f"Deployment {server.full_name} still has Pods of before"
        waiting = [pod["metadata"]["name"] for pod in pods if not _is_ready(pod)]
        return f"Pod {waiting[0]} is not ready" if waiting else ""


async def read_workloads(client: Client, namespace: str) -> Workloads:
    """What runs in the namespace of the installation."""
    found = [
        tuple(await client.list(resource, namespace, labels=SERVER_LABEL))
        for resource in (DEPLOYMENT, REPLICA_SET, POD)
    ]
    return Workloads(*found)


def _of(server: PolicyServer, objects: Iterable[JsonObject]) -> list[JsonObject]:
    return [each for each in objects if _read_label(each, SERVER_LABEL) == server.name]


def _read_label(item: JsonObject, name: str) -> str:
    return str((item["metadata"].get("labels") or {}).get(name) or "")


def _read_annotation(item: JsonObject, name: str) -> str:
    return str((item["metadata"].get("annotations") or {}).get(name) or "")


def _read_template(replica_set: JsonObject) -> str:
    template = (replica_set.get("spec") or {}).get("template") or {"metadata": {}}
    return _read_label({"metadata": template.get("metadata") or {}}, CONFIG_VERSION)


def _is_ready(pod: JsonObject) -> bool:
    conditions = (pod.get("status") or {}).get("conditions") or ()
    return any(each.get("type") == "Ready" and each.get("status") == "True" for each in conditions)


class OwnServer:
    """Lictor as the server `default`: can its admission webhook answer for a policy?"""

    def __init__(
        self,
        store: PolicyStore,
        find_address: Callable[[], WebhookEndpoint],
        healthy: Callable[[], bool],
    ) -> None:
        self._store = store
        self._find_address = find_address
        self._healthy = healthy

    def find_endpoint(
        self, policy: StoredPolicy
    ) -> tuple[WebhookEndpoint | None, "LoadWait | None"]:
        """Where the API server may call for a policy, and why it may not yet."""
        if not self._healthy():
            why = "the webhooks of lictor, which is the default server, do not answer"
            return None, LoadWait(why)
        try:
            address = self._find_address()
        except LookupFailedError as error:
            return None, LoadWait(str(error))
        return address, self._find_fault(policy)

    def _find_fault(self, policy: StoredPolicy) -> "LoadWait | None":
        if policy.record is None:
            errors = [each for each in policy.problems if each.severity is Severity.ERROR]
            return LoadWait(errors[0].message if errors else "the policy cannot be read")
        reason = self._store.find_reason(policy)
        is_final = bool(reason) and self._store.has_invalid_settings(policy)
        return LoadWait(reason, refuses=is_final, is_final=is_final) if reason else None


class LoadWait(msgspec.Struct, frozen=True):
    """Why a policy is not evaluated as it is now."""

    reason: str
    # Its requests are denied meanwhile.
    refuses: bool = False
    # Until an object is changed.
    is_final: bool = False


class ServerLoads(msgspec.Struct, frozen=True):
    """The answers of the ready Pods of one server."""

    reports: Mapping[str, LoadReport] = {}
    # Pods without an answer, and why.
    silent: Mapping[str, str] = {}

    def find_wait(self, policy: str, digest: str) -> LoadWait | None:
        """Why not every ready Pod evaluates the policy of this digest; None where all do."""
        if not self.reports and not self.silent:
            return LoadWait("its server has no ready Pods")
        waits = [_explain(pod, report, policy, digest) for pod, report in self.reports.items()]
        waits += [LoadWait(f"Pod {pod}: {why}") for pod, why in self.silent.items()]
        found = [wait for wait in waits if wait is not None]
        # The most important reason comes first.
        return max(found, key=lambda wait: (wait.is_final, wait.refuses), default=None)


def _explain(pod: str, report: LoadReport, policy: str, digest: str) -> LoadWait | None:
    load = report.policies.get(policy)
    if load is None or load.digest != digest:
        why = report.refused or (load.reason if load is not None else "")
        return LoadWait(f"Pod {pod} has not loaded it yet" + (f": {why}" if why else ""))
    if load.state is LoadStage.READY:
        return None
    is_final = load.state is LoadStage.FAILED
    return LoadWait(f"Pod {pod}: {load.reason}", refuses=True, is_final=is_final)


class PodQueries:
    """Queries the Pods of one run, a few at a time, and no longer than a run may take."""

    def __init__(self) -> None:
        self._turn = asyncio.Semaphore(_AT_ONCE)
        self._deadline = asyncio.get_running_loop().time() + _ALL_SECONDS

    async def ask(self, server: PolicyServer, pods: Iterable[JsonObject]) -> ServerLoads:
        """The answers of the Pods of a server."""
        named = {str(pod["metadata"]["name"]): pod for pod in pods}
        answers = await asyncio.gather(*(self._ask(server, pod) for pod in named.values()))
        told = dict(zip(named, answers, strict=True))
        return ServerLoads(
            {pod: answer for pod, answer in told.items() if isinstance(answer, LoadReport)},
            {pod: answer for pod, answer in told.items() if isinstance(answer, str)},
        )

    async def _ask(self, server: PolicyServer, pod: JsonObject) -> LoadReport | str:
        """Its report, or why there is none."""
        port = server.spec.readiness_probe_port
        try:
            async with (
                asyncio.timeout_at(self._deadline),
                self._turn,
                asyncio.timeout(_POD_SECONDS),
            ):
                return await _fetch(str((pod.get("status") or {}).get("podIP") or ""), port)
        except TimeoutError:
            return f"no answer in time on port {port} about its policies"
        except (OSError, ValueError, RecursionError) as error:
            return f"no answer on port {port} about its policies: {error}"


async def _fetch(address: str, port: int) -> LoadReport:
    # An address only: no name is resolved, and no proxy is used.
    ipaddress.ip_address(address)
    connection = ClientConnection(*await open_stream(Destination(address, port)))
    try:
        host = f"[{address}]" if ":" in address else address
        headers = (("host", f"{host}:{port}"), ("connection", "close"))
        message = write_head("GET", POLICIES_PATH, headers)
        answer = await connection.exchange(message, _POD_SECONDS, _MOST_BYTES)
    finally:
        connection.close()
    if answer.status_code != HTTPStatus.OK:
        raise ValueError(f"status {answer.status_code}")
    return read_report(answer.content)
