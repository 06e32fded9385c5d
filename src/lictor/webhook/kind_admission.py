"""Do the kinds that a classic policy names, or generates, fit what the cluster serves?"""

from collections.abc import Iterator

from lictor.core.facts.resource_names import ResourceNames
from lictor.core.lang.kind_selector import KindSelector, parse_kind_selector
from lictor.core.lang.wildcard import match_wildcard
from lictor.core.model.finding import write_path
from lictor.core.raw import JsonObject
from lictor.lint.field import Field
from lictor.webhook.review_result import ReviewResult


def review_kinds(document: JsonObject, names: ResourceNames) -> ReviewResult:
    """Warnings for kinds that are not served: their definition may come later."""
    missing = dict.fromkeys(
        kind
        for kind in _list_matched_kinds(document)
        if not _is_served(parse_kind_selector(kind), names)
    )
    return ReviewResult(
        warnings=tuple(
            f"the kind defined in the match resource is invalid: unable to convert GVK to GVR for "
            f"kinds {kind}: the cluster serves no such kind (yet)"
            for kind in missing
        )
    )


def _is_served(selector: KindSelector, names: ResourceNames) -> bool:
    return any(
        match_wildcard(selector.kind, each.kind)
        and match_wildcard(selector.group, each.group)
        and match_wildcard(selector.version, each.version)
        for each in names.known
    )


def _list_matched_kinds(document: JsonObject) -> Iterator[str]:
    for rule in Field(document)["spec"]["rules"].each():
        for name in ("match", "exclude"):
            yield from list_kinds(rule[name])


def list_filters(match: Field) -> Iterator[Field]:
    """The resources that each filter of a match or exclude names."""
    for each in (match, *match["any"].each(), *match["all"].each()):
        yield each["resources"]


def list_kinds(match: Field) -> Iterator[str]:
    """The kinds of a match or exclude."""
    for resources in list_filters(match):
        yield from resources["kinds"].texts


def review_targets(document: JsonObject, names: ResourceNames) -> ReviewResult:
    """By the kinds that the cluster serves, custom ones among them; others may come later."""
    is_bound = document.get("kind") == "Policy"
    told = [
        message
        for body in _list_bodies(document)
        for kind in _list_target_kinds(body)
        for message in _check(kind, body, names, is_bound=is_bound)
    ]
    return ReviewResult(tuple(dict.fromkeys(told)))


def _check(kind: str, body: Field, names: ResourceNames, *, is_bound: bool) -> Iterator[str]:
    path = write_path(body.path)
    namespaced = _find_scope(kind, names)
    namespace = body["namespace"].value
    if namespaced is None:
        return
    if namespaced and not namespace:
        needed = "target namespace must be set for a namespaced resource"
        yield f"{path}.namespace: {kind} lives in a namespace: name it ({needed})"
    elif not namespaced and is_bound:
        never = "a namespaced policy cannot generate cluster-wide resources"
        yield f"{path}.kind: {kind} belongs to no namespace ({never})"
    elif not namespaced and namespace:
        never = "target namespace must not be set for a cluster-wide resource"
        yield f"{path}.namespace: {kind} belongs to no namespace: leave it out ({never})"


def _find_scope(kind: str, names: ResourceNames) -> bool | None:
    if "{{" in kind:
        return None
    selector = parse_kind_selector(kind)
    group = "" if selector.group == "*" else selector.group
    return names.of_kind(group, selector.version, selector.kind).namespaced


def _list_target_kinds(body: Field) -> Iterator[str]:
    if body["cloneList"]["kinds"].is_list:
        yield from body["cloneList"]["kinds"].texts
    elif body["kind"].value:
        named = (body[name].value for name in ("apiVersion", "kind"))
        yield "/".join(str(value) for value in named if value)


def _list_bodies(document: JsonObject) -> Iterator[Field]:
    """What the generate rules of a policy make: each loop, or the rule itself."""
    for rule in Field(document)["spec"]["rules"].each():
        generate = rule["generate"]
        loops = [loop for loop in generate["foreach"].each() if loop.is_object]
        if loops or generate.is_object:
            yield from loops or [generate]
