"""Everything that can be said about a policy in CEL before anything runs."""

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from msgspec.structs import replace

from lictor.errors import CompileError
from lictor.lang.cron import compile_schedule
from lictor.lang.resource_names import ResourceNames
from lictor.lint.catalog import flag
from lictor.lint.cel.places import Place, list_conditions, list_places, list_texts
from lictor.lint.cel.resource_rules import check_constraints, list_forms, require_rules
from lictor.lint.part import Part
from lictor.lint.rules import check_name
from lictor.model.finding import Finding
from lictor.raw import Json

if TYPE_CHECKING:
    from lictor.lang.cel.environment import Environment
    from lictor.lint.cel.grammar import Grammar

_AUTHORIZING = {
    "HTTP": ("http.CheckResponse", "null_type", "dyn"),
    "Envoy": ("envoy.service.auth.v3.CheckResponse", "null_type", "dyn"),
}
_PATCHES = {"ApplyConfiguration": "applyConfiguration", "JSONPatch": "jsonPatch"}
# Kinds that ask their conditions before they know of variables.
_BLIND = ("ValidatingPolicy", "ImageValidatingPolicy")
_CONSTRAINED = ("matchConstraints", "targetMatchConstraints")


def lint_cel_policy(body: Json, names: ResourceNames) -> list[Finding]:
    """What is wrong with a policy of one of the CEL kinds, as plain JSON of any shape."""
    policy = Part(body)
    kind, spec = policy["kind"].text.removeprefix("Namespaced"), policy["spec"]
    findings = [*check_name(policy["metadata"]["name"], "policy")]
    if spec.is_object:
        findings += _check_subject(spec, kind, names)
        findings += _check_content(spec, kind)
        findings += _check_names(spec)
        findings += _check_expressions(policy, kind, names)
    return findings


# --- what it is about, and what it does


def _check_subject(spec: Part, kind: str, names: ResourceNames) -> Iterator[Finding]:
    mode = spec["evaluation"]["mode"].text or "Kubernetes"
    if mode == "Kubernetes":
        yield from require_rules(spec["matchConstraints"], spec)
    for field in _CONSTRAINED:
        # What is deleted, and what else is changed, is found, not asked for.
        asks = kind != "DeletingPolicy" and field == "matchConstraints"
        yield from check_constraints(spec[field], names, needs_operations=asks)


def _check_content(spec: Part, kind: str) -> Iterator[Finding]:
    if kind.startswith("Validating") and not spec.present("validations", "auditAnnotations"):
        message = "the policy checks nothing: give validations or auditAnnotations"
        yield flag("bad-validate", spec.path, message)
    if kind.startswith("Mutating") and spec["mutations"].is_empty:
        yield flag("bad-mutate", spec.path, "the policy changes nothing: give mutations")
    for mutation in spec["mutations"].each():
        wanted = _PATCHES.get(mutation["patchType"].text)
        if wanted is not None and not mutation[wanted]:
            message = f"a mutation of type {mutation['patchType'].text} needs {wanted}"
            yield flag("bad-mutate", mutation.path, message)
    schedule = spec["schedule"]
    if schedule.text:
        try:
            compile_schedule(schedule.text)
        except CompileError as error:
            yield flag("bad-schedule", schedule.path, error.message)


def _check_names(spec: Part) -> Iterator[Finding]:
    for field in ("matchConditions", "conditions"):
        seen = set()
        for condition in spec[field].each():
            name = condition["name"]
            if name.text in seen:
                message = f'there are two conditions "{name.text}"'
                yield flag("duplicate-name", name.path, message)
            seen.add(name.text)


# --- expressions


def _check_expressions(policy: Part, kind: str, names: ResourceNames) -> list[Finding]:
    from lictor.lint.cel.grammar import Grammar, check_unused

    spec = policy["spec"]
    plain = Grammar(choose_environment(policy, kind), forms=list_forms(_subject(spec), names))
    grammar, findings = plain.declare(spec["variables"])
    asking = plain if kind in _BLIND else grammar
    if spec["targetMatchConstraints"]:
        # Asked about what triggers the change, and about each target: `object` is either.
        asking = replace(asking, forms=())
    findings += check_places(_adapt(list_places(spec), spec), grammar)
    findings += check_places(list_conditions(spec), asking)
    findings += _check_image_references(spec)
    findings += check_unused(spec["variables"], list_texts(spec))
    return findings


def check_places(places: Iterable[Place], grammar: "Grammar") -> Iterator[Finding]:
    """What is wrong with the expressions at these places."""
    from lictor.lint.cel.grammar import check_expression

    for place in places:
        yield from check_expression(place.part, place.types, grammar)


def choose_environment(policy: Part, kind: str) -> "Environment":
    """What the expressions of a kind may use."""
    from lictor.lang.cel.environment import (
        authorization_environment,
        kubernetes_environment,
        kyverno_environment,
    )

    spec = policy["spec"]
    if kind.endswith("AdmissionPolicy"):
        return kubernetes_environment(
            has_params=bool(spec["paramKind"]), has_patches=kind.startswith("Mutating")
        )
    mode = spec["evaluation"]["mode"].text
    if mode in _AUTHORIZING:
        return authorization_environment(mode)
    is_namespaced = policy["kind"].text.startswith("Namespaced")
    return kyverno_environment(kind, is_namespaced=is_namespaced)


def _subject(spec: Part) -> Part:
    """What `object` is: the targets where a policy changes others than what it is asked about."""
    targets = spec["targetMatchConstraints"]
    return targets if targets["resourceRules"] else spec["matchConstraints"]


def _adapt(places: Iterable[Place], spec: Part) -> Iterator[Place]:
    answers = _AUTHORIZING.get(spec["evaluation"]["mode"].text)
    for place in places:
        is_validation = place.part.path[1:2] == ("validations",)
        is_answer = is_validation and place.part.path[-1] == "expression"
        yield Place(place.part, answers) if answers and is_answer else place


def _check_image_references(spec: Part) -> Iterator[Finding]:
    references = [each["expression"] for each in spec["matchImageReferences"].each()]
    if not any(references):
        return
    from lictor.lang.cel.environment import image_environment
    from lictor.lint.cel.grammar import Grammar

    grammar = Grammar(image_environment())
    yield from check_places((Place(part, ("bool",)) for part in references), grammar)
