"""`metadata.yml` into the metadata of a module: every mistake is reported with its field."""

import re
from typing import Annotated, Literal, TypeAlias

import msgspec
from msgspec.structs import replace
from yaml.nodes import MappingNode, Node, ScalarNode

from lictor.addons.kubewarden.family.entries import ContextAwareResource
from lictor.addons.kubewarden.family.policy import KUBEWARDEN_VERSION
from lictor.core.errors import LoadError
from lictor.core.files import read_bytes
from lictor.core.lang.wasm_module import ModuleMetadata
from lictor.core.lang.wasm_records import ExecutionMode
from lictor.core.lang.yaml.core_schema import build_core_yaml, compose_core_yaml
from lictor.core.lang.yaml.plain_json import YamlFault
from lictor.core.model.metadata import Strings
from lictor.core.raw import Json, JsonObject
from lictor.core.records import convert_record

TOOL_ANNOTATION = "io.kubewarden.kwctl"
USAGE_ANNOTATION = "io.kubewarden.policy.usage"
_VERSION = re.compile(r"\d+\.\d+\.\d+(?:-[0-9A-Za-z.-]+)?(?:\+[0-9A-Za-z.-]+)?")
_Texts: TypeAlias = Annotated[Strings, msgspec.Meta(min_length=1)]
_Operation: TypeAlias = Literal["CREATE", "UPDATE", "DELETE", "CONNECT", "*"]


class _RuleFields(msgspec.Struct, frozen=True, rename="camel"):
    api_groups: _Texts
    api_versions: _Texts
    resources: _Texts
    operations: Annotated[tuple[_Operation, ...], msgspec.Meta(min_length=1)]


class _MetadataFields(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    protocol_version: Literal["v1", "Unknown"] | None = None
    rules: tuple[_RuleFields, ...]
    annotations: dict[str, str] = {}
    mutating: bool
    background_audit: bool = True
    execution_mode: ExecutionMode = ExecutionMode.WAPC
    policy_type: Literal["kubernetes", "raw"] = "kubernetes"
    context_aware_resources: tuple[ContextAwareResource, ...] = ()
    host_capabilities: Strings = ()
    minimum_kubewarden_version: str | None = None


_FIELDS = frozenset(field.encode_name for field in msgspec.structs.fields(_MetadataFields))


class MetadataFile(msgspec.Struct, frozen=True):
    """The content of a file, and its unknown fields."""

    metadata: ModuleMetadata
    unknown: tuple[str, ...] = ()


def read_metadata_file(path: str) -> MetadataFile:
    """Read a file of metadata; LoadError where it is none, or where it makes no sense."""
    root = _compose(read_bytes(path), path)
    body = build_core_yaml(root)
    if body is None:
        body = {}
    if not isinstance(body, dict):
        raise LoadError("metadata must be a mapping", where=path)
    if isinstance(body.get("annotations"), dict):
        body["annotations"] |= _read_texts_of(root, "annotations")
    try:
        metadata = _read_metadata(body)
    except LoadError as error:
        raise LoadError(str(error), where=path) from error
    return MetadataFile(metadata, tuple(sorted(set(body) - _FIELDS)))


def read_only_document(content: bytes, where: str) -> Json:
    """The only document of a YAML or JSON file, as kwctl reads it; None where it is empty."""
    return build_core_yaml(_compose(content, where))


def _compose(content: bytes, where: str) -> Node | None:
    try:
        root = compose_core_yaml(content.decode())
        # Numbers that JSON cannot represent are reported here, and not where the document is used.
        build_core_yaml(root)
    except UnicodeDecodeError as error:
        raise LoadError("this is no UTF-8 text", where=where) from error
    except YamlFault as fault:
        place = f"{where}:{fault.line + 1}:{fault.column + 1}"
        raise LoadError(fault.message, where=place) from fault
    return root


def _read_texts_of(root: Node | None, field: str) -> dict[str, str]:
    """The scalars of a mapping as they are written: a version 0.10 is no number."""
    fields = root.value if isinstance(root, MappingNode) else ()
    found = [value for key, value in fields if key.value == field]
    entries = found[-1].value if found and isinstance(found[-1], MappingNode) else ()
    return {
        key.value: value.value
        for key, value in entries
        if isinstance(value, ScalarNode) and value.value
    }


def complete_metadata(
    metadata: ModuleMetadata, *, protocol_version: str, usage: str | None
) -> ModuleMetadata:
    """The metadata as `annotate` writes it: with the protocol, the tool's mark and the usage."""
    annotations = dict(metadata.annotations or {})
    annotations[TOOL_ANNOTATION] = render_kubewarden_version()
    if usage is not None:
        annotations[USAGE_ANNOTATION] = usage
    return replace(metadata, protocol_version=protocol_version, annotations=annotations)


def render_kubewarden_version() -> str:
    """The Kubewarden whose work this lictor does."""
    return ".".join(map(str, (*KUBEWARDEN_VERSION, 0)))


def _read_metadata(body: JsonObject) -> ModuleMetadata:
    given = {name: value for name, value in body.items() if value is not None}
    try:
        fields = convert_record(given, _MetadataFields)
    except msgspec.ValidationError as error:
        raise LoadError(str(error)) from error
    for index, rule in enumerate(fields.rules):
        _check_rule(rule, f"rules[{index}]")
    version = fields.minimum_kubewarden_version
    if version is not None and not _VERSION.fullmatch(version):
        raise LoadError(f"minimumKubewardenVersion is {version!r}: write it like 1.30.0")
    return convert_record(msgspec.to_builtins(fields), ModuleMetadata)


def _check_rule(rule: _RuleFields, where: str) -> None:
    for name, values in msgspec.to_builtins(rule).items():
        # An API group may be empty (it is the core's), nothing else may.
        if name != "apiGroups" and "" in values:
            raise LoadError(f"{where}.{name} must not hold an empty text")
        if name != "resources" and "*" in values and len(values) > 1:
            raise LoadError(f"{where}.{name}: beside '*' nothing else has a meaning")
    _check_resources(rule.resources, where)


def _check_resources(resources: Strings, where: str) -> None:
    """As Kubernetes checks the rules of webhooks: nothing that another entry covers already."""
    for entry in resources:
        resource, _, subresource = entry.partition("/")
        others = [other for other in resources if other != entry]
        covered = []
        if entry == "*":
            covered = [other for other in others if "/" not in other]
        elif entry == "*/*":
            covered = others
        elif subresource == "*":
            covered = [other for other in others if other.startswith(f"{resource}/")]
        elif resource == "*" and subresource:
            covered = [other for other in others if other.endswith(f"/{subresource}")]
        if covered:
            raise LoadError(f"{where}.resources: {entry!r} covers {covered[0]!r} already")
