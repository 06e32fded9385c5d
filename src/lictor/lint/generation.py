"""Generate rules: is there one source, and is the target named in full?"""

from collections.abc import Iterator

from lictor.lang.kind_selector import parse_kind_selector
from lictor.lint.catalog import flag
from lictor.lint.kinds import is_cluster_wide, is_namespaced
from lictor.lint.match import list_filters
from lictor.lint.part import Part
from lictor.lint.selectors import check_selector
from lictor.model.finding import Finding

_SOURCES = ("data", "clone", "cloneList", "foreach")


def check_generate(rule: Part, namespace: str | None) -> Iterator[Finding]:
    """A generate rule; `namespace` is that of a namespaced policy."""
    generate = rule["generate"]
    if generate.is_empty:
        return
    found = [name for name in _SOURCES if not generate[name].is_empty]
    # None is fine: an object that needs no more than its name.
    if len(found) > 1:
        message = f"expected one of {', '.join(_SOURCES)}, found {' and '.join(found)}"
        yield flag("bad-generate", generate.path, message)
    loops = list(generate["foreach"].each())
    for loop in loops:
        if not loop["list"].text:
            yield flag("bad-generate", loop.path, "a foreach needs a list to go through")
    for body in loops or [generate]:
        yield from _check_target(body)
        if namespace is not None:
            yield from _check_own_namespace(body, namespace)
    yield from _check_trigger(rule)


def _check_target(body: Part) -> Iterator[Finding]:
    kinds = body["cloneList"]["kinds"]
    if kinds.texts:
        yield from _check_clone_list(body["cloneList"])
        return
    for name in ("apiVersion", "kind", "name"):
        if not body[name].text:
            yield flag("bad-generate", body.path, f'"{name}" of the target is missing')
    group = body["apiVersion"].text.rpartition("/")[0]
    if is_namespaced(group, body["kind"].text) and not body["namespace"].text:
        message = f"a {body['kind'].text} lives in a namespace: name it"
        yield flag("bad-generate", body.path, message)
    if is_cluster_wide(group, body["kind"].text) and body["namespace"].text:
        message = f"a {body['kind'].text} belongs to no namespace: leave it out"
        yield flag("bad-generate", body["namespace"].path, message)
    clone = body["clone"]
    if not clone.is_empty and not clone["name"].text:
        yield flag("bad-generate", clone.path, '"name" of the source is missing')


def _check_clone_list(clones: Part) -> Iterator[Finding]:
    selectors = [parse_kind_selector(kind) for kind in clones["kinds"].texts]
    wide = [is_cluster_wide(each.group, each.kind) for each in selectors]
    if any(wide) and any(is_namespaced(each.group, each.kind) for each in selectors):
        message = "kinds with and without a namespace cannot be copied together"
        yield flag("bad-generate", clones["kinds"].path, message)
    elif all(wide) and clones["namespace"].text:
        message = "these kinds belong to no namespace: leave it out"
        yield flag("bad-generate", clones["namespace"].path, message)
    elif not any(wide) and not clones["namespace"].text:
        yield flag("bad-generate", clones.path, '"namespace" of the sources is missing')
    yield from check_selector(clones["selector"])


def _check_own_namespace(body: Part, namespace: str) -> Iterator[Finding]:
    for part in (body["namespace"], body["clone"]["namespace"], body["cloneList"]["namespace"]):
        if namespace and part.text and part.text != namespace and "{{" not in part.text:
            message = f'a policy of namespace "{namespace}" cannot reach "{part.text}"'
            yield flag("bad-scope", part.path, message)


def _check_trigger(rule: Part) -> Iterator[Finding]:
    """A rule that makes what it matches would call itself."""
    made = rule["generate"]["kind"]
    for each in list_filters(rule["match"]):
        # Filters of any and all may tell the two apart by name or namespace.
        if each.path == rule["match"].path and made.text in each["resources"]["kinds"].texts:
            message = f"the rule matches {made.text} and makes {made.text}: it would call itself"
            yield flag("bad-generate", made.path, message)
