"""CustomResourceDefinition: defaults and validation."""

from collections.abc import Iterator

from lictor.addons.apiserver.field_errors import Say, invalid, required, unsupported
from lictor.addons.apiserver.json_fields import read_list, read_object, read_text
from lictor.addons.apiserver.resources.registry import BuiltinResource
from lictor.addons.apiserver.resources.validation import (
    check_choice,
    check_named,
    check_same,
    check_service_name,
    check_subdomain,
    need,
)
from lictor.core.errors import SyntaxFaultError
from lictor.core.lang.regex import compile_regex
from lictor.core.raw import Json, JsonObject

# As long as it is there, a definition waits for the objects of its kind to go.
CLEANUP = "customresourcecleanup.apiextensions.k8s.io"


def set_definition_defaults(definition: JsonObject) -> None:
    """A CustomResourceDefinition."""
    spec = definition.setdefault("spec", {})
    names = spec.setdefault("names", {})
    kind = names.get("kind") or ""
    if kind and not names.get("singular"):
        names["singular"] = kind.lower()
    if kind and not names.get("listKind"):
        names["listKind"] = f"{kind}List"
    conversion = spec.setdefault("conversion", {})
    if not conversion.get("strategy"):
        conversion["strategy"] = "None"
    metadata = definition.setdefault("metadata", {})
    if "deletionTimestamp" not in metadata:
        finalizers = metadata.setdefault("finalizers", [])
        if CLEANUP not in finalizers:
            finalizers.append(CLEANUP)
    client = read_object(read_object(conversion, "webhook"), "clientConfig")
    service = read_object(client, "service")
    if service:
        service.setdefault("port", 443)


_TYPES = ("array", "boolean", "integer", "number", "object", "string")
_APPROVAL = "api-approved.kubernetes.io"
_PROTECTED = (".k8s.io", ".kubernetes.io")


def validate_definition(definition: JsonObject, old: JsonObject | None, say: Say) -> None:
    """A CustomResourceDefinition."""
    spec = read_object(definition, "spec")
    names, group = read_object(spec, "names"), read_text(spec, "group")
    metadata = read_object(definition, "metadata")
    name = read_text(metadata, "name")
    if name != f"{read_text(names, 'plural')}.{group}":
        say(invalid("metadata.name", name, 'must be spec.names.plural+"."+spec.group'))
    _check_group(group, metadata, say)
    check_choice(spec.get("scope"), ("Cluster", "Namespaced"), "spec.scope", say)
    need(spec, ("scope",), "spec", say)
    need(names, ("plural", "kind"), "spec.names", say)
    check_named(names.get("plural"), check_service_name, "spec.names.plural", say)
    check_named(read_text(names, "kind").lower(), check_service_name, "spec.names.kind", say)
    _check_versions(read_list(spec, "versions"), say)
    if old is not None:
        _check_change(spec, read_object(old, "spec"), say)


def _check_group(group: str, metadata: JsonObject, say: Say) -> None:
    if not group:
        say(required("spec.group"))
    elif "." not in group:
        say(invalid("spec.group", group, "should be a domain with at least one dot"))
    check_named(group, check_subdomain, "spec.group", say)
    protected = group.endswith(_PROTECTED) or group in ("k8s.io", "kubernetes.io")
    if protected and not read_object(metadata, "annotations").get(_APPROVAL):
        told = (
            f'protected groups must have approval annotation "{_APPROVAL}", see '
            "https://github.com/kubernetes/enhancements/pull/1111"
        )
        say(required(f"metadata.annotations[{_APPROVAL}]", told))


def _check_change(spec: JsonObject, before: JsonObject, say: Say) -> None:
    check_same(spec, before, ("scope",), "spec", say)
    names, earlier = read_object(spec, "names"), read_object(before, "names")
    check_same(names, earlier, ("kind",), "spec.names", say)
    check_same(spec, before, ("group",), "spec", say)
    check_same(names, earlier, ("plural",), "spec.names", say)


def _check_versions(versions: list[Json], say: Say) -> None:
    seen: set[str] = set()
    for index, version in enumerate(versions):
        path, name = f"spec.versions[{index}]", read_text(version, "name")
        check_named(name, check_service_name, f"{path}.name", say)
        schema = read_object(version, "schema").get("openAPIV3Schema")
        if not isinstance(schema, dict):
            say(required(f"{path}.schema.openAPIV3Schema"))
        else:
            _check_schema(schema, f"{path}.schema.openAPIV3Schema", say)
        if name in seen:
            shown = [read_text(each, "name") for each in versions]
            say(invalid("spec.versions", shown, "must contain unique version names"))
        seen.add(name)
    stored = [each for each in versions if each.get("storage") is True]
    if len(stored) != 1:
        shown = [read_text(each, "name") for each in versions]
        say(
            invalid(
                "spec.versions", shown, "must have exactly one version marked as storage version"
            )
        )


def _check_schema(schema: JsonObject, path: str, say: Say) -> None:
    if schema.get("type") != "object":
        told = schema.get("type") or ""
        if told:
            say(invalid(f"{path}.type", told, "must be object at the root"))
        else:
            say(required(f"{path}.type", "must not be empty at the root"))
    for place, part, kind in _walk(schema, path, ""):
        _check_part(part, place, kind, say)


def _walk(schema: JsonObject, path: str, kind: str) -> Iterator[tuple[str, JsonObject, str]]:
    """All places where something is described, and what they are: field, item or value."""
    yield path, schema, kind
    for name, inner in sorted(read_object(schema, "properties").items()):
        if isinstance(inner, dict):
            yield from _walk(inner, f"{path}.properties[{name}]", "field")
    if isinstance(items := schema.get("items"), dict):
        yield from _walk(items, f"{path}.items", "item")
    if isinstance(values := schema.get("additionalProperties"), dict):
        yield from _walk(values, f"{path}.additionalProperties", "value")


_KINDS = {
    "field": "must not be empty for specified object fields",
    "item": "must not be empty for specified array items",
    "value": "must not be empty for specified object fields",
}


def _check_part(part: JsonObject, path: str, kind: str, say: Say) -> None:
    found = read_text(part, "type")
    is_open = (
        part.get("x-kubernetes-int-or-string") is True
        or part.get("x-kubernetes-preserve-unknown-fields") is True
    )
    if found and found not in _TYPES:
        say(unsupported(f"{path}.type", found, _TYPES))
    elif not found and kind and not is_open:
        say(required(f"{path}.type", _KINDS[kind]))
    if found == "array" and "items" not in part:
        say(required(f"{path}.items", "must be specified"))
    if part.get("x-kubernetes-list-type") == "map" and not part.get("x-kubernetes-list-map-keys"):
        told = "must not be empty if x-kubernetes-list-type is map"
        say(required(f"{path}.x-kubernetes-list-map-keys", told))
    if pattern := read_text(part, "pattern"):
        _check_pattern(pattern, f"{path}.pattern", say)
    for index, rule in enumerate(read_list(part, "x-kubernetes-validations")):
        _check_rule(rule, f"{path}.x-kubernetes-validations[{index}]", say)


def _check_pattern(pattern: str, path: str, say: Say) -> None:
    try:
        compile_regex(pattern)
    except SyntaxFaultError as error:
        say(invalid(path, pattern, f"must be a valid regular expression, but isn't: {error}"))


def _check_rule(rule: JsonObject, path: str, say: Say) -> None:
    if not read_text(rule, "rule").strip():
        say(required(f"{path}.rule", "rule is not specified"))
        return
    # The engine of rules takes a while to load: only who has rules needs it.
    from lictor.addons.apiserver.kinds.cel_rules import compile_rule

    try:
        compile_rule(rule)
    except SyntaxFaultError as error:
        say(invalid(f"{path}.rule", rule["rule"], f"compilation failed: {error}"))


RESOURCES = (
    BuiltinResource(
        "apiextensions.k8s.io",
        "CustomResourceDefinition",
        set_defaults=set_definition_defaults,
        validate=validate_definition,
        takes_any_finalizer=True,
        counts_generations=True,
        needs_version=True,
        empty_object={"spec": {"names": {}}},
    ),
)
