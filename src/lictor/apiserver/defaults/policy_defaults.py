"""Defaults of what extends the API server: webhooks, admission policies, definitions of kinds."""

from lictor.apiserver.object_reader import read_list, read_object
from lictor.raw import JsonObject

# As long as it is there, a definition waits for the objects of its kind to go.
CLEANUP = "customresourcecleanup.apiextensions.k8s.io"
_RULE_LISTS = ("resourceRules", "excludeResourceRules")


def complete_webhooks(configuration: JsonObject) -> None:
    """A MutatingWebhookConfiguration or a ValidatingWebhookConfiguration."""
    for webhook in read_list(configuration, "webhooks"):
        webhook.setdefault("failurePolicy", "Fail")
        webhook.setdefault("timeoutSeconds", 10)
        if configuration.get("kind") == "MutatingWebhookConfiguration":
            webhook.setdefault("reinvocationPolicy", "Never")
        _complete_match(webhook)
        _complete_scopes(webhook, ("rules",))
        service = read_object(read_object(webhook, "clientConfig"), "service")
        if service:
            service.setdefault("port", 443)


def complete_admission_policy(policy: JsonObject) -> None:
    """A ValidatingAdmissionPolicy or a MutatingAdmissionPolicy."""
    spec = policy.setdefault("spec", {})
    spec.setdefault("failurePolicy", "Fail")
    if policy.get("kind") == "ValidatingAdmissionPolicy":
        policy.setdefault("status", {})
    constraints = spec.get("matchConstraints")
    if constraints is not None:
        _complete_match(constraints)
        _complete_scopes(constraints, _RULE_LISTS)


def complete_policy_binding(binding: JsonObject) -> None:
    """The binding of an admission policy."""
    reference = read_object(read_object(binding, "spec"), "paramRef")
    if reference and binding.get("kind") == "MutatingAdmissionPolicyBinding":
        reference.setdefault("parameterNotFoundAction", "Deny")
    resources = read_object(binding, "spec").get("matchResources")
    if resources is not None:
        _complete_match(resources)
        _complete_scopes(resources, _RULE_LISTS)


def _complete_match(holder: JsonObject) -> None:
    holder.setdefault("matchPolicy", "Equivalent")
    holder.setdefault("namespaceSelector", {})
    holder.setdefault("objectSelector", {})


def _complete_scopes(holder: JsonObject, fields: tuple[str, ...]) -> None:
    for field in fields:
        for rule in read_list(holder, field):
            rule.setdefault("scope", "*")


def complete_definition(definition: JsonObject) -> None:
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
