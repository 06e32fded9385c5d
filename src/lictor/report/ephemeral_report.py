"""What an admission said about an object, on its way to the process that writes the reports."""

from collections.abc import Iterable

from lictor.raw import JsonObject
from lictor.report.resource_report import MANAGED_BY, Subject, sort_entries, summarize

UID_LABEL = "audit.kyverno.io/resource.uid"
_LONGEST_LABEL = 63


def build_ephemeral(
    subject: Subject, entries: Iterable[JsonObject], *, plural: str = "", source: str = "admission"
) -> JsonObject:
    """An EphemeralReport, or a ClusterEphemeralReport for an object without a namespace."""
    listed = sort_entries(entries)
    metadata: JsonObject = {
        "generateName": f"{subject.uid or 'new'}-",
        "labels": _build_labels(subject, plural, source),
        "annotations": {
            "audit.kyverno.io/resource.namespace": subject.namespace,
            "audit.kyverno.io/resource.name": subject.name,
        },
    }
    if subject.namespace:
        metadata["namespace"] = subject.namespace
    kind = "EphemeralReport" if subject.namespace else "ClusterEphemeralReport"
    return {
        "apiVersion": "reports.kyverno.io/v1",
        "kind": kind,
        "metadata": metadata,
        "spec": {
            "owner": {
                "apiVersion": subject.api_version,
                "kind": subject.kind,
                "name": subject.name,
                "uid": subject.uid,
            },
            "results": listed,
            "summary": summarize(listed),
        },
    }


def _build_labels(subject: Subject, plural: str, source: str) -> dict[str, str]:
    group, _, version = subject.api_version.rpartition("/")
    labels = {
        **MANAGED_BY,
        UID_LABEL: subject.uid,
        "audit.kyverno.io/resource.group": group,
        "audit.kyverno.io/resource.version": version,
        "audit.kyverno.io/resource.kind": subject.kind,
        "audit.kyverno.io/source": source,
    }
    if plural:
        labels["audit.kyverno.io/resource.gvr"] = f"{plural}.{version}.{group}".rstrip(".")
    return {name: text[:_LONGEST_LABEL] for name, text in labels.items()}


def read_ephemeral(report: JsonObject) -> tuple[Subject, list[JsonObject]]:
    """Whom it is about, and what was said; entries that are no objects are left out."""
    spec = report.get("spec") or {}
    owner = spec.get("owner") or {}
    namespace = str(report["metadata"].get("namespace") or "")
    subject = Subject(
        str(owner.get("apiVersion") or ""),
        str(owner.get("kind") or ""),
        namespace,
        str(owner.get("name") or ""),
        str(owner.get("uid") or ""),
    )
    entries = [e for e in spec.get("results") or () if isinstance(e, dict) and e.get("policy")]
    return subject, entries
