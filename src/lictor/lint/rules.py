"""Checks of a classic rule: name, body, target, Pod Security controls."""

import re
from collections.abc import Iterator

from lictor.core.errors import CompileError
from lictor.core.evaluate.pod_security import (
    CONTROL_NAMES,
    ControlExclusion,
    check_exclude,
    compile_pod_security,
)
from lictor.core.lang.kind_selector import parse_kind_selector
from lictor.core.model.finding import Finding
from lictor.lint.catalog import flag
from lictor.lint.field import Field, list_loops
from lictor.lint.match import check_selector, is_cluster_wide, is_namespaced, list_filters


def check_pod_security(rule: Field) -> Iterator[Finding]:
    """A podSecurity rule and its exclusions."""
    standard = rule["validate"]["podSecurity"]
    if not standard:
        return
    level = standard["level"].text
    yield from _try_standard(standard["version"], level, standard["version"].text)
    for each in standard["exclude"].each():
        found = list(check_control(each))
        yield from found or _try_standard(each["controlName"], level, "", _read(each))


def check_control(exclude: Field) -> Iterator[Finding]:
    """One control from which some images or values are exempt."""
    # An unknown name is reported where fields are checked.
    if exclude["controlName"].text not in CONTROL_NAMES:
        return
    try:
        check_exclude(_read(exclude))
    except CompileError as error:
        finding = flag("bad-pod-security", exclude.path, error.message)
        yield finding.with_code(error.code, *error.arguments)


def _read(exclude: Field) -> ControlExclusion:
    return ControlExclusion(
        exclude["controlName"].text,
        exclude["images"].texts,
        exclude["restrictedField"].text,
        exclude["values"].texts,
    )


def _try_standard(
    at: Field, level: str, version: str, exclude: ControlExclusion | None = None
) -> Iterator[Finding]:
    if level not in ("", "privileged", "baseline", "restricted"):
        return
    if exclude is not None and exclude.control_name not in CONTROL_NAMES:
        return
    try:
        compile_pod_security(level, version, () if exclude is None else (exclude,))
    except CompileError as error:
        finding = flag("bad-pod-security", at.path, error.message)
        yield finding.with_code(error.code, *error.arguments)


_SOURCES = ("data", "clone", "cloneList", "foreach")


def check_generate(rule: Field, namespace: str | None) -> Iterator[Finding]:
    """A generate rule; `namespace` is that of a namespaced policy."""
    generate = rule["generate"]
    if generate.is_empty:
        return
    found = [name for name in _SOURCES if not generate[name].is_empty]
    # None is valid: an object that needs only its name.
    if len(found) > 1:
        message = f"expected one of {', '.join(_SOURCES)}, found {' and '.join(found)}"
        yield flag("bad-generate", generate.path, message)
    loops = list(generate["foreach"].each())
    for loop in loops:
        yield from _check_list("bad-generate", loop)
    for body in loops or [generate]:
        yield from _check_target(body)
        if namespace is not None:
            yield from _check_own_namespace(body, namespace)
    yield from _check_trigger(rule)


def _check_target(body: Field) -> Iterator[Finding]:
    kinds = body["cloneList"]["kinds"]
    if kinds.texts:
        yield from _check_clone_list(body["cloneList"])
        return
    for name in ("apiVersion", "kind", "name"):
        if not body[name].text:
            yield flag("bad-generate", body.path, f'"{name}" of the target is missing')
    group = body["apiVersion"].text.rpartition("/")[0]
    if is_namespaced(group, body["kind"].text) and not body["namespace"].text:
        message = f"a {body['kind'].text} is namespaced: set the namespace"
        yield flag("bad-generate", body.path, message)
    if is_cluster_wide(group, body["kind"].text) and body["namespace"].text:
        message = f"a {body['kind'].text} is cluster-scoped: remove the namespace"
        yield flag("bad-generate", body["namespace"].path, message)
    clone = body["clone"]
    if not clone.is_empty and not clone["name"].text:
        yield flag("bad-generate", clone.path, '"name" of the source is missing')


def _check_clone_list(clones: Field) -> Iterator[Finding]:
    selectors = [parse_kind_selector(kind) for kind in clones["kinds"].texts]
    wide = [is_cluster_wide(each.group, each.kind) for each in selectors]
    if any(wide) and any(is_namespaced(each.group, each.kind) for each in selectors):
        message = "kinds with and without a namespace cannot be copied together"
        yield flag("bad-generate", clones["kinds"].path, message)
    elif all(wide) and clones["namespace"].text:
        message = "these kinds are cluster-scoped: remove the namespace"
        yield flag("bad-generate", clones["namespace"].path, message)
    elif not any(wide) and not clones["namespace"].text:
        yield flag("bad-generate", clones.path, '"namespace" of the sources is missing')
    yield from check_selector(clones["selector"])


def _check_own_namespace(body: Field, namespace: str) -> Iterator[Finding]:
    for part in (body["namespace"], body["clone"]["namespace"], body["cloneList"]["namespace"]):
        if namespace and part.text and part.text != namespace and "{{" not in part.text:
            message = f'a policy of namespace "{namespace}" cannot reach "{part.text}"'
            yield flag("bad-scope", part.path, message)


def _check_trigger(rule: Field) -> Iterator[Finding]:
    """A rule that generates what it matches would trigger itself."""
    made = rule["generate"]["kind"]
    for each in list_filters(rule["match"]):
        # Filters of any and all may distinguish the two by name or namespace.
        if each.path == rule["match"].path and made.text in each["resources"]["kinds"].texts:
            message = f"the rule matches {made.text} and makes {made.text}: it would call itself"
            yield flag("bad-generate", made.path, message)


BODIES = ("validate", "mutate", "generate", "verifyImages")
_CHECKS = ("pattern", "anyPattern", "deny", "foreach", "podSecurity", "cel", "manifests", "assert")
_LOOP_CHECKS = ("pattern", "anyPattern", "deny", "foreach")
_PATCHES = ("patchStrategicMerge", "patchesJson6902")
MAX_NAME = 63


def check_name(name: Field, what: str) -> Iterator[Finding]:
    """The name of a policy or rule."""
    if not name.text:
        yield flag("bad-name", name.path, f"the {what} has no name")
    elif len(name.text) > MAX_NAME:
        message = f"the name has {len(name.text)} characters; at most {MAX_NAME} are allowed"
        yield flag("bad-name", name.path, message)
    elif what == "policy":
        yield from check_object_name(name)


_OBJECT_NAME = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")


def check_object_name(name: Field) -> Iterator[Finding]:
    """A name that every API server refuses; names with variables are ignored."""
    text = name.text
    is_filled_in = "{{" in text or "$(" in text
    if text and not is_filled_in and _OBJECT_NAME.fullmatch(text) is None:
        meant = re.sub(r"[^a-z0-9.]+", "-", text.lower()).strip("-.")
        message = f'"{text}" cannot be a name: small letters, digits, "-" and "." only'
        known = meant if _OBJECT_NAME.fullmatch(meant) else ""
        yield flag("bad-name", name.path, message, known)


def check_rule_names(rules: Field) -> Iterator[Finding]:
    """Each rule has a unique name."""
    seen: set[str] = set()
    for rule in rules.each():
        name = rule["name"]
        # A missing field is reported where fields are checked.
        if name:
            yield from check_name(name, "rule")
        if name.text and name.text in seen:
            message = f'another rule of this policy is named "{name.text}"'
            yield flag("duplicate-name", name.path, message)
        seen.add(name.text)


def check_extractor_use(rule: Field) -> Iterator[Finding]:
    """Image extractors are used by verifyImages only."""
    if rule["imageExtractors"] and rule["verifyImages"].is_empty:
        message = "imageExtractors are for verifyImages rules only"
        yield flag("bad-rule", rule["imageExtractors"].path, message)


def check_bodies(rule: Field) -> Iterator[Finding]:
    """One of validate, mutate, generate and verifyImages."""
    found = [name for name in BODIES if not rule[name].is_empty]
    if len(found) != 1:
        names = " and ".join(found) or "none"
        message = f"expected exactly one of {', '.join(BODIES)}, found {names}"
        yield flag("bad-rule", rule.path, message)
    yield from check_extractor_use(rule)
    if rule["celPreconditions"] and not rule["validate"]["cel"]:
        message = "celPreconditions are for validate.cel rules only"
        finding = flag("bad-rule", rule["celPreconditions"].path, message)
        yield finding.with_code("cel-preconditions")


def check_validate(rule: Field) -> Iterator[Finding]:
    """One type of check, and each loop with a list and one type of check."""
    validate = rule["validate"]
    if validate.is_empty:
        return
    yield from _expect_one("bad-validate", validate, _CHECKS)
    for loop in list_loops(validate):
        yield from _check_list("bad-validate", loop)
        yield from _expect_one("bad-validate", loop, _LOOP_CHECKS)


_WRAPPED = re.compile(r"\s*\{\{([^{}]*)\}\}\s*")


def _check_list(check: str, loop: Field) -> Iterator[Finding]:
    if loop.is_object and not loop["list"].text:
        yield flag(check, loop.path, "a foreach needs a list to go through")
    wrapped = _WRAPPED.fullmatch(loop["list"].text)
    if wrapped is not None:
        message = "the list of a foreach is an expression itself: leave the braces out"
        yield flag("bad-expression", loop["list"].path, message, wrapped[1].strip())


def _expect_one(check: str, part: Field, names: tuple[str, ...]) -> Iterator[Finding]:
    found = part.present(*names)
    if part.is_object and len(found) != 1:
        shown = " and ".join(found) or "none"
        message = f"expected exactly one of {', '.join(names)}, found {shown}"
        finding = flag(check, part.path, message)
        yield finding.with_code("several-bodies", *found) if found else finding


def check_mutate(rule: Field) -> Iterator[Finding]:
    """One type of patch, at the top or in each loop."""
    mutate = rule["mutate"]
    if mutate.is_empty:
        return
    yield from _expect_one("bad-mutate", mutate, (*_PATCHES, "foreach"))
    for loop in list_loops(mutate):
        yield from _check_list("bad-mutate", loop)
        yield from _expect_one("bad-mutate", loop, (*_PATCHES, "foreach"))
        if not loop["foreach"].is_empty and loop.present("context", "preconditions"):
            message = "a foreach around another foreach cannot have context or preconditions"
            yield flag("bad-mutate", loop.path, message)
