"""Policies of every rule type, exceptions from them, and cleanup policies."""

from lictor.core.raw import Json
from strategies.expressions import expression, maybe_template, template
from strategies.json_values import mapping, spoil, text, value
from strategies.patterns import assertion, conditions, json_patch_text, overlay, resource_pattern
from strategies.resources import IMAGES, NAMES, NAMESPACES
from strategies.source import Source

KINDS = (
    "Pod", "v1/Pod", "*", "Deployment", "apps/v1/Deployment", "*/*", "Pod/exec", "Pod.status",
    "ConfigMap", "Namespace", "Secret", "*/Pod", "P*d", "apps/*/*", "CronJob", "a/b/c/d/e", "",
)  # fmt: skip
_CONTROLS = (
    "HostProcess", "Host Namespaces", "Privileged Containers", "Capabilities", "HostPath Volumes",
    "Host Ports", "AppArmor", "SELinux", "/proc Mount Type", "Seccomp", "Sysctls", "Volume Types",
    "Privilege Escalation", "Running as Non-root", "Running as Non-root user",
)  # fmt: skip
_FIELDS = (
    "spec.securityContext.runAsNonRoot", "spec.containers[*].securityContext.capabilities.add",
    "spec.hostNetwork", "spec.volumes[*].hostPath", "spec.x",
)  # fmt: skip
_LISTS = (
    "request.object.spec.containers", "request.object.spec.[containers, initContainers][]",
    "images.containers.*", "request.object.metadata.labels.*", "request.object.metadata.name",
    "element.ports", "`[1, 2]`", "request.object.spec.volumes",
)  # fmt: skip
_SCHEDULES = (
    "* * * * *",
    "0 0 31 2 *",
    "*/5 * * * *",
    "0 0 L * *",
    "@daily",
    "",
    "x",
    "61 * * * *",
)


def _selector(source: Source) -> Json:
    made: dict[str, Json] = {}
    if source.chance(70):
        made["matchLabels"] = {"app": source.pick(("web", "*", "a b", ""))}
    if source.chance(40):
        made["matchExpressions"] = [
            {
                "key": source.pick(("app", "team", "a.b/c", "-")),
                "operator": source.pick(("In", "NotIn", "Exists", "DoesNotExist", "x")),
                "values": source.subset(["web", "b", "", "*"]),
            }
        ]
    return made


def _description(source: Source) -> dict[str, Json]:
    made: dict[str, Json] = {"kinds": source.several(lambda s: s.pick(KINDS), 2, 1)}
    if source.chance(60):
        made["kinds"] = ["Pod"]
    if source.chance(10):
        made["names"] = source.several(lambda s: s.pick((*NAMES, "w*", "?*")), 2)
    if source.chance(5):
        made["name"] = source.pick((*NAMES, "w*"))
    if source.chance(10):
        made["namespaces"] = source.several(lambda s: s.pick((*NAMESPACES, "k*")), 2)
    if source.chance(5):
        made["annotations"] = {"app": "*"}
    if source.chance(10):
        made["selector"] = _selector(source)
    if source.chance(5):
        made["namespaceSelector"] = _selector(source)
    if source.chance(10):
        made["operations"] = source.subset(["CREATE", "UPDATE", "DELETE", "CONNECT"])
    return made


def _filter(source: Source) -> dict[str, Json]:
    made: dict[str, Json] = {"resources": _description(source)} if source.chance(95) else {}
    if source.chance(8):
        kinds = ("User", "Group", "ServiceAccount", "x")
        made["subjects"] = [
            {"kind": source.pick(kinds), "name": source.pick(("a", "sys*")), "namespace": "ns"}
        ]
    if source.chance(5):
        made["roles"] = ["ns:admin"]
    if source.chance(5):
        made["clusterRoles"] = ["cluster-admin"]
    return made


def match(source: Source) -> Json:
    """Filters in one of the three forms; most often one that fits, or nothing else is tried."""
    dice = source.random()
    if dice < 0.65:
        return {"any": [{"resources": {"kinds": [source.pick(("Pod", "Pod", "*"))]}}]}
    if dice < 0.8:
        return {"any": source.several(_filter, 2, 1)}
    if dice < 0.9:
        return {"all": source.several(_filter, 2, 1)}
    return _filter(source)


def context_entry(source: Source) -> Json:
    """A variable of a rule."""
    made: dict[str, Json] = {"name": source.pick(("first", "second", "third", "element"))}
    forms: tuple[dict[str, Json], ...] = (
        {"variable": {"value": value(source, 2)}},
        {"variable": {"value": maybe_template(source)}},
        {"variable": {"jmesPath": expression(source, 2)}},
        {"variable": {"jmesPath": template(source), "default": value(source, 1)}},
        {"variable": {"value": value(source, 2), "jmesPath": expression(source, 1)}},
        {"configMap": {"name": maybe_template(source), "namespace": maybe_template(source)}},
        {"apiCall": {"urlPath": maybe_template(source), "jmesPath": expression(source, 1)}},
        {
            "apiCall": {
                "method": "POST",
                "data": [{"key": "a", "value": template(source)}],
                "service": {"url": maybe_template(source)},
                "default": value(source, 1),
            }
        },
        {"imageRegistry": {"reference": maybe_template(source), "jmesPath": "a"}},
        {"globalReference": {"name": text(source), "jmesPath": expression(source, 1)}},
        {},
    )
    return made | source.pick(forms)


def _surround(source: Source, body: dict[str, Json]) -> dict[str, Json]:
    """A body with the context and the preconditions that it may have."""
    if source.chance(25):
        body["context"] = source.several(context_entry, 3, 1)
    if source.chance(20):
        body["preconditions"] = conditions(source)
    return body


def _check(source: Source) -> dict[str, Json]:
    dice = source.random()
    if dice < 0.4:
        return {"pattern": resource_pattern(source)}
    if dice < 0.6:
        return {"anyPattern": source.several(resource_pattern, 3)}
    return {"deny": {"conditions": conditions(source)} if source.chance(95) else {}}


def _foreach(source: Source, body: dict[str, Json]) -> dict[str, Json]:
    made: dict[str, Json] = {
        "list": source.pick(_LISTS) if source.chance(85) else expression(source, 2),
        **body,
    }
    return _surround(source, made)


def _validate_each(source: Source, depth: int = 1) -> dict[str, Json]:
    made = _foreach(source, _check(source))
    if source.chance(20):
        made["elementScope"] = source.pick((True, False))
    if depth and source.chance(15):
        made.pop("pattern", None)
        made["foreach"] = [_validate_each(source, depth - 1)]
    return made


def _pod_security(source: Source) -> dict[str, Json]:
    made: dict[str, Json] = {
        "level": source.pick(("baseline", "restricted", "privileged", "")),
        "version": source.pick(("latest", "v1.24", "", "v1.99", "x", "v1.0")),
    }
    if source.chance(40):
        made["exclude"] = source.several(excluded_control, 2, 1)
    return made


def excluded_control(source: Source) -> Json:
    """A control that need not be kept."""
    made: dict[str, Json] = {"controlName": source.pick(_CONTROLS)}
    if source.chance(50):
        made["images"] = source.subset(["*", "nginx*", "ghcr.io/*"])
    if source.chance(30):
        made["restrictedField"] = source.pick(_FIELDS)
        made["values"] = source.subset(["true", "NET_ADMIN", "*", "0"])
    return made


def _validate(source: Source) -> dict[str, Json]:
    dice = source.random()
    if dice < 0.55:
        made = _check(source)
    elif dice < 0.75:
        made = {"foreach": source.several(_validate_each, 2, 1)}
    elif dice < 0.88:
        made = {"podSecurity": _pod_security(source)}
    else:
        made = {"assert": assertion(source)}
    if source.chance(60):
        made["message"] = maybe_template(source)
    if source.chance(30):
        made["failureAction"] = source.pick(("Audit", "Enforce"))
    if source.chance(15):
        made["failureActionOverrides"] = [_override(source)]
    if source.chance(20):
        made["allowExistingViolations"] = source.pick((True, False))
    return made


def _override(source: Source) -> Json:
    made: dict[str, Json] = {"action": source.pick(("Enforce", "Audit"))}
    if source.chance(70):
        made["namespaces"] = source.subset(["default", "k*", "*"])
    if source.chance(30):
        made["namespaceSelector"] = _selector(source)
    return made


def _patch(source: Source) -> dict[str, Json]:
    if source.chance(60):
        return {"patchStrategicMerge": overlay(source)}
    return {"patchesJson6902": json_patch_text(source)}


def _mutate(source: Source) -> dict[str, Json]:
    made = _patch(source)
    if source.chance(25):
        each = _foreach(source, made)
        if source.chance(20):
            each["order"] = source.pick(("Ascending", "Descending"))
        made = {"foreach": [each]}
    if source.chance(15):
        target = {"apiVersion": "v1", "kind": "ConfigMap", "name": maybe_template(source)}
        if source.chance(30):
            target["selector"] = _selector(source)
        made["targets"] = [_surround(source, target)]
    return made


def _generate(source: Source) -> dict[str, Json]:
    made: dict[str, Json] = {
        "apiVersion": source.pick(("v1", "apps/v1", "")),
        "kind": source.pick(("ConfigMap", "Secret", "")),
        "name": maybe_template(source),
        "namespace": maybe_template(source),
    }
    dice = source.random()
    if dice < 0.5:
        made["data"] = mapping(source) if source.chance(60) else {"data": {"a": template(source)}}
    elif dice < 0.7:
        made["clone"] = {"name": maybe_template(source), "namespace": maybe_template(source)}
    elif dice < 0.9:
        made["cloneList"] = {
            "namespace": maybe_template(source),
            "kinds": ["v1/ConfigMap", text(source)],
            "selector": _selector(source),
        }
    return {"foreach": [_foreach(source, made)]} if source.chance(20) else made


def rule(source: Source, name: str) -> dict[str, Json]:
    """A rule of any type."""
    made: dict[str, Json] = {"name": name, "match": match(source)}
    if source.chance(12):
        made["exclude"] = {"any": source.several(_filter, 2, 1)}
    dice = source.random()
    if dice < 0.6:
        made["validate"] = _validate(source)
    elif dice < 0.82:
        made["mutate"] = _mutate(source)
    elif dice < 0.96:
        made["generate"] = _generate(source)
    else:
        made["verifyImages"] = [{"imageReferences": [source.pick(IMAGES)]}]
    if source.chance(8):
        made["reportProperties"] = {"a": maybe_template(source, 60)}
    return _surround(source, made)


def policy(source: Source) -> dict[str, Json]:
    """A ClusterPolicy or a Policy; a few are spoiled."""
    kind = "Policy" if source.chance(15) else "ClusterPolicy"
    spec: dict[str, Json] = {
        "rules": [rule(source, f"r{number}") for number in range(1 + source.count(2))],
        "validationFailureAction": source.pick(("Audit", "Enforce", "enforce")),
    }
    if source.chance(10):
        spec["applyRules"] = source.pick(("One", "All"))
    if source.chance(15):
        spec["validationFailureActionOverrides"] = [_override(source)]
    if source.chance(10):
        spec["emitWarning"] = True
    metadata: dict[str, Json] = {"name": "p", "namespace": "default"}
    if source.chance(15):
        metadata["annotations"] = {
            "pod-policies.kyverno.io/autogen-controllers": source.pick(
                ("none", "Deployment,CronJob", "all", text(source))
            ),
            "policies.kyverno.io/scored": source.pick(("true", "false")),
        }
    made = {"apiVersion": "kyverno.io/v1", "kind": kind, "metadata": metadata, "spec": spec}
    spoiled = spoil(source, made, 0.3) if source.chance(15) else made
    return spoiled if isinstance(spoiled, dict) else made


def exception(source: Source) -> dict[str, Json]:
    """An exception from the policies above."""
    spec: dict[str, Json] = {
        "exceptions": [
            {"policyName": source.pick(("p", "default/p")), "ruleNames": [source.pick(("*", "r0"))]}
        ],
        "match": {"any": source.several(_filter, 2, 1)},
    }
    if source.chance(40):
        spec["conditions"] = conditions(source)
    if source.chance(40):
        spec["podSecurity"] = source.several(excluded_control, 2)
    return {
        "apiVersion": "kyverno.io/v2",
        "kind": "PolicyException",
        "metadata": {"name": "e", "namespace": "default"},
        "spec": spec,
    }


def cleanup(source: Source) -> dict[str, Json]:
    """A cleanup policy."""
    spec: dict[str, Json] = {
        "schedule": source.pick(_SCHEDULES) if source.chance(80) else text(source),
        "match": {"any": source.several(_filter, 2, 1)},
    }
    if source.chance(50):
        spec["conditions"] = conditions(source)
    if source.chance(25):
        spec["context"] = source.several(context_entry, 2, 1)
    return {
        "apiVersion": "kyverno.io/v2",
        "kind": source.pick(("CleanupPolicy", "ClusterCleanupPolicy")),
        "metadata": {"name": "c", "namespace": "default"},
        "spec": spec,
    }
