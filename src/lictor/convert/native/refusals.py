"""Which classic policies and exceptions can an admission policy of Kubernetes not stand for?"""

from collections.abc import Iterable

from lictor.errors import CompileError
from lictor.lang.wildcard import has_wildcard
from lictor.model.exception import PolicyException
from lictor.model.policy import (
    ActionOverride,
    Cel,
    Match,
    Policy,
    ResourceDescription,
    ResourceFilter,
    Rule,
)


def _skip(reason: str) -> CompileError:
    return CompileError(f"skip generating ValidatingAdmissionPolicy: {reason}")


def check_policy(policy: Policy) -> tuple[Rule, Cel]:
    """The one rule of a policy that can be made native, and its check; CompileError otherwise."""
    rules = policy.spec.rules
    if not rules:
        raise _skip("no rules found.")
    if len(rules) > 1:
        raise _skip("multiple rules are not applicable.")
    rule = rules[0]
    if rule.validate is None or rule.validate.cel is None:
        raise CompileError("skip generating ValidatingAdmissionPolicy for non CEL rules.")
    if not rule.validate.cel.generate:
        raise _skip("validate.cel.generate is not set to true.")
    if not policy.spec.admission:
        raise _skip("admission is not enabled.")
    _check_overrides(policy.spec.validation_failure_action_overrides)
    _check_overrides(rule.validate.failure_action_overrides)
    if rule.context or rule.preconditions:
        raise _skip("context and preconditions are not applicable.")
    _check_match(rule.match, "match")
    if rule.exclude is not None:
        _check_match(rule.exclude, "exclude")
    return rule, rule.validate.cel


def check_exceptions(exceptions: Iterable[PolicyException]) -> None:
    """Can they be folded into the native policy? CompileError where one cannot."""
    for exception in exceptions:
        spec = exception.spec
        if any(len(entry.rule_names) > 1 for entry in spec.exceptions):
            raise _skip("multiple ruleNames in PolicyException is not applicable.")
        if spec.conditions:
            raise _skip("Conditions in PolicyException is not applicable.")
        _check_match(spec.match, "PolicyException's match")


def _check_overrides(overrides: tuple[ActionOverride, ...]) -> None:
    if len(overrides) > 1:
        raise _skip("multiple validationFailureActionOverrides are not applicable.")
    if overrides and overrides[0].namespaces:
        raise _skip("Namespaces in validationFailureActionOverrides is not applicable.")


def _check_match(match: Match, where: str) -> None:
    is_match = where == "match"
    _check_callers(match)
    _check_resources(match.resources, is_match=is_match)
    if len(match.all) > 1:
        raise _skip(f"multiple 'all' in the {where} block is not applicable.")
    for each in (*match.any, *match.all):
        _check_callers(each)
        _check_resources(each.resources, is_match=is_match)
    filters = [each.resources for each in (*match.any, *match.all)] or [match.resources]
    _check_selectors(filters, is_match=is_match)


def _check_callers(each: Match | ResourceFilter) -> None:
    if each.subjects or each.roles or each.cluster_roles:
        raise _skip("Roles / ClusterRoles / Subjects in `any/all` is not applicable.")


def _check_resources(resources: ResourceDescription, *, is_match: bool) -> None:
    if not is_match and resources.kinds and resources.namespaces:
        raise _skip("excluding a resource within a namespace is not applicable.")
    if resources.annotations:
        raise _skip("Annotations in resource description is not applicable.")
    if any(has_wildcard(name) for name in (resources.name, *resources.names)):
        raise _skip("wildcards in resource name is not applicable.")
    if any(has_wildcard(namespace) for namespace in resources.namespaces):
        raise _skip("wildcards in namespace name is not applicable.")


def _check_selectors(filters: list[ResourceDescription], *, is_match: bool) -> None:
    chosen = [each for each in filters if each.selector or each.namespace_selector]
    if chosen and not is_match:
        raise _skip("NamespaceSelector / ObjectSelector in the exclude block is not applicable.")
    if chosen and len(filters) > 1:
        raise _skip(
            "NamespaceSelector / ObjectSelector across multiple resources in the match block are "
            "not applicable."
        )
    # One policy has one selector of namespaces for all its rules.
    if is_match and len({frozenset(each.namespaces) for each in filters}) > 1:
        raise _skip("different namespaces in the match block are not applicable.")
