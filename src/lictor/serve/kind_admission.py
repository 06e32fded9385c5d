"""Does the cluster serve the kinds that a classic policy is about?"""

from collections.abc import Iterator

from lictor.lang.kind_selector import KindSelector, parse_kind_selector
from lictor.lang.resource_names import ResourceNames
from lictor.lang.wildcard import match_wildcard
from lictor.raw import Json, JsonObject
from lictor.serve.opinion import Opinion


def review_kinds(document: JsonObject, names: ResourceNames) -> Opinion:
    """Warnings for kinds that nobody serves: their definition may come later."""
    missing = dict.fromkeys(
        kind for kind in _list_kinds(document) if not _is_served(parse_kind_selector(kind), names)
    )
    return Opinion(
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


def _list_kinds(document: JsonObject) -> Iterator[str]:
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
