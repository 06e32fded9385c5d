"""The webhooks of ClusterPolicies and Policies: kinds, operations, selectors and conditions."""

from collections.abc import Iterable, Iterator

import msgspec

from lictor.controllers.webhook_configuration.draft import (
    NONE_ON_DRY_RUN,
    DraftContext,
    WebhookDraft,
    clamp_timeout,
    name_webhook,
)
from lictor.controllers.webhook_configuration.match_conditions import build_conditions, select_kinds
from lictor.controllers.webhook_configuration.rules import (
    ALL,
    EVERY_OPERATION,
    RuleEntry,
    build_rules,
    find_shared_match,
    make_rule,
    merge_selectors,
    select_labels,
    select_namespaces,
)
from lictor.core.lang.kind_selector import parse_kind_selector
from lictor.core.lang.wildcard import has_wildcard
from lictor.core.raw import JsonObject
from lictor.kubernetes.stored_policy import StoredPolicy
from lictor.policies.routes import build_classic_path, has_own_conditions, is_asked, shares_paths

_NAMESPACED = "Namespaced"


def draft_classic(
    policies: Iterable[StoredPolicy], context: DraftContext, *, mutating: bool
) -> list[WebhookDraft]:
    """One webhook for each failure policy, and one for each policy with match conditions."""
    asked = [
        policy
        for policy in policies
        if shares_paths(policy) and is_asked(policy, mutating=mutating)
    ]
    drafts: list[WebhookDraft] = []
    for failure_policy in ("Ignore", "Fail"):
        members = [policy for policy in asked if policy.failure_policy == failure_policy]
        shared = [policy for policy in members if not has_own_conditions(policy)]
        own = [policy for policy in members if has_own_conditions(policy)]
        groups = [(shared, None), *(([each], each) for each in own)]
        for group, single in groups:
            drafts += _draft_group(group, single, failure_policy, context, mutating=mutating)
    return drafts


def draft_everything(context: DraftContext, *, mutating: bool) -> list[WebhookDraft]:
    """Webhooks for all resources, for both failure policies: they need no updates."""
    operations = ("CREATE", "UPDATE") if mutating else EVERY_OPERATION
    rules = [make_rule(ALL, ALL, ["*/*"], operations)]
    return [
        _complete(_start(None, failure_policy, context, mutating=mutating), rules, context, ())
        for failure_policy in ("Ignore", "Fail")
    ]


def _draft_group(
    policies: list[StoredPolicy],
    single: StoredPolicy | None,
    failure_policy: str,
    context: DraftContext,
    *,
    mutating: bool,
) -> Iterator[WebhookDraft]:
    entries = [
        entry for policy in policies for entry in list_entries(policy, context, mutating=mutating)
    ]
    draft = msgspec.structs.replace(
        _start(single, failure_policy, context, mutating=mutating),
        policies=tuple(policies),
        timeout=_choose_timeout(policies, single, context.flags.webhook_timeout),
    )
    served = [entry for entry in entries if not entry.unserved_kind]
    unserved = [entry for entry in entries if entry.unserved_kind]
    if served:
        yield _draft_entries(draft, served, context, is_single=single is not None)
    if unserved:
        # A separate webhook, because its condition must not limit the kinds that are served.
        other = msgspec.structs.replace(draft, name=f"{draft.name}-unserved")
        plain = [msgspec.structs.replace(entry, unserved_kind="") for entry in unserved]
        drafted = _draft_entries(other, plain, context, is_single=single is not None)
        conditions = [select_kinds(unserved), *drafted.conditions]
        yield msgspec.structs.replace(drafted, conditions=conditions)


def _draft_entries(
    draft: WebhookDraft, entries: list[RuleEntry], context: DraftContext, *, is_single: bool
) -> WebhookDraft:
    named = [
        (entry.group, entry.path) for entry in entries if ALL not in (entry.group, entry.resource)
    ]
    finished = _complete(draft, build_rules(entries), context, named)
    if is_single and context.explain(finished):
        # Conditions that the API server refuses are still evaluated by our server.
        plain = msgspec.structs.replace(draft, conditions=[])
        finished = _complete(plain, build_rules(entries), context, named)
    return finished


def _start(
    single: StoredPolicy | None, failure_policy: str, context: DraftContext, *, mutating: bool
) -> WebhookDraft:
    settings, flags = context.settings, context.flags
    base = context.names.webhook_entry("mutate" if mutating else "validate")
    stores = mutating or flags.admission_reports
    return WebhookDraft(
        name=name_webhook(base, failure_policy, single),
        path=build_classic_path(single, failure_policy, mutating=mutating),
        failure_policy=failure_policy,
        rules=[],
        timeout=clamp_timeout(flags.webhook_timeout),
        conditions=[*settings.match_conditions] if single is None else _own_conditions(single),
        object_selector=settings.webhook_object_selector or {},
        side_effects=NONE_ON_DRY_RUN if stores else "None",
        reinvocation="IfNeeded",
    )


def _complete(
    draft: WebhookDraft,
    rules: list[JsonObject],
    context: DraftContext,
    named: Iterable[tuple[str, str]],
) -> WebhookDraft:
    selector = merge_selectors(
        select_namespaces(draft.policies),
        select_labels(draft.policies, mutating=draft.path.startswith("/mutate")),
        context.settings.webhook_namespace_selector,
    )
    exempted = build_conditions(context.exemptions, rules, named, selector, draft.policies)
    return msgspec.structs.replace(
        draft,
        rules=rules,
        namespace_selector=selector,
        conditions=[*draft.conditions, *exempted],
    )


def list_entries(
    policy: StoredPolicy, context: DraftContext, *, mutating: bool
) -> Iterator[RuleEntry]:
    """Operations and resources of a policy."""
    for text, operations in find_shared_match(policy, mutating=mutating).kinds.items():
        for entry in _resolve(text, policy, context):
            for operation in operations:
                yield msgspec.structs.replace(entry, operation=operation)


def _resolve(text: str, policy: StoredPolicy, context: DraftContext) -> Iterator[RuleEntry]:
    """What a kind stands for, without an operation."""
    selector = parse_kind_selector(text)
    patterns = (selector.group, selector.version, selector.subresource)
    if selector.kind == ALL and all(each == ALL or not has_wildcard(each) for each in patterns):
        # The API server knows `*` too, but no other wildcard.
        scope = _NAMESPACED if policy.namespace else ALL
        yield RuleEntry(selector.group, selector.version, ALL, selector.subresource, scope)
        return
    known = tuple(context.find(text))
    for found in known:
        scope = _NAMESPACED if found.namespaced else ALL
        yield RuleEntry(found.group, found.version, found.resource, found.subresource, scope)
    if not known and not any(map(has_wildcard, (selector.kind, selector.subresource))):
        # Its CustomResourceDefinition may be created later. The first object of the new kind must
        # not be admitted before this configuration is updated.
        group, version = (ALL if has_wildcard(each) else each for each in patterns[:2])
        yield RuleEntry(group, version, ALL, selector.subresource, ALL, unserved_kind=selector.kind)


def _own_conditions(policy: StoredPolicy) -> list[JsonObject]:
    conditions = find_shared_match(policy, mutating=False).conditions
    return [{"name": each.name, "expression": each.expression} for each in conditions]


def _choose_timeout(
    policies: list[StoredPolicy], single: StoredPolicy | None, otherwise: int
) -> int:
    asked = [
        seconds
        for policy in policies
        if (seconds := find_shared_match(policy, mutating=False).timeout_seconds) is not None
    ]
    if single is not None and asked:
        return clamp_timeout(asked[0])
    return clamp_timeout(max([otherwise, *asked]))
