"""A whole application in memory, for the tests of this folder: policies in, replies out."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from http import HTTPStatus
from pathlib import Path

import orjson

from lictor.core.facts.resource_names import ResourceNames
from lictor.core.model.program import Program
from lictor.core.model.request import Caller, Request
from lictor.core.ports import NoLookups
from lictor.core.raw import JsonObject
from lictor.http.messages import HttpRequest, HttpResponse
from lictor.kubernetes.flags import Flags
from lictor.kubernetes.names import Names
from lictor.kubernetes.stored_policy import StoredPolicy
from lictor.webhook.admission import AdmissionHandler, AdmissionServices
from lictor.webhook.app import App
from lictor.webhook.counters import Counters
from lictor.webhook.evaluator import Evaluator, LookupGuard
from lictor.webhook.file_policies import FilePolicies
from lictor.webhook.metrics import TIMED_ONCE
from lictor.webhook.policy_sets import PolicyProvider, PolicySets
from lictor.webhook.policy_webhooks import InternalWebhooks, PolicyReviewer
from lictor.webhook.post_admission import AdmissionOutcome, PostAdmission, ResultSink
from lictor.webhook.tracing import Tracer

PATHS = ("/validate/fail", "/validate/ignore", "/mutate/fail", "/mutate/ignore")


class FakeClusterState:
    """A cluster whose state the test sets."""

    has_namespaces = True

    def __init__(self, policies: PolicyProvider) -> None:
        self.policies = policies
        # What a test sets to hold requests until it is done.
        self.reading: asyncio.Event | None = None
        self.needs_roles = False
        self.exempt: Callable[[Request], bool] = lambda _: False
        self.labels: Mapping[str, str] | None = {}
        self.roles: tuple[tuple[str, ...], tuple[str, ...]] = ((), ())
        self.asked_roles = 0

    @property
    def is_ready(self) -> bool:
        return self.reading is None or self.reading.is_set()

    async def wait(self) -> None:
        if self.reading is not None:
            await self.reading.wait()

    @property
    def is_exempt(self) -> Callable[[Request], bool]:
        return self.exempt

    def roles_of(
        self,
        caller: Caller,
        namespace: str,
    ) -> tuple[tuple[str, ...], tuple[str, ...]]:
        self.asked_roles += 1
        return self.roles

    def recall_labels(self, namespace: str) -> Mapping[str, str] | None:
        return self.labels

    async def find_labels(self, namespace: str) -> Mapping[str, str] | None:
        return self.labels


class Notes:
    """A sink that keeps everything."""

    def __init__(self, *, wants_passes: bool = False, takes_triggers: bool = False) -> None:
        self.wants_passes = wants_passes
        self.takes_triggers = takes_triggers
        self.outcomes: list[AdmissionOutcome] = []

    def take(self, outcome: AdmissionOutcome) -> None:
        self.outcomes.append(outcome)


class Bench:
    """An application, and everything of it that tests look at."""

    def __init__(
        self,
        policies: PolicyProvider,
        *,
        sinks: Sequence[ResultSink] = (),
        flags: Flags | None = None,
        guard: LookupGuard | None = None,
        capacity: int = 10,
        max_in_flight: int = 512,
        tracer: Tracer | None = None,
    ) -> None:
        flags, names = flags or Flags(), Names()
        self.counters = Counters()
        self.state = FakeClusterState(policies)
        self.evaluator = Evaluator(guard)
        self.post_admission = PostAdmission(
            self.evaluator, sinks, self.counters, capacity=capacity, workers=2
        )
        policy_sets = PolicySets(policies, self.counters, flags)
        self.post_admission.policy_sets = policy_sets
        services = AdmissionServices(
            policy_sets, self.evaluator, self.post_admission, self.counters
        )
        self.app = App(
            AdmissionHandler(self.state, services, flags, names),
            InternalWebhooks(PolicyReviewer(flags, policies), names),
            self.counters,
            is_ready=lambda: self.state.is_ready,
            max_in_flight=max_in_flight,
            tracer=tracer,
        )

    async def post(
        self,
        path: str,
        review: JsonObject | bytes,
        query: bytes = b"",
        headers: Mapping[bytes, list[bytes]] | None = None,
    ) -> HttpResponse:
        body = review if isinstance(review, bytes) else orjson.dumps(review)
        kept = dict(headers or {})
        call = HttpRequest("POST", path, query, b"application/json", body, kept)
        reply = self.app(call)
        return reply if isinstance(reply, HttpResponse) else await reply

    def ask(self, path: str, review: JsonObject) -> JsonObject:
        """The response to one review."""
        reply = asyncio.run(self.post(path, review))
        assert reply.status is HTTPStatus.OK, reply.body
        response: JsonObject = orjson.loads(reply.body)["response"]
        return response

    def follow(self, path: str, review: JsonObject) -> JsonObject:
        """The same, and everything that follows from it."""

        async def run() -> JsonObject:
            reply = await self.post(path, review)
            work = asyncio.create_task(self.post_admission.run())
            await self.post_admission.drain(10)
            work.cancel()
            response: JsonObject = orjson.loads(reply.body)["response"]
            return response

        return asyncio.run(run())

    def count(self, metric: str) -> float:
        timed = next((name for name, total in TIMED_ONCE.items() if total == metric), "")
        if timed:
            return sum(each.count for each in self.counters.histograms.get(timed, {}).values())
        return sum(self.counters.counters.get(metric, {}).values())


def write_policies(folder: Path, *documents: JsonObject) -> FilePolicies:
    """PolicyProvider from documents."""
    for number, document in enumerate(documents):
        (folder / f"policy-{number}.json").write_bytes(orjson.dumps(document))
    # Nobody outside is asked by a test.
    return FilePolicies(folder, lookups=NoLookups())


def make_policy(name: str, *rules: JsonObject, **spec: object) -> JsonObject:
    """A ClusterPolicy."""
    return {
        "apiVersion": "kyverno.io/v1",
        "kind": "ClusterPolicy",
        "metadata": {"name": name},
        "spec": {"rules": list(rules), **spec},
    }


def require_label(label: str, action: str = "Enforce", **more: object) -> JsonObject:
    """A rule about Pods."""
    return {
        "name": f"need-{label}",
        "match": {"any": [{"resources": {"kinds": ["Pod"]}}]},
        "validate": {
            "failureAction": action,
            "message": f"The label {label} is required.",
            "pattern": {"metadata": {"labels": {label: "?*"}}},
        },
        **more,
    }


def make_review(
    labels: Mapping[str, str] | None = None, *, operation: str = "CREATE", **request: object
) -> JsonObject:
    """A review about a Pod, which is in the namespace of the request."""
    namespace = request.get("namespace", "shop")
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "web", "namespace": namespace, "labels": dict(labels or {})},
        "spec": {"containers": [{"name": "web", "image": "nginx:1.25"}]},
    }
    return {
        "apiVersion": "admission.k8s.io/v1",
        "kind": "AdmissionReview",
        "request": {
            "uid": "6b7a",
            "kind": {"group": "", "version": "v1", "kind": "Pod"},
            "resource": {"group": "", "version": "v1", "resource": "pods"},
            "name": "web",
            "namespace": "shop",
            "operation": operation,
            "userInfo": {"username": "ann", "groups": ["people"]},
            "object": None if operation == "DELETE" else pod,
            "oldObject": pod if operation in ("DELETE", "UPDATE") else None,
            **request,
        },
    }


class FixedPolicies:
    """PolicyProvider whose programs a test makes itself."""

    def __init__(self, inner: FilePolicies, **made: tuple[Program, ...]) -> None:
        self._inner = inner
        self.policies = inner.policies
        self.names: ResourceNames = inner.names
        self.revision = 0
        self.can_lag = False
        # What is called when exceptions are to be caught up with.
        self.find_new: Callable[[], bool] = lambda: False
        self.made = made
        self._listeners: list[Callable[[], None]] = []

    def programs(self, policy: StoredPolicy) -> tuple[Program, ...]:
        return self.made.get(policy.name) or self._inner.programs(policy)

    def listen(self, listener: Callable[[], None]) -> None:
        self._listeners.append(listener)

    async def catch_up(self) -> bool:
        return self.find_new()

    def change(self) -> None:
        self.revision += 1
        for listener in self._listeners:
            listener()
