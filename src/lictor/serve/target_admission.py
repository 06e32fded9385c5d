"""Does a generate rule name a namespace where its target needs one, and none where it has none?"""

from collections.abc import Iterator

from lictor.lang.kind_selector import parse_kind_selector
from lictor.lang.resource_names import ResourceNames
from lictor.raw import Json, JsonObject
from lictor.serve.opinion import Opinion


def review_targets(document: JsonObject, names: ResourceNames) -> Opinion:
    """By the kinds that the cluster serves, custom ones among them; others may come later."""
    is_bound = document.get("kind") == "Policy"
    told = [
        message
        for path, body in _list_bodies(document)
        for kind in _list_kinds(body)
        for message in _check(kind, body, path, names, is_bound=is_bound)
    ]
    return Opinion(tuple(dict.fromkeys(told)))


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


def _list_kinds(body: JsonObject) -> Iterator[str]:
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
