"""Checks of `resourceRules`: completeness, and whether the resources exist."""

from collections.abc import Iterable, Iterator, Mapping
from itertools import product
from typing import TypeAlias

from lictor.core.facts.resource_names import ResourceNames, ResourceType, builtin_names
from lictor.core.facts.schemas import Form
from lictor.core.load.fields import suggest
from lictor.core.model.finding import Finding
from lictor.lint.catalog import flag
from lictor.lint.field import Field
from lictor.lint.match import check_selector
from lictor.lint.schema_kinds import KnownSchemas

_PARTS = ("operations", "apiGroups", "apiVersions", "resources")


def check_constraints(
    constraints: Field, names: ResourceNames, *, needs_operations: bool = True
) -> Iterator[Finding]:
    """The findings of the rules and selectors of a policy or a binding."""
    for selector in ("namespaceSelector", "objectSelector"):
        yield from check_selector(constraints[selector])
    for field in ("resourceRules", "excludeResourceRules"):
        for rule in constraints[field].each():
            yield from _check_whole(rule, needs_operations=needs_operations)
            yield from _check_resources(rule, names)


def require_rules(constraints: Field, where: Field) -> Iterator[Finding]:
    """A policy must have match constraints."""
    if not constraints:
        message = "the policy matches no requests: matchConstraints is missing"
        yield flag("bad-match", where.path, message).with_code("no-match-constraints")
    elif constraints["resourceRules"].is_empty:
        message = "matchConstraints needs resourceRules"
        yield flag("bad-match", constraints.path, message)


def _check_whole(rule: Field, *, needs_operations: bool) -> Iterator[Finding]:
    for name in _PARTS if needs_operations else _PARTS[1:]:
        if rule[name].is_empty:
            yield flag("bad-match", rule.path, f"a rule needs {name}")


def _check_resources(rule: Field, names: ResourceNames) -> Iterator[Finding]:
    groups, versions = rule["apiGroups"].texts, rule["apiVersions"].texts
    if not groups or not all(map(names.knows_group, groups)):
        return
    # Definitions of other groups may be missing.
    is_whole = all(map(builtin_names().knows_group, groups))
    for part in rule["resources"].each():
        resource = part.text.partition("/")[0]
        if not resource or resource == "*":
            continue
        found = [f for g in groups if (f := names.of_resource(g, "", resource)) is not None]
        if not found:
            finding = _flag_unknown(part, resource, groups, names)
            yield from [finding] if is_whole or finding.suggestion else []
        elif "*" not in versions:
            yield from _check_versions(rule["apiVersions"], found, names)


def _flag_unknown(
    part: Field, resource: str, groups: tuple[str, ...], names: ResourceNames
) -> Finding:
    elsewhere = [each for each in names.known if each.resource == resource]
    listed = ", ".join(f'"{group}"' for group in groups)
    message = f'there is no resource "{resource}" in the group {listed}'
    if elsewhere:
        message += f'; "{elsewhere[0].group}" has one'
        return flag("unknown-resource", part.path, message)
    known = {each.resource: each for each in names.known if each.group in groups}
    # The kind is often written instead of the resource.
    kinds = {each.kind.lower(): each.resource for each in known.values()}
    meant = kinds.get(resource.lower()) or suggest(resource, known)
    return flag("unknown-resource", part.path, message, meant)


def _check_versions(
    versions: Field, found: Iterable[ResourceType], names: ResourceNames
) -> Iterator[Finding]:
    known = {
        each.version
        for resource in found
        for each in names.known
        if (each.group, each.resource) == (resource.group, resource.resource)
    }
    for part in versions.each():
        if part.text and part.text not in known:
            name = next(iter(found)).resource
            message = f'"{name}" has no version "{part.text}"'
            meant = next(iter(known)) if len(known) == 1 else suggest(part.text, known)
            yield flag("unknown-resource", part.path, message, meant)


# The forms of `object` and others: one mapping for each kind that a policy matches.
ObjectForms: TypeAlias = tuple[Mapping[str, Form], ...]


def list_forms(
    spec: Field, constraints: Field, names: ResourceNames, schemas: KnownSchemas
) -> ObjectForms:
    """The forms of each kind that the rules name; nothing if one is unknown."""
    rules = constraints["resourceRules"].each()
    forms = [form for rule in rules for form in _read(rule, names, schemas)]
    known = [form for form in forms if form is not None]
    return make_object_forms(known if len(known) == len(forms) else (), spec, schemas)


def make_object_forms(forms: Iterable[Form], holder: Field, schemas: KnownSchemas) -> ObjectForms:
    """With the form of `params`, if `holder` names their kind and it is known."""
    kind = holder["paramKind"]
    params = schemas.find_form(kind["apiVersion"].text, kind["kind"].text)
    given = {} if params is None else {"params": params}
    found = tuple({"object": form, "oldObject": form, **given} for form in forms)
    return found or ((given,) if given else ())


def _read(rule: Field, names: ResourceNames, schemas: KnownSchemas) -> Iterator[Form | None]:
    parts = (rule["apiGroups"].texts, rule["apiVersions"].texts, rule["resources"].texts)
    for group, version, resource in product(*parts):
        found = names.of_resource(group, version, resource)
        if found is not None:
            for each in _list_versions(found, names):
                yield schemas.find_form(each.api_version, each.kind)
        elif "*" in resource or "/" in resource or not builtin_names().knows_group(group):
            yield None
        # The rest does not exist, which is reported elsewhere.


def _list_versions(found: ResourceType, names: ResourceNames) -> list[ResourceType]:
    """The resource itself; all its versions if a rule names any of them."""
    if found.version != "*":
        return [found]
    wanted = (found.group, found.resource)
    return [each for each in names.known if (each.group, each.resource) == wanted]
