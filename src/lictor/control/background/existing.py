"""Policies that are new or have changed meet what is there already."""

from collections.abc import AsyncIterator, Callable, Iterable

from lictor.cluster.client import Client
from lictor.cluster.resource import Resource
from lictor.cluster.store import PolicyStore, StoredPolicy
from lictor.cluster.update_requests import Trigger, Update, UpdateRequests, UpdateType
from lictor.control.generate.labels import Unit
from lictor.control.generate.reconcile import Generation
from lictor.control.generate.rules import GenerateRule
from lictor.control.generate.watch import GenerationWatch
from lictor.errors import NotFoundError
from lictor.model.cel_policy import MutatingPolicy
from lictor.model.policy import Policy
from lictor.model.program import Phase
from lictor.model.request import GroupVersionKind, Operation
from lictor.raw import JsonObject

_PAGE = 250


class Existing:
    """Lists triggers page by page, and hands on those that a rule concerns."""

    def __init__(
        self,
        client: Client,
        store: PolicyStore,
        generation: Generation,
        watch: GenerationWatch,
        *,
        requests: UpdateRequests,
        enqueue: Callable[[Unit], None],
    ) -> None:
        self._client = client
        self._store = store
        self._generation = generation
        self._watch = watch
        self._requests = requests
        self._enqueue = enqueue

    async def generate(self, rule: GenerateRule, kinds: Iterable[Resource]) -> None:
        """What a rule has made is looked at again; where it says so, so is all that is there."""
        await self._watch.review(rule)
        if not rule.existing:
            return
        for resource in kinds:
            if rule.is_kept_by(resource):
                async for item in self._list(resource, rule.policy.namespace):
                    if await self._generation.is_wanted(rule, item):
                        self._enqueue(rule.unit(Trigger.of(item)))

    def mutates(self, policy: StoredPolicy) -> bool:
        """Does a policy change what is there when it comes or changes?"""
        return bool(_list_mutations(policy))

    async def mutate(self, policy: StoredPolicy, kinds: Iterable[Resource]) -> None:
        """Ask for an update for each trigger that is there."""
        names = _list_mutations(policy)
        kind = UpdateType.MUTATE if isinstance(policy.record, Policy) else UpdateType.CEL_MUTATE
        for program in self._store.programs(policy):
            rules = [r for r in program.rules if r.phase is Phase.MUTATE and r.name in names]
            for resource in kinds:
                about = GroupVersionKind(resource.group, resource.version, resource.kind)
                chosen = {r.name for r in rules if r.select(about, "", Operation.CREATE)}
                if not chosen:
                    continue
                async for item in self._list(resource, policy.namespace):
                    updates = [
                        Update(kind, policy.key, (name,), Trigger.of(item))
                        for name in sorted(chosen)
                    ]
                    await self._requests.submit(updates)

    async def _list(self, resource: Resource, namespace: str) -> AsyncIterator[JsonObject]:
        try:
            async for page in self._client.list_pages(
                resource, namespace if resource.namespaced else "", page=_PAGE
            ):
                for item in page.get("items") or ():
                    yield item
        except NotFoundError:
            return


def _list_mutations(policy: StoredPolicy) -> frozenset[str]:
    """The rules that change what is there when their policy comes or changes."""
    record = policy.record
    if isinstance(record, MutatingPolicy):
        existing = record.spec.evaluation.mutate_existing.enabled
        return frozenset((policy.name, "")) if existing else frozenset()
    if not isinstance(record, Policy):
        return frozenset()
    return frozenset(
        rule.name
        for rule in record.spec.rules
        if rule.mutate is not None
        and rule.mutate.targets
        and _chosen(rule.mutate.mutate_existing_on_policy_update, record)
    )


def _chosen(own: bool | None, record: Policy) -> bool:  # noqa: FBT001  (as the policy says)
    return record.spec.mutate_existing_on_policy_update if own is None else own
