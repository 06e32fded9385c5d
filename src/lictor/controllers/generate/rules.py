"""The current generate rules: their names, their options and what triggers them."""

import re
from collections.abc import Iterable, Iterator

import msgspec
import orjson
from msgspec.structs import replace

from lictor.controllers.generate.labels import GenerationUnit
from lictor.core.engine import Engine
from lictor.core.families.kind_facts import GenerationSettings
from lictor.core.families.registry import registry
from lictor.core.model.program import Phase, Program
from lictor.core.model.request import GroupVersionKind, Operation
from lictor.core.raw import JsonObject
from lictor.kubernetes.cache import Change, ChangeType
from lictor.kubernetes.client import Client
from lictor.kubernetes.resource import Resource, find_resource
from lictor.kubernetes.stored_policy import StoredPolicy
from lictor.kubernetes.update_requests import UpdateTrigger
from lictor.policies.store import PolicyStore

_MAX_KNOWN = 10_000
_ABOUT_REQUESTS = re.compile(
    rb"userInfo|serviceAccountName|oldObject|request\.(roles|clusterRoles|operation)"
    rb'|"(subjects|roles|clusterRoles)":'
)


class GenerateRule(msgspec.Struct, frozen=True):
    """One generate rule; all expressions of a GeneratingPolicy are one rule."""

    policy: StoredPolicy
    name: str
    synchronize: bool
    # Generated objects are kept when the policy is deleted.
    orphan: bool
    # Existing objects trigger it, too.
    existing: bool
    # Objects are written by server-side apply: fields of other managers are kept.
    server_side: bool
    # A hash of its target fields: if it changes, earlier objects are released.
    # Empty for policies in CEL, which have no such fields.
    aim: str
    # The kinds of what it makes that are known from its text.
    target_kinds: tuple[str, ...]
    program: Program
    mark: str
    # What the rule does, and whether it would do anything.
    engine: Engine
    asking: Engine

    @property
    def key(self) -> tuple[str, str, str]:
        return self.policy.name, self.policy.namespace, self.name

    @property
    def needs_request(self) -> bool:
        """Whether it uses facts of the request, which existing objects do not have."""
        return bool(_ABOUT_REQUESTS.search(orjson.dumps(self.policy.document.get("spec"))))

    def unit(self, trigger: UpdateTrigger) -> GenerationUnit:
        return GenerationUnit(self.policy.name, self.policy.namespace, self.name, trigger)

    def is_kept_by(self, resource: Resource) -> bool:
        """Do objects of a kind trigger the rule other than by their deletion?"""
        return self.is_triggered_by(resource, (Operation.CREATE, Operation.UPDATE))

    def is_triggered_by(self, resource: Resource, operations: Iterable[Operation]) -> bool:
        """Can objects of a kind trigger it?"""
        kind = GroupVersionKind(resource.group, resource.version, resource.kind)
        return any(
            rule.select(kind, "", operation) is not None
            for rule in self.program.rules
            for operation in operations
        )


class GenerateRules:
    """The current generate rules, by the names on the labels of generated objects."""

    def __init__(self, client: Client, store: PolicyStore) -> None:
        self._client = client
        self._store = store
        self._known: tuple[StoredPolicy, ...] | None = None
        self._rules: dict[tuple[str, str, str], GenerateRule] = {}
        self._since: dict[tuple[str, int], str] = {}
        # Under which version each state of a policy was first seen.
        self._versions: dict[tuple[str, int], int] = {}
        # At once: after a burst of changes a policy has the version of its status already.
        store.listen_to_changes(self._note_version)

    @property
    def rules(self) -> tuple[GenerateRule, ...]:
        """All of them, always up to date with the stored policies."""
        policies = self._store.policies
        if policies is not self._known:
            self._known = policies
            self._rules = {rule.key: rule for rule in list_generate_rules(self._store)}
        return tuple(self._rules.values())

    def _note_version(self, change: Change) -> None:
        metadata = change.object["metadata"]
        key = (str(metadata.get("uid") or ""), int(metadata.get("generation") or 0))
        if change.type is ChangeType.DELETED:
            self._versions.pop(key, None)
            return
        for old in [old for old in self._versions if old[0] == key[0] and old != key]:
            del self._versions[old]
        self._versions.setdefault(key, _read_version(change.object))

    def find(self, unit: GenerationUnit) -> GenerateRule | None:
        """The rule that a unit belongs to."""
        _ = self.rules
        return self._rules.get((unit.policy, unit.namespace, unit.rule))

    def find_synchronized(self, unit: GenerationUnit) -> GenerateRule | None:
        """The rule that a unit belongs to, where it keeps its objects in sync."""
        rule = self.find(unit)
        return rule if rule is not None and rule.synchronize else None

    async def is_newer(self, rule: GenerateRule, trigger: JsonObject) -> bool:
        """Was an object created after the policy was last changed? Then it triggered the rule."""
        created = str(trigger["metadata"].get("creationTimestamp") or "")
        since = await self._find_since(rule)
        if created != since:
            return created > since
        # In the same second: what was written later has the greater version.
        known = self._versions.get((rule.policy.uid, rule.policy.generation), 0)
        return bool(known) and _read_version(trigger) > known

    async def _find_since(self, rule: GenerateRule) -> str:
        policy = rule.policy
        key = (policy.uid, policy.generation)
        if key not in self._since:
            if len(self._since) > _MAX_KNOWN:
                self._since.clear()
            found = await self._client.find(policy.resource, policy.name, policy.namespace)
            self._since[key] = _read_since(found or policy.document)
        return self._since[key]

    async def is_gone(self, unit: GenerationUnit) -> bool:
        """Whether the policy or the rule was really deleted.

        A server that has just started does not serve its custom kinds at once, and all policies
        seem to be gone: what is deleted then does not come back.
        """
        kinds = _kinds_of(unit)
        names = {(p.resource, p.name, p.namespace) for p in self._store.policies}
        if any((kind, unit.policy, unit.namespace) in names for kind in kinds):
            return self.find(unit) is None
        for kind in kinds:
            # Fails if the kind is not served, or access is denied.
            await self._client.request("GET", kind.path(unit.namespace), params={"limit": 1})
            if await self._client.find(kind, unit.policy, unit.namespace) is not None:
                return False
        return True


def _read_since(document: JsonObject) -> str:
    metadata = document["metadata"]
    changed = (e for e in metadata.get("managedFields") or () if not e.get("subresource"))
    times = (str(entry.get("time") or "") for entry in changed)
    return max((str(metadata.get("creationTimestamp") or ""), *times))


def _read_version(item: JsonObject) -> int:
    text = str(item["metadata"].get("resourceVersion") or "")
    return int(text) if text.isdigit() else 0


def _kinds_of(unit: GenerationUnit) -> tuple[Resource, ...]:
    """The kinds of which the policy may be: some have rules with names."""
    return tuple(
        find_resource(kind)
        for kind in registry().kinds
        if Phase.GENERATE in kind.phases
        and kind.has_named_rules == bool(unit.rule)
        and kind.namespaced == bool(unit.namespace)
    )


def list_generate_rules(store: PolicyStore) -> Iterator[GenerateRule]:
    """Every generate rule of every policy."""
    for policy in store.policies:
        if policy.record is not None:
            for settings in policy.kind.family.list_generations(policy.record):
                yield from _list_rules(policy, settings, store)


def _list_rules(
    policy: StoredPolicy, settings: GenerationSettings, store: PolicyStore
) -> Iterator[GenerateRule]:
    for program in store.programs(policy):
        rules = tuple(
            rule
            for rule in program.rules
            if rule.phase is Phase.GENERATE and settings.rule in ("", rule.name)
        )
        if not rules and settings.rule:
            continue
        own = replace(program, rules=rules)
        yield GenerateRule(
            policy,
            settings.rule,
            settings.synchronize,
            settings.outlives_policy,
            settings.for_existing,
            settings.server_side,
            settings.target_hash,
            settings.target_kinds,
            own,
            store.mark(policy),
            Engine((own,)),
            Engine((_ask_only(own),)),
        )


def _ask_only(program: Program) -> Program:
    rules = (replace(rule, check=rule.applies or rule.check) for rule in program.rules)
    return replace(program, rules=tuple(rules))
