"""Checks for patches that have no effect in a cluster, are not idempotent, or are refused."""

import itertools
import re
from collections.abc import Iterator, Mapping
from typing import Final, TypeAlias

import msgspec

from lictor.core.errors import CompileError
from lictor.core.lang.kind_selector import parse_kind_selector
from lictor.core.lang.patch import parse_json_patch
from lictor.core.lang.pattern import compile_pattern
from lictor.core.lang.pattern.anchor import Modifier, parse_anchor
from lictor.core.model.finding import Finding
from lictor.lint.catalog import flag
from lictor.lint.cluster_requests import covers_operation, mentions
from lictor.lint.field import Field, list_loops
from lictor.lint.match import list_filters

# The keys from the root of an object to a field; `*` for the items of a list.
KeyPath: TypeAlias = tuple[str, ...]


class PatchedValue(msgspec.Struct, frozen=True):
    """A value of a strategic merge patch, its path, and its anchors."""

    at: Field
    path: KeyPath
    # Below a key such as +(name): only if there is no value yet.
    adds: KeyPath | None = None
    # A key such as (name): it selects, and changes nothing.
    selects: bool = False


def list_leaves(patch: Field) -> Iterator[PatchedValue]:
    """The values of a patch, in the order of the file."""
    yield from _walk(PatchedValue(patch, ()))


def _walk(leaf: PatchedValue) -> Iterator[PatchedValue]:
    if leaf.at.is_list:
        for item in leaf.at.each():
            path = (*leaf.path, "*") if item.is_object else leaf.path
            yield from _walk(msgspec.structs.replace(leaf, at=item, path=path))
    elif leaf.at.is_object and leaf.at.value:
        for key, item in leaf.at.entries():
            # The name of an item identifies it.
            is_key = key == "name" and leaf.path[-1:] == ("*",) and len(leaf.at.value) > 1
            inner = _enter(leaf, key, item)
            yield from _walk(msgspec.structs.replace(inner, selects=True) if is_key else inner)
    elif leaf.at:
        yield leaf


def _enter(leaf: PatchedValue, key: str, item: Field) -> PatchedValue:
    anchor = parse_anchor(key)
    path = (*leaf.path, key if anchor is None else anchor.key)
    if anchor is None:
        return PatchedValue(item, path, leaf.adds, leaf.selects)
    if anchor.modifier is Modifier.ADDITION:
        return PatchedValue(item, path, leaf.adds or path, leaf.selects)
    return PatchedValue(item, path, leaf.adds, selects=True)


def list_kinds(rule: Field) -> tuple[str, ...]:
    """The kinds that a rule matches, without groups; no subresources."""
    selectors = [
        parse_kind_selector(text)
        for each in list_filters(rule["match"])
        for text in each["resources"]["kinds"].texts
    ]
    return tuple(dict.fromkeys(each.kind for each in selectors if not each.subresource))


def list_patches(rule: Field) -> Iterator[tuple[Field, Field]]:
    """Each patch of a rule, with its preconditions."""
    mutate = rule["mutate"]
    for body in (mutate, *list_loops(mutate)):
        yield body, body["preconditions"]


# --- +(key) for what is there already

_POD: Final = (
    *("securityContext", "restartPolicy", "dnsPolicy", "schedulerName"),
    *("terminationGracePeriodSeconds",),
)
# Set by admission plugins that run before webhooks; not in templates.
_ADMITTED: Final = ("serviceAccountName", "enableServiceLinks", "tolerations", "priority")
_CONTAINER: Final = (
    *("resources", "imagePullPolicy", "terminationMessagePath", "terminationMessagePolicy"),
)
_TEMPLATE: Final = ("spec", "template", "spec")
_TEMPLATES: Final[Mapping[str, KeyPath]] = {
    "Pod": ("spec",),
    "CronJob": ("spec", "jobTemplate", *_TEMPLATE),
    **dict.fromkeys(
        ("Deployment", "DaemonSet", "Job", "StatefulSet", "ReplicaSet", "ReplicationController"),
        _TEMPLATE,
    ),
}
_DEFAULTED: Final[Mapping[str, tuple[str, ...]]] = {
    "Deployment": ("replicas", "strategy", "revisionHistoryLimit", "progressDeadlineSeconds"),
    "StatefulSet": ("replicas", "podManagementPolicy", "updateStrategy", "revisionHistoryLimit"),
    "DaemonSet": ("updateStrategy", "revisionHistoryLimit"),
    "Job": ("backoffLimit", "completionMode", "suspend"),
    "CronJob": (
        *("concurrencyPolicy", "suspend", "successfulJobsHistoryLimit", "failedJobsHistoryLimit"),
    ),
    "Service": ("type", "sessionAffinity", "internalTrafficPolicy"),
    "HorizontalPodAutoscaler": ("minReplicas",),
    "PersistentVolumeClaim": ("volumeMode",),
    "PersistentVolume": ("volumeMode", "persistentVolumeReclaimPolicy"),
    "NetworkPolicy": ("policyTypes",),
}


def check_additions(_: Field, rule: Field) -> Iterator[Finding]:
    """`+(key)` for a field that API servers default before any webhook is called."""
    if rule["mutate"]["targets"]:
        return
    kinds = list_kinds(rule)
    for body, _conditions in list_patches(rule):
        seen: set[KeyPath] = set()
        for leaf in list_leaves(body["patchStrategicMerge"]):
            path = leaf.adds
            kind = next((kind for kind in kinds if path and is_defaulted(kind, path)), None)
            if path is None or kind is None or path in seen:
                continue
            seen.add(path)
            yield _flag_addition(leaf, path, kind)


def is_defaulted(kind: str, path: KeyPath) -> bool:
    """Whether the API server defaults a field before it calls any webhook."""
    place = _TEMPLATES.get(kind)
    if place is not None and path[: len(place)] == place:
        inner = path[len(place) :]
        if len(inner) == 1:
            return inner[0] in _POD or (kind == "Pod" and inner[0] in _ADMITTED)
        is_container = inner[:-1] in (("containers", "*"), ("initContainers", "*"))
        return is_container and inner[-1] in _CONTAINER
    return len(path) == 2 and path[0] == "spec" and path[1] in _DEFAULTED.get(kind, ())


def _flag_addition(leaf: PatchedValue, path: KeyPath, kind: str) -> Finding:
    name = path[-1]
    at = leaf.at.path[: _find_anchor(leaf.at) + 1]
    inner = leaf.path[len(path) :]
    hint = (
        f"write {name}: and +({inner[0]}) below it"
        if inner and inner[0] != "*"
        else "remove +( ) and use a precondition"
    )
    message = (
        f"+({name}) never adds anything: the API server sets {name} in every {kind} "
        f"before it calls the webhook; {hint}"
    )
    return flag("never-added", at, message)


def _find_anchor(at: Field) -> int:
    steps = enumerate(at.path)
    return next(number for number, step in steps if str(step).startswith("+("))


# --- reinvocation

# The end of a list, or a position in it for an insertion.
_INTO_LIST = re.compile(r"/(-1?|\d+)$")
# Those that LIC209 reports: a duplicate name is refused.
_NAMED = re.compile(r"/(containers|initContainers|volumes)/-$")
_WHOLE = re.compile(r"^([^{}]*)\{\{-?\s*([\w.]+)\s*(?:\|\|[^{}]*)?\}\}([^{}]*)$")


def check_repetition(_: Field, rule: Field) -> Iterator[Finding]:
    """Patches that change an object again when the API server calls the webhook again."""
    if rule["mutate"]["targets"] or rule["preconditions"]:
        return
    for body, conditions in list_patches(rule):
        if not conditions:
            yield from _check_lists(body["patchesJson6902"], is_loop=body is not rule["mutate"])
            yield from _check_growth(body["patchStrategicMerge"])


def _check_lists(patch: Field, *, is_loop: bool) -> Iterator[Finding]:
    for number, path in list_patched(patch, "add"):
        if not _INTO_LIST.search(path) or (_NAMED.search(path) and not is_loop):
            continue
        message = (
            f"operation {number}: adds to {path} once more at each reinvocation of the webhook "
            "and on every UPDATE: add a precondition that it is missing"
        )
        yield flag("not-idempotent", patch.path, message)


def list_patched(patch: Field, *operations: str) -> Iterator[tuple[int, str]]:
    """Number and path of the operations of a JSON patch; none if it is invalid."""
    try:
        found = parse_json_patch(patch.text) if patch.text else ()
    except CompileError:
        return
    for number, operation in enumerate(found, 1):
        path = operation.get("path") if isinstance(operation, dict) else None
        if isinstance(path, str) and (not operations or operation.get("op") in operations):
            yield number, path


def _check_growth(patch: Field) -> Iterator[Finding]:
    """A value computed from the old one: it grows each time."""
    for leaf in list_leaves(patch):
        whole = _WHOLE.match(leaf.at.text)
        if whole is None or leaf.adds or leaf.selects:
            continue
        before, name, after = whole.groups()
        own = ".".join(("request", "object", *leaf.path))
        is_own = name == own or ("*" in leaf.path and name == f"element.{leaf.path[-1]}")
        if is_own and (before or after):
            message = (
                f"this adds to {leaf.path[-1]} at each reinvocation of the webhook and on "
                "every UPDATE: add a precondition that it is not done yet"
            )
            yield flag("not-idempotent", leaf.at.path, message)


# --- fields that cannot be changed

_POD_MUTABLE: Final = (
    *("activeDeadlineSeconds", "tolerations", "schedulingGates", "terminationGracePeriodSeconds"),
)
# Of these kinds, all of spec but these fields.
_FIXED_SPEC: Final[Mapping[str, tuple[str, ...]]] = {
    "Pod": _POD_MUTABLE,
    "StatefulSet": (
        *("replicas", "ordinals", "template", "updateStrategy", "revisionHistoryLimit"),
        *("persistentVolumeClaimRetentionPolicy", "minReadySeconds"),
    ),
    "PersistentVolumeClaim": ("resources", "volumeAttributesClassName"),
}
_FIXED: Final[Mapping[str, tuple[KeyPath, ...]]] = {
    **dict.fromkeys(("Deployment", "DaemonSet", "ReplicaSet"), (("spec", "selector"),)),
    "Job": (("spec", "template"), ("spec", "selector"), ("spec", "completionMode")),
    **dict.fromkeys(("RoleBinding", "ClusterRoleBinding"), (("roleRef",),)),
    "StorageClass": (
        *(("provisioner",), ("parameters",), ("reclaimPolicy",), ("volumeBindingMode",)),
    ),
    "Secret": (("type",),),
    "PriorityClass": (("value",), ("preemptionPolicy",)),
}


def check_fixed_fields(_: Field, rule: Field) -> Iterator[Finding]:
    """Patches of immutable fields that also apply to UPDATE."""
    if rule["mutate"].is_empty or rule["mutate"]["targets"] or not covers_operation(rule, "UPDATE"):
        return
    if mentions(rule["preconditions"], "request.operation"):
        return
    kinds = list_kinds(rule)
    for at, path in _list_changed(rule):
        kind = next((kind for kind in kinds if _is_fixed(kind, path)), None)
        if kind is not None:
            where = ".".join(path).replace(".*", "[]")
            message = (
                f"{where} of a {kind} is immutable: an UPDATE of an object from before "
                "this policy is refused; name operations: [CREATE] in the match"
            )
            yield flag("immutable-field", at.path, message)
            return


def _list_changed(rule: Field) -> Iterator[tuple[Field, KeyPath]]:
    for body, conditions in list_patches(rule):
        if mentions(conditions, "request.operation"):
            continue
        for leaf in list_leaves(body["patchStrategicMerge"]):
            if not leaf.selects:
                yield leaf.at, leaf.path
        patch = body["patchesJson6902"]
        for _, path in list_patched(patch, "add", "replace", "remove"):
            steps = path.strip("/").split("/")
            yield patch, tuple("*" if _is_index(step) else step for step in steps)


def _is_index(step: str) -> bool:
    return step.lstrip("-").isdigit() or step == "-" or "{{" in step


def _is_fixed(kind: str, path: KeyPath) -> bool:
    if any(path[: len(fixed)] == fixed for fixed in _FIXED.get(kind, ())):
        return True
    if kind not in _FIXED_SPEC or path[:1] != ("spec",) or len(path) < 2:
        return False
    is_image = kind == "Pod" and path[-1] == "image" and path[2:3] == ("*",)
    return path[1] not in _FIXED_SPEC[kind] and not is_image


# --- what another rule of the policy refuses


def check_refused(policy: Field, rule: Field) -> Iterator[Finding]:
    """Values that a rule writes, and that another rule of the same policy denies."""
    written = [
        leaf for leaf in list_leaves(rule["mutate"]["patchStrategicMerge"]) if not leaf.selects
    ]
    if not written or rule["mutate"]["targets"]:
        return
    kinds = set(list_kinds(rule))
    for other in policy["spec"]["rules"].each():
        demands = list(list_leaves(other["validate"]["pattern"]))
        # A pattern with conditions may not apply.
        if any(each.selects for each in demands) or not kinds & set(list_kinds(other)):
            continue
        for leaf, demand in itertools.product(written, demands):
            if leaf.path == demand.path and _is_refused(leaf.at, demand.at):
                yield _flag_refused(leaf, demand, other)


def _is_refused(value: Field, demand: Field) -> bool:
    if any("{{" in each.text or "$(" in each.text for each in (value, demand)):
        return False
    try:
        return compile_pattern({"value": demand.value})({"value": value.value}) is not None
    except CompileError:
        return False


def _flag_refused(leaf: PatchedValue, demand: PatchedValue, other: Field) -> Finding:
    field = ".".join(leaf.path).replace(".*", "[]")
    message = (
        f"{field} becomes {leaf.at.value!r}, and rule {other['name'].text!r} requires "
        f"{demand.at.value!r}: the mutated object is denied"
    ).replace("'", '"')
    return flag("refused-result", leaf.at.path, message)
