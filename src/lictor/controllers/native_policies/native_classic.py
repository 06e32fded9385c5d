"""A classic policy with one CEL rule as an admission policy of Kubernetes and its binding."""

from collections.abc import Iterable, Iterator

import msgspec

from lictor.controllers.native_policies.objects import (
    AdmissionPolicyPair,
    AdmittedResource,
    FindResources,
    NativeRequest,
    PolicyOwner,
    make_pair,
    name_conditions,
    quote,
    write,
)
from lictor.core.errors import CompileError
from lictor.core.families.admission_policy import VALIDATING_KIND
from lictor.core.lang.wildcard import has_wildcard, match_wildcard
from lictor.core.model.exception import PolicyException
from lictor.core.model.matching import Match, ResourceDescription, ResourceFilter
from lictor.core.model.metadata import LabelRequirement, LabelSelector
from lictor.core.model.policy import ActionOverride, Cel, Policy, Rule
from lictor.core.raw import JsonObject

_ALL_OPERATIONS = ("CREATE", "UPDATE", "CONNECT", "DELETE")
_NAMESPACE_NAME = "kubernetes.io/metadata.name"


def build_constraints(
    match: Match, excluded: Iterable[Match], find: FindResources
) -> tuple[JsonObject, list[tuple[str, str]]]:
    """The match constraints, and conditions for what these cannot express."""
    filters = list_descriptions(match)
    constraints: JsonObject = {"resourceRules": _build_rules(filters, find)}
    selector = _select_namespaces(filters[0])
    if selector is not None:
        constraints["namespaceSelector"] = write(selector)
    if filters[0].selector is not None:
        constraints["objectSelector"] = write(filters[0].selector)
    left_out = [each for one in excluded for each in list_descriptions(one)]
    rules = _build_rules(left_out, find)
    if rules:
        constraints["excludeResourceRules"] = rules
    return constraints, list(_list_conditions(left_out))


def list_descriptions(match: Match) -> list[ResourceDescription]:
    """The filters of a match, or the match itself in its older form."""
    filters = [each.resources for each in (*match.any, *match.all)]
    if filters:
        return filters
    return [match.resources] if match.resources != ResourceDescription() else []


def _build_rules(filters: Iterable[ResourceDescription], find: FindResources) -> list[JsonObject]:
    rules: list[JsonObject] = []
    for each in filters:
        for rule in _list_rules(each, find):
            _add_rule(rules, rule)
    return rules


def _list_rules(each: ResourceDescription, find: FindResources) -> Iterator[JsonObject]:
    for kind in each.kinds:
        if kind == "*":
            yield _make_rule(each, "*", ["*"], ["*"])
            continue
        found = _find_one(kind, find)
        resources = [found[0].resource]
        if resources == ["pods"]:
            # What is added to a Pod later is a part of it.
            resources.append("pods/ephemeralcontainers")
        yield _make_rule(each, found[0].group, sorted(f.version for f in found), resources)
    if each.namespaces and not each.kinds:
        yield {
            "apiGroups": [""],
            "apiVersions": ["v1"],
            "operations": list(each.operations or _ALL_OPERATIONS),
            "resourceNames": list(each.namespaces),
            "resources": ["namespaces"],
        }


def _find_one(kind: str, find: FindResources) -> list[AdmittedResource]:
    found = list(find(kind))
    if len({(each.group, each.resource) for each in found}) != 1:
        raise CompileError(f"skip generating {VALIDATING_KIND}: no unique match for kind {kind}")
    return found


def _make_rule(
    each: ResourceDescription, group: str, versions: list[str], resources: list[str]
) -> JsonObject:
    rule: JsonObject = {
        "apiGroups": [group],
        "apiVersions": versions,
        "operations": list(each.operations or _ALL_OPERATIONS),
        "resources": resources,
    }
    names = (*each.names, each.name) if each.name else each.names
    if names:
        rule["resourceNames"] = list(names)
    return rule


def _add_rule(rules: list[JsonObject], rule: JsonObject) -> None:
    """Into a rule that differs in its resources only, if there is one."""
    for known in rules:
        if _without_resources(known) == _without_resources(rule):
            known["resources"] = sorted({*known["resources"], *rule["resources"]})
            return
    rules.append(rule)


def _without_resources(rule: JsonObject) -> JsonObject:
    return {key: value for key, value in rule.items() if key != "resources"}


def _select_namespaces(each: ResourceDescription) -> LabelSelector | None:
    selector = each.namespace_selector
    if not each.namespaces:
        return selector
    named = LabelRequirement(key=_NAMESPACE_NAME, operator="In", values=each.namespaces)
    if selector is None:
        return LabelSelector(match_expressions=(named,))
    return msgspec.structs.replace(selector, match_expressions=(*selector.match_expressions, named))


def _list_conditions(filters: Iterable[ResourceDescription]) -> Iterator[tuple[str, str]]:
    """Resource rules select by kind and name; selecting by namespace needs a condition."""
    for each in filters:
        tests = []
        if each.namespaces:
            tests.append(f"request.namespace in {quote(each.namespaces)}")
        names = (*each.names, each.name) if each.name else each.names
        if names and not each.kinds:
            tests.append(f"request.name in {quote(names)}")
        if not tests or each.kinds:
            continue
        if each.operations:
            tests.append(f"request.operation in {quote(each.operations)}")
        yield "exclude", f"!({' && '.join(tests)})"


def _skip(reason: str) -> CompileError:
    return CompileError(f"skip generating {VALIDATING_KIND}: {reason}")


def check_policy(policy: Policy) -> tuple[Rule, Cel]:
    """The one rule of a policy that can be made native, and its check; CompileError otherwise."""
    rules = policy.spec.rules
    if not rules:
        raise _skip("no rules found.")
    if len(rules) > 1:
        raise _skip("multiple rules are not applicable.")
    rule = rules[0]
    if rule.validate is None or rule.validate.cel is None:
        raise CompileError(f"skip generating {VALIDATING_KIND} for non CEL rules.")
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


def build_classic(
    policy: Policy, owner: PolicyOwner, exceptions: Iterable[PolicyException], find: FindResources
) -> AdmissionPolicyPair:
    """Both objects; raises CompileError if the policy cannot be made native."""
    rule, cel = check_policy(policy)
    concerned = [each for each in exceptions if _concerns(each, policy, rule)]
    check_exceptions(concerned)
    excluded = [each.spec.match for each in concerned]
    if rule.exclude is not None:
        excluded.insert(0, rule.exclude)
    constraints, conditions = build_constraints(rule.match, excluded, find)
    conditions = [(each.name, each.expression) for each in rule.cel_preconditions] + conditions
    spec: JsonObject = {
        "failurePolicy": owner.failure_policy,
        "matchConstraints": constraints,
        "validations": _write_validations(cel, rule),
        **_write_optional(cel),
    }
    if conditions:
        spec["matchConditions"] = name_conditions(conditions)
    return make_pair("cpol", "Validating", owner, spec, _bind(policy, rule, cel), "v1")


def build_native_classic(policy: Policy, request: NativeRequest) -> AdmissionPolicyPair:
    """Both objects, with the exceptions that may concern the policy."""
    exceptions = [each for each in request.exceptions if isinstance(each, PolicyException)]
    return build_classic(policy, request.owner, exceptions, request.find)


def _concerns(exception: PolicyException, policy: Policy, rule: Rule) -> bool:
    return any(
        entry.policy_name == policy.metadata.name
        and any(match_wildcard(name, rule.name) for name in entry.rule_names)
        for entry in exception.spec.exceptions
    )


def _write_validations(cel: Cel, rule: Rule) -> list[JsonObject]:
    written: list[JsonObject] = [write(each) for each in cel.expressions]
    message = rule.validate.message if rule.validate is not None else ""
    for each in written:
        if message and "{{" not in message and not each.get("messageExpression"):
            each.setdefault("message", message)
    return written


def _write_optional(cel: Cel) -> JsonObject:
    parts: JsonObject = {
        "paramKind": cel.param_kind,
        "variables": cel.variables,
        "auditAnnotations": cel.audit_annotations,
    }
    return {name: write(part) for name, part in parts.items() if part}


def _bind(policy: Policy, rule: Rule, cel: Cel) -> JsonObject:
    own = rule.validate.failure_action if rule.validate is not None else None
    action = own or policy.spec.validation_failure_action
    binding: JsonObject = {
        "validationActions": ["Deny"] if action.lower() == "enforce" else ["Audit", "Warn"]
    }
    if cel.param_ref is not None:
        binding["paramRef"] = write(cel.param_ref)
    return binding
