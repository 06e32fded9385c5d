"""Builds everything that a webhook process is made of: with a cluster, or without one."""

import asyncio

import msgspec

from lictor.http.serving_certificate import LiveCertificate
from lictor.webhook.admission import AdmissionHandler, AdmissionServices
from lictor.webhook.backend import Backend, ClusterState, NoClusterState
from lictor.webhook.capacity import keep_running
from lictor.webhook.counters import Counters
from lictor.webhook.evaluator import Alarm, Evaluator
from lictor.webhook.options import Inherited, ServeOptions
from lictor.webhook.policy_sets import PolicySets
from lictor.webhook.policy_webhooks import InternalWebhooks, PolicyReviewer
from lictor.webhook.post_admission import PostAdmission
from lictor.webhook.slow_requests import SlowRequests


class Components(msgspec.Struct, frozen=True):
    """The parts that the process itself handles."""

    admission: AdmissionHandler
    internal_webhooks: InternalWebhooks
    post_admission: PostAdmission
    evaluator: Evaluator
    policy_sets: PolicySets
    state: ClusterState
    backend: Backend

    async def run(self) -> None:
        """Keep what is known of the cluster in step, until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self.backend.run())
            group.create_task(keep_running(self.post_admission.run))
            await self.state.wait()
            group.create_task(self.policy_sets.keep_warm())

    async def drain(self, seconds: float) -> None:
        """Finish what follows from answered requests."""
        await self.post_admission.drain(seconds)
        await self.backend.drain(seconds)

    async def close(self) -> None:
        await self.backend.close()

    def is_ready(self, *, is_temporary: bool) -> bool:
        """Can requests be evaluated, and does the API server trust our certificate?"""
        if not self.state.is_ready or not self.policy_sets.is_warm:
            return False
        return self.backend.has_certificate or not is_temporary


def build_components(
    options: ServeOptions,
    inherited: Inherited,
    counters: Counters,
    certificate: LiveCertificate,
    alarm: Alarm,
) -> Components:
    """Put the parts together, in the process that will use them."""
    backend = build_backend(options, inherited, counters, certificate)
    state = backend.state
    evaluator = Evaluator(backend.guard, alarm, hands_over=bool(inherited.slow_address))
    slow = SlowRequests(inherited.slow_address)
    flags = options.flags
    policy_sets = PolicySets(state.policies, counters, flags)
    post_admission = PostAdmission(
        evaluator,
        backend.sinks,
        counters,
        capacity=max(1, flags.max_audit_capacity),
        workers=max(1, flags.max_audit_workers),
        slow=slow,
    )
    post_admission.policy_sets = policy_sets
    services = AdmissionServices(policy_sets, evaluator, post_admission, counters, slow)
    admission = AdmissionHandler(state, services, flags, options.names)
    internal_webhooks = InternalWebhooks(backend.reviewer, options.names, counters)
    return Components(
        admission, internal_webhooks, post_admission, evaluator, policy_sets, state, backend
    )


def build_backend(
    options: ServeOptions, inherited: Inherited, counters: Counters, certificate: LiveCertificate
) -> Backend:
    """What is known of the world around us."""
    policies = inherited.policies
    if policies is not None:
        reviewer = PolicyReviewer(options.flags, policies)
        return Backend(NoClusterState(policies), reviewer, policies.guard, policies.run)
    from lictor.webhook.cluster_backend import ClusterBackend

    return ClusterBackend(options, counters, certificate)
