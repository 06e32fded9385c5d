"""The fields that are allowed at a path of an object, and their help; for editors.

A location is given by types and a path below them. The types come from `KnownSchemas`:

    schemas = KnownSchemas(definitions)                  # CustomResourceDefinitions, as plain JSON
    types = (schemas.of_kind("apps/v1", "Deployment"),)  # one kind, built-in or of a definition
    types = schemas.of_match(Field(rule)).types          # what the match of a rule selects

    list_fields(types, ("spec", "template", "spec"))     # containers, volumes, hostNetwork, ...
    find_field_help(types, ("spec", "replicas"))         # SchemaField("replicas", "integer")

`find_object_place` maps a path in a policy (`spec.rules[0].validate.pattern.spec`) to types and
path: patterns, patches, generated data, also within foreach. `find_expression_types` returns the
types of an expression within `{{ }}`, whose fields may follow its dot.
"""

import msgspec

from lictor.core.facts.field_types import FieldType
from lictor.core.lang.pattern.anchor import parse_anchor
from lictor.core.model.finding import FieldPath
from lictor.core.raw import Json
from lictor.lint.field import Field
from lictor.lint.schema_kinds import FieldTypes, KnownSchemas
from lictor.lint.schema_paths import infer_types
from lictor.lint.schema_values import find_field
from lictor.lint.schema_variables import find_roots, list_scopes, read_target_subject


class SchemaField(msgspec.Struct, frozen=True):
    """A field as an editor shows it. If several kinds have it, the first one counts."""

    name: str
    # In words: `string`, `integer`, `boolean`, `quantity`, `object`, `map of string`,
    # `list of object`, `any value`.
    type: str
    # Its enum; empty if there is none.
    values: tuple[str, ...] = ()
    is_required: bool = False
    # The description of a custom kind; empty for built-in kinds.
    description: str = ""


class FieldLocation(msgspec.Struct, frozen=True):
    """A location in an object: the possible kinds, and the path from its root."""

    types: FieldTypes
    path: FieldPath


def find_types(types: FieldTypes, path: FieldPath) -> FieldTypes:
    """The types at a path, a number for any element of a list; empty if unknown.

    Keys may have anchors, as in patterns: `=(spec)` is `spec`.
    """
    for step in path:
        if isinstance(step, int):
            types = tuple(each.element for each in types if each.element is not None)
        else:
            types = find_field(types, _read_name(step))
    return types


def _read_name(key: str) -> str:
    anchor = parse_anchor(key)
    return key if anchor is None else anchor.key


def list_fields(types: FieldTypes, path: FieldPath = ()) -> tuple[SchemaField, ...]:
    """The fields that are allowed at a path, each once, in the order of the schema.

    Empty if nothing is known, if there is no object, and for maps with arbitrary keys.
    """
    listed: dict[str, SchemaField] = {}
    for field_type in find_types(types, path):
        for name in field_type.fields:
            listed.setdefault(name, _describe(field_type, name))
    return tuple(listed.values())


def find_field_help(types: FieldTypes, path: FieldPath) -> SchemaField | None:
    """The field at a path; None if it is unknown, and for elements of lists."""
    if not path or isinstance(path[-1], int):
        return None
    name = _read_name(path[-1])
    for field_type in find_types(types, path[:-1]):
        if name in field_type.fields:
            return _describe(field_type, name)
        if field_type.others is not None:
            return SchemaField(
                name, name_type(field_type.others), description=field_type.others.description
            )
    return None


def _describe(field_type: FieldType, name: str) -> SchemaField:
    field = field_type.fields[name]
    return SchemaField(
        name,
        name_type(field),
        tuple(field_type.enums.get(name, ())),
        name in field_type.required,
        field.description,
    )


_NAMES = {bool: "boolean", int: "integer", float: "number", str: "string"}


def name_type(field_type: FieldType) -> str:
    """A type in the words of Kubernetes' documentation."""
    if field_type.element is not None:
        return f"list of {name_type(field_type.element)}"
    if field_type.is_quantity:
        return "quantity"
    if field_type.scalar is not None:
        kinds = (
            field_type.scalar - {int}
            if field_type.scalar == {int, float}
            else field_type.scalar - {float}
        )
        return " or ".join(_NAMES[each] for each in _NAMES if each in kinds)
    if field_type.is_map and field_type.others is not None:
        return f"map of {name_type(field_type.others)}"
    return "object" if field_type.fields or field_type.others is not None else "any value"


def list_kinds(schemas: KnownSchemas) -> tuple[tuple[str, str], ...]:
    """All kinds, each with its apiVersion: `("Deployment", "apps/v1")`; custom kinds come last."""
    return tuple((kind, version) for version, kind in schemas.list_all())


# --- places of policies in which objects are written


def find_field_location(
    policy: Json, path: FieldPath, schemas: KnownSchemas
) -> FieldLocation | None:
    """The object location of a path in a classic policy; None if it is no object.

    `spec.rules[0].validate.pattern.spec.hostNetwork` is `spec.hostNetwork` of what the rule
    matches, and `spec.rules[0].mutate.targets[0].kind` is of no object.
    """
    rule = _find_rule(policy, path)
    for part, types in _list_objects(rule, schemas) if rule is not None else ():
        if path[: len(part.path)] == part.path:
            return FieldLocation(types, path[len(part.path) :])
    return None


def _find_rule(policy: Json, path: FieldPath) -> Field | None:
    rules = Field(policy)["spec"]["rules"].each()
    return next((rule for rule in rules if rule.path == path[:3]), None)


def _list_objects(rule: Field, schemas: KnownSchemas) -> list[tuple[Field, FieldTypes]]:
    """The objects in a rule, and their types."""
    subject = schemas.of_match(rule)
    loops = [each for each in list_scopes(rule, subject, schemas) if each.is_loop]
    targets = list(rule["mutate"]["targets"].each())
    changed = read_target_subject(targets, schemas) if targets else subject
    bodies = [(rule["validate"], subject.types), *((each.part, each.elements) for each in loops)]
    objects = [
        (part, types)
        for body, types in bodies
        for part in (body["pattern"], *body["anyPattern"].each())
    ]
    for body in (rule["mutate"], rule["generate"], *(each.part for each in loops)):
        objects.append((body["patchStrategicMerge"], changed.types))
        objects.append((body["data"], read_target_subject([body], schemas).types))
    return objects


def find_expression_types(
    policy: Json, path: FieldPath, expression: str, schemas: KnownSchemas
) -> FieldTypes:
    """The types of an expression at a path of a classic policy; empty if unknown.

    `request.object.spec.containers[0]` in a rule about Pods is a container, and `element` within a
    foreach an element of its list.
    """
    rule = _find_rule(policy, path)
    if rule is None:
        return ()
    scopes = list_scopes(rule, schemas.of_match(rule), schemas)
    return infer_types(expression, find_roots(path, scopes), are_variables=True)
