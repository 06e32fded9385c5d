"""Types of the expressions of a ValidatingAdmissionPolicy, checked by the kinds it matches.

Writes what Kubernetes writes into `status.typeChecking`.
"""

from collections.abc import Iterator
from itertools import product

from lictor.addons.apiserver.json_fields import read_list, read_object, read_text
from lictor.addons.apiserver.kind import Catalogue, ServedKind
from lictor.core.errors import SyntaxFaultError
from lictor.core.lang.cel.expression import NO_VARIABLES, declare_variable, render_issues
from lictor.core.lang.cel.kubernetes import kubernetes_environment
from lictor.core.lang.cel.program import Environment
from lictor.core.lang.cel.schema_types import declare_objects
from lictor.core.raw import JsonObject

_FIELDS = ("expression", "messageExpression")
# Kubernetes checks no more kinds of one rule.
_MAX_KINDS = 10


def check_policy_types(policy: JsonObject, catalogue: Catalogue) -> list[JsonObject]:
    """The warnings for `expressionWarnings`."""
    spec = read_object(policy, "spec")
    places = [(kind, _declare(kind, spec, catalogue)) for kind in _list_kinds(spec, catalogue)]
    warnings: list[JsonObject] = []
    for index, validation in enumerate(read_list(spec, "validations")):
        for field in _FIELDS:
            text = read_text(validation, field)
            found = [_check(text, kind, around, spec) for kind, around in places] if text else []
            if any(found):
                where = f"spec.validations[{index}].{field}"
                warnings.append({"fieldRef": where, "warning": "\n".join(filter(None, found))})
    return warnings


def _list_kinds(spec: JsonObject, catalogue: Catalogue) -> list[ServedKind]:
    """The kinds that rules name, without patterns and subresources."""
    rules = read_list(read_object(spec, "matchConstraints"), "resourceRules")
    found = {kind.api_version + kind.kind: kind for r in rules for kind in _find(r, catalogue)}
    return sorted(found.values(), key=lambda kind: (kind.group, kind.version, kind.kind))


def _find(rule: JsonObject, catalogue: Catalogue) -> Iterator[ServedKind]:
    groups, versions = read_list(rule, "apiGroups"), read_list(rule, "apiVersions")
    if any("*" in each for each in (*groups, *versions)):
        return
    resources = [each for each in read_list(rule, "resources") if not {"*", "/"} & {*each}]
    names = product(sorted(groups), sorted(versions), sorted(resources))
    kinds = [kind for name in names if (kind := catalogue.find(*name)) is not None]
    yield from kinds[:_MAX_KINDS]


def _declare(kind: ServedKind, spec: JsonObject, catalogue: Catalogue) -> Environment:
    forms = dict.fromkeys(("object", "oldObject"), (kind.kind, kind.schema.form))
    wanted = read_object(spec, "paramKind")
    params = catalogue.find_kind(read_text(wanted, "apiVersion"), read_text(wanted, "kind"))
    if wanted and params is not None:
        forms["params"] = (f"params.{params.kind}", params.schema.form)
    return declare_objects(kubernetes_environment(has_params=bool(wanted)), forms)


def _check(text: str, kind: ServedKind, environment: Environment, spec: JsonObject) -> str:
    variables = NO_VARIABLES
    for each in read_list(spec, "variables"):
        name, expression = read_text(each, "name"), read_text(each, "expression")
        try:
            variables = declare_variable(variables, name, expression, environment)
        except SyntaxFaultError:
            # The expressions that use it are checked as if it could be anything.
            variables = declare_variable(variables, name, "dyn(object)", environment)
    issues = render_issues(text, environment, variables)
    named = f"{kind.group}/{kind.version}, Kind={kind.kind}"
    return f"{named}: {issues}\n" if issues else ""
