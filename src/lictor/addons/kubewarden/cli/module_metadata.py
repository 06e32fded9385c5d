"""The metadata of a policy's module, as text (`inspect`) and as YAML."""

from collections.abc import Iterable, Iterator, Mapping

import msgspec

from lictor.core.lang.wasm_module import ModuleMetadata
from lictor.core.lang.wasm_records import ExecutionMode
from lictor.core.raw import JsonObject
from lictor.core.report.manifest_text import render_manifest

_PREFIX = "io.kubewarden.policy."
# Annotations with a separate line.
_DETAILS = ("title", "description", "author", "url", "source", "license")
_USAGE = f"{_PREFIX}usage"
_LINE = "―" * 80
_COLUMNS = ("Policy", "Mutating", "Context aware", "SHA-256", "Size")
_THOUSAND = 1000


class TextSection(msgspec.Struct, frozen=True):
    """A part of a page: a heading, and lines below it."""

    heading: str
    lines: tuple[str, ...]


class ModuleListing(msgspec.Struct, frozen=True):
    """A line of the list of modules that were fetched."""

    address: str
    metadata: ModuleMetadata | None
    # SHA-256 in hex.
    digest: str
    size: int


def metadata_to_json(metadata: ModuleMetadata) -> JsonObject:
    """The metadata with all its defaults, in the order in which they are read best."""
    body: JsonObject = {
        "protocolVersion": metadata.protocol_version or "Unknown",
        "rules": list(metadata.rules),
        "annotations": dict(sorted((metadata.annotations or {}).items())),
        "mutating": metadata.mutating,
        "backgroundAudit": metadata.background_audit,
        "executionMode": str(metadata.execution_mode),
        "policyType": metadata.policy_type,
        "contextAwareResources": list(metadata.context_aware_resources),
    }
    if metadata.host_capabilities:
        body["hostCapabilities"] = list(metadata.host_capabilities)
    if metadata.minimum_kubewarden_version:
        body["minimumKubewardenVersion"] = metadata.minimum_kubewarden_version
    return body


def describe_metadata(metadata: ModuleMetadata) -> Iterator[TextSection]:
    """The sections of the page that `inspect` prints."""
    annotations = dict(sorted((metadata.annotations or {}).items()))
    details = dict(_list_details(metadata, annotations))
    shown = {f"{_PREFIX}{name}" for name in _DETAILS} | {_USAGE}
    others = {name: text for name, text in annotations.items() if name not in shown}
    width = max(map(len, (*details, *others)))
    yield TextSection("Details", tuple(_render_rows(details, width)))
    if others:
        yield TextSection("Annotations", tuple(_render_rows(others, width)))
    yield TextSection("Rules", _render_lines(metadata.rules))
    if _USAGE in annotations:
        yield TextSection("Usage", (_LINE, *annotations[_USAGE].splitlines(), _LINE))
    if metadata.context_aware_resources:
        yield _describe_access(metadata.context_aware_resources)
    if metadata.host_capabilities:
        yield TextSection("Host capabilities", _render_lines(metadata.host_capabilities))


def render_stored(stored: Iterable[ModuleListing]) -> Iterator[str]:
    """The lines of a table; none where nothing is stored."""
    rows = [_COLUMNS, *map(_render_columns, stored)]
    if len(rows) == 1:
        return
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    line = "+" + "+".join("-" * (width + 2) for width in widths) + "+"
    yield line
    for index, row in enumerate(rows):
        cells = [f" {cell:<{width}} " for cell, width in zip(row, widths, strict=True)]
        yield f"|{'|'.join(cells)}|"
        if index == 0:
            yield line
    yield line


def _render_columns(stored: ModuleListing) -> tuple[str, ...]:
    metadata = stored.metadata
    mutating = "unknown" if metadata is None else "yes" if metadata.mutating else "no"
    reads = "yes" if metadata is not None and metadata.context_aware_resources else "no"
    return stored.address, mutating, reads, stored.digest[:12], render_size(stored.size)


def render_size(size: int) -> str:
    """Bytes as people read them."""
    number, unit = float(size), "B"
    for larger in ("kB", "MB", "GB"):
        if number < _THOUSAND:
            break
        number, unit = number / _THOUSAND, larger
    return f"{size} B" if unit == "B" else f"{number:.2f} {unit}"


def _list_details(
    metadata: ModuleMetadata, annotations: Mapping[str, str]
) -> Iterator[tuple[str, str]]:
    for name in _DETAILS:
        if f"{_PREFIX}{name}" in annotations:
            yield f"{name}:", annotations[f"{_PREFIX}{name}"]
    yield "mutating:", _render_bool(metadata.mutating)
    yield "background audit support:", _render_bool(metadata.background_audit)
    yield "context aware:", _render_bool(metadata.context_aware_resources)
    yield "policy type:", metadata.policy_type
    yield "execution mode:", str(metadata.execution_mode)
    if metadata.execution_mode is ExecutionMode.WAPC:
        yield "protocol version:", (metadata.protocol_version or "unknown").removeprefix("v")
    if metadata.minimum_kubewarden_version:
        yield "minimum Kubewarden version:", metadata.minimum_kubewarden_version


def _describe_access(resources: Iterable[JsonObject]) -> TextSection:
    return TextSection(
        "Context Aware",
        (
            "The policy wants to read these kinds of objects of the cluster while it runs:",
            *_render_lines(resources),
            "Look at the list before you grant it.",
        ),
    )


def _render_rows(rows: Mapping[str, str], width: int) -> Iterator[str]:
    """Two columns; further lines of a text stand below its first."""
    for name, text in rows.items():
        first, *rest = text.splitlines() or [""]
        yield f"{name:<{width}} {first}".rstrip()
        yield from (f"{'':<{width}} {line}".rstrip() for line in rest)


def _render_lines(values: Iterable[JsonObject | str]) -> tuple[str, ...]:
    return tuple(render_manifest(list(values)).splitlines())


def _render_bool(value: object) -> str:
    return "true" if value else "false"
