"""Webhook configurations and admission policies."""

from urllib.parse import urlsplit

from lictor.addons.apiserver.field_checks import (
    PORTS,
    CheckedField,
    check_qualified,
    check_subdomain,
)
from lictor.addons.apiserver.json_fields import read_list, read_object, read_text
from lictor.addons.apiserver.kind import (
    WHOLE_METADATA,
    BuiltinResource,
    Defaults,
    Validate,
)
from lictor.addons.apiserver.table_columns import UNSET, TableColumns, build_columns
from lictor.core.errors import SyntaxFaultError
from lictor.core.raw import Json, JsonObject

_RULE_LISTS = ("resourceRules", "excludeResourceRules")


def _set_webhooks_defaults(configuration: JsonObject) -> None:
    for webhook in read_list(configuration, "webhooks"):
        webhook.setdefault("failurePolicy", "Fail")
        webhook.setdefault("timeoutSeconds", 10)
        if configuration.get("kind") == "MutatingWebhookConfiguration":
            webhook.setdefault("reinvocationPolicy", "Never")
        _set_match_defaults(webhook)
        _set_scopes_defaults(webhook, ("rules",))
        service = read_object(read_object(webhook, "clientConfig"), "service")
        if service:
            service.setdefault("port", 443)


def _set_admission_policy_defaults(policy: JsonObject) -> None:
    spec = policy.setdefault("spec", {})
    spec.setdefault("failurePolicy", "Fail")
    if policy.get("kind") == "ValidatingAdmissionPolicy":
        policy.setdefault("status", {})
    constraints = spec.get("matchConstraints")
    if constraints is not None:
        _set_match_defaults(constraints)
        _set_scopes_defaults(constraints, _RULE_LISTS)


def _set_policy_binding_defaults(binding: JsonObject) -> None:
    reference = read_object(read_object(binding, "spec"), "paramRef")
    if reference and binding.get("kind") == "MutatingAdmissionPolicyBinding":
        reference.setdefault("parameterNotFoundAction", "Deny")
    resources = read_object(binding, "spec").get("matchResources")
    if resources is not None:
        _set_match_defaults(resources)
        _set_scopes_defaults(resources, _RULE_LISTS)


def _set_match_defaults(holder: JsonObject) -> None:
    holder.setdefault("matchPolicy", "Equivalent")
    holder.setdefault("namespaceSelector", {})
    holder.setdefault("objectSelector", {})


def _set_scopes_defaults(holder: JsonObject, fields: tuple[str, ...]) -> None:
    for field in fields:
        for rule in read_list(holder, field):
            rule.setdefault("scope", "*")


_OPERATIONS = ("*", "CONNECT", "CREATE", "DELETE", "UPDATE")
_SCOPES = ("*", "Cluster", "Namespaced")
_REVIEWS = ("v1", "v1beta1")
_SIDE_EFFECTS = ("None", "NoneOnDryRun")
_POLICIES = ("Fail", "Ignore")
_MATCHES = ("Equivalent", "Exact")


def _validate_webhooks(configuration: CheckedField) -> None:
    for webhook in configuration.items("webhooks"):
        _check_webhook(webhook)
    configuration.unique_names("webhooks")


def _check_webhook(webhook: CheckedField) -> None:
    name = webhook.text("name")
    if not name:
        webhook.required("name")
    elif len(name.split(".")) < 3:
        why = "should be a domain with at least three segments separated by dots"
        webhook.invalid("name", why)
    webhook.named("name", check_subdomain)
    _check_rules(webhook, "rules")
    webhook.choice("failurePolicy", _POLICIES)
    webhook.choice("matchPolicy", _MATCHES)
    if not webhook.get("sideEffects"):
        webhook.required("sideEffects", f"must specify one of {', '.join(_SIDE_EFFECTS)}")
    webhook.choice("sideEffects", _SIDE_EFFECTS)
    seconds = webhook.get("timeoutSeconds")
    if isinstance(seconds, int) and not 1 <= seconds <= 30:
        why = "the timeout value must be between 1 and 30 seconds"
        webhook.invalid("timeoutSeconds", why)
    webhook.selector("namespaceSelector")
    webhook.selector("objectSelector")
    webhook.choice("reinvocationPolicy", ("IfNeeded", "Never"))
    _check_client(webhook.at("clientConfig"))
    versions = webhook.get("admissionReviewVersions")
    if not versions:
        why = f"must specify one of {', '.join(_REVIEWS)}"
        webhook.required("admissionReviewVersions", why)
    elif not set(versions) & set(_REVIEWS):
        why = f"must include at least one of {', '.join(_REVIEWS)}"
        webhook.invalid("admissionReviewVersions", why)
    _check_conditions(webhook)


def _check_client(client: CheckedField) -> None:
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


def _check_rules(holder: CheckedField, field: str) -> None:
    for rule in holder.items(field):
        rule.need("operations", "apiGroups", "apiVersions", "resources")
        for operation in rule.items("operations"):
            if operation.value not in _OPERATIONS:
                operation.unsupported("", _OPERATIONS)
        for name, words in (("apiGroups", "API groups"), ("apiVersions", "API versions")):
            values = rule.list(name)
            if "*" in values and len(values) > 1:
                rule.invalid(name, f"if '*' is present, must not specify other {words}")
        _check_resources(rule)
        rule.choice("scope", _SCOPES)


def _check_resources(rule: CheckedField) -> None:
    """What a wildcard includes must not be listed with it."""
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


def _check_conditions(holder: CheckedField) -> None:
    for condition in holder.items("matchConditions"):
        if not condition.text("expression"):
            condition.required("expression")
        else:
            _check_expression(condition)
        condition.need("name")
        condition.named("name", check_qualified)
    holder.unique_names("matchConditions")


def _check_expression(holder: CheckedField, variables: Json = None) -> None:
    """Does the expression compile, and is it true or false?"""
    # The CEL engine is slow to load, and most configurations have no expressions.
    from lictor.addons.apiserver.schemas.cel_rules import find_type

    try:
        found = find_type(holder.text("expression"), variables)
    except SyntaxFaultError as error:
        holder.invalid("expression", f"compilation failed: {error}")
        return
    # The types of variables are not always known.
    if found != "bool" and not (found == "dyn" and variables):
        holder.invalid("expression", f"must evaluate to bool but got {found}")


def _validate_validating_policy(policy: CheckedField) -> None:
    spec = policy.at("spec")
    _check_policy(spec)
    if not spec.list("validations") and not spec.get("auditAnnotations"):
        why = "validations or auditAnnotations must contain at least one item"
        spec.required("validations", why)
        spec.required("auditAnnotations", why)
    for validation in spec.items("validations"):
        if not validation.text("expression").strip():
            validation.required("expression", "expression is not specified")
        else:
            _check_expression(validation, spec.get("variables"))
        if "\n" in validation.text("message"):
            validation.invalid("message", "must not contain line breaks")


def _validate_mutating_policy(policy: CheckedField) -> None:
    spec = policy.at("spec")
    _check_policy(spec)
    if not spec.list("mutations"):
        spec.required("mutations", "mutations must contain at least one item")
    fields = {"ApplyConfiguration": "applyConfiguration", "JSONPatch": "jsonPatch"}
    for mutation in spec.items("mutations"):
        mutation.choice("patchType", sorted(fields))
        if mutation.get("patchType") in fields:
            mutation.at(fields[mutation.get("patchType")]).need("expression")
    if not spec.get("reinvocationPolicy"):
        spec.required("reinvocationPolicy")
    spec.choice("reinvocationPolicy", ("IfNeeded", "Never"))


def _check_policy(spec: CheckedField) -> None:
    spec.choice("failurePolicy", _POLICIES)
    if isinstance(spec.get("paramKind"), dict):
        kind = spec.at("paramKind")
        version = kind.text("apiVersion")
        if version.count("/") > 1:
            kind.invalid("apiVersion", f"unexpected GroupVersion string: {version}")
        kind.need("apiVersion", "kind")
    if not isinstance(spec.get("matchConstraints"), dict):
        spec.required("matchConstraints")
    else:
        spec.at("matchConstraints").need("resourceRules")
        _check_match(spec.at("matchConstraints"))
    _check_conditions(spec)


def _check_match(holder: CheckedField) -> None:
    holder.choice("matchPolicy", _MATCHES)
    holder.selector("namespaceSelector")
    holder.selector("objectSelector")
    for field in _RULE_LISTS:
        _check_rules(holder, field)


def _validate_policy_binding(binding: CheckedField) -> None:
    spec = binding.at("spec")
    spec.need("policyName")
    spec.named("policyName", check_subdomain)
    if isinstance(spec.get("matchResources"), dict):
        _check_match(spec.at("matchResources"))
    if binding.get("kind") == "ValidatingAdmissionPolicyBinding":
        _check_actions(spec)


def _check_actions(spec: CheckedField) -> None:
    actions = spec.list("validationActions")
    if not actions:
        spec.required("validationActions", "at least one validation action is required")
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


def _list_policy_cells(policy: JsonObject) -> list[Json]:
    spec = read_object(policy, "spec")
    entries = read_list(spec, "validations") or read_list(spec, "mutations")
    param = read_object(spec, "paramKind")
    detail = f"{read_text(param, 'apiVersion')}/{read_text(param, 'kind')}" if param else UNSET
    return [len(entries), detail]


def _list_policy_binding_cells(binding: JsonObject) -> list[Json]:
    param = read_object(read_object(binding, "spec"), "paramRef")
    if not param:
        return [UNSET]
    name, namespace = read_text(param, "name"), read_text(param, "namespace")
    return [f"{namespace or '*'}/{name or '*'}" if name or namespace else "*"]


WEBHOOKS = build_columns("Name | Webhooks:integer=#webhooks | Age")
VALIDATING_POLICY = build_columns(
    "Name | Validations:integer | ParamKind | Age", _list_policy_cells
)
MUTATING_POLICY = build_columns("Name | Mutations:integer | ParamKind | Age", _list_policy_cells)
POLICY_BINDING = build_columns(
    "Name | PolicyName=spec.policyName | ParamRef | Age", _list_policy_binding_cells
)


def _declare(
    kind: str, set_defaults: Defaults, validate: Validate, columns: TableColumns
) -> BuiltinResource:
    return BuiltinResource(
        "admissionregistration.k8s.io",
        kind,
        set_defaults=set_defaults,
        validate=validate,
        columns=columns,
        status_keeps=WHOLE_METADATA,
        counts_generations=True,
        needs_version=True,
    )


RESOURCES = (
    *(
        _declare(
            f"{kind}WebhookConfiguration", _set_webhooks_defaults, _validate_webhooks, WEBHOOKS
        )
        for kind in ("Mutating", "Validating")
    ),
    *(
        _declare(
            f"{kind}AdmissionPolicyBinding",
            _set_policy_binding_defaults,
            _validate_policy_binding,
            POLICY_BINDING,
        )
        for kind in ("Mutating", "Validating")
    ),
    _declare(
        "ValidatingAdmissionPolicy",
        _set_admission_policy_defaults,
        _validate_validating_policy,
        VALIDATING_POLICY,
    ),
    _declare(
        "MutatingAdmissionPolicy",
        _set_admission_policy_defaults,
        _validate_mutating_policy,
        MUTATING_POLICY,
    ),
)
