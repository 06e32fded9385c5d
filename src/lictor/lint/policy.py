"""Everything that can be said about a classic policy before anything runs."""

from collections.abc import Iterator

import msgspec
from msgspec.structs import replace

from lictor.lint.catalog import flag
from lictor.lint.cel.rules import check_rule_cel, check_webhook_conditions
from lictor.lint.conditions import check_rule_conditions
from lictor.lint.context import check_rule_context
from lictor.lint.contradictions import check_contradictions
from lictor.lint.expressions import Zone
from lictor.lint.generation import check_generate
from lictor.lint.images import check_images
from lictor.lint.json_patches import check_json_patches
from lictor.lint.match import Manner, check_match
from lictor.lint.part import Part
from lictor.lint.patterns import check_patterns
from lictor.lint.places import check_expressions, list_rule_places
from lictor.lint.pod_security import check_pod_security
from lictor.lint.rules import (
    check_bodies,
    check_mutate,
    check_rule_names,
    check_validate,
)
from lictor.lint.settings import (
    check_existing,
    check_metadata,
    check_settings,
    check_target_namespaces,
)
from lictor.lint.wildcard_kinds import check_subresources, check_wildcard_kinds
from lictor.model.finding import Finding
from lictor.raw import Json

_POLICY_CHECKS = (check_metadata, check_settings, check_existing, check_webhook_conditions)
_RULE_CHECKS = (
    check_bodies,
    check_validate,
    check_mutate,
    check_contradictions,
    check_rule_conditions,
    check_rule_context,
    check_patterns,
    check_json_patches,
    check_pod_security,
    check_rule_cel,
)
_NO_CALLERS = "background scans know of no caller: set spec.background to false"


class _Facts(msgspec.Struct, frozen=True):
    """What the rules need to know of their policy."""

    background: bool
    is_audit: bool
    # None for a ClusterPolicy; empty where a namespaced policy leaves its namespace open.
    namespace: str | None
    changes_existing: bool


def lint_policy(body: Json) -> list[Finding]:
    """What is wrong with a ClusterPolicy or Policy, as plain JSON of any shape."""
    policy = Part(body)
    rules = policy["spec"]["rules"]
    facts = _read_facts(policy)
    findings = [finding for check in _POLICY_CHECKS for finding in check(policy)]
    if policy["spec"] and rules.is_empty:
        findings.append(flag("bad-rule", policy["spec"].path, "the policy has no rules"))
    findings.extend(check_rule_names(rules))
    for rule in rules.each():
        findings.extend(finding for check in _RULE_CHECKS for finding in check(rule))
        findings.extend(_check_with_facts(rule, facts))
    return findings


def _read_facts(policy: Part) -> _Facts:
    spec = policy["spec"]
    is_namespaced = policy["kind"].text == "Policy"
    return _Facts(
        background=spec["background"].value is not False,
        is_audit=spec["validationFailureAction"].text.lower() != "enforce",
        namespace=policy["metadata"]["namespace"].text if is_namespaced else None,
        changes_existing=any(not r["mutate"]["targets"].is_empty for r in spec["rules"].each()),
    )


def _check_with_facts(rule: Part, facts: _Facts) -> Iterator[Finding]:
    manner = Manner(
        is_namespaced=facts.namespace is not None,
        has_callers=not facts.background,
        reason=_NO_CALLERS,
    )
    yield from check_match(rule["match"], manner)
    yield from check_match(rule["exclude"], replace(manner, needs_kinds=False))
    # Kyverno lets variables of callers pass where any rule of the policy changes existing objects.
    zone = Zone(has_caller=not facts.background or facts.changes_existing)
    yield from check_expressions(list_rule_places(rule, zone))
    yield from check_wildcard_kinds(rule, background=facts.background)
    yield from check_subresources(rule, background=facts.background)
    yield from check_generate(rule, facts.namespace)
    yield from check_target_namespaces(rule, facts.namespace)
    yield from check_images(rule, is_audit=facts.is_audit)
