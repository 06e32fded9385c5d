"""Webhook configurations and admission policies."""

from urllib.parse import urlsplit

from lictor.addons.apiserver.field_checks import PORTS, CheckedField
from lictor.addons.apiserver.field_errors import too_many
from lictor.addons.apiserver.json_fields import read_list, read_object, read_text
from lictor.addons.apiserver.table_columns import UNSET
from lictor.core.errors import SyntaxFaultError
from lictor.core.raw import Json, JsonObject

_MUTATING_OPERATIONS = ("*", "CONNECT", "CREATE", "UPDATE")
_MAX_CONDITIONS = 64
# By patch type: the field, and the type of its expression.
_PATCHES = {
    "ApplyConfiguration": ("applyConfiguration", "Object"),
    "JSONPatch": ("jsonPatch", "list(JSONPatch)"),
}
_STATIC = ".static.k8s.io"
_REVIEWS = ("v1", "v1beta1")


def check_webhook_name(webhook: CheckedField) -> None:
    """A name has three parts."""
    name = webhook.text("name")
    if name and len(name.split(".")) < 3:
        why = "should be a domain with at least three segments separated by dots"
        webhook.invalid("name", why)


def check_review_versions(webhook: CheckedField) -> None:
    """One of the versions of AdmissionReview that the server knows."""
    versions = webhook.get("admissionReviewVersions")
    if not versions:
        why = f"must specify one of {', '.join(_REVIEWS)}"
        webhook.required("admissionReviewVersions", why)
    elif not set(versions) & set(_REVIEWS):
        why = f"must include at least one of {', '.join(_REVIEWS)}"
        webhook.invalid("admissionReviewVersions", why)


def check_client(client: CheckedField) -> None:
    """A URL or a Service."""
    url, service = client.get("url"), client.at("service")
    has_service = isinstance(client.get("service"), dict)
    if (url is None) == (client.get("service") is None):
        client.required("", "exactly one of url or service is required")
    if isinstance(url, str):
        parts, form = urlsplit(url), "desired format: https://host[/path]"
        if parts.scheme != "https":
            why = f"'https' is the only allowed URL scheme; {form}"
            client.invalid("url", why, parts.scheme)
        if not parts.hostname:
            client.invalid("url", f"host must be specified; {form}", parts.hostname or "")
    if has_service:
        service.need("name", "namespace")
        port = service.get("port")
        if isinstance(port, int) and port not in PORTS:
            why = "port is not valid: must be between 1 and 65535, inclusive"
            service.invalid("port", why)
        if service.text("path") and not service.text("path").startswith("/"):
            service.invalid("path", "must start with a '/'")


def check_rule(rule: CheckedField) -> None:
    """What a wildcard includes must not be listed with it."""
    lists = {"operations": "operations", "apiGroups": "API groups", "apiVersions": "API versions"}
    for name, words in lists.items():
        values = rule.list(name)
        if "*" in values and len(values) > 1:
            rule.invalid(name, f"if '*' is present, must not specify other {words}")
    named = {str(each) for each in rule.list("resources")}
    if "*/*" in named and len(named) > 1:
        rule.invalid("resources", "if '*/*' is present, must not specify other resources")
    if "*" in named and any("/" not in each for each in named - {"*"}):
        why = "if '*' is present, must not specify other resources without subresources"
        rule.invalid("resources", why)
    for each in sorted(named):
        resource, _, part = each.partition("/")
        if part == "*" and resource != "*":
            for other in sorted(named - {each}):
                if other.startswith(f"{resource}/"):
                    why = f"if '{each}' is present, must not specify {other}"
                    rule.invalid("resources", why)


def check_static_name(configuration: CheckedField) -> None:
    """Some names belong to what a server reads from files; only creation is refused."""
    metadata = configuration.at("metadata")
    if configuration.old is None and metadata.text("name").endswith(_STATIC):
        why = (
            f'names ending with "{_STATIC}" are reserved for static manifest-based '
            "configurations and cannot be managed via the API"
        )
        metadata.invalid("name", why)


def check_webhook_conditions(configuration: CheckedField) -> None:
    """The match conditions of all webhooks."""
    stored = _list_stored(*read_list(configuration.old or {}, "webhooks"))
    for webhook in configuration.items("webhooks"):
        _check_conditions(webhook, stored)


def check_match_conditions(spec: CheckedField) -> None:
    """The match conditions of a policy."""
    _check_conditions(spec, _list_stored(spec.old or {}))


def _list_stored(*holders: JsonObject) -> frozenset[str]:
    """The expressions of accepted objects; they may use functions that new ones may not use yet."""
    return frozenset(
        read_text(each, "expression")
        for holder in holders
        for field in ("matchConditions", "validations")
        for each in read_list(holder, field)
    )


def _check_conditions(holder: CheckedField, stored: frozenset[str]) -> None:
    count = len(holder.list("matchConditions"))
    if count > _MAX_CONDITIONS:
        holder.add(too_many(f"{holder.path}.matchConditions", count, _MAX_CONDITIONS))
    for condition in holder.items("matchConditions"):
        if condition.text("expression"):
            _check_expression(condition, stored)


def check_operations(spec: CheckedField) -> None:
    """Mutating policies do not see deletions."""
    path = "matchConstraints.resourceRules.operations"
    for rule in spec.at("matchConstraints").list("resourceRules"):
        for operation in read_list(rule, "operations"):
            if operation not in _MUTATING_OPERATIONS:
                spec.unsupported(path, _MUTATING_OPERATIONS, operation)


def check_mutations(spec: CheckedField) -> None:
    """The expressions of a mutating policy."""
    stored = frozenset(
        read_text(read_object(each, field), "expression")
        for each in read_list(spec.old or {}, "mutations")
        for field, _ in _PATCHES.values()
    )
    for mutation in spec.items("mutations"):
        field, wanted = _PATCHES.get(mutation.text("patchType"), ("", ""))
        if field and mutation.at(field).text("expression"):
            _check_expression(mutation.at(field), stored, spec.get("variables"), wanted)


def _check_expression(
    holder: CheckedField, stored: frozenset[str], variables: Json = None, wanted: str = "bool"
) -> None:
    """Does the expression compile, and is it of the type?"""
    # The CEL engine is slow to load, and most configurations have no expressions.
    from lictor.addons.apiserver.schemas.cel_rules import find_type

    try:
        text = holder.text("expression")
        has_patches = wanted != "bool"
        found = find_type(text, variables, is_stored=text in stored, has_patches=has_patches)
    except SyntaxFaultError as error:
        holder.invalid("expression", f"compilation failed: {error}")
        return
    # The types of variables are not always known.
    if found != wanted and not (found == "dyn" and variables):
        holder.invalid("expression", f"must evaluate to {wanted} but got {found}")


def check_validations(spec: CheckedField) -> None:
    """The validations of a policy, or its audit annotations."""
    if not spec.list("validations") and not spec.get("auditAnnotations"):
        why = "validations or auditAnnotations must contain at least one item"
        spec.required("validations", why)
        spec.required("auditAnnotations", why)
    stored = _list_stored(spec.old or {})
    for validation in spec.items("validations"):
        if not validation.text("expression").strip():
            validation.required("expression", "expression is not specified")
        else:
            _check_expression(validation, stored, spec.get("variables"))
        if "\n" in validation.text("message"):
            validation.invalid("message", "must not contain line breaks")


def check_param_version(kind: CheckedField) -> None:
    """The apiVersion of the parameters of a policy."""
    version = kind.text("apiVersion")
    if version.count("/") > 1:
        kind.invalid("apiVersion", f"unexpected GroupVersion string: {version}")


def check_constraints(spec: CheckedField) -> None:
    """A policy selects requests."""
    if not isinstance(spec.get("matchConstraints"), dict):
        spec.required("matchConstraints")


def check_actions(spec: CheckedField) -> None:
    """The actions of a binding."""
    actions = spec.list("validationActions")
    for index, action in enumerate(spec.items("validationActions")):
        if action.value not in ("Audit", "Deny", "Warn"):
            action.unsupported("", ("Audit", "Deny", "Warn"))
        if action.value in actions[:index]:
            action.duplicate("")
    if {"Deny", "Warn"} <= set(actions):
        why = (
            "must not contain both Deny and Warn (repeating the same validation failure "
            "information in the API response and headers serves no purpose)"
        )
        spec.invalid("validationActions", why)


def list_policy_binding_cells(binding: JsonObject) -> list[Json]:
    """The parameters."""
    param = read_object(read_object(binding, "spec"), "paramRef")
    if not param:
        return [UNSET]
    name, namespace = read_text(param, "name"), read_text(param, "namespace")
    return [f"{namespace or '*'}/{name or '*'}" if name or namespace else "*"]
