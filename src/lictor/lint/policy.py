"""All checks of a classic policy."""

from collections.abc import Iterator

import msgspec
from msgspec.structs import replace

from lictor.core.lang.wildcard import has_wildcard, match_wildcard
from lictor.core.load.fields import suggest
from lictor.core.model.finding import Finding
from lictor.core.raw import Json
from lictor.lint.catalog import flag
from lictor.lint.cel_policies import check_rule_cel, check_webhook_conditions
from lictor.lint.conditions import check_rule_conditions
from lictor.lint.context import check_rule_context
from lictor.lint.contradictions import check_contradictions
from lictor.lint.expressions import KnownVariables, check_expressions, list_rule_fields
from lictor.lint.field import Field
from lictor.lint.images import check_images
from lictor.lint.match import MatchLimits, check_match, check_subresources, check_wildcard_kinds
from lictor.lint.patterns import check_json_patches, check_patterns
from lictor.lint.rules import (
    check_bodies,
    check_extractor_use,
    check_generate,
    check_mutate,
    check_name,
    check_pod_security,
    check_rule_names,
    check_validate,
)
from lictor.lint.schema_kinds import KnownSchemas
from lictor.lint.schema_names import check_matched_kinds

_ANNOTATION = "pod-policies.kyverno.io/autogen-controllers"
_CONTROLLERS = (
    "DaemonSet",
    "Deployment",
    "Job",
    "StatefulSet",
    "ReplicaSet",
    "ReplicationController",
    "CronJob",
)
_REPLACED = {
    "validationFailureAction": "failureAction of the rule (validate.failureAction)",
    "validationFailureActionOverrides": "validate.failureActionOverrides of the rule",
    "failurePolicy": "webhookConfiguration.failurePolicy",
    "webhookTimeoutSeconds": "webhookConfiguration.timeoutSeconds",
    "generateExisting": "generate.generateExisting of the rule",
    "mutateExistingOnPolicyUpdate": "mutate.mutateExistingOnPolicyUpdate of the rule",
    "schemaValidation": "nothing: it has no effect any more",
}


def check_metadata(policy: Field) -> Iterator[Finding]:
    """Name, namespace and annotations of a policy."""
    metadata = policy["metadata"]
    if metadata and not metadata["generateName"].text:
        yield from check_name(metadata["name"], "policy")
    if policy["kind"].text == "ClusterPolicy" and metadata["namespace"].text:
        message = "a ClusterPolicy has no namespace: remove it"
        yield flag("bad-scope", metadata["namespace"].path, message)
    yield from _check_controllers(metadata["annotations"][_ANNOTATION])


def _check_controllers(annotation: Field) -> Iterator[Finding]:
    if annotation.text == "all":
        message = '"all" is not supported any more: remove the annotation'
        yield flag("bad-settings", annotation.path, message)
        return
    for name in annotation.text.split(",") if annotation.text not in ("", "none") else ():
        if name not in _CONTROLLERS:
            message = f'"{name}" is not a controller of pods; known are {", ".join(_CONTROLLERS)}'
            known = suggest(name.strip(), _CONTROLLERS)
            yield flag("unknown-controller", annotation.path, message, known)


def check_settings(policy: Field) -> Iterator[Finding]:
    """The fields of `spec` besides the rules."""
    spec = policy["spec"]
    yield from _check_replaced(spec)
    yield from _check_webhook(spec)
    yield from _check_modes(spec)
    yield from _check_overrides(spec["validationFailureActionOverrides"])
    for rule in spec["rules"].each():
        yield from _check_overrides(rule["validate"]["failureActionOverrides"])
    if policy["kind"].text == "Policy" and not spec["validationFailureActionOverrides"].is_empty:
        message = "actions by namespace are for ClusterPolicies only"
        yield flag("bad-scope", spec["validationFailureActionOverrides"].path, message)


def _check_replaced(spec: Field) -> Iterator[Finding]:
    for name, instead in _REPLACED.items():
        if spec[name]:
            yield flag("deprecated", spec[name].path, f"{name} is replaced by {instead}")
    gone = spec["generateExistingOnPolicyUpdate"]
    if gone:
        message = "generateExistingOnPolicyUpdate is refused: use generate.generateExisting"
        yield flag("bad-settings", gone.path, message, "generateExisting")


def _check_webhook(spec: Field) -> Iterator[Finding]:
    webhook = spec["webhookConfiguration"]
    for timeout in (spec["webhookTimeoutSeconds"], webhook["timeoutSeconds"]):
        if isinstance(timeout.value, int) and not 1 <= timeout.value <= 30:
            message = f"expected 1 to 30 seconds, found {timeout.value}"
            yield flag("bad-settings", timeout.path, message)
    pairs = (("webhookTimeoutSeconds", "timeoutSeconds"), ("failurePolicy", "failurePolicy"))
    for old, new in pairs:
        if spec[old] and webhook[new]:
            message = f"webhookConfiguration.{new} replaces it: remove {old}"
            yield flag("bad-settings", spec[old].path, message)


def _check_modes(spec: Field) -> Iterator[Finding]:
    if spec["admission"].value is not False:
        return
    if spec["background"].value is False:
        message = "neither admission nor background: the policy never does anything"
        yield flag("bad-settings", spec["admission"].path, message)
    changing = ("mutate", "generate", "verifyImages")
    if any(rule.present(*changing) for rule in spec["rules"].each()):
        message = "only policies that validate can do without admission"
        yield flag("bad-settings", spec["admission"].path, message)


def _check_overrides(overrides: Field) -> Iterator[Finding]:
    """Overrides must not set two different actions for one namespace."""
    seen: list[tuple[str, str]] = []
    for override in overrides.each():
        action = override["action"].text.lower()
        for namespace in override["namespaces"].each():
            clash = next((n for n, a in seen if a != action and _meet(n, namespace.text)), None)
            if clash is not None:
                message = f'"{namespace.text}" and "{clash}" meet, but have different actions'
                yield flag("bad-settings", namespace.path, message)
        seen.extend((namespace, action) for namespace in override["namespaces"].texts)


def _meet(left: str, right: str) -> bool:
    if not has_wildcard(left) and not has_wildcard(right):
        return left == right
    return match_wildcard(left, right) or match_wildcard(right, left)


def check_existing(policy: Field) -> Iterator[Finding]:
    """A rule that changes existing objects must have targets."""
    spec = policy["spec"]
    for rule in spec["rules"].each():
        mutate = rule["mutate"]
        own = mutate["mutateExistingOnPolicyUpdate"]
        wanted = own if own else spec["mutateExistingOnPolicyUpdate"]
        if mutate and wanted.is_true and mutate["targets"].is_empty:
            message = "mutateExistingOnPolicyUpdate needs targets"
            yield flag("bad-mutate", mutate.path, message)


def check_target_namespaces(rule: Field, namespace: str | None) -> Iterator[Finding]:
    """A namespaced policy changes only objects of its namespace."""
    for target in rule["mutate"]["targets"].each():
        text = target["namespace"].text
        if namespace and text and text != namespace:
            message = f'a policy of namespace "{namespace}" cannot reach "{text}"'
            yield flag("bad-scope", target["namespace"].path, message)


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
)
_NO_CALLERS = "background scans have no caller: set spec.background to false"


class _Facts(msgspec.Struct, frozen=True):
    """What the rules need to know of their policy."""

    background: bool
    is_audit: bool
    # None for a cluster-wide policy; empty if a namespaced one omits its namespace.
    namespace: str | None
    changes_existing: bool


def lint_policy(body: Json, schemas: KnownSchemas) -> list[Finding]:
    """The findings of a classic policy, as plain JSON of any shape."""
    policy = Field(body)
    rules = policy["spec"]["rules"]
    facts = _read_facts(policy)
    findings = [finding for check in _POLICY_CHECKS for finding in check(policy)]
    if policy["spec"] and rules.is_empty:
        findings.append(flag("bad-rule", policy["spec"].path, "the policy has no rules"))
    findings.extend(check_rule_names(rules))
    for rule in rules.each():
        findings.extend(finding for check in _RULE_CHECKS for finding in check(rule))
        findings.extend(_check_with_facts(rule, facts))
        findings.extend(check_matched_kinds(rule, schemas))
        findings.extend(check_rule_cel(rule, schemas))
    return findings


def find_image_faults(body: Json) -> list[Finding]:
    """What prevents image rules from being used: they could not verify anything."""
    policy = Field(body)
    is_audit = _read_facts(policy).is_audit
    return [
        finding
        for rule in policy["spec"]["rules"].each()
        for finding in (*check_images(rule, is_audit=is_audit), *check_extractor_use(rule))
        if finding.check in ("bad-images", "bad-rule")
    ]


def _read_facts(policy: Field) -> _Facts:
    spec = policy["spec"]
    is_namespaced = policy["kind"].text == "Policy"
    return _Facts(
        background=spec["background"].value is not False,
        is_audit=spec["validationFailureAction"].text.lower() != "enforce",
        namespace=policy["metadata"]["namespace"].text if is_namespaced else None,
        changes_existing=any(not r["mutate"]["targets"].is_empty for r in spec["rules"].each()),
    )


def _check_with_facts(rule: Field, facts: _Facts) -> Iterator[Finding]:
    limits = MatchLimits(
        is_namespaced=facts.namespace is not None,
        has_callers=not facts.background,
        reason=_NO_CALLERS,
    )
    yield from check_match(rule["match"], limits)
    yield from check_match(rule["exclude"], replace(limits, needs_kinds=False))
    # Kyverno allows variables of callers if any rule of the policy changes existing objects.
    variables = KnownVariables(has_caller=not facts.background or facts.changes_existing)
    yield from check_expressions(list_rule_fields(rule, variables))
    yield from check_wildcard_kinds(rule, background=facts.background)
    yield from check_subresources(rule, background=facts.background)
    yield from check_generate(rule, facts.namespace)
    yield from check_target_namespaces(rule, facts.namespace)
    yield from check_images(rule, is_audit=facts.is_audit)
