"""Checks of the form of match and exclude, and of the kinds that they name."""

from collections.abc import Iterator
from functools import cache
from typing import Final

import msgspec

from lictor.core.facts.resource_names import builtin_names
from lictor.core.families.registry import registry
from lictor.core.lang.kind_selector import parse_kind_selector
from lictor.core.lang.label_selector import Requirement, find_selector_fault
from lictor.core.lang.wildcard import has_wildcard
from lictor.core.load.fields import suggest
from lictor.core.model.finding import Finding
from lictor.lint.catalog import flag
from lictor.lint.field import Field


def check_wildcard_kinds(rule: Field, *, background: bool) -> Iterator[Finding]:
    """What a rule about `*` cannot do."""
    for match in (rule["match"], rule["exclude"]):
        for each in list_filters(match):
            kinds = each["resources"]["kinds"]
            for kind in kinds.each():
                if kind.text == "*":
                    yield from _check_star(rule, kinds, kind, background=background)


def _check_star(rule: Field, kinds: Field, at: Field, *, background: bool) -> Iterator[Finding]:
    if background:
        message = "all kinds cannot be scanned in the background: set spec.background to false"
        yield flag("wildcard-kind", at.path, message)
    if len(kinds.texts) > 1:
        message = '"*" matches all kinds: the others have no effect'
        yield flag("wildcard-kind", at.path, message)
    unfit = [name for name in ("generate", "verifyImages") if not rule[name].is_empty]
    if rule["validate"]["foreach"]:
        unfit.append("validate.foreach")
    if unfit:
        message = f"{unfit[0]} needs to know the kind: name the kinds"
        yield flag("wildcard-kind", at.path, message)
    for part in _list_bodies(rule):
        other = next((key for key, _ in part.entries() if key != "metadata"), None)
        if other is not None:
            message = f'"{other}" is not a field of all kinds: only metadata is'
            yield flag("wildcard-kind", part[other].path, message)


def _list_bodies(rule: Field) -> Iterator[Field]:
    yield rule["validate"]["pattern"]
    yield from rule["validate"]["anyPattern"].each()
    yield rule["mutate"]["patchStrategicMerge"]


def check_subresources(rule: Field, *, background: bool) -> Iterator[Finding]:
    """A scan sees whole objects only: a rule about subresources cannot be scanned."""
    if rule["validate"].is_empty:
        return
    for each in list_filters(rule["match"]):
        for kind in each["resources"]["kinds"].each():
            selector = parse_kind_selector(kind.text)
            is_part = selector.kind in _SUBRESOURCE_KINDS
            # A Binding can also be created directly.
            is_lost = is_part and not selector.subresource and selector.kind != "Binding"
            if is_lost and not background:
                message = (
                    f"{kind.text} is sent to subresources only, and this matches none of them: "
                    "write Kind/subresource"
                )
                yield flag("subresource-kind", kind.path, message)
            elif background and (selector.subresource or is_part):
                message = (
                    f"{kind.text} is a subresource, which background scans do not see: set "
                    "spec.background to false"
                )
                yield flag("background", kind.path, message)


_WITH_VALUES = frozenset(["In", "NotIn"])
_WITHOUT_VALUES = frozenset(["Exists", "DoesNotExist"])
_OPERATORS = sorted(_WITH_VALUES | _WITHOUT_VALUES)


def check_selector(selector: Field, *, may_be_empty: bool = True) -> Iterator[Finding]:
    """A selector's labels and expressions."""
    if not selector:
        return
    labels, expressions = selector["matchLabels"], selector["matchExpressions"]
    if not may_be_empty and labels.is_empty and expressions.is_empty:
        message = "the selector is empty: give matchLabels or matchExpressions, or leave it out"
        yield flag("bad-selector", selector.path, message)
    for key, value in labels.entries():
        if not _is_label(key, value.text):
            message = f'"{key}: {value.text}" is not a label that an object can have'
            yield flag("bad-selector", value.path, message)
    for expression in expressions.each():
        yield from _check_expression(expression)


def _is_label(key: str, value: str) -> bool:
    """Whether an object could have this label."""
    if "{{" in key or "{{" in value:
        return True
    return not find_selector_fault({key: value}, ())


def _check_expression(expression: Field) -> Iterator[Finding]:
    operator, values = expression["operator"], expression["values"]
    if operator.text not in _OPERATORS:
        known = suggest(operator.text, _OPERATORS)
        message = f'expected one of {", ".join(_OPERATORS)}, found "{operator.text}"'
        yield flag("bad-selector", operator.path, message, known)
    elif operator.text in _WITH_VALUES and not values.texts:
        yield flag("bad-selector", expression.path, f"{operator.text} needs values")
    elif operator.text in _WITHOUT_VALUES and values.texts:
        yield flag("bad-selector", values.path, f"{operator.text} takes no values")
    elif not _is_acceptable(expression):
        message = "the key or one of the values is not what a label can have"
        yield flag("bad-selector", expression.path, message)


def _is_acceptable(expression: Field) -> bool:
    """Whether key and values are valid for labels."""
    key, values = expression["key"].text, expression["values"].texts
    if any(has_wildcard(text) or "{{" in text for text in (key, *values)):
        return True
    parts = [Requirement(key, "Exists"), *(Requirement(key, "In", (value,)) for value in values)]
    return not find_selector_fault({}, parts)


CALLERS = ("subjects", "roles", "clusterRoles")
_SUBJECT_KINDS = ("User", "Group", "ServiceAccount")


class MatchLimits(msgspec.Struct, frozen=True):
    """What a match may contain, depending on its owner."""

    # A namespaced policy; its namespace, if it is known.
    is_namespaced: bool = False
    # Empty matches nothing in a match, and excludes nothing in an exclude.
    needs_kinds: bool = True
    has_callers: bool = True
    # Why there are no callers, and the check that reports it.
    reason: str = ""
    caller_check: str = "background"


def list_filters(match: Field) -> list[Field]:
    """The filters of a match: those of any and all, or the match itself in its older form."""
    filters = [*match["any"].each(), *match["all"].each()]
    return filters or ([match] if match.is_object else [])


def check_match(match: Field, limits: MatchLimits) -> Iterator[Finding]:
    """Everything about the form of a match or an exclude."""
    if not match:
        return
    yield from _check_forms(match)
    for each in list_filters(match):
        yield from _check_filter(each, limits)
    for leaf in match.leaves():
        if "{{" in leaf.text and "}}" in leaf.text:
            message = "variables are not resolved here: use preconditions"
            yield flag("misplaced-variable", leaf.path, message)


def _check_forms(match: Field) -> Iterator[Finding]:
    forms = [name for name in ("any", "all") if not match[name].is_empty]
    if len(forms) == 2:
        yield flag("bad-match", match.path, "any and all stand together: choose one")
    if forms and not match["resources"].is_empty:
        message = f"resources stand beside {forms[0]}: move them into it"
        yield flag("bad-match", match["resources"].path, message)


def _check_filter(each: Field, limits: MatchLimits) -> Iterator[Finding]:
    resources = each["resources"]
    if limits.needs_kinds and resources["kinds"].is_empty:
        at = resources if resources else each
        yield flag("bad-match", at.path, "no kinds are given: name at least one")
    if resources["name"].text and not resources["names"].is_empty:
        message = "name and names stand together: choose names"
        yield flag("bad-match", resources["name"].path, message)
    for kind in resources["kinds"].each():
        yield from _check_kind(kind, limits)
    if limits.is_namespaced and not resources["namespaces"].is_empty:
        message = "a namespaced policy cannot choose namespaces: it matches its own only"
        yield flag("bad-scope", resources["namespaces"].path, message)
    yield from check_selector(resources["selector"], may_be_empty=False)
    yield from check_selector(resources["namespaceSelector"])
    yield from _check_callers(each, limits)


def _check_kind(part: Field, limits: MatchLimits) -> Iterator[Finding]:
    selector = parse_kind_selector(part.text)
    kind = selector.kind
    if not kind:
        message = f'"{part.text}" names no kind: write Kind, version/Kind or group/version/Kind'
        yield flag("never-matches", part.path, message)
    elif limits.is_namespaced and is_cluster_wide(selector.group, kind):
        message = f"{kind} is cluster-scoped: a namespaced policy never matches it"
        yield flag("bad-scope", part.path, message)
    elif (
        # Other groups may have a resource of the same kind: lifecycle.k8s.io has evictions.
        kind not in _SUBRESOURCE_KINDS
        and builtin_names().knows_group(selector.group)
        and selector.group not in (groups := known_kinds().get(kind, {selector.group: True}))
    ):
        meant = "/".join(filter(None, (next(iter(groups)), selector.version, kind)))
        message = f'the group "{selector.group}" has no kind {kind}'
        yield flag("never-matches", part.path, message, meant)


def _check_callers(each: Field, limits: MatchLimits) -> Iterator[Finding]:
    for name in CALLERS:
        if not limits.has_callers and not each[name].is_empty:
            finding = flag(limits.caller_check, each[name].path, limits.reason)
            yield finding.with_code("caller-unknown")
    for subject in each["subjects"].each():
        yield from _check_subject(subject)
    for role in each["roles"].each():
        if role.text.count(":") != 1:
            message = f'expected namespace:name, found "{role.text}"'
            yield flag("bad-match", role.path, message)


def _check_subject(subject: Field) -> Iterator[Finding]:
    kind = subject["kind"]
    if kind.text and kind.text not in _SUBJECT_KINDS:
        message = f'expected one of {", ".join(_SUBJECT_KINDS)}, found "{kind.text}"'
        yield flag("bad-match", kind.path, message, suggest(kind.text, _SUBJECT_KINDS))
    if kind.text == "ServiceAccount" and not subject["namespace"].text:
        yield flag("bad-match", subject.path, "a ServiceAccount needs its namespace")


# --- which kinds are namespaced, and which are cluster-scoped


# Kinds that are only sent to a subresource.
_SUBRESOURCE_KINDS: Final = frozenset(
    [
        *("Binding", "Eviction", "NodeProxyOptions", "PodAttachOptions", "PodExecOptions"),
        *("PodPortForwardOptions", "PodProxyOptions", "Scale", "ServiceProxyOptions"),
        "TokenRequest",
    ]
)


@cache
def known_kinds() -> dict[str, dict[str, bool]]:
    """By kind: the groups that have it, and whether it is namespaced there."""
    kinds: dict[str, dict[str, bool]] = {}
    for resource in builtin_names().known:
        kinds.setdefault(resource.kind, {})[resource.group] = bool(resource.namespaced)
    for policy in registry().kinds:
        kinds.setdefault(policy.kind, {})[policy.group] = policy.namespaced
    return kinds


def is_cluster_wide(group: str, kind: str) -> bool:
    """A known cluster-scoped kind; `*` matches any group."""
    return _has_scope(group, kind, namespaced=False)


def is_namespaced(group: str, kind: str) -> bool:
    """A known namespaced kind; `*` matches any group."""
    return _has_scope(group, kind, namespaced=True)


def _has_scope(group: str, kind: str, *, namespaced: bool) -> bool:
    groups = known_kinds().get(kind, {})
    found = groups.values() if group == "*" else [groups[group]] if group in groups else []
    return namespaced in found
