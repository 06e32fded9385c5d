"""What holds for a whole policy: name, scope, actions, webhooks, and settings that are gone."""

from collections.abc import Iterator

from lictor.lang.wildcard import has_wildcard, match_wildcard
from lictor.lint.catalog import flag
from lictor.lint.part import Part
from lictor.lint.rules import check_name
from lictor.load.fields import suggest
from lictor.model.finding import Finding

_ANNOTATION = "pod-policies.kyverno.io/autogen-controllers"
_CONTROLLERS = (
    "DaemonSet",
    "Deployment",
    "Job",
    "StatefulSet",
    "ReplicaSet",
    "ReplicationController",
    "CronJob",
)
_REPLACED = {
    "validationFailureAction": "failureAction of the rule (validate.failureAction)",
    "validationFailureActionOverrides": "validate.failureActionOverrides of the rule",
    "failurePolicy": "webhookConfiguration.failurePolicy",
    "webhookTimeoutSeconds": "webhookConfiguration.timeoutSeconds",
    "generateExisting": "generate.generateExisting of the rule",
    "mutateExistingOnPolicyUpdate": "mutate.mutateExistingOnPolicyUpdate of the rule",
    "schemaValidation": "nothing: it has no effect any more",
}


def check_metadata(policy: Part) -> Iterator[Finding]:
    """Name, namespace and annotations of a policy."""
    metadata = policy["metadata"]
    if metadata and not metadata["generateName"].text:
        yield from check_name(metadata["name"], "policy")
    if policy["kind"].text == "ClusterPolicy" and metadata["namespace"].text:
        message = "a ClusterPolicy belongs to no namespace: leave it out"
        yield flag("bad-scope", metadata["namespace"].path, message)
    yield from _check_controllers(metadata["annotations"][_ANNOTATION])


def _check_controllers(annotation: Part) -> Iterator[Finding]:
    if annotation.text == "all":
        message = '"all" is not taken any more: leave the annotation out'
        yield flag("bad-settings", annotation.path, message)
        return
    for name in annotation.text.split(",") if annotation.text not in ("", "none") else ():
        if name not in _CONTROLLERS:
            message = f'"{name}" is not a controller of pods; known are {", ".join(_CONTROLLERS)}'
            known = suggest(name.strip(), _CONTROLLERS)
            yield flag("unknown-controller", annotation.path, message, known)


def check_settings(policy: Part) -> Iterator[Finding]:
    """The fields of `spec` beside the rules."""
    spec = policy["spec"]
    yield from _check_replaced(spec)
    yield from _check_webhook(spec)
    yield from _check_modes(spec)
    yield from _check_overrides(spec["validationFailureActionOverrides"])
    for rule in spec["rules"].each():
        yield from _check_overrides(rule["validate"]["failureActionOverrides"])
    if policy["kind"].text == "Policy" and not spec["validationFailureActionOverrides"].is_empty:
        message = "actions by namespace are for ClusterPolicies only"
        yield flag("bad-scope", spec["validationFailureActionOverrides"].path, message)


def _check_replaced(spec: Part) -> Iterator[Finding]:
    for name, instead in _REPLACED.items():
        if spec[name]:
            yield flag("deprecated", spec[name].path, f"{name} is replaced by {instead}")
    gone = spec["generateExistingOnPolicyUpdate"]
    if gone:
        message = "generateExistingOnPolicyUpdate is refused: use generate.generateExisting"
        yield flag("bad-settings", gone.path, message, "generateExisting")


def _check_webhook(spec: Part) -> Iterator[Finding]:
    webhook = spec["webhookConfiguration"]
    for timeout in (spec["webhookTimeoutSeconds"], webhook["timeoutSeconds"]):
        if isinstance(timeout.value, int) and not 1 <= timeout.value <= 30:
            message = f"expected 1 to 30 seconds, found {timeout.value}"
            yield flag("bad-settings", timeout.path, message)
    pairs = (("webhookTimeoutSeconds", "timeoutSeconds"), ("failurePolicy", "failurePolicy"))
    for old, new in pairs:
        if spec[old] and webhook[new]:
            message = f"webhookConfiguration.{new} says the same: leave {old} out"
            yield flag("bad-settings", spec[old].path, message)


def _check_modes(spec: Part) -> Iterator[Finding]:
    if spec["admission"].value is not False:
        return
    if spec["background"].value is False:
        message = "neither admission nor background: the policy never does anything"
        yield flag("bad-settings", spec["admission"].path, message)
    changing = ("mutate", "generate", "verifyImages")
    if any(rule.present(*changing) for rule in spec["rules"].each()):
        message = "only policies that validate can do without admission"
        yield flag("bad-settings", spec["admission"].path, message)


def _check_overrides(overrides: Part) -> Iterator[Finding]:
    """Of two actions for one namespace nobody could say which counts."""
    seen: list[tuple[str, str]] = []
    for override in overrides.each():
        action = override["action"].text.lower()
        for namespace in override["namespaces"].each():
            clash = next((n for n, a in seen if a != action and _meet(n, namespace.text)), None)
            if clash is not None:
                message = f'"{namespace.text}" and "{clash}" meet, but have different actions'
                yield flag("bad-settings", namespace.path, message)
        seen.extend((namespace, action) for namespace in override["namespaces"].texts)


def _meet(left: str, right: str) -> bool:
    if not has_wildcard(left) and not has_wildcard(right):
        return left == right
    return match_wildcard(left, right) or match_wildcard(right, left)


def check_existing(policy: Part) -> Iterator[Finding]:
    """A rule that changes what exists must say what."""
    spec = policy["spec"]
    for rule in spec["rules"].each():
        mutate = rule["mutate"]
        own = mutate["mutateExistingOnPolicyUpdate"]
        wanted = own if own else spec["mutateExistingOnPolicyUpdate"]
        if mutate and wanted.is_true and mutate["targets"].is_empty:
            message = "mutateExistingOnPolicyUpdate needs targets: say which objects to change"
            yield flag("bad-mutate", mutate.path, message)


def check_target_namespaces(rule: Part, namespace: str | None) -> Iterator[Finding]:
    """A namespaced policy changes objects of its own namespace only."""
    for target in rule["mutate"]["targets"].each():
        text = target["namespace"].text
        if namespace and text and text != namespace:
            message = f'a policy of namespace "{namespace}" cannot reach "{text}"'
            yield flag("bad-scope", target["namespace"].path, message)
