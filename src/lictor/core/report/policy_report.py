"""Verdicts become the report that `apply --policy-report` prints, in pieces as they come.

Twenty thousand resources times forty rules make a report of some 400 megabytes: nothing here holds
more of it than the entries of one verdict. The work has two halves, so that worker processes can do
the first and the parent the second:

    writer = EntryWriter(ReportOptions(format=ReportFormat.YAML, timestamp=...))
    chunks = (writer.write(verdict) for verdict in verdicts)     # in a worker, or here
    for text in stream_report(chunks, ReportFormat.YAML): ...          # in the parent

`stream_verdicts` is both at once.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from enum import StrEnum

import msgspec
from msgspec.structs import replace

from lictor.core.model.result import PolicyRef, Result, RuleType, Status, Verdict
from lictor.core.raw import JsonObject
from lictor.core.report.json_text import quote_text
from lictor.core.report.resource_name import read_metadata, read_text
from lictor.core.report.summary import (
    Counts,
    count_statuses,
    read_message,
    read_severity,
    reported_status,
)
from lictor.core.report.yaml_text import quote_line, render_scalar

# By the group of their API: the version, the kind of the report on cluster-wide policies, and that
# of reports on policies of a namespace. Kyverno 1.18 prints the first, with the older name for the
# last.
REPORT_APIS = {
    "openreports.io": ("v1alpha1", "ClusterReport", "PolicyReport"),
    "wgpolicyk8s.io": ("v1alpha2", "ClusterPolicyReport", "PolicyReport"),
}
_CACHE_SIZE = 4096


class ReportFormat(StrEnum):
    """The two forms of a report."""

    YAML = "yaml"
    JSON = "json"


class ReportOptions(msgspec.Struct, frozen=True):
    """How a report is written; `timestamp` is in seconds, as the core has no clock."""

    format: ReportFormat = ReportFormat.YAML
    timestamp: int = 0
    audit_warn: bool = False
    # Added to the properties of each result, unless it is empty.
    cluster: str = ""


class NamespacedEntries(msgspec.Struct, frozen=True):
    """Entries about a policy in a namespace, which gets a separate report."""

    policy: str
    namespace: str
    text: str
    counts: Counts


class ReportChunk(msgspec.Struct, frozen=True):
    """The entries of one verdict as text; plain data, made to travel between processes."""

    text: str = ""
    counts: Counts = msgspec.field(default_factory=Counts)
    namespaced: tuple[NamespacedEntries, ...] = ()


class _Frame(msgspec.Struct, frozen=True):
    """The text before, between and after the entries."""

    head: Callable[[str, str, str], str]
    tail: Callable[[Counts], str]
    separator: str
    # Between reports: JSON needs nothing.
    divider: str


class EntryWriter:
    """Turns verdicts into entries; remembers what is the same for all resources of a rule."""

    def __init__(self, options: ReportOptions) -> None:
        self._options = options
        self._renderer = _render_json if options.format is ReportFormat.JSON else _render_yaml
        self._separator = "," if options.format is ReportFormat.JSON else ""
        # The policy is kept beside the text, so that its id cannot pass to another one.
        self._known: dict[tuple[int, str, Status, str], tuple[PolicyRef, tuple[str, str]]] = {}

    def write(self, verdict: Verdict) -> ReportChunk:
        """All entries of one verdict."""
        if not verdict.results:
            return ReportChunk()
        subject = _describe_subject(verdict.request.resource, self._options.format)
        texts: dict[tuple[str, str], list[str]] = {}
        statuses: dict[tuple[str, str], list[Status]] = {}
        for result in verdict.results:
            status = reported_status(result, audit_warn=self._options.audit_warn)
            before, after = self._entry(result, status)
            owner = ("", "") if not result.policy.namespace else _owner(result.policy)
            texts.setdefault(owner, []).append(before + subject + after)
            statuses.setdefault(owner, []).append(status)
        return self._collect(texts, statuses)

    def _collect(
        self,
        texts: dict[tuple[str, str], list[str]],
        statuses: dict[tuple[str, str], list[Status]],
    ) -> ReportChunk:
        namespaced = tuple(
            NamespacedEntries(
                policy=owner[1],
                namespace=owner[0],
                text=self._separator.join(entries),
                counts=count_statuses(statuses[owner]),
            )
            for owner, entries in texts.items()
            if owner[0]
        )
        return ReportChunk(
            text=self._separator.join(texts.get(("", ""), ())),
            counts=count_statuses(statuses.get(("", ""), ())),
            namespaced=namespaced,
        )

    def _entry(self, result: Result, status: Status) -> tuple[str, str]:
        if result.properties or result.exceptions:
            return self._render(result, status)
        key = (id(result.policy), result.rule, status, result.message)
        known = self._known.get(key)
        if known is None:
            if len(self._known) >= _CACHE_SIZE:
                self._known.clear()
            known = self._known[key] = (result.policy, self._render(result, status))
        return known[1]

    def _render(self, result: Result, status: Status) -> tuple[str, str]:
        if self._options.cluster:
            properties = {**result.properties, "cluster": self._options.cluster}
            result = replace(result, properties=properties)
        return self._renderer(result, status, self._options.timestamp)


def stream_verdicts(verdicts: Iterable[Verdict], options: ReportOptions) -> Iterator[str]:
    """The whole report in chunks; nothing if there are no results."""
    writer, stream = EntryWriter(options), ReportStream(options.format)
    for verdict in verdicts:
        yield stream.add(writer.write(verdict))
    yield from stream.finish()


class ReportStream:
    """One report on all cluster-wide policies, then one for each policy in a namespace."""

    def __init__(self, form: ReportFormat, api: str = "openreports.io") -> None:
        self._form = form
        self._frame = _frame(form, api)
        _, self._cluster_kind, self._kind = REPORT_APIS[api]
        self._counts = Counts()
        self._started = False
        self._namespaced: dict[tuple[str, str], list[NamespacedEntries]] = {}

    def add(self, chunk: ReportChunk) -> str:
        """Return the text of the entries about cluster-wide policies; the others are kept."""
        for entries in chunk.namespaced:
            key = (entries.namespace, entries.policy)
            self._namespaced.setdefault(key, []).append(entries)
        if not chunk.text:
            return ""
        start = self._frame.separator if self._started else self._begin()
        self._started = True
        self._counts += chunk.counts
        return start + chunk.text

    def _begin(self) -> str:
        return self._frame.head(self._cluster_kind, "merged", "")

    def finish(self) -> Iterator[str]:
        """Return the rest of the text, after the last chunk."""
        frame = self._frame
        if self._started:
            yield frame.tail(self._counts)
        elif self._form is ReportFormat.JSON and not self._namespaced:
            # Empty output is not JSON, and the reader expects JSON.
            yield self._begin() + frame.tail(self._counts)
        for (namespace, policy), parts in self._namespaced.items():
            yield frame.divider + frame.head(self._kind, policy, namespace)
            yield frame.separator.join(part.text for part in parts)
            yield frame.tail(sum((part.counts for part in parts), Counts()))


def read_properties(result: Result) -> dict[str, str]:
    """The properties of a result in a report."""
    made = {"process": _process(result), **result.properties}
    if result.exceptions:
        made["exceptions"] = ",".join(exception.name for exception in result.exceptions)
    return made


def _process(result: Result) -> str:
    # Offline, every policy that may run in the background is shown as in a background scan; the
    # compiler names another process in the properties of a policy that may not.
    if result.type is RuleType.GENERATION and result.policy.source != "kyverno":
        return "admission review"
    return "background scan"


def _owner(policy: PolicyRef) -> tuple[str, str]:
    return policy.namespace, policy.name


def _describe_subject(resource: JsonObject, form: ReportFormat) -> str:
    metadata = read_metadata(resource)
    fields = {
        "apiVersion": read_text(resource.get("apiVersion")),
        "kind": read_text(resource.get("kind")),
        "name": read_text(metadata.get("name")),
        "namespace": read_text(metadata.get("namespace")),
        "resourceVersion": read_text(metadata.get("resourceVersion")),
        "uid": read_text(metadata.get("uid")),
    }
    given = {name: text for name, text in fields.items() if text}
    if form is ReportFormat.JSON:
        return "{" + ",".join(f'"{name}":{quote_text(text)}' for name, text in given.items()) + "}"
    if not given:
        return "  - {}\n"
    lines = "    ".join(f"{name}: {_yaml(text)}\n" for name, text in given.items())
    return f"  - {lines}"


def _yaml(text: str) -> str:
    return quote_line(text) if "\n" in text else render_scalar(text)


def _render_json(result: Result, status: Status, timestamp: int) -> tuple[str, str]:
    """The text before and after the resource."""
    policy = result.policy
    optional = {
        "rule": result.rule,
        "category": policy.category,
        "severity": read_severity(policy),
    }
    named = "".join(f',"{name}":{quote_text(text)}' for name, text in optional.items() if text)
    before = (
        f'{{"source":{quote_text(policy.source)},"policy":{quote_text(policy.reported_name)}{named},'
        f'"timestamp":{{"seconds":{timestamp},"nanos":0}},"result":"{status}",'
        f'"scored":{"true" if policy.scored else "false"},"resources":['
    )
    message = read_message(result)
    shown = f'"message":{quote_text(message)},' if message else ""
    properties = ",".join(
        f"{quote_text(name)}:{quote_text(text)}"
        for name, text in sorted(_text_pairs(read_properties(result)))
    )
    return before, f'],{shown}"properties":{{{properties}}}}}'


def _render_yaml(result: Result, status: Status, timestamp: int) -> tuple[str, str]:
    """The text before and after the resource; the keys are in alphabetical order."""
    policy = result.policy
    message = read_message(result)
    first = [
        f"category: {_yaml(policy.category)}" if policy.category else "",
        f"message: {render_scalar(message, '  ')}" if message else "",
        f"policy: {_yaml(policy.reported_name)}",
        "properties:",
    ]
    before = "- " + "\n  ".join(line for line in first if line) + "\n"
    before += "".join(
        f"    {_yaml(name)}: {render_scalar(text, '    ')}\n"
        for name, text in sorted(_text_pairs(read_properties(result)))
    )
    last = [
        f"result: {status}",
        f"rule: {_yaml(result.rule)}" if result.rule else "",
        f"scored: {'true' if policy.scored else 'false'}",
        f"severity: {read_severity(policy)}" if read_severity(policy) else "",
        f"source: {_yaml(policy.source)}",
        f"timestamp:\n    nanos: 0\n    seconds: {timestamp}",
    ]
    after = "".join(f"  {line}\n" for line in last if line)
    return before + "  resources:\n", after


def _text_pairs(properties: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    return ((str(name), str(text)) for name, text in properties.items())


def _frame(form: ReportFormat, api: str) -> _Frame:
    version = f"{api}/{REPORT_APIS[api][0]}"
    # The older API has no such field; Kyverno leaves it empty in the newer.
    has_source = api == "openreports.io"
    if form is ReportFormat.JSON:
        return _Frame(_json_head(version, has_source=has_source), _json_tail, ",", "")
    return _Frame(_yaml_head(version), _yaml_tail(has_source=has_source), "", "---\n")


def _json_head(version: str, *, has_source: bool) -> Callable[[str, str, str], str]:
    source = '"source":"",' if has_source else ""

    def head(kind: str, name: str, namespace: str) -> str:
        place = f',"namespace":{quote_text(namespace)}' if namespace else ""
        return (
            f'{{"kind":"{kind}","apiVersion":"{version}",'
            f'"metadata":{{"name":{quote_text(name)}{place}}},{source}"results":['
        )

    return head


def _json_tail(counts: Counts) -> str:
    # Kyverno has the summary before the results; it is known only now.
    return (
        f'],"summary":{{"pass":{counts.passed},"fail":{counts.failed},"warn":{counts.warned},'
        f'"error":{counts.errors},"skip":{counts.skipped}}}}}\n'
    )


def _yaml_head(version: str) -> Callable[[str, str, str], str]:
    def head(kind: str, name: str, namespace: str) -> str:
        place = f"  namespace: {_yaml(namespace)}\n" if namespace else ""
        return (
            f"apiVersion: {version}\nkind: {kind}\n"
            f"metadata:\n  name: {_yaml(name)}\n{place}results:\n"
        )

    return head


def _yaml_tail(*, has_source: bool) -> Callable[[Counts], str]:
    source = 'source: ""\n' if has_source else ""

    def tail(counts: Counts) -> str:
        return (
            f"{source}summary:\n  error: {counts.errors}\n  fail: {counts.failed}\n"
            f"  pass: {counts.passed}\n  skip: {counts.skipped}\n  warn: {counts.warned}\n\n"
        )

    return tail
