"""Filters in addresses: the query of a URL becomes a ResultFilter, and back."""

import re
from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from urllib.parse import quote

from lictor.addons.web.records import STATUSES, ResultFilter

OVERVIEW = "/"
RESULTS = "/results"
RESULT = "/result"
POLICIES = "/policies"
POLICY = "/policy"
NAMESPACES = "/namespaces"
NAMESPACE = "/namespace"
RESOURCES = "/resources"
RESOURCE = "/resource"
EXCEPTIONS = "/exceptions"
CLUSTERS = "/clusters"
BOARDS = "/boards"
HISTORY = "/history"
PRINT = "/print"
# Not pages, but what pages lead to.
LIVE = "/live"
EXPORT_CSV = "/results.csv"
EXPORT_JSON = "/results.json"
SIGN_IN = "/sign-in"
SIGN_OUT = "/sign-out"
STATIC = "/static/"

# What stands in an address for an empty value: results in no namespace, without severity. A form
# sends an empty value for "any".
NOTHING = "-"

# The parameter of an address, and the part of the filter.
LIST_PARTS: Mapping[str, str] = {
    "cluster": "clusters",
    "source": "sources",
    "namespace": "namespaces",
    "policy": "policies",
    "rule": "rules",
    "status": "statuses",
    "severity": "severities",
    "category": "categories",
    "kind": "kinds",
    "property": "properties",
}
TEXT_PARTS: Mapping[str, str] = {"labels": "namespace_labels", "name": "name", "q": "text"}
WITHIN = "within"
PAGE = "page"
# Of single pages: the place of a result, the order and the search of a list, the key to sign in.
_OTHERS = ("at", "sort", "find", "key")
_KNOWN = (*LIST_PARTS, *TEXT_PARTS, WITHIN, PAGE, *_OTHERS)
_MOST_VALUES = 100
_LONGEST = 500
_SECONDS = {"m": 60, "h": 3600, "d": 86400}
_WITHIN = re.compile(r"([0-9]{1,5})([mhd])")
_PAGE = re.compile(r"[1-9][0-9]{0,6}")
_PLAIN = "-._~/:,"


def read_filter(query: Iterable[tuple[str, str]]) -> ResultFilter:
    """The filter in the query of an address."""
    lists: dict[str, list[str]] = {}
    texts: dict[str, str] = {}
    within = 0
    for key, value in query:
        # A shortened value could match something else.
        if not value or len(value) > _LONGEST:
            continue
        if key in LIST_PARTS:
            values = lists.setdefault(LIST_PARTS[key], [])
            meant = "" if value == NOTHING else value
            if meant not in values and len(values) < _MOST_VALUES:
                values.append(meant)
        elif key in TEXT_PARTS:
            texts[TEXT_PARTS[key]] = value.strip()
        elif key == WITHIN:
            within = read_within(value)
    parts = {part: tuple(values) for part, values in lists.items()}
    return ResultFilter(**parts, **texts, within=within)  # type: ignore[arg-type]  # by name


def list_parameters(chosen: ResultFilter) -> list[tuple[str, str]]:
    """The parameters that stand for a filter, in a fixed order."""
    pairs = [
        (key, value or NOTHING)
        for key, part in LIST_PARTS.items()
        for value in getattr(chosen, part)
    ]
    pairs += [(key, getattr(chosen, part)) for key, part in TEXT_PARTS.items()]
    pairs.append((WITHIN, write_within(chosen.within)))
    return [(key, value) for key, value in pairs if value]


def write_query(chosen: ResultFilter, **more: str) -> str:
    """The query of an address, without its `?`."""
    pairs = list_parameters(chosen) + [(key, value) for key, value in more.items() if value]
    return "&".join(f"{quote(key, safe='')}={_quote(value)}" for key, value in pairs)


def _quote(text: str) -> str:
    # Half a character has no bytes: it is replaced, as it is where the text is shown.
    return quote(text, safe=_PLAIN, errors="replace")


def read_within(text: str) -> int:
    """Seconds of `30m`, `24h` or `7d`; 0 of anything else."""
    found = _WITHIN.fullmatch(text)
    return int(found[1]) * _SECONDS[found[2]] if found else 0


def write_within(seconds: int) -> str:
    """The shortest of the forms that `read_within` reads."""
    for unit in ("d", "h", "m"):
        if seconds and seconds % _SECONDS[unit] == 0:
            return f"{seconds // _SECONDS[unit]}{unit}"
    return f"{-(-seconds // 60)}m" if seconds else ""


def find_unreadable(query: Iterable[tuple[str, str]]) -> list[str]:
    """What is invalid in an address; a page that ignored it would show too many results."""
    return [text for key, value in query if (text := _find_fault(key, value))]


def _find_fault(key: str, value: str) -> str:
    if key not in _KNOWN:
        return f"unknown parameter {key[:50]!r}{_suggest(key, _KNOWN)}"
    if len(value) > _LONGEST:
        return f"{key}: longer than {_LONGEST} characters"
    if key == WITHIN and value and not _WITHIN.fullmatch(value):
        return f"within={value}: not of the form 30m, 24h or 7d"
    if key == PAGE and not _PAGE.fullmatch(value):
        return f"page={value[:20]}: expected a number from 1"
    if key == "status" and value not in ("", NOTHING, *STATUSES):
        return f"status={value[:20]}: expected one of {', '.join(STATUSES)}"
    return ""


def _suggest(word: str, known: Iterable[str]) -> str:
    near = get_close_matches(word[:50], known, n=1)
    return f"; did you mean {near[0]!r}?" if near else ""
