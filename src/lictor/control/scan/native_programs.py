"""The API server's own admission policies, compiled, for those who want reports about them."""

import asyncio
from collections.abc import Callable, Iterable
from typing import TypeAlias

import orjson

from lictor.assembly import compile_documents
from lictor.cluster.cache import Cache
from lictor.cluster.client import Client
from lictor.cluster.flags import Flags
from lictor.cluster.resource import (
    VALIDATING_ADMISSION_BINDING,
    VALIDATING_ADMISSION_POLICY,
    Resource,
)
from lictor.lang.resource_names import ResourceNames
from lictor.load.policies import load_documents
from lictor.model.program import Program
from lictor.ports import Lookups
from lictor.raw import JsonObject

Marked: TypeAlias = list[tuple[Program, str]]

# Only policies that carry this label are reported about.
_ENABLED = "reports.kyverno.io/enabled=true"
_GROUP = "admissionregistration.k8s.io"
_MUTATING_VERSIONS = ("v1", "v1beta1", "v1alpha1")


class NativePrograms:
    """Watches ValidatingAdmissionPolicies, MutatingAdmissionPolicies and their bindings."""

    def __init__(
        self,
        client: Client,
        flags: Flags,
        lookups: Lookups | None,
        names: Callable[[], ResourceNames],
    ) -> None:
        self._lookups = lookups
        self._names = names
        self._validating = _watch(
            client,
            flags.validating_admission_policy_reports,
            VALIDATING_ADMISSION_POLICY,
            VALIDATING_ADMISSION_BINDING,
        )
        self._mutating = [
            _watch(client, flags.mutating_admission_policy_reports, *_mutating_kinds(version))
            for version in _MUTATING_VERSIONS
        ]

    @property
    def caches(self) -> tuple[Cache, ...]:
        return tuple(cache for pair in (self._validating, *self._mutating) for cache in pair)

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            for cache in self.caches:
                group.create_task(cache.run())

    async def wait(self) -> None:
        for cache in self.caches:
            await cache.wait()

    def listen(self, listener: Callable[[], None]) -> None:
        for cache in self.caches:
            cache.listen(lambda _: listener())

    def programs(self) -> tuple[Marked, Marked]:
        """Those that judge, and those that change."""
        mutating = next((pair for pair in self._mutating if pair and len(pair[0])), ())
        return self._compile(self._validating), self._compile(mutating)

    def _compile(self, pair: tuple[Cache, ...]) -> Marked:
        if not pair or not len(pair[0]):
            return []
        policies, bindings = (cache.list() for cache in pair)
        made: Marked = []
        for policy in policies:
            name = policy["metadata"]["name"]
            own = [b for b in bindings if (b.get("spec") or {}).get("policyName") == name]
            mark = ",".join(_mark(each) for each in (policy, *own))
            made += [(program, mark) for program in self._compile_one(policy, own)]
        return made

    def _compile_one(
        self, policy: JsonObject, bindings: Iterable[JsonObject]
    ) -> tuple[Program, ...]:
        loaded = load_documents(orjson.dumps(policy), policy["metadata"]["name"])
        for binding in bindings:
            loaded += load_documents(orjson.dumps(binding), binding["metadata"]["name"])
        return compile_documents(
            (),
            lookups=self._lookups,
            admission_policies=[sourced.record for sourced in loaded.admission_policies],
            bindings=[sourced.record for sourced in loaded.bindings],
            resource_names=self._names(),
        )


def _watch(client: Client, wanted: bool, policy: Resource, binding: Resource) -> tuple[Cache, ...]:  # noqa: FBT001
    if not wanted:
        return ()
    return Cache(client, policy, labels=_ENABLED), Cache(client, binding)


def _mutating_kinds(version: str) -> tuple[Resource, Resource]:
    plural, kind = "mutatingadmissionpolicies", "MutatingAdmissionPolicy"
    return (
        Resource(_GROUP, version, plural, kind, namespaced=False),
        Resource(
            _GROUP,
            version,
            "mutatingadmissionpolicybindings",
            f"{kind}Binding",
            namespaced=False,
        ),
    )


def _mark(item: JsonObject) -> str:
    return f"{item['metadata'].get('uid')}:{item['metadata'].get('generation')}"
