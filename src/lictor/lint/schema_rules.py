"""Checks rules against the schemas of their kinds: values, JMESPath paths, JSON pointers."""

from collections.abc import Iterable, Iterator, Sequence

import msgspec

from lictor.core.errors import CompileError
from lictor.core.facts.field_types import ANYTHING, FieldType
from lictor.core.facts.resource_names import builtin_names
from lictor.core.lang.condition import OPERATORS, compile_operator_with
from lictor.core.lang.patch import parse_json_patch
from lictor.core.lang.pattern.go_values import parse_float
from lictor.core.model.finding import Finding, TextOffset
from lictor.core.raw import Json
from lictor.lint.catalog import flag
from lictor.lint.conditions import list_conditions, list_rule_conditions
from lictor.lint.expressions import (
    KnownVariables,
    TemplateField,
    list_cleanup_fields,
    list_expressions,
    list_rule_fields,
)
from lictor.lint.field import Field, list_loops
from lictor.lint.rules import check_object_name
from lictor.lint.schema_kinds import FieldTypes, KnownSchemas, RuleSubject, is_known
from lictor.lint.schema_names import check_called_resource, check_target_kind
from lictor.lint.schema_paths import ExpressionInput, check_path, infer_types, list_elements
from lictor.lint.schema_values import (
    ValueUse,
    check_amounts,
    check_value,
    describe_types,
    find_field,
    flag_unknown,
    is_no_amount,
)
from lictor.lint.schema_variables import (
    VariableScope,
    find_answer,
    find_roots,
    list_cleanup_scopes,
    list_scopes,
    read_target_subject,
)


def check_paths(
    fields: Iterable[TemplateField], label: str, scopes: Sequence[VariableScope]
) -> Iterator[Finding]:
    """Expressions that read fields which the objects do not have."""
    for field in fields:
        # If any name may be known, the root is something else: a response, an attestation.
        if field.variables.names is None:
            continue
        asked = ExpressionInput(find_roots(field.part.path, scopes), label, are_variables=True)
        for expression in list_expressions(field.part, is_query=field.is_query):
            yield from check_path(field.part, expression, asked)


def _check_calls(holder: Field, schemas: KnownSchemas) -> Iterator[Finding]:
    """API calls: does the resource exist, and does the response have the fields that are read?"""
    for entry in holder["context"].each():
        call = entry["apiCall"]
        answer, query = find_answer(call, schemas), call["jmesPath"]
        if answer is None:
            yield from check_called_resource(call["urlPath"], schemas)
        elif query.text and "{{" not in query.text:
            yield from check_path(
                query, (query.text, 0), ExpressionInput(answer.types, answer.label)
            )


# --- JSON patches


def check_pointers(patch: Field, subject: RuleSubject) -> Iterator[Finding]:
    """Operations of a JSON patch on fields that the objects do not have."""
    try:
        operations = parse_json_patch(patch.text) if patch.text else ()
    except CompileError:
        return  # Reported elsewhere, or contains variables.
    for operation in operations:
        pointer = operation.get("path") if isinstance(operation, dict) else None
        if isinstance(pointer, str) and pointer.startswith("/"):
            offset = TextOffset(patch.text, max(patch.text.find(pointer), 0))
            for finding in _check_operation(patch, operation, subject):
                yield msgspec.structs.replace(finding, path=patch.path, offset=offset)


def _check_operation(
    patch: Field, operation: dict[str, object], subject: RuleSubject
) -> Iterator[Finding]:
    types, names = subject.types, list[str]()
    for token in str(operation["path"])[1:].split("/"):
        name = token.replace("~1", "/").replace("~0", "~")
        maps = tuple(each for each in types if each.fields or each.others is not None)
        if not is_known(types) or "{{" in name:
            return
        elements = list_elements(types)
        if elements and not maps:
            types = elements
            continue
        types = find_field(maps, name)
        if not types:
            yield flag_unknown(patch, name, maps or (ANYTHING,), subject.label, tuple(names))
            return
        names.append(name)
    if operation.get("op") in ("add", "replace"):
        label = f"{'.'.join(names)} of {subject.label}"
        value = Field(operation.get("value"), patch.path)
        yield from check_value(value, RuleSubject(label, types), ValueUse.OBJECT)


# --- whole rules


def check_rule_schemas(body: Json, schemas: KnownSchemas) -> Iterator[Finding]:
    """Checks of a classic policy's rules against the schemas of their objects."""
    for rule in Field(body)["spec"]["rules"].each():
        subject = schemas.of_match(rule)
        scopes = list_scopes(rule, subject, schemas)
        yield from _check_patterns(rule["validate"], subject)
        for scope in scopes:
            yield from _check_calls(scope.part, schemas)
            if scope.is_loop:
                element = RuleSubject(f"element of {subject.label}", scope.elements)
                yield from _check_patterns(scope.part, element)
        yield from check_paths(list_rule_fields(rule, KnownVariables()), subject.label, scopes)
        yield from _check_condition_types(rule, scopes)
        yield from _check_patches(rule["mutate"], subject, schemas)
        yield from _check_generated(rule["generate"], schemas)


def check_cleanup_schemas(body: Json, schemas: KnownSchemas) -> Iterator[Finding]:
    """Checks of a cleanup policy against the schemas of its targets."""
    spec = Field(body)["spec"]
    subject = schemas.of_match(spec)
    yield from _check_calls(spec, schemas)
    scopes = list_cleanup_scopes(spec, subject, schemas)
    yield from check_paths(list_cleanup_fields(spec), subject.label, scopes)


def _check_patterns(body: Field, subject: RuleSubject) -> Iterator[Finding]:
    for pattern in (body["pattern"], *body["anyPattern"].each()):
        found = list(check_value(pattern, subject, ValueUse.PATTERN))
        yield from found
        told = {finding.path for finding in found}
        yield from (each for each in check_amounts(pattern) if each.path not in told)


def _check_patches(mutate: Field, subject: RuleSubject, schemas: KnownSchemas) -> Iterator[Finding]:
    targets = list(mutate["targets"].each())
    for target in targets:
        yield from check_target_kind(target, schemas)
    if targets:
        subject = read_target_subject(targets, schemas)
    for body in (mutate, *list_loops(mutate)):
        yield from check_value(body["patchStrategicMerge"], subject, ValueUse.PATCH)
        yield from check_pointers(body["patchesJson6902"], subject)


def _check_generated(generate: Field, schemas: KnownSchemas) -> Iterator[Finding]:
    for body in (generate, *list_loops(generate)):
        subject = read_target_subject([body], schemas)
        yield from check_target_kind(body, schemas)
        yield from _check_object_name(body)
        yield from check_value(body["data"], subject, ValueUse.OBJECT)


# Their names are path segments: nearly anything is valid.
_FREE_NAMES = "rbac.authorization.k8s.io"


def _check_object_name(target: Field) -> Iterator[Finding]:
    """A name that every API server refuses."""
    group = target["apiVersion"].text.rpartition("/")[0]
    if not builtin_names().knows_group(group) or group == _FREE_NAMES:
        return
    for part in (target["name"], target["namespace"]):
        yield from check_object_name(part)


# --- can the conditions of a rule ever hold, given what their keys are?

_EQUALITIES = ("Equal", "Equals", "NotEqual", "NotEquals")
_ORDERS = ("GreaterThan", "GreaterThanOrEquals", "LessThan", "LessThanOrEquals")
# Far from all values in policies.
_EXTREMES = (-(10**18), 0, 10**18)


def _check_condition_types(rule: Field, scopes: Sequence[VariableScope]) -> Iterator[Finding]:
    """Comparisons with the same result for every object."""
    for conditions in list_rule_conditions(rule):
        for condition in list_conditions(conditions):
            yield from _check_condition(condition, scopes)


def _check_condition(condition: Field, scopes: Sequence[VariableScope]) -> Iterator[Finding]:
    value, operator = condition["value"], condition["operator"].text
    if operator not in OPERATORS or _is_filled_in(value):
        return
    if operator in _ORDERS and is_no_amount(value.text):
        return  # Reported where conditions are checked.
    types = _infer_key(condition["key"], scopes)
    if (
        not types
        or not is_known(types)
        or any(_may_hold(each, operator, value.value) for each in types)
    ):
        return
    message = f"the key is {describe_types(types)}: {operator} {_write(value.value)} never matches"
    yield flag("wrong-type", value.path, message + _advise(value.value, types))


def _is_filled_in(value: Field) -> bool:
    """Whether the value, or a part of it, depends on the request."""
    return value.value is None or any("{{" in leaf.text for leaf in value.leaves())


def _infer_key(key: Field, scopes: Sequence[VariableScope]) -> FieldTypes:
    """The types of a key that is one expression; others are arbitrary texts."""
    text = key.text.strip()
    expressions = list(list_expressions(key, is_query=False))
    is_whole = text.startswith("{{") and text.endswith("}}") and text.count("{{") == 1
    if not is_whole or len(expressions) != 1:
        return ()
    return infer_types(expressions[0][0], find_roots(key.path, scopes), are_variables=True)


def _may_hold(each: FieldType, operator: str, value: Json) -> bool:
    """Whether the result depends on the key; True in doubt, and for lists and objects."""
    if each.scalar is None or each.is_quantity:
        return True
    if each.scalar == {bool}:
        return _differs(operator, value, (True, False))
    if operator not in (*_EQUALITIES, *_ORDERS):
        return True
    if str in each.scalar:
        # Texts may be quantities, but are never booleans.
        return not isinstance(value, bool)
    return _differs(operator, value, (*_EXTREMES, *_read_numbers(value)))


def _differs(operator: str, value: Json, keys: tuple[Json, ...]) -> bool:
    holds = compile_operator_with(operator, value)
    # A list of all values may be intended.
    return len({holds(key) for key in keys}) > 1 or isinstance(value, list)


def _read_numbers(value: Json) -> list[Json]:
    number = parse_float(value) if isinstance(value, str) else value
    return [number] if isinstance(number, (int, float)) and not isinstance(number, bool) else []


def _write(value: Json) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return f'"{value}"' if isinstance(value, str) else str(value)


def _advise(value: Json, types: FieldTypes) -> str:
    """The correction if only the quotes are wrong."""
    scalars = [each.scalar or frozenset() for each in types]
    if isinstance(value, bool) and all(str in each for each in scalars):
        return f'; write "{_write(value)}", with quotes'
    if value in ("true", "false") and all(bool in each for each in scalars):
        return f"; write {value}, without quotes"
    return ""
