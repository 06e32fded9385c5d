"""Do the kinds that a classic policy names, or generates, fit what the cluster serves?"""

from collections.abc import Iterator

from lictor.kubernetes.resource_names import ResourceNames
from lictor.lang.kind_selector import KindSelector, parse_kind_selector
from lictor.lang.wildcard import match_wildcard
from lictor.raw import Json, JsonObject
from lictor.serve.review_result import ReviewResult


def review_kinds(document: JsonObject, names: ResourceNames) -> ReviewResult:
    """Warnings for kinds that nobody serves: their definition may come later."""
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
    spec = document.get("spec")
    rules = spec.get("rules") if isinstance(spec, dict) else None
    for rule in rules if isinstance(rules, list) else ():
        for name in ("match", "exclude") if isinstance(rule, dict) else ():
            yield from _list_filter_kinds(rule.get(name))


def _list_filter_kinds(match: Json) -> Iterator[str]:
    if not isinstance(match, dict):
        return
    for each in (match, *(match.get("any") or ()), *(match.get("all") or ())):
        resources = each.get("resources") if isinstance(each, dict) else None
        kinds = resources.get("kinds") if isinstance(resources, dict) else None
        yield from (kind for kind in kinds or () if isinstance(kind, str))


def review_targets(document: JsonObject, names: ResourceNames) -> ReviewResult:
    """By the kinds that the cluster serves, custom ones among them; others may come later."""
    is_bound = document.get("kind") == "Policy"
    told = [
        message
        for path, body in _list_bodies(document)
        for kind in _list_target_kinds(body)
        for message in _check(kind, body, path, names, is_bound=is_bound)
    ]
    return ReviewResult(tuple(dict.fromkeys(told)))


def _check(
    kind: str, body: JsonObject, path: str, names: ResourceNames, *, is_bound: bool
) -> Iterator[str]:
    namespaced = _find_scope(kind, names)
    namespace = body.get("namespace")
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


def _list_target_kinds(body: JsonObject) -> Iterator[str]:
    clones = body.get("cloneList")
    kinds = clones.get("kinds") if isinstance(clones, dict) else None
    if isinstance(kinds, list):
        yield from (kind for kind in kinds if isinstance(kind, str))
    elif body.get("kind"):
        yield "/".join(str(body[name]) for name in ("apiVersion", "kind") if body.get(name))


def _list_bodies(document: JsonObject) -> Iterator[tuple[str, JsonObject]]:
    for index, rule in enumerate(_objects(_read(document, "spec", "rules"))):
        generate = rule.get("generate")
        if not isinstance(generate, dict):
            continue
        path = f"spec.rules[{index}].generate"
        loops = _objects(generate.get("foreach"))
        if not loops:
            yield path, generate
        for number, loop in enumerate(loops):
            yield f"{path}.foreach[{number}]", loop


def _read(value: Json, *keys: str) -> Json:
    for key in keys:
        value = value.get(key) if isinstance(value, dict) else None
    return value


def _objects(value: Json) -> list[JsonObject]:
    items = value if isinstance(value, list) else []
    return [item for item in items if isinstance(item, dict)]
