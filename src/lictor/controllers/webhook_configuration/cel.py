"""The webhooks of kinds with separate paths, which contain the policies' names."""

from collections.abc import Iterable, Iterator

import msgspec

from lictor.controllers.webhook_configuration.draft import (
    EQUIVALENT,
    DraftContext,
    WebhookDraft,
    clamp_timeout,
    name_webhook,
)
from lictor.controllers.webhook_configuration.match_conditions import build_conditions, list_named
from lictor.controllers.webhook_configuration.rules import (
    EVERY_OPERATION,
    merge_selectors,
    order_rules,
    select_namespaces,
    write_selector,
)
from lictor.core.facts.resource_names import builtin_names
from lictor.core.families.family import PolicyKind
from lictor.core.families.kind_facts import WebhookMatch, WebhookPath
from lictor.core.model.matching import MatchCondition
from lictor.core.raw import JsonObject
from lictor.kubernetes.stored_policy import StoredPolicy
from lictor.policies.routes import build_named_path, is_asked


class _Part(msgspec.Struct, frozen=True):
    """What one policy needs from its webhook."""

    policy: StoredPolicy
    match: WebhookMatch
    rules: list[JsonObject]
    namespaces: JsonObject
    objects: JsonObject


def draft_named(
    policies: Iterable[StoredPolicy], kind: PolicyKind, context: DraftContext, *, mutating: bool
) -> list[WebhookDraft]:
    """One webhook for each failure policy, and one for each policy with match conditions."""
    parts = [
        part
        for policy in policies
        if policy.kind is kind and is_asked(policy, mutating=mutating)
        for part in _read_part(policy)
    ]
    drafts: list[WebhookDraft] = []
    for failure_policy in ("Fail", "Ignore"):
        members = [part for part in parts if part.policy.failure_policy == failure_policy]
        drafter = _Drafter(kind, failure_policy, context, mutating)
        drafts += drafter.draft(members)
    return drafts


class _Drafter:
    """Drafts the webhooks of one kind and one failure policy."""

    def __init__(
        self,
        kind: PolicyKind,
        failure_policy: str,
        context: DraftContext,
        mutating: bool,  # noqa: FBT001
    ) -> None:
        self._kind = kind
        self._path = kind.path or WebhookPath()
        self._failure_policy = failure_policy
        self._context = context
        self._mutating = mutating

    def draft(self, parts: list[_Part]) -> Iterator[WebhookDraft]:
        shared: list[_Part] = []
        for part in parts:
            alone = self._build([part], part, [])
            if why := self._context.explain(alone):
                # Left out, so that it does not block the others; the policy's status shows it.
                yield msgspec.structs.replace(alone, refusal=why)
                continue
            single = self._draft_single(part)
            if single is None:
                shared.append(part)
            else:
                yield single
        if len({_identify_selectors(part) for part in shared}) > 1:
            # Selectors that differ cannot be merged without missing something.
            for part in shared:
                if part.namespaces or part.objects:
                    yield self._build([part], part, [])
            shared = [part for part in shared if not part.namespaces and not part.objects]
        if shared:
            yield self._build(shared, None, [])

    def _draft_single(self, part: _Part) -> WebhookDraft | None:
        """The separate webhook of a policy; None if it shares one."""
        conditions = part.policy.derive("webhook-conditions", lambda: _list_conditions(part))
        if conditions:
            draft = self._build([part], part, conditions)
            if not self._context.explain(draft):
                return draft
        exact = part.match.constraints.match_policy != EQUIVALENT
        if exact or part.match.timeout_seconds is not None:
            return self._build([part], part, [])
        return None

    def _build(
        self, parts: list[_Part], single: _Part | None, conditions: list[JsonObject]
    ) -> WebhookDraft:
        policies = tuple(part.policy for part in parts)
        rules = order_rules(rule for part in parts for rule in part.rules)
        settings = self._context.settings
        selector = merge_selectors(
            parts[0].namespaces, select_namespaces(policies), settings.webhook_namespace_selector
        )
        exempted = build_conditions(
            self._context.exemptions, rules, list_named(rules), selector, policies
        )
        return WebhookDraft(
            name=self._name(single),
            path=build_named_path(
                self._kind, (policy.name for policy in policies), mutating=self._mutating
            ),
            failure_policy=self._failure_policy,
            rules=rules,
            timeout=self._choose_timeout(single),
            policies=policies,
            conditions=[*conditions, *exempted],
            namespace_selector=selector,
            object_selector=merge_selectors(parts[0].objects, settings.webhook_object_selector),
            match_policy=self._choose_match_policy(single),
            reinvocation="IfNeeded" if any(each.match.is_reinvoked for each in parts) else "Never",
        )

    def _name(self, single: _Part | None) -> str:
        stage = "mutate" if self._mutating and self._path.names_stage else "validate"
        base = self._context.names.webhook_entry(f"{self._path.segment}.{stage}")
        return name_webhook(base, self._failure_policy, single.policy if single else None)

    def _choose_timeout(self, single: _Part | None) -> int:
        own = single.match.timeout_seconds if single else None
        return clamp_timeout(self._context.flags.webhook_timeout if own is None else own)

    def _choose_match_policy(self, single: _Part | None) -> str:
        if single is None or (self._mutating and self._path.names_stage):
            # Digests are written into any version of the object.
            return EQUIVALENT
        return single.match.constraints.match_policy


def _read_part(policy: StoredPolicy) -> Iterator[_Part]:
    if policy.record is None:
        return
    match = policy.kind.family.describe_webhook(policy.record)
    if match is not None:
        yield _Part(
            policy,
            match,
            _list_rules(policy, match),
            write_selector(match.constraints.namespace_selector),
            write_selector(match.constraints.object_selector),
        )


def _list_rules(policy: StoredPolicy, match: WebhookMatch) -> list[JsonObject]:
    return [
        {
            "apiGroups": list(rule.api_groups),
            "apiVersions": list(rule.api_versions),
            "operations": list(EVERY_OPERATION if match.every_operation else rule.operations),
            "resources": list(rule.resources),
            "scope": "Namespaced" if policy.namespace else rule.scope,
        }
        for each in (match.constraints, *(variant[1] for variant in match.variants))
        for rule in each.resource_rules
    ]


def _list_conditions(part: _Part) -> list[JsonObject]:
    """The policy's conditions, each for the kinds that it is written for."""
    match = part.match
    variants = match.variants if match.conditions else ()
    if not variants:
        return [{"name": each.name, "expression": each.expression} for each in match.conditions]
    # On DELETE and CONNECT there may be no object to read the kind from.
    stored = set(variants[0][1].resource_rules[0].operations) <= {"CREATE", "UPDATE"}
    describe = _describe_object if stored else _describe_request
    found = _limit_conditions("autogen", [describe("", "Pod")], match.conditions)
    for name, constraints, conditions in variants:
        tests = [
            describe(group, known.kind)
            for rule in constraints.resource_rules
            for group in rule.api_groups
            for resource in rule.resources
            if (known := builtin_names().of_resource(group, "v1", resource)) is not None
        ]
        found += _limit_conditions(f"autogen-{name}", tests, conditions)
    return found


def _limit_conditions(
    prefix: str, tests: list[str], conditions: tuple[MatchCondition, ...]
) -> list[JsonObject]:
    fits = " || ".join(sorted(tests))
    return [
        {"name": f"{prefix}-{each.name}", "expression": f"!({fits}) || ({each.expression})"}
        for each in conditions
    ]


def _describe_object(group: str, kind: str) -> str:
    # Spaced as Kyverno spaces it: people compare.
    api_version = f"{group}/v1" if group else "v1"
    return f"(object.apiVersion == '{api_version}' && object.kind =='{kind}')"


def _describe_request(group: str, kind: str) -> str:
    return f"(request.kind.group == '{group}' && request.kind.kind == '{kind}')"


def _identify_selectors(part: _Part) -> bytes:
    return msgspec.json.encode((part.namespaces, part.objects), order="deterministic")
