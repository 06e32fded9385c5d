"""Checks of exceptions, of bindings and of cleanup policies."""

from collections.abc import Callable, Iterable, Iterator, Mapping

from msgspec.structs import replace

from lictor.core.facts.resource_names import ResourceNames
from lictor.core.families.registry import registry
from lictor.core.lang.wildcard import match_wildcard
from lictor.core.load.fields import suggest
from lictor.core.model.finding import Finding
from lictor.core.raw import Json
from lictor.lint.catalog import flag
from lictor.lint.cel_policies import check_cel_fields, check_schedule, list_condition_fields
from lictor.lint.conditions import check_conditions
from lictor.lint.context import check_context
from lictor.lint.contradictions import check_contradictions
from lictor.lint.expressions import check_expressions, list_cleanup_fields, list_exception_fields
from lictor.lint.field import Field
from lictor.lint.match import MatchLimits, check_match
from lictor.lint.resource_rules import check_constraints
from lictor.lint.rules import check_control, check_name
from lictor.lint.schema_kinds import KnownSchemas
from lictor.lint.schema_names import check_matched_kinds

# Kind and name of the policies that are among the given files.
KnownPolicies = Iterable[tuple[str, str]]


def _list_exempted() -> tuple[str, ...]:
    """The kinds that an exception may name by kind and name."""
    return tuple(kind.kind for kind in registry().kinds if kind.cel_profile)


def lint_binding(body: Json, known: KnownPolicies, names: ResourceNames) -> list[Finding]:
    """The findings of a binding of a Kubernetes admission policy."""
    binding = Field(body)
    spec = binding["spec"]
    kind = binding["kind"].text.removesuffix("Binding")
    findings = [*check_name(binding["metadata"]["name"], "binding")]
    findings += _check_policy_name(spec["policyName"], kind, known)
    findings += check_constraints(spec["matchResources"], names, needs_operations=False)
    findings += _check_param_ref(spec["paramRef"])
    if kind.startswith("Validating"):
        findings += _check_actions(spec["validationActions"], spec)
    return findings


def _check_param_ref(ref: Field) -> Iterator[Finding]:
    if not ref:
        return
    if len(ref.present("name", "selector")) != 1:
        yield flag("bad-settings", ref.path, "paramRef needs either name or selector")
    if not ref["parameterNotFoundAction"].text:
        message = "paramRef needs parameterNotFoundAction: Allow or Deny"
        yield flag("bad-settings", ref.path, message)


def _check_actions(actions: Field, spec: Field) -> Iterator[Finding]:
    if actions.is_empty:
        yield flag("bad-settings", spec.path, "the binding needs validationActions")
    elif {"Deny", "Warn"} <= set(actions.texts):
        message = "Deny and Warn exclude each other: who is refused needs no warning"
        yield flag("bad-settings", actions.path, message)


def lint_cel_exception(body: Json, known: KnownPolicies) -> list[Finding]:
    """The findings of a PolicyException of policies.kyverno.io."""
    exception = Field(body)
    spec = exception["spec"]
    findings = [*check_name(exception["metadata"]["name"], "exception")]
    if spec["policyRefs"].is_list and spec["policyRefs"].is_empty:
        findings.append(flag("bad-settings", spec.path, "policyRefs names no policy"))
    for ref in spec["policyRefs"].each():
        findings += _check_policy_ref(ref, known)
    if not spec["matchConditions"].is_empty:
        from lictor.core.lang.cel.kyverno import kyverno_environment
        from lictor.lint.cel_expressions import ExpressionContext

        findings += check_cel_fields(
            list_condition_fields(spec), ExpressionContext(kyverno_environment("validating"))
        )
    return findings


def _check_policy_ref(ref: Field, known: KnownPolicies) -> Iterator[Finding]:
    kind = ref["kind"]
    if kind.text and kind.text not in _list_exempted():
        message = f'there are no exceptions from policies of kind "{kind.text}"'
        yield flag("bad-field", kind.path, message, suggest(kind.text, _list_exempted()))
    else:
        yield from _check_policy_name(ref["name"], kind.text, known)


def _check_policy_name(name: Field, kind: str, known: KnownPolicies) -> Iterator[Finding]:
    named = [other for of_kind, other in known if of_kind == kind]
    # If there is none of the kind, the policies are just not among the given files.
    if name.text and named and name.text not in named:
        message = f'no {kind} "{name.text}" is among the given files'
        yield flag("unknown-reference", name.path, message, suggest(name.text, named))


# The names of a policy's rules, by the policy's name (`namespace/name` for a namespaced one).
KnownRules = Mapping[str, Iterable[str]]
_AUTOGEN: tuple[Callable[[str], str], ...] = (
    lambda rule: rule,
    lambda rule: f"autogen-{rule}",
    lambda rule: f"autogen-cronjob-{rule}",
)


def _is_namespaced(policy: Field) -> bool:
    group = policy["apiVersion"].text.rpartition("/")[0]
    kind = registry().find(group, policy["kind"].text)
    return kind is not None and kind.namespaced


def lint_cleanup(body: Json, schemas: KnownSchemas) -> list[Finding]:
    """The findings of a cleanup policy."""
    policy = Field(body)
    spec = policy["spec"]
    limits = MatchLimits(
        is_namespaced=_is_namespaced(policy),
        has_callers=False,
        reason="a cleanup has no caller: it cannot depend on callers",
        caller_check="bad-match",
    )
    excluding = replace(limits, needs_kinds=False)
    return [
        *check_name(policy["metadata"]["name"], "policy"),
        *check_schedule(spec["schedule"]),
        *check_match(spec["match"], limits),
        *check_match(spec["exclude"], excluding),
        *check_matched_kinds(spec, schemas),
        *check_contradictions(spec),
        *check_conditions(spec["conditions"]),
        *check_context(spec["context"], spec),
        *_check_sources(spec["context"]),
        *check_expressions(list_cleanup_fields(spec)),
    ]


def _check_sources(context: Field) -> Iterator[Finding]:
    for entry in context.each():
        for name in entry.present("imageRegistry", "configMap"):
            message = f"a cleanup policy cannot use {name}"
            yield flag("bad-context", entry[name].path, message)


def lint_exception(body: Json, known: KnownRules, schemas: KnownSchemas) -> list[Finding]:
    """The findings of a PolicyException; `known` are the rules of the given policies, if any."""
    exception = Field(body)
    spec = exception["spec"]
    limits = MatchLimits(
        needs_kinds=False,
        has_callers=spec["background"].value is False,
        reason="background scans have no caller: set spec.background to false",
    )
    findings = [
        *check_name(exception["metadata"]["name"], "exception"),
        *check_match(spec["match"], limits),
        *check_matched_kinds(spec, schemas),
        *check_conditions(spec["conditions"]),
        *check_expressions(list_exception_fields(spec)),
    ]
    for control in spec["podSecurity"].each():
        findings.extend(check_control(control))
    for entry in spec["exceptions"].each() if known else ():
        findings.extend(_check_reference(entry, known))
    return findings


def _check_reference(entry: Field, known: KnownRules) -> Iterator[Finding]:
    policy = entry["policyName"]
    if not policy.text:
        return
    if policy.text not in known:
        message = f'no policy "{policy.text}" is among the given files'
        yield flag("unknown-reference", policy.path, message, suggest(policy.text, known))
        return
    names = [form(rule) for rule in known[policy.text] for form in _AUTOGEN]
    for rule in entry["ruleNames"].each():
        if rule.text and not any(match_wildcard(rule.text, name) for name in names):
            message = f'policy "{policy.text}" has no rule "{rule.text}"'
            yield flag("unknown-reference", rule.path, message, suggest(rule.text, names))
