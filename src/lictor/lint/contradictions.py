"""Checks for rules that can never match."""

from collections.abc import Callable, Iterator
from itertools import combinations

from lictor.core.lang.kind_selector import KindSelector, parse_kind_selector
from lictor.core.lang.wildcard import match_wildcard
from lictor.core.model.finding import Finding
from lictor.core.raw import JsonObject
from lictor.lint.catalog import flag
from lictor.lint.field import Field
from lictor.lint.match import CALLERS, list_filters
from lictor.lint.value_sets import texts_overlap

Overlap = Callable[[str, str], bool]

# Fields without wildcards that an exclude must share with a match to cover it.
_EXACT = ("annotations", "selector", "namespaceSelector")


def check_contradictions(rule: Field) -> Iterator[Finding]:
    """Filters that exclude each other, and excludes that cover a whole match."""
    match, exclude = rule["match"], rule["exclude"]
    for first, second in combinations(match["all"].each(), 2):
        reason = contradict(first["resources"], second["resources"])
        if reason:
            message = f"no resource can match this filter and match.all[{first.path[-1]}]: {reason}"
            yield flag("never-matches", second.path, message)
    # A request must match every filter of exclude.all to be excluded.
    covers = list_filters(exclude) if not exclude["all"].value else []
    if match["all"].value:
        return
    for each in list_filters(match):
        cover = next((cover for cover in covers if covers_filter(cover, each)), None)
        if cover is not None:
            message = "everything that this filter selects is excluded again"
            yield flag("never-matches", each.path, message)


def contradict(first: Field, second: Field) -> str:
    """Why no resource matches both; empty if one may."""
    tests: tuple[tuple[str, Overlap], ...] = (
        ("kinds", _kinds_overlap),
        ("names", texts_overlap),
        ("namespaces", texts_overlap),
        ("operations", texts_overlap),
    )
    for name, overlaps in tests:
        left, right = first[name].texts, second[name].texts
        if left and right and not any(overlaps(a, b) for a in left for b in right):
            return f"their {name} have nothing in common"
    labels = _labels_contradict(first["selector"], second["selector"])
    return f"they require different values of the label {labels}" if labels else ""


def _kinds_overlap(left: str, right: str) -> bool:
    first, second = parse_kind_selector(left), parse_kind_selector(right)
    pairs = zip(_kind_parts(first), _kind_parts(second), strict=True)
    return all(texts_overlap(a, b) for a, b in pairs)


def _kind_parts(selector: KindSelector) -> tuple[str, ...]:
    return (selector.group, selector.version, selector.kind, selector.subresource)


def _labels_contradict(first: Field, second: Field) -> str:
    ours, theirs = first["matchLabels"].value, second["matchLabels"].value
    if not isinstance(ours, dict) or not isinstance(theirs, dict):
        return ""
    for key in ours.keys() & theirs.keys():
        left, right = ours[key], theirs[key]
        if isinstance(left, str) and isinstance(right, str) and not texts_overlap(left, right):
            return str(key)
    return ""


def covers_filter(cover: Field, each: Field) -> bool:
    """Whether one filter, such as that of an exclude, matches all that another one does."""
    ours, theirs = cover["resources"], each["resources"]
    if ours.is_empty and all(cover[name].is_empty for name in CALLERS):
        return False
    return (
        all(_takes_all(ours[name], theirs[name]) for name in ("names", "namespaces", "operations"))
        and _takes_kinds(ours["kinds"], theirs["kinds"])
        and _takes_name(ours["name"], theirs["name"])
        and all(_is_same(ours, theirs, name) for name in _EXACT)
        and all(_is_same(cover, each, name) for name in CALLERS)
    )


def _takes_text(outer: str, inner: str) -> bool:
    """Whether the outer pattern matches every text that the inner one does; False in doubt."""
    # Letters that no pattern contains replace the wildcards.
    texts = (inner.replace("*", run).replace("?", "\1") for run in ("", "\0", "\0\1\0\1"))
    return all(match_wildcard(outer, text) for text in texts)


def _takes_all(cover: Field, each: Field) -> bool:
    patterns, texts = cover.texts, each.texts
    if not patterns:
        return True
    return bool(texts) and all(any(_takes_text(p, t) for p in patterns) for t in texts)


def _takes_kinds(cover: Field, each: Field) -> bool:
    if not cover.texts:
        return True
    wanted = [parse_kind_selector(text) for text in each.texts]
    covers = [parse_kind_selector(text) for text in cover.texts]
    return bool(wanted) and all(any(_takes_kind(c, w) for c in covers) for w in wanted)


def _takes_kind(cover: KindSelector, kind: KindSelector) -> bool:
    pairs = zip(_kind_parts(cover), _kind_parts(kind), strict=True)
    return all(_takes_text(pattern, text) for pattern, text in pairs)


def _takes_name(cover: Field, each: Field) -> bool:
    return not cover.text or (bool(each.text) and _takes_text(cover.text, each.text))


def _is_same(cover: Field, each: Field, name: str) -> bool:
    if cover[name].is_empty:
        return True
    found: JsonObject = each[name].value
    return bool(cover[name].value == found)
