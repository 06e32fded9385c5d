"""Are match and exclude well-formed? Whether they can fit anything is asked elsewhere."""

from collections.abc import Iterator

import msgspec

from lictor.lang.kind_selector import parse_kind_selector
from lictor.lang.wildcard import has_wildcard
from lictor.lint.catalog import flag
from lictor.lint.kinds import KNOWN_KINDS, is_cluster_wide
from lictor.lint.part import Part
from lictor.lint.selectors import check_selector
from lictor.load.fields import suggest
from lictor.model.finding import Finding

_CALLERS = ("subjects", "roles", "clusterRoles")
_SUBJECT_KINDS = ("User", "Group", "ServiceAccount")


class Manner(msgspec.Struct, frozen=True):
    """What a match may say, depending on whose it is."""

    # A policy of one namespace; that namespace, where it is known.
    is_namespaced: bool = False
    # Empty means nothing in a match, and no exclusion in an exclude.
    needs_kinds: bool = True
    has_callers: bool = True
    # Why there can be no callers, and which check says so.
    reason: str = ""
    caller_check: str = "background"


def list_filters(match: Part) -> list[Part]:
    """The filters of a match: those of any and all, or the match itself in its older form."""
    filters = [*match["any"].each(), *match["all"].each()]
    return filters or ([match] if match.is_object else [])


def check_match(match: Part, manner: Manner) -> Iterator[Finding]:
    """Everything about the form of a match or an exclude."""
    if not match:
        return
    yield from _check_forms(match)
    for each in list_filters(match):
        yield from _check_filter(each, manner)
    for leaf in match.leaves():
        if "{{" in leaf.text and "}}" in leaf.text:
            message = "variables are not filled in here: use preconditions"
            yield flag("misplaced-variable", leaf.path, message)


def _check_forms(match: Part) -> Iterator[Finding]:
    forms = [name for name in ("any", "all") if not match[name].is_empty]
    if len(forms) == 2:
        yield flag("bad-match", match.path, "any and all stand together: choose one")
    if forms and not match["resources"].is_empty:
        message = f"resources stand beside {forms[0]}: move them into it"
        yield flag("bad-match", match["resources"].path, message)


def _check_filter(each: Part, manner: Manner) -> Iterator[Finding]:
    resources = each["resources"]
    if manner.needs_kinds and resources["kinds"].is_empty:
        at = resources if resources else each
        yield flag("bad-match", at.path, "no kinds are given: name at least one")
    if resources["name"].text and not resources["names"].is_empty:
        message = "name and names stand together: choose names"
        yield flag("bad-match", resources["name"].path, message)
    for kind in resources["kinds"].each():
        yield from _check_kind(kind, manner)
    if manner.is_namespaced and not resources["namespaces"].is_empty:
        message = "a namespaced policy cannot choose namespaces: it sees its own only"
        yield flag("bad-scope", resources["namespaces"].path, message)
    yield from check_selector(resources["selector"], may_be_empty=False)
    yield from check_selector(resources["namespaceSelector"])
    yield from _check_callers(each, manner)


def _check_kind(part: Part, manner: Manner) -> Iterator[Finding]:
    selector = parse_kind_selector(part.text)
    kind = selector.kind
    if not kind:
        message = f'"{part.text}" names no kind: write Kind, version/Kind or group/version/Kind'
        yield flag("never-matches", part.path, message)
    elif manner.is_namespaced and is_cluster_wide(selector.group, kind):
        message = f"{kind} belongs to no namespace: a namespaced policy never sees one"
        yield flag("bad-scope", part.path, message)
    elif not has_wildcard(kind) and kind not in KNOWN_KINDS:
        known = _suggest_kind(kind)
        if known:
            message = f'"{kind}" is not written as kinds are: in CamelCase, and in singular'
            yield flag("unknown-resource", part.path, message, known)


def _suggest_kind(kind: str) -> str:
    """A known kind that differs only in case or plural, or by one slip of the pen."""
    folded = kind.lower()
    for known in KNOWN_KINDS:
        if folded in (known.lower(), f"{known.lower()}s", f"{known.lower()}es"):
            return known
    return suggest(kind, KNOWN_KINDS, cutoff=0.93) if len(kind) > 5 else ""


def _check_callers(each: Part, manner: Manner) -> Iterator[Finding]:
    for name in _CALLERS:
        if not manner.has_callers and not each[name].is_empty:
            yield flag(manner.caller_check, each[name].path, manner.reason)
    for subject in each["subjects"].each():
        yield from _check_subject(subject)
    for role in each["roles"].each():
        if role.text.count(":") != 1:
            message = f'expected namespace:name, found "{role.text}"'
            yield flag("bad-match", role.path, message)


def _check_subject(subject: Part) -> Iterator[Finding]:
    kind = subject["kind"]
    if kind.text and kind.text not in _SUBJECT_KINDS:
        message = f'expected one of {", ".join(_SUBJECT_KINDS)}, found "{kind.text}"'
        yield flag("bad-match", kind.path, message, suggest(kind.text, _SUBJECT_KINDS))
    if kind.text == "ServiceAccount" and not subject["namespace"].text:
        yield flag("bad-match", subject.path, "a ServiceAccount needs its namespace")
