"""CustomResourceDefinition: defaults and validation."""

from collections.abc import Iterator

from lictor.addons.apiserver.field_checks import CheckedField
from lictor.addons.apiserver.json_fields import read_list, read_text
from lictor.addons.apiserver.name_rules import check_service_name, check_subdomain
from lictor.core.errors import SyntaxFaultError
from lictor.core.lang.regex import compile_regex
from lictor.core.raw import Json, JsonObject

# As long as it is there, a definition waits for the objects of its kind to go.
CLEANUP = "customresourcecleanup.apiextensions.k8s.io"


def set_definition_defaults(definition: JsonObject) -> None:
    """Names that follow from the kind, and the finalizer of the objects."""
    names = definition.setdefault("spec", {}).setdefault("names", {})
    kind = names.get("kind") or ""
    if kind and not names.get("singular"):
        names["singular"] = kind.lower()
    if kind and not names.get("listKind"):
        names["listKind"] = f"{kind}List"
    metadata = definition.setdefault("metadata", {})
    if "deletionTimestamp" not in metadata:
        finalizers = metadata.setdefault("finalizers", [])
        if CLEANUP not in finalizers:
            finalizers.append(CLEANUP)


_TYPES = ("array", "boolean", "integer", "number", "object", "string")
_APPROVAL = "api-approved.kubernetes.io"
_PROTECTED = (".k8s.io", ".kubernetes.io")


def check_names(definition: CheckedField) -> None:
    """The name follows from plural and group; some groups are protected."""
    spec, metadata = definition.at("spec"), definition.at("metadata")
    if metadata.text("name") != f"{spec.at('names').text('plural')}.{spec.text('group')}":
        why = 'must be spec.names.plural+"."+spec.group'
        metadata.invalid("name", why, metadata.text("name"))
    _check_group(spec, metadata)


def check_kind(names: CheckedField) -> None:
    """In lower case, a kind is a DNS label."""
    names.named("kind", check_service_name, names.text("kind").lower())


def _check_group(spec: CheckedField, metadata: CheckedField) -> None:
    group = spec.text("group")
    if not group:
        spec.required("group")
    elif "." not in group:
        spec.invalid("group", "should be a domain with at least one dot")
    spec.named("group", check_subdomain)
    protected = group.endswith(_PROTECTED) or group in ("k8s.io", "kubernetes.io")
    annotations = metadata.at("annotations")
    if protected and not annotations.get(_APPROVAL):
        why = (
            f'protected groups must have approval annotation "{_APPROVAL}", see '
            "https://github.com/kubernetes/enhancements/pull/1111"
        )
        annotations.entry(_APPROVAL).required("", why)


def check_versions(spec: CheckedField) -> None:
    """Names, schemas and the storage version."""
    versions = spec.items("versions")
    names = [version.text("name") for version in versions]
    # Rules that were accepted before may use functions that new ones may not use yet.
    stored = frozenset(_list_rules(spec.old))
    for index, version in enumerate(versions):
        version.named("name", check_service_name)
        schema = version.at("schema")
        if not isinstance(schema.get("openAPIV3Schema"), dict):
            schema.required("openAPIV3Schema")
        else:
            _check_schema(schema.at("openAPIV3Schema"), stored)
        if names[index] in names[:index]:
            spec.invalid("versions", "must contain unique version names", names)
    if sum(version.get("storage") is True for version in versions) != 1:
        why = "must have exactly one version marked as storage version"
        spec.invalid("versions", why, names)


def _list_rules(value: Json) -> Iterator[str]:
    """The texts of all rules in a definition."""
    if isinstance(value, dict):
        yield from (read_text(rule, "rule") for rule in read_list(value, _RULES))
        for inner in value.values():
            yield from _list_rules(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _list_rules(inner)


def _check_schema(schema: CheckedField, stored: frozenset[str]) -> None:
    found = schema.get("type") or ""
    if not found:
        schema.required("type", "must not be empty at the root")
    elif found != "object":
        schema.invalid("type", "must be object at the root")
    for part, kind in _walk(schema, ""):
        _check_part(part, kind)
        for rule in part.items(_RULES):
            _check_rule(rule, stored)


def _walk(schema: CheckedField, kind: str) -> Iterator[tuple[CheckedField, str]]:
    """All described places, and what they are: field, item or value."""
    yield schema, kind
    properties = schema.at("properties")
    for name in sorted(properties.value):
        if isinstance(properties.get(name), dict):
            # Written as in Kubernetes: properties[name].
            yield from _walk(properties.entry(name), "field")
    for field, inner in (("items", "item"), ("additionalProperties", "value")):
        if isinstance(schema.get(field), dict):
            yield from _walk(schema.at(field), inner)


_RULES = "x-kubernetes-validations"
_KINDS = {
    "field": "must not be empty for specified object fields",
    "item": "must not be empty for specified array items",
    "value": "must not be empty for specified object fields",
}


def _check_part(part: CheckedField, kind: str) -> None:
    found = part.text("type")
    is_open = (
        part.get("x-kubernetes-int-or-string") is True
        or part.get("x-kubernetes-preserve-unknown-fields") is True
    )
    if found and found not in _TYPES:
        part.unsupported("type", _TYPES)
    elif not found and kind and not is_open:
        part.required("type", _KINDS[kind])
    if found == "array" and "items" not in part.value:
        part.required("items", "must be specified")
    if part.get("x-kubernetes-list-type") == "map" and not part.get("x-kubernetes-list-map-keys"):
        why = "must not be empty if x-kubernetes-list-type is map"
        part.required("x-kubernetes-list-map-keys", why)
    if pattern := part.text("pattern"):
        try:
            compile_regex(pattern)
        except SyntaxFaultError as error:
            why = f"must be a valid regular expression, but isn't: {error}"
            part.invalid("pattern", why)


def _check_rule(rule: CheckedField, stored: frozenset[str]) -> None:
    if not rule.text("rule").strip():
        rule.required("rule", "rule is not specified")
        return
    # The CEL engine is slow to load, and most definitions have no rules.
    from lictor.addons.apiserver.schemas.cel_rules import compile_rule

    try:
        compile_rule(rule.value, is_stored=rule.text("rule") in stored)
    except SyntaxFaultError as error:
        rule.invalid("rule", f"compilation failed: {error}")
