"""Entries of reports of any tool, as texts that are bounded and shared."""

import re
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from lictor.addons.web.records import SEVERITIES, STATUSES
from lictor.core.errors import LoadError
from lictor.core.raw import Json, JsonObject

REPORT_GROUPS = frozenset(("wgpolicyk8s.io", "openreports.io"))
# By kind: the plural, also for the older names that some tools write under the newer group.
_PLURALS = {
    "PolicyReport": "policyreports",
    "ClusterPolicyReport": "clusterpolicyreports",
    "Report": "reports",
    "ClusterReport": "clusterreports",
}
# All of it comes from strangers: a page shows no more than this anyway.
_LONGEST_NAME = 512
_LONGEST_MESSAGE = 8192
_LONGEST_VALUE = 2048
_MOST_PROPERTIES = 64
_MOST_RESOURCES = 1000
_HALF = re.compile("[\ud800-\udfff]")
_CUT = " ... (cut)"
_LATEST = 2**32 - 1
_MOST_TEXTS = 1 << 15
NO_PROPERTIES: Mapping[str, str] = {}


class ResultShape(NamedTuple):
    """What many results have in common. A tuple: there are many, and they are keys."""

    cluster: str
    source: str
    policy: str
    rule: str
    status: str
    severity: str
    category: str
    namespace: str
    api_version: str
    kind: str
    # Where the report is: who may read it there may see the result.
    report_namespace: str


class ReadResult(NamedTuple):
    """One result of a report: an entry about one resource."""

    shape: ResultShape
    name: str
    uid: str
    message: str
    timestamp: int
    properties: Mapping[str, str]


class SharedTexts:
    """Gives the same object for equal texts, as long as they are common enough to be kept."""

    def __init__(self) -> None:
        self._texts: dict[str, str] = {}
        self._properties: dict[tuple[tuple[str, str], ...], Mapping[str, str]] = {}

    def share(self, value: Json, longest: int = _LONGEST_NAME) -> str:
        """The text of a value, cut where it is too long; nothing for what is no scalar."""
        text = value if isinstance(value, str) else _render_scalar(value)
        if len(text) > longest:
            text = text[:longest] + _CUT
        if not text.isascii():
            text = replace_halves(text)
        if len(self._texts) >= _MOST_TEXTS:
            self._texts.clear()
        return self._texts.setdefault(text, text)

    def share_properties(self, value: Json) -> Mapping[str, str]:
        if not isinstance(value, dict) or not value:
            return NO_PROPERTIES
        named = sorted((str(name), each) for name, each in value.items())[:_MOST_PROPERTIES]
        key = tuple((self.share(name), self.share(each, _LONGEST_VALUE)) for name, each in named)
        if len(self._properties) >= _MOST_TEXTS:
            self._properties.clear()
        found = self._properties.get(key)
        if found is None:
            found = self._properties[key] = dict(key)
        return found


def replace_halves(text: str) -> str:
    """Halves of characters, which YAML can hold, can be written nowhere."""
    return _HALF.sub("\N{REPLACEMENT CHARACTER}", text)


def _render_scalar(value: Json) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value) if isinstance(value, int | float) else ""


def is_report(document: Json) -> bool:
    """Is it a report of one of the two groups?"""
    if not isinstance(document, dict):
        return False
    group = str(document.get("apiVersion") or "").rpartition("/")[0]
    return group in REPORT_GROUPS and document.get("kind") in _PLURALS


def name_report(report: JsonObject) -> str:
    """What a report is called in its cluster; LoadError where it is none."""
    metadata = report.get("metadata")
    if not is_report(report) or not isinstance(metadata, dict) or not metadata.get("name"):
        found = f"{report.get('kind')} of {report.get('apiVersion')}"
        raise LoadError(f"expected a PolicyReport or a Report with a name, found {found}"[:300])
    group = str(report["apiVersion"]).rpartition("/")[0]
    place = f"{metadata['namespace']}/" if metadata.get("namespace") else ""
    # In a cluster no name has one; in a file it must not pass for a namespace.
    name = str(metadata["name"]).replace("/", "_")
    return replace_halves(f"{_PLURALS[report['kind']]}.{group}/{place}{name}")


def read_report(cluster: str, report: JsonObject, texts: SharedTexts) -> Iterator[ReadResult]:
    """All results of a report, in their order; one for each resource of an entry."""
    home = texts.share(report["metadata"].get("namespace") or "")
    scope = report.get("scope")
    source = report.get("source") or ""
    entries = report.get("results")
    for entry in entries if isinstance(entries, list) else ():
        known = entry if isinstance(entry, dict) else _describe_unreadable(entry)
        for resource in _list_resources(known, scope):
            shape = _read_shape(cluster, home, known, resource, (texts, source))
            yield ReadResult(
                shape,
                texts.share(resource.get("name")),
                texts.share(resource.get("uid")),
                texts.share(known.get("message") or known.get("description"), _LONGEST_MESSAGE),
                _read_time(known.get("timestamp")),
                texts.share_properties(known.get("properties")),
            )


def count_results(report: JsonObject) -> int:
    """How many results a report has, without reading them."""
    entries = report.get("results")
    return sum(map(_count_resources, entries)) if isinstance(entries, list) else 0


def _count_resources(entry: Json) -> int:
    listed = entry.get("resources") if isinstance(entry, dict) else None
    return max(len(listed), 1) if isinstance(listed, list) else 1


def _describe_unreadable(entry: Json) -> JsonObject:
    found = type(entry).__name__
    return {"result": "error", "message": f"the report has an entry that is no object: {found}"}


def _list_resources(entry: JsonObject, scope: Json) -> list[JsonObject]:
    """What an entry is about: its own resources, or what the whole report is about."""
    listed = entry.get("resources")
    named = [each for each in listed if isinstance(each, dict)] if isinstance(listed, list) else []
    if named:
        return named[:_MOST_RESOURCES]
    return [scope] if isinstance(scope, dict) else [{}]


def _read_shape(
    cluster: str,
    home: str,
    entry: JsonObject,
    resource: JsonObject,
    shared: tuple[SharedTexts, str],
) -> ResultShape:
    texts, source = shared
    status = str(entry.get("result")).lower()
    severity = str(entry.get("severity") or "").lower()
    return ResultShape(
        cluster,
        texts.share(entry.get("source") or source),
        texts.share(entry.get("policy")),
        texts.share(entry.get("rule")),
        # An unreadable entry must not look like a passing one.
        texts.share(status if status in STATUSES else "error"),
        texts.share(severity if severity in SEVERITIES else ""),
        texts.share(entry.get("category")),
        texts.share(resource.get("namespace") or home),
        texts.share(resource.get("apiVersion")),
        texts.share(resource.get("kind")),
        home,
    )


def _read_time(value: Json) -> int:
    seconds = value.get("seconds") if isinstance(value, dict) else value
    if isinstance(seconds, bool) or not isinstance(seconds, int):
        return 0
    return min(max(seconds, 0), _LATEST)
