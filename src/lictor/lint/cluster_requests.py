"""Checks for unintended denials in a cluster: deletions, new objects, kube-system."""

import re
from collections.abc import Iterable, Iterator
from typing import Final

from lictor.core.lang.kind_selector import parse_kind_selector
from lictor.core.lang.template import VARIABLE
from lictor.core.lang.wildcard import has_wildcard, match_wildcard
from lictor.core.model.finding import Finding
from lictor.lint.catalog import flag
from lictor.lint.field import Field
from lictor.lint.match import CALLERS, list_filters

KUBE_SYSTEM: Final = "kube-system"
_OPERATION = "request.operation"
_HINT = "name operations: [CREATE, UPDATE] in the match"


def enforces(policy: Field, rule: Field) -> bool:
    """Whether a validate rule denies instead of only reporting."""
    own = rule["validate"]["failureAction"].text
    return (own or policy["spec"]["validationFailureAction"].text).lower() == "enforce"


def mentions(part: Field, *words: str) -> bool:
    """Whether any text below contains one of the words."""
    return any(word in leaf.text for leaf in part.leaves() for word in words)


def covers_operation(rule: Field, operation: str) -> bool:
    """Whether a rule matches an operation; one that names none matches all."""
    filters = list_filters(rule["match"])
    return any(operation in _list_operations(each, operation) for each in filters) and not any(
        operation in each["resources"]["operations"].texts for each in list_filters(rule["exclude"])
    )


def _list_operations(each: Field, operation: str) -> tuple[str, ...]:
    return each["resources"]["operations"].texts or (operation,)


# --- DELETE


def check_deletions(policy: Field, rule: Field) -> Iterator[Finding]:
    """A rule that also denies deletions without mentioning them."""
    validate = rule["validate"]
    if not enforces(policy, rule) or not _forgets_operations(rule):
        return
    if validate["deny"]:
        yield from _check_deny(rule)
    elif validate["assert"]:
        message = "on DELETE there is no object to match this, so nothing can be deleted any more"
        yield flag("blocks-deletion", validate["assert"].path, f"{message}: {_HINT}")
    else:
        conditions = [each["expression"] for each in rule["celPreconditions"].each()]
        texts = [*(each.text for each in conditions), *_list_cel_texts(validate["cel"])]
        for part in _find_unguarded(_list_checks(validate["cel"]), texts, "object"):
            message = "on DELETE object is null, so nothing can be deleted any more"
            yield flag("blocks-deletion", part.path, f"{message}: {_HINT}")


def _forgets_operations(rule: Field) -> bool:
    named = any(each["resources"]["operations"].texts for each in list_filters(rule["match"]))
    excluded = any(each["resources"]["operations"].texts for each in list_filters(rule["exclude"]))
    return not named and not excluded and not mentions(rule, _OPERATION)


def _check_deny(rule: Field) -> Iterator[Finding]:
    deny = rule["validate"]["deny"]
    if any(re.search(r"\{\{-?\s*images\b", leaf.text) for leaf in deny.leaves()):
        message = "on DELETE images is empty, and these conditions are still evaluated"
    elif mentions(rule, "request.oldObject"):
        return
    else:
        message = "this is also evaluated on DELETE: existing violations cannot be deleted"
    yield flag("blocks-deletion", deny.path, f"{message}: {_HINT}")


def _list_checks(cel: Field) -> list[Field]:
    return [each["expression"] for each in cel["expressions"].each()]


def _list_cel_texts(cel: Field) -> list[str]:
    variables = [each["expression"].text for each in cel["variables"].each()]
    return [*variables, *(part.text for part in _list_checks(cel))]


def _find_unguarded(parts: Iterable[Field], texts: list[str], name: str) -> Iterator[Field]:
    """The first expression that reads fields of a nullable value without a null check."""
    # re: linear - fixed letters come first
    reads = re.compile(rf"(?<![\w.]){name}\.(?!\?)")
    # re: linear - fixed letters come first
    asks = re.compile(rf"(?<![\w.]){name}\s*(?:[=!]=|\.\?|\[\?)|null\s*[=!]=|request\.operation")
    if any(asks.search(text) for text in texts):
        return
    found = next((part for part in parts if reads.search(part.text)), None)
    if found is not None:
        yield found


def check_cel_operations(spec: Field) -> Iterator[Finding]:
    """CEL expressions that fail for some of their operations."""
    rules = spec["matchConstraints"]["resourceRules"]
    operations = {text for each in rules.each() for text in each["operations"].texts}
    parts = [each["expression"] for each in spec["validations"].each()]
    others = (*spec["matchConditions"].each(), *spec["variables"].each())
    texts = [*(each["expression"].text for each in others), *(part.text for part in parts)]
    if operations & {"DELETE", "*"}:
        for part in _find_unguarded(parts, texts, "object"):
            message = (
                "on DELETE object is null, so nothing can be deleted any more: leave DELETE out of "
                "the operations, or check object != null first"
            )
            yield flag("blocks-deletion", part.path, message)
    if operations & {"CREATE", "*"}:
        for part in _find_unguarded(parts, texts, "oldObject"):
            message = (
                "on CREATE oldObject is null, so nothing can be created any more: leave CREATE out "
                "of the operations, or check oldObject != null first"
            )
            yield flag("no-old-object", part.path, message)


# --- request.oldObject

_OLD = re.compile(r"\brequest\.oldObject\.")


def check_old_object(policy: Field, rule: Field) -> Iterator[Finding]:
    """`request.oldObject` if there is none: new objects, and background scans."""
    is_scanned = policy["spec"]["background"].value is not False and bool(rule["validate"])
    is_asked = is_scanned or covers_operation(rule, "CREATE")
    if not is_asked or mentions(rule["preconditions"], _OPERATION, "oldObject"):
        return
    for body in (rule["validate"]["deny"], rule["mutate"]):
        for leaf in body.leaves():
            if _reads_old(leaf.text) and not mentions(body, _OPERATION):
                yield flag("no-old-object", leaf.path, _describe_old_object(rule))
                return


def _reads_old(text: str) -> bool:
    return any("|" not in part[1] and _OLD.search(part[1]) for part in VARIABLE.finditer(text))


def _describe_old_object(rule: Field) -> str:
    when = "for new objects" if covers_operation(rule, "CREATE") else "in background scans"
    instead = (
        "name operations: [UPDATE] in the match, or give a default (|| '')"
        if covers_operation(rule, "CREATE")
        else "set spec.background to false"
    )
    return f"request.oldObject is empty {when}, and the rule fails with an error: {instead}"


# --- kube-system

# The kinds of a cluster's control plane and network.
_VITAL = frozenset(
    (
        *("DaemonSet", "Deployment", "Job", "StatefulSet", "ReplicaSet", "ReplicationController"),
        *(
            "CronJob",
            "Pod",
            "ConfigMap",
            "Secret",
            "ServiceAccount",
            "Service",
            "Lease",
            "Endpoints",
        ),
        *("EndpointSlice", "Role", "RoleBinding"),
    )
)
_NARROWING = ("namespaceSelector", "selector", "names", "name", "annotations")


def check_system_namespaces(policy: Field, rule: Field) -> Iterator[Finding]:
    """An enforcing rule that does not exclude kube-system."""
    if policy["metadata"]["namespace"].text or not enforces(policy, rule):
        return
    if _leaves_system_alone(policy, rule):
        return
    for each in list_filters(rule["match"]):
        if not _reaches_system(each):
            continue
        message = (
            "this enforces in kube-system too, unless the settings of the installation leave it "
            "out: a cluster that has to be repaired may need what this refuses; exclude the "
            "namespace"
        )
        yield flag("system-namespaces", each["resources"]["kinds"].path, message)
        return


def _leaves_system_alone(policy: Field, rule: Field) -> bool:
    spec = policy["spec"]
    for each in list_filters(rule["exclude"]):
        resources = each["resources"]
        if _names_system(resources["namespaces"]) or resources["namespaceSelector"]:
            return True
    overrides = (
        *spec["validationFailureActionOverrides"].each(),
        *rule["validate"]["failureActionOverrides"].each(),
    )
    if any(_names_system(each["namespaces"]) or each["namespaceSelector"] for each in overrides):
        return True
    asked = (rule["preconditions"], rule["celPreconditions"], spec["webhookConfiguration"])
    return any(mentions(part, "namespace", "request.userInfo") for part in asked)


def _names_system(namespaces: Field) -> bool:
    return any(match_wildcard(text, KUBE_SYSTEM) for text in namespaces.texts)


def _reaches_system(each: Field) -> bool:
    resources = each["resources"]
    if any(not resources[name].is_empty for name in _NARROWING):
        return False
    if any(not each[name].is_empty for name in CALLERS):
        return False
    if resources["namespaces"].texts and not _names_system(resources["namespaces"]):
        return False
    if not {"CREATE", "UPDATE"} & set(resources["operations"].texts or ("CREATE",)):
        return False
    kinds = [parse_kind_selector(text) for text in resources["kinds"].texts]
    return any(
        not kind.subresource and (has_wildcard(kind.kind) or kind.kind in _VITAL) for kind in kinds
    )
