"""Bindings and exceptions of policies in CEL: do they say enough, and name what is there?"""

from collections.abc import Iterable, Iterator

from lictor.lang.resource_names import ResourceNames
from lictor.lint.catalog import flag
from lictor.lint.cel.places import list_conditions
from lictor.lint.cel.policies import check_places
from lictor.lint.cel.resource_rules import check_constraints
from lictor.lint.part import Part
from lictor.lint.rules import check_name
from lictor.load.fields import suggest
from lictor.model.finding import Finding
from lictor.raw import Json

# Kind and name of the policies that are among the given files.
KnownPolicies = Iterable[tuple[str, str]]

_KINDS = (
    "ValidatingPolicy",
    "MutatingPolicy",
    "GeneratingPolicy",
    "DeletingPolicy",
    "ImageValidatingPolicy",
)
_ALL_KINDS = (*_KINDS, *(f"Namespaced{kind}" for kind in _KINDS))


def lint_binding(body: Json, known: KnownPolicies, names: ResourceNames) -> list[Finding]:
    """What is wrong with the binding of a ValidatingAdmissionPolicy or MutatingAdmissionPolicy."""
    binding = Part(body)
    spec = binding["spec"]
    kind = binding["kind"].text.removesuffix("Binding")
    findings = [*check_name(binding["metadata"]["name"], "binding")]
    findings += _check_reference(spec["policyName"], kind, known)
    findings += check_constraints(spec["matchResources"], names, needs_operations=False)
    findings += _check_param_ref(spec["paramRef"])
    if kind.startswith("Validating"):
        findings += _check_actions(spec["validationActions"], spec)
    return findings


def _check_param_ref(ref: Part) -> Iterator[Finding]:
    if not ref:
        return
    if len(ref.present("name", "selector")) != 1:
        yield flag("bad-settings", ref.path, "paramRef needs either name or selector")
    if not ref["parameterNotFoundAction"].text:
        message = "paramRef needs parameterNotFoundAction: Allow or Deny"
        yield flag("bad-settings", ref.path, message)


def _check_actions(actions: Part, spec: Part) -> Iterator[Finding]:
    if actions.is_empty:
        yield flag("bad-settings", spec.path, "the binding needs validationActions")
    elif {"Deny", "Warn"} <= set(actions.texts):
        message = "Deny and Warn exclude each other: who is refused needs no warning"
        yield flag("bad-settings", actions.path, message)


def lint_cel_exception(body: Json, known: KnownPolicies) -> list[Finding]:
    """What is wrong with a PolicyException of policies.kyverno.io."""
    exception = Part(body)
    spec = exception["spec"]
    findings = [*check_name(exception["metadata"]["name"], "exception")]
    if spec["policyRefs"].is_list and spec["policyRefs"].is_empty:
        findings.append(flag("bad-settings", spec.path, "policyRefs names no policy"))
    for ref in spec["policyRefs"].each():
        findings += _check_policy_ref(ref, known)
    if not spec["matchConditions"].is_empty:
        from lictor.lang.cel.environment import kyverno_environment
        from lictor.lint.cel.grammar import Grammar

        findings += check_places(
            list_conditions(spec), Grammar(kyverno_environment("ValidatingPolicy"))
        )
    return findings


def _check_policy_ref(ref: Part, known: KnownPolicies) -> Iterator[Finding]:
    kind = ref["kind"]
    if kind.text and kind.text not in _ALL_KINDS:
        message = f'there are no exceptions from policies of kind "{kind.text}"'
        yield flag("bad-field", kind.path, message, suggest(kind.text, _ALL_KINDS))
    else:
        yield from _check_reference(ref["name"], kind.text, known)


def _check_reference(name: Part, kind: str, known: KnownPolicies) -> Iterator[Finding]:
    named = [other for of_kind, other in known if of_kind == kind]
    # Where there is none of the kind, the policies are simply not among the given files.
    if name.text and named and name.text not in named:
        message = f'no {kind} "{name.text}" is among the given files'
        yield flag("unknown-reference", name.path, message, suggest(name.text, named))
