"""`metadata.yml` into the metadata of a module: every mistake is reported with its field."""

import re
from collections.abc import Iterable, Sequence

import msgspec
from msgspec.structs import replace
from yaml.nodes import MappingNode, Node, ScalarNode

from lictor.addons.kubewarden.family.policy import KUBEWARDEN_VERSION
from lictor.core.errors import LoadError
from lictor.core.files import read_bytes
from lictor.core.lang.wasm_module import ModuleMetadata
from lictor.core.lang.wasm_records import ExecutionMode
from lictor.core.lang.yaml.core_schema import build_core_yaml, compose_core_yaml
from lictor.core.lang.yaml.plain_json import YamlFault
from lictor.core.raw import Json, JsonObject

TOOL_ANNOTATION = "io.kubewarden.kwctl"
USAGE_ANNOTATION = "io.kubewarden.policy.usage"
_OPERATIONS = ("CREATE", "UPDATE", "DELETE", "CONNECT", "*")
_RULE_FIELDS = ("apiGroups", "apiVersions", "resources", "operations")
_POLICY_TYPES = ("kubernetes", "raw")
_PROTOCOLS = ("v1", "Unknown")
_FIELDS = frozenset((
    "protocolVersion", "rules", "annotations", "mutating", "backgroundAudit", "executionMode",
    "policyType", "contextAwareResources", "hostCapabilities", "minimumKubewardenVersion",
))  # fmt: skip
_VERSION = re.compile(r"\d+\.\d+\.\d+(?:-[0-9A-Za-z.-]+)?(?:\+[0-9A-Za-z.-]+)?")
_WANTED = {
    str: "text", bool: "true or false", dict: "a mapping", list: "a list",
}  # fmt: skip


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
    for name in ("rules", "mutating"):
        if body.get(name) is None:
            raise LoadError(f"{name} must be there")
    return ModuleMetadata(
        protocol_version=_choose(body, "protocolVersion", _PROTOCOLS, None),
        rules=tuple(_read_rules(_take(body, "rules", list, []))),
        annotations=_read_annotations(_take(body, "annotations", dict, {})),
        mutating=_take(body, "mutating", bool, default=False),
        background_audit=_take(body, "backgroundAudit", bool, default=True),
        execution_mode=ExecutionMode(
            _choose(body, "executionMode", tuple(ExecutionMode), ExecutionMode.WAPC)
        ),
        policy_type=_choose(body, "policyType", _POLICY_TYPES, "kubernetes"),
        context_aware_resources=tuple(_read_resources(body)),
        host_capabilities=_read_texts(body, "hostCapabilities"),
        minimum_kubewarden_version=_read_version(body),
    )


def _take(body: JsonObject, name: str, kind: type, default: Json = None) -> Json:
    value = body.get(name)
    if value is None:
        return default
    if not isinstance(value, kind):
        raise LoadError(f"{name} must be {_WANTED[kind]}")
    return value


def _choose(body: JsonObject, name: str, words: Sequence[str], default: Json) -> Json:
    value = body.get(name)
    if value is None:
        return default
    if value not in words:
        raise LoadError(f"{name} is {value!r}: write one of {', '.join(words)}")
    return value


def _read_texts(body: JsonObject, name: str) -> tuple[str, ...]:
    values = _take(body, name, list, [])
    if not all(isinstance(value, str) for value in values):
        raise LoadError(f"{name} must be a list of texts")
    return tuple(values)


def _read_annotations(values: JsonObject) -> dict[str, str]:
    for name, value in values.items():
        if not isinstance(value, str):
            raise LoadError(f"annotations.{name} must be text")
    return dict(values)


def _read_resources(body: JsonObject) -> Iterable[JsonObject]:
    for index, entry in enumerate(_take(body, "contextAwareResources", list, [])):
        where = f"contextAwareResources[{index}]"
        if not isinstance(entry, dict):
            raise LoadError(f"{where} must have an apiVersion and a kind")
        for name in ("apiVersion", "kind"):
            if not isinstance(entry.get(name), str):
                raise LoadError(f"{where}.{name} must be text")
        yield {"apiVersion": entry["apiVersion"], "kind": entry["kind"]}


def _read_version(body: JsonObject) -> str | None:
    version: str | None = _take(body, "minimumKubewardenVersion", str)
    if version is not None and not _VERSION.fullmatch(version):
        raise LoadError(f"minimumKubewardenVersion is {version!r}: write it like 1.30.0")
    return version


def _read_rules(rules: list[Json]) -> Iterable[JsonObject]:
    for index, rule in enumerate(rules):
        where = f"rules[{index}]"
        if not isinstance(rule, dict):
            raise LoadError(f"{where} must be a mapping")
        read = {name: _read_rule_list(rule, name, where) for name in _RULE_FIELDS}
        wrong = [word for word in read["operations"] if word not in _OPERATIONS]
        if wrong:
            raise LoadError(f"{where}.operations: {wrong[0]!r} is none of {', '.join(_OPERATIONS)}")
        _check_resources(read["resources"], where)
        yield read


def _read_rule_list(rule: JsonObject, name: str, where: str) -> list[str]:
    values = rule.get(name)
    if not isinstance(values, list) or not values:
        raise LoadError(f"{where}.{name} must be there, as a list of texts")
    if not all(isinstance(value, str) for value in values):
        raise LoadError(f"{where}.{name} must be a list of texts")
    # An API group may be empty (it is the core's), nothing else may.
    if name != "apiGroups" and "" in values:
        raise LoadError(f"{where}.{name} must not hold an empty text")
    if name != "resources" and "*" in values and len(values) > 1:
        raise LoadError(f"{where}.{name}: beside '*' nothing else has a meaning")
    return values


def _check_resources(resources: list[str], where: str) -> None:
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
