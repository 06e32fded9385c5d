"""Webhook configurations and admission policies."""

from urllib.parse import urlsplit

from lictor.addons.apiserver.field_errors import Say, duplicate, invalid, required, unsupported
from lictor.addons.apiserver.json_fields import read_list, read_object, read_text
from lictor.addons.apiserver.resources.columns import UNSET, TableColumns, build_columns
from lictor.addons.apiserver.resources.registry import (
    WHOLE_METADATA,
    BuiltinResource,
    Defaults,
    Validate,
)
from lictor.addons.apiserver.resources.validation import (
    check_choice,
    check_named,
    check_qualified,
    check_selector,
    check_subdomain,
    check_unique,
    need,
)
from lictor.core.errors import SyntaxFaultError
from lictor.core.raw import Json, JsonObject

_RULE_LISTS = ("resourceRules", "excludeResourceRules")


def set_webhooks_defaults(configuration: JsonObject) -> None:
    """A MutatingWebhookConfiguration or a ValidatingWebhookConfiguration."""
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


def set_admission_policy_defaults(policy: JsonObject) -> None:
    """A ValidatingAdmissionPolicy or a MutatingAdmissionPolicy."""
    spec = policy.setdefault("spec", {})
    spec.setdefault("failurePolicy", "Fail")
    if policy.get("kind") == "ValidatingAdmissionPolicy":
        policy.setdefault("status", {})
    constraints = spec.get("matchConstraints")
    if constraints is not None:
        _set_match_defaults(constraints)
        _set_scopes_defaults(constraints, _RULE_LISTS)


def set_policy_binding_defaults(binding: JsonObject) -> None:
    """The binding of an admission policy."""
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


def validate_webhooks(configuration: JsonObject, old: JsonObject | None, say: Say) -> None:
    """A MutatingWebhookConfiguration or a ValidatingWebhookConfiguration."""
    del old
    webhooks = read_list(configuration, "webhooks")
    for index, webhook in enumerate(webhooks):
        _check_webhook(webhook, f"webhooks[{index}]", say)
    check_unique((read_text(each, "name") for each in webhooks), "webhooks", "name", say)


def _check_webhook(webhook: JsonObject, path: str, say: Say) -> None:
    name = read_text(webhook, "name")
    if not name:
        say(required(f"{path}.name"))
    elif len(name.split(".")) < 3:
        told = "should be a domain with at least three segments separated by dots"
        say(invalid(f"{path}.name", name, told))
    check_named(name, check_subdomain, f"{path}.name", say)
    _check_rules(read_list(webhook, "rules"), f"{path}.rules", say)
    check_choice(webhook.get("failurePolicy"), _POLICIES, f"{path}.failurePolicy", say)
    check_choice(webhook.get("matchPolicy"), _MATCHES, f"{path}.matchPolicy", say)
    if not webhook.get("sideEffects"):
        told = f"must specify one of {', '.join(_SIDE_EFFECTS)}"
        say(required(f"{path}.sideEffects", told))
    check_choice(webhook.get("sideEffects"), _SIDE_EFFECTS, f"{path}.sideEffects", say)
    seconds = webhook.get("timeoutSeconds")
    if isinstance(seconds, int) and not 1 <= seconds <= 30:
        told = "the timeout value must be between 1 and 30 seconds"
        say(invalid(f"{path}.timeoutSeconds", seconds, told))
    for field in ("namespaceSelector", "objectSelector"):
        check_selector(webhook.get(field), f"{path}.{field}", say)
    reinvoked = webhook.get("reinvocationPolicy")
    check_choice(reinvoked, ("IfNeeded", "Never"), f"{path}.reinvocationPolicy", say)
    _check_client(read_object(webhook, "clientConfig"), f"{path}.clientConfig", say)
    _check_reviews(webhook.get("admissionReviewVersions"), f"{path}.admissionReviewVersions", say)
    _check_conditions(read_list(webhook, "matchConditions"), f"{path}.matchConditions", say)


def _check_client(client: JsonObject, path: str, say: Say) -> None:
    url, service = client.get("url"), client.get("service")
    if (url is None) == (service is None):
        say(required(path, "exactly one of url or service is required"))
    if isinstance(url, str):
        parts = urlsplit(url)
        if parts.scheme != "https":
            told = "'https' is the only allowed URL scheme; desired format: https://host[/path]"
            say(invalid(f"{path}.url", parts.scheme, told))
        if not parts.hostname:
            told = "host must be specified; desired format: https://host[/path]"
            say(invalid(f"{path}.url", parts.hostname or "", told))
    if isinstance(service, dict):
        need(service, ("name", "namespace"), f"{path}.service", say)
        _check_service(service, f"{path}.service", say)


def _check_service(service: JsonObject, path: str, say: Say) -> None:
    port, place = service.get("port"), read_text(service, "path")
    if isinstance(port, int) and not 1 <= port <= 65_535:
        told = "port is not valid: must be between 1 and 65535, inclusive"
        say(invalid(f"{path}.port", port, told))
    if place and not place.startswith("/"):
        say(invalid(f"{path}.path", place, "must start with a '/'"))


def _check_reviews(versions: Json, path: str, say: Say) -> None:
    if not versions:
        say(required(path, f"must specify one of {', '.join(_REVIEWS)}"))
    elif not set(versions) & set(_REVIEWS):
        told = f"must include at least one of {', '.join(_REVIEWS)}"
        say(invalid(path, versions, told))


def _check_rules(rules: list[Json], path: str, say: Say) -> None:
    for index, rule in enumerate(rules):
        place = f"{path}[{index}]"
        need(rule, ("operations", "apiGroups", "apiVersions", "resources"), place, say)
        for number, operation in enumerate(read_list(rule, "operations")):
            if operation not in _OPERATIONS:
                say(unsupported(f"{place}.operations[{number}]", operation, _OPERATIONS))
        for field, words in (("apiGroups", "API groups"), ("apiVersions", "API versions")):
            values = read_list(rule, field)
            if "*" in values and len(values) > 1:
                told = f"if '*' is present, must not specify other {words}"
                say(invalid(f"{place}.{field}", values, told))
        _check_resources(read_list(rule, "resources"), f"{place}.resources", say)
        check_choice(rule.get("scope"), _SCOPES, f"{place}.scope", say)


def _check_resources(resources: list[Json], path: str, say: Say) -> None:
    """What a wildcard means already must not be named beside it."""
    named = {str(each) for each in resources}
    if "*/*" in named and len(named) > 1:
        say(invalid(path, resources, "if '*/*' is present, must not specify other resources"))
    if "*" in named and any("/" not in each for each in named - {"*"}):
        told = "if '*' is present, must not specify other resources without subresources"
        say(invalid(path, resources, told))
    for each in sorted(named):
        resource, _, part = each.partition("/")
        if part == "*" and resource != "*":
            for other in sorted(named - {each}):
                if other.startswith(f"{resource}/"):
                    told = f"if '{each}' is present, must not specify {other}"
                    say(invalid(path, resources, told))


def _check_conditions(conditions: list[Json], path: str, say: Say) -> None:
    for index, condition in enumerate(conditions):
        place = f"{path}[{index}]"
        text = read_text(condition, "expression")
        if not text:
            say(required(f"{place}.expression"))
        else:
            _check_expression(text, f"{place}.expression", say)
        need(condition, ("name",), place, say)
        check_named(condition.get("name"), check_qualified, f"{place}.name", say)
    check_unique((read_text(each, "name") for each in conditions), path, "name", say)


def _check_expression(text: str, path: str, say: Say, variables: Json = None) -> None:
    """Does it parse, and is it true or false?"""
    # The engine takes a while to load, and most configurations have no expressions.
    from lictor.addons.apiserver.kinds.cel_rules import find_type

    try:
        found = find_type(text, variables)
    except SyntaxFaultError as error:
        say(invalid(path, text, f"compilation failed: {error}"))
        return
    # What a variable is may be known better by others.
    if found != "bool" and not (found == "dyn" and variables):
        say(invalid(path, text, f"must evaluate to bool but got {found}"))


def validate_validating_policy(policy: JsonObject, old: JsonObject | None, say: Say) -> None:
    """A ValidatingAdmissionPolicy."""
    del old
    spec = read_object(policy, "spec")
    _check_policy(spec, say)
    validations = read_list(spec, "validations")
    if not validations and not spec.get("auditAnnotations"):
        told = "validations or auditAnnotations must contain at least one item"
        say(required("spec.validations", told))
        say(required("spec.auditAnnotations", told))
    for index, validation in enumerate(validations):
        place = f"spec.validations[{index}]"
        text, message = read_text(validation, "expression"), validation.get("message")
        if not text.strip():
            say(required(f"{place}.expression", "expression is not specified"))
        else:
            _check_expression(text, f"{place}.expression", say, spec.get("variables"))
        if isinstance(message, str) and "\n" in message:
            say(invalid(f"{place}.message", message, "must not contain line breaks"))


def validate_mutating_policy(policy: JsonObject, old: JsonObject | None, say: Say) -> None:
    """A MutatingAdmissionPolicy."""
    del old
    spec = read_object(policy, "spec")
    _check_policy(spec, say)
    mutations = read_list(spec, "mutations")
    if not mutations:
        say(required("spec.mutations", "mutations must contain at least one item"))
    fields = {"ApplyConfiguration": "applyConfiguration", "JSONPatch": "jsonPatch"}
    for index, mutation in enumerate(mutations):
        place = f"spec.mutations[{index}]"
        kind = mutation.get("patchType")
        check_choice(kind, sorted(fields), f"{place}.patchType", say)
        if kind in fields:
            inner = read_object(mutation, fields[kind])
            need(inner, ("expression",), f"{place}.{fields[kind]}", say)
    if not spec.get("reinvocationPolicy"):
        say(required("spec.reinvocationPolicy"))
    reinvoked = spec.get("reinvocationPolicy")
    check_choice(reinvoked, ("IfNeeded", "Never"), "spec.reinvocationPolicy", say)


def _check_policy(spec: JsonObject, say: Say) -> None:
    check_choice(spec.get("failurePolicy"), _POLICIES, "spec.failurePolicy", say)
    kind = spec.get("paramKind")
    if isinstance(kind, dict):
        version = read_text(kind, "apiVersion")
        if version.count("/") > 1:
            told = f"unexpected GroupVersion string: {version}"
            say(invalid("spec.paramKind.apiVersion", version, told))
        need(kind, ("apiVersion", "kind"), "spec.paramKind", say)
    constraints = spec.get("matchConstraints")
    if not isinstance(constraints, dict):
        say(required("spec.matchConstraints"))
    else:
        need(constraints, ("resourceRules",), "spec.matchConstraints", say)
        _check_match(constraints, "spec.matchConstraints", say)
    _check_conditions(read_list(spec, "matchConditions"), "spec.matchConditions", say)


def _check_match(holder: JsonObject, path: str, say: Say) -> None:
    check_choice(holder.get("matchPolicy"), _MATCHES, f"{path}.matchPolicy", say)
    for field in ("namespaceSelector", "objectSelector"):
        check_selector(holder.get(field), f"{path}.{field}", say)
    for field in ("resourceRules", "excludeResourceRules"):
        _check_rules(read_list(holder, field), f"{path}.{field}", say)


def validate_policy_binding(binding: JsonObject, old: JsonObject | None, say: Say) -> None:
    """The binding of an admission policy."""
    del old
    spec = read_object(binding, "spec")
    need(spec, ("policyName",), "spec", say)
    check_named(spec.get("policyName"), check_subdomain, "spec.policyName", say)
    if isinstance(resources := spec.get("matchResources"), dict):
        _check_match(resources, "spec.matchResources", say)
    if binding.get("kind") == "ValidatingAdmissionPolicyBinding":
        _check_actions(spec, say)


def _check_actions(spec: JsonObject, say: Say) -> None:
    path = "spec.validationActions"
    actions = read_list(spec, "validationActions")
    if not actions:
        say(required(path, "at least one validation action is required"))
    for index, action in enumerate(actions):
        if action not in ("Audit", "Deny", "Warn"):
            say(unsupported(f"{path}[{index}]", action, ("Audit", "Deny", "Warn")))
        if action in actions[:index]:
            say(duplicate(f"{path}[{index}]", action))
    if {"Deny", "Warn"} <= set(actions):
        told = (
            "must not contain both Deny and Warn (repeating the same validation failure "
            "information in the API response and headers serves no purpose)"
        )
        say(invalid(path, actions, told))


def _list_webhooks_cells(configuration: JsonObject) -> list[Json]:
    return [len(read_list(configuration, "webhooks"))]


def _list_policy_cells(policy: JsonObject) -> list[Json]:
    spec = read_object(policy, "spec")
    entries = read_list(spec, "validations") or read_list(spec, "mutations")
    param = read_object(spec, "paramKind")
    told = f"{read_text(param, 'apiVersion')}/{read_text(param, 'kind')}" if param else UNSET
    return [len(entries), told]


def _list_policy_binding_cells(binding: JsonObject) -> list[Json]:
    param = read_object(read_object(binding, "spec"), "paramRef")
    if not param:
        return [UNSET]
    name, namespace = read_text(param, "name"), read_text(param, "namespace")
    return [f"{namespace or '*'}/{name or '*'}" if name or namespace else "*"]


WEBHOOKS = build_columns("Name | Webhooks:integer | Age", _list_webhooks_cells)
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
        _declare(f"{kind}WebhookConfiguration", set_webhooks_defaults, validate_webhooks, WEBHOOKS)
        for kind in ("Mutating", "Validating")
    ),
    *(
        _declare(
            f"{kind}AdmissionPolicyBinding",
            set_policy_binding_defaults,
            validate_policy_binding,
            POLICY_BINDING,
        )
        for kind in ("Mutating", "Validating")
    ),
    _declare(
        "ValidatingAdmissionPolicy",
        set_admission_policy_defaults,
        validate_validating_policy,
        VALIDATING_POLICY,
    ),
    _declare(
        "MutatingAdmissionPolicy",
        set_admission_policy_defaults,
        validate_mutating_policy,
        MUTATING_POLICY,
    ),
)
