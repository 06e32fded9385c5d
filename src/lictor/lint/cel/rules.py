"""CEL in classic rules: `validate.cel`, `celPreconditions`, and the webhook's matchConditions."""

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from lictor.lint.cel.places import Place
from lictor.lint.part import Part
from lictor.model.finding import Finding

if TYPE_CHECKING:
    from lictor.lang.kind_schema import Form

_BOOL = ("bool",)
# Where a kind without group and version is looked for.
_USUAL_VERSIONS = (
    *("v1", "apps/v1", "batch/v1", "networking.k8s.io/v1", "rbac.authorization.k8s.io/v1"),
    *("policy/v1", "autoscaling/v2", "storage.k8s.io/v1", "apiextensions.k8s.io/v1"),
)


def check_rule_cel(rule: Part) -> Iterator[Finding]:
    """What is wrong with the expressions of a rule."""
    cel, conditions = rule["validate"]["cel"], rule["celPreconditions"]
    if not cel and not conditions:
        return
    from lictor.lang.cel.environment import kubernetes_environment
    from lictor.lint.cel.grammar import Grammar, check_unused
    from lictor.lint.cel.policies import check_places

    has_params = bool(cel["paramKind"]) and bool(cel["paramRef"])
    environment = kubernetes_environment(has_params=has_params)
    grammar, findings = Grammar(environment, forms=_list_forms(rule)).declare(cel["variables"])
    places = [*_list_places(cel), *(Place(c["expression"], _BOOL) for c in conditions.each())]
    yield from findings
    yield from check_places(places, grammar)
    variables = [variable["expression"].text for variable in cel["variables"].each()]
    yield from check_unused(cel["variables"], [*variables, *(p.part.text for p in places)])


def check_webhook_conditions(policy: Part) -> Iterator[Finding]:
    """What is wrong with the conditions under which the API server asks for a policy."""
    conditions = policy["spec"]["webhookConfiguration"]["matchConditions"]
    if conditions.is_empty:
        return
    from lictor.lang.cel.environment import kubernetes_environment
    from lictor.lint.cel.grammar import Grammar
    from lictor.lint.cel.policies import check_places

    grammar = Grammar(kubernetes_environment(has_params=False))
    yield from check_places((Place(c["expression"], _BOOL) for c in conditions.each()), grammar)


def _list_places(cel: Part) -> Iterator[Place]:
    for expression in cel["expressions"].each():
        yield Place(expression["expression"], _BOOL)
        yield Place(expression["messageExpression"], ("string",))
    for annotation in cel["auditAnnotations"].each():
        yield Place(annotation["valueExpression"], ("string", "null_type"))


def _list_forms(rule: Part) -> "tuple[Mapping[str, Form], ...]":
    """What `object` looks like for each kind of the match; nothing where one is unknown."""
    from lictor.lang.kind_schema import find_form

    match = rule["match"]
    filters = [match, *match["any"].each(), *match["all"].each()]
    kinds = [kind for each in filters for kind in each["resources"]["kinds"].texts]
    forms = []
    for kind in kinds:
        version, _, name = kind.rpartition("/")
        versions = (version,) if version else _USUAL_VERSIONS
        found = next((f for v in versions if (f := find_form(v, name)) is not None), None)
        if found is None:
            return ()
        forms.append({"object": found, "oldObject": found})
    return tuple(forms)
