"""Where a policy is served, whether it can be called there, and the statuses that follow."""

import asyncio
from collections.abc import Callable, Mapping
from datetime import datetime
from enum import StrEnum

import msgspec

from lictor.addons.kubewarden.controller.certificates import ServerAuthority
from lictor.addons.kubewarden.controller.rollout import (
    LoadWait,
    PodQueries,
    ServerLoads,
    Workloads,
)
from lictor.addons.kubewarden.family.bindings import PolicyBinding
from lictor.addons.kubewarden.family.entries import digest_document
from lictor.addons.kubewarden.family.policy_server import (
    DEFAULT_SERVER,
    FINALIZER,
    OLD_FINALIZER,
    PolicyServer,
)
from lictor.controllers.context import EmitEvent
from lictor.controllers.quarantine import emit_quarantine
from lictor.core.errors import ConflictError, NotFoundError
from lictor.core.raw import Json, JsonObject
from lictor.kubernetes.client import Client
from lictor.kubernetes.resource import Resource
from lictor.kubernetes.stored_policy import StoredPolicy

_LONGEST_MESSAGE = 2048
_NO_ROOM = (
    "the policies of its namespace, or of its server, are too large together, or this one is "
    "nested too deep: make settings smaller"
)


class PolicyStage(StrEnum):
    """How far a policy has come."""

    # The server that it names is not there.
    UNSCHEDULED = "unscheduled"
    # The server is there, and about to go.
    SCHEDULED = "scheduled"
    # The server does not evaluate it yet.
    PENDING = "pending"
    # The API server calls it, and its server answers.
    ACTIVE = "active"


class StatedCondition(msgspec.Struct, frozen=True):
    """One condition of a status."""

    holds: bool
    reason: str
    message: str


class ServedState(msgspec.Struct, frozen=True):
    """The status of a policy."""

    stage: PolicyStage
    # How the server evaluates it: protect, monitor, or unknown where it does not.
    mode: str
    conditions: Mapping[str, StatedCondition]
    # Whether only a change of an object can change it.
    is_final: bool = False

    @property
    def is_waiting(self) -> bool:
        """Whether it may change soon, without a change of objects."""
        if self.is_final:
            return False
        server = self.conditions.get(UP_TO_DATE)
        return self.stage is PolicyStage.PENDING or (server is not None and not server.holds)

    def write(self, old: JsonObject, generation: int, now: str) -> JsonObject:
        """In the API's form; times stay where nothing has changed."""
        return {
            "policyStatus": self.stage.value,
            "mode": self.mode,
            "conditions": write_conditions(self.conditions, old, generation, now),
        }


ACTIVE = "PolicyActive"
UP_TO_DATE = "PolicyServerConfigurationUpToDate"
REACHABLE = "PolicyUniquelyReachable"
# Reasons if the server has the policy and if it has not, as Kubewarden's controller writes them.
_SERVER_CONDITIONS = (
    (
        UP_TO_DATE,
        "ConfigurationVersionMatch",
        "ConfigurationVersionMismatch",
        "The policy server",
    ),
    (
        REACHABLE,
        "LatestReplicaSetIsUniquelyReachable",
        "LatestReplicaSetIsNotUniquelyReachable",
        "Every Pod that answers",
    ),
)


def describe_active(mode: str, waiting: str = "") -> ServedState:
    """The API server calls the policy; `waiting`: why not every Pod has its last form yet."""
    conditions = {
        ACTIVE: StatedCondition(
            holds=True, reason="PolicyActive", message="The policy webhook has been created"
        ),
        **_describe_server(waiting),
    }
    return ServedState(PolicyStage.ACTIVE, mode, conditions)


def describe_pending(mode: str, reason: str, why: str, *, is_served: bool) -> ServedState:
    """The API server does not call the policy yet; `is_served`: its server has loaded it."""
    conditions = {
        ACTIVE: StatedCondition(holds=False, reason=reason, message=_cut(why)),
        **_describe_server("" if is_served else why),
    }
    return ServedState(PolicyStage.PENDING, mode, conditions)


def describe_failed(mode: str, wait: LoadWait, *, is_asked: bool) -> ServedState:
    """Its server cannot evaluate the policy; `is_asked`: the API server calls it nevertheless."""
    message = f"{wait.reason}; its requests are denied"
    why = message if is_asked else wait.reason
    state = describe_pending(mode, "PolicyCannotBeLoaded", why, is_served=False)
    return msgspec.structs.replace(state, is_final=wait.is_final)


def describe_absent(stage: PolicyStage, reason: str, why: str) -> ServedState:
    """There is no server for the policy, and the API server does not call it."""
    return ServedState(
        stage, "unknown", {ACTIVE: StatedCondition(holds=False, reason=reason, message=why)}
    )


def _describe_server(waiting: str) -> dict[str, StatedCondition]:
    return {
        name: StatedCondition(
            holds=not waiting,
            reason=mismatch if waiting else match,
            message=_cut(waiting) or f"{who} has the policy as it is",
        )
        for name, match, mismatch, who in _SERVER_CONDITIONS
    }


def write_conditions(
    statements: Mapping[str, StatedCondition], old: JsonObject, generation: int, now: str
) -> list[JsonObject]:
    """Conditions in the API's form; the time of one changes together with its status."""
    given = old.get("conditions")
    before: dict[Json, JsonObject] = {
        each.get("type"): each
        for each in (given if isinstance(given, list) else ())
        if isinstance(each, dict)
    }
    return [
        {
            "type": name,
            "status": "True" if each.holds else "False",
            "reason": each.reason,
            "message": each.message,
            "observedGeneration": generation,
            "lastTransitionTime": _find_time(before.get(name), each, now),
        }
        for name, each in statements.items()
    ]


def _find_time(before: JsonObject | None, statement: StatedCondition, now: str) -> str:
    status = "True" if statement.holds else "False"
    if before is None or before.get("status") != status:
        return now
    return str(before.get("lastTransitionTime") or now)


def _cut(text: str) -> str:
    return text[:_LONGEST_MESSAGE]


class BoundPolicy(msgspec.Struct, frozen=True):
    """A policy in the cluster, and its binding to a server."""

    stored: StoredPolicy
    binding: PolicyBinding
    is_going: bool


class ServerRun(msgspec.Struct, frozen=True):
    """A server after its objects were looked after."""

    server: PolicyServer
    # The state of each policy in its ConfigMap, by unique name.
    entries: Mapping[str, JsonObject]
    conditions: Mapping[str, StatedCondition]
    # Why its Pods do not evaluate these yet; empty where they do.
    waiting: str = ""
    # The state of each policy in its Pods; None if they do not report it.
    loads: ServerLoads | None = None

    def find_wait(self, policy: str) -> LoadWait | None:
        """Why requests may meet Pods without the policy as it is now; None where they cannot."""
        entry = self.entries.get(policy)
        if entry is None:
            return LoadWait(_NO_ROOM)
        config = self.conditions["ConfigMapReconciled"]
        if not config.holds:
            return LoadWait(f"its server cannot be configured: {config.message}")
        if self.loads is not None:
            return self.loads.find_wait(policy, digest_document(entry))
        return LoadWait(self.waiting) if self.waiting else None


async def ask_pods(runs: Mapping[str, ServerRun], workloads: Workloads) -> dict[str, ServerRun]:
    """With the answers of the Pods, if they report them."""
    questions = PodQueries()
    asked = [run for run in runs.values() if run.server.runs_lictor]
    answers = await asyncio.gather(
        *(questions.ask(run.server, workloads.list_ready(run.server)) for run in asked)
    )
    told = {
        run.server.name: msgspec.structs.replace(run, loads=loads)
        for run, loads in zip(asked, answers, strict=True)
    }
    return {**runs, **told}


class Placement(msgspec.Struct, frozen=True):
    """What is known of the servers of one run."""

    runs: Mapping[str, ServerRun]
    servers: list[PolicyServer]
    broken: Mapping[str, str]
    authority: ServerAuthority | None

    def find_absence(self, server: str) -> ServedState | None:
        """What becomes of policies of a server that is not there; None where it is."""
        found = next((each for each in self.servers if each.name == server), None)
        if server in self.broken:
            why = f"PolicyServer {server} cannot be run: {self.broken[server]}"
            return describe_absent(PolicyStage.SCHEDULED, "PolicyServerInvalid", why)
        if found is not None and found.is_going:
            why = f"PolicyServer {server} is being deleted"
            return describe_absent(PolicyStage.SCHEDULED, "PolicyServerLeaving", why)
        # Without a server of that name, lictor itself is the default one.
        if found is None and server != DEFAULT_SERVER:
            why = f"there is no PolicyServer {server}"
            return describe_absent(PolicyStage.UNSCHEDULED, "PolicyServerNotFound", why)
        return None


class ServerStatusWriter:
    """Writes what differs, and only that."""

    def __init__(self, client: Client, emit: EmitEvent, clock: Callable[[], datetime]) -> None:
        self._client = client
        self._emit = emit
        self._clock = clock
        # By uid: what was wanted, and what the API server made of it.
        self._written: dict[str, tuple[JsonObject, JsonObject]] = {}

    async def write_policy(self, policy: StoredPolicy, state: ServedState) -> None:
        """The status of a policy."""
        document = policy.document
        old = _read_status(document)
        wanted = state.write(old, policy.generation, self._now())
        if await self._write(policy.resource, document, wanted):
            emit_quarantine(self._emit, policy, old, wanted)

    async def write_server(
        self, resource: Resource, document: JsonObject, statements: Mapping[str, StatedCondition]
    ) -> None:
        """The status of a PolicyServer."""
        generation = int(document["metadata"].get("generation") or 0)
        old = _read_status(document)
        conditions = write_conditions(statements, old, generation, self._now())
        await self._write(resource, document, {"conditions": conditions})

    async def hold(self, resource: Resource, document: JsonObject) -> None:
        """Keep a policy until its webhook is removed, or a server until it is no longer called.

        With a finalizer.
        """
        finalizers = document["metadata"].get("finalizers") or []
        if FINALIZER not in finalizers:
            await self._set_finalizers(resource, document, [*finalizers, FINALIZER])

    async def release(self, resource: Resource, document: JsonObject) -> None:
        """Take the finalizer away."""
        finalizers = document["metadata"].get("finalizers") or []
        left = [each for each in finalizers if each not in (FINALIZER, OLD_FINALIZER)]
        if left != finalizers:
            await self._set_finalizers(resource, document, left)

    def forget(self, live: set[str]) -> None:
        """Keep what is known of these policies, and of servers."""
        for uid in self._written.keys() - live:
            del self._written[uid]

    def _now(self) -> str:
        return self._clock().strftime("%Y-%m-%dT%H:%M:%SZ")

    async def _write(self, resource: Resource, document: JsonObject, wanted: JsonObject) -> bool:
        uid, status = str(document["metadata"].get("uid")), _read_status(document)
        if status == wanted or self._written.get(uid) == (wanted, status):
            return False
        metadata = document["metadata"]
        try:
            made = await self._client.patch(
                resource,
                metadata["name"],
                {"status": wanted},
                namespace=str(metadata.get("namespace") or ""),
                subresource="status",
            )
        except NotFoundError:
            return False
        self._written[uid] = (wanted, _read_status(made))
        return True

    async def _set_finalizers(
        self, resource: Resource, document: JsonObject, finalizers: list[str]
    ) -> None:
        metadata = document["metadata"]
        # With the version that was read: no other controller's finalizer is lost.
        version = {"resourceVersion": metadata["resourceVersion"]}
        try:
            await self._client.patch(
                resource,
                metadata["name"],
                {"metadata": {**version, "finalizers": finalizers}},
                namespace=str(metadata.get("namespace") or ""),
            )
        except (NotFoundError, ConflictError):
            # Gone, or changed meanwhile: the next run sees it as it is.
            return


def _read_status(document: JsonObject) -> JsonObject:
    found = document.get("status")
    return found if isinstance(found, dict) else {}
