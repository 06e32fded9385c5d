"""The custom section with the metadata of a policy's module: read and written."""

from collections.abc import Iterator

import msgspec

from lictor.core.errors import ModuleError
from lictor.core.lang.wasm_module import ModuleMetadata
from lictor.core.raw import JsonObject

SECTION_NAME = "io.kubewarden.metadata"

_HEADER_BYTES = 8
_CUSTOM = 0
_IMPORTS = 2
_EXPORTS = 7
_MAX_NAMES = 10_000
_MAX_LEB_BYTES = 5
_POLICY_TYPES = ("kubernetes", "raw")
# Made now, not when threads first read one at the same time: msgspec would crash.
_DECODER = msgspec.json.Decoder(ModuleMetadata)


def read_metadata(content: bytes) -> ModuleMetadata | None:
    """The metadata of the module, None without any; ModuleError if unreadable."""
    found = [body for name, body, _, _ in _custom_sections(content) if name == SECTION_NAME]
    if not found:
        return None
    if len(found) > 1:
        # Which of them is meant is unknown.
        raise ModuleError(f"the module has {len(found)} sections {SECTION_NAME}, where one may be")
    try:
        metadata = _DECODER.decode(found[0])
    except (msgspec.MsgspecError, RecursionError) as error:
        raise ModuleError(
            f"section {SECTION_NAME} of the module cannot be read: {error}"
        ) from error
    if metadata.policy_type not in _POLICY_TYPES:
        raise ModuleError(
            f"section {SECTION_NAME} of the module: policyType {metadata.policy_type!r} is none of "
            + ", ".join(_POLICY_TYPES)
        )
    return metadata


def write_metadata(content: bytes, metadata: ModuleMetadata) -> bytes:
    """The module with `metadata` instead of its present metadata."""
    kept = bytearray(content[:_HEADER_BYTES])
    position = _HEADER_BYTES
    for name, _, start, end in _custom_sections(content):
        if name == SECTION_NAME:
            kept += content[position:start]
            position = end
    kept += content[position:]
    name_bytes = SECTION_NAME.encode()
    body = _leb(len(name_bytes)) + name_bytes + msgspec.json.encode(_as_json(metadata))
    return bytes(kept) + bytes([_CUSTOM]) + _leb(len(body)) + body


def _as_json(metadata: ModuleMetadata) -> JsonObject:
    # Defaults are written too: readers of other engines may require the fields.
    written: JsonObject = {
        "protocolVersion": metadata.protocol_version,
        "rules": metadata.rules,
        "annotations": metadata.annotations,
        "mutating": metadata.mutating,
        "backgroundAudit": metadata.background_audit,
        "executionMode": metadata.execution_mode,
        "policyType": metadata.policy_type,
        "contextAwareResources": metadata.context_aware_resources,
        "hostCapabilities": metadata.host_capabilities,
        "minimumKubewardenVersion": metadata.minimum_kubewarden_version,
    }
    return {key: value for key, value in written.items() if value is not None}


def refuse_long_lists(content: bytes) -> None:
    """ModuleError for more imports or exports than anyone would look at one by one."""
    for kind, start, _ in _sections(content):
        if kind in (_IMPORTS, _EXPORTS) and _read_leb(content, start)[0] > _MAX_NAMES:
            raise ModuleError(f"the module has more than {_MAX_NAMES} imports or exports")


def _custom_sections(content: bytes) -> Iterator[tuple[str, bytes, int, int]]:
    """Name, body, and all of each custom section from its first to after its last byte."""
    before = _HEADER_BYTES
    for kind, start, end in _sections(content):
        if kind == _CUSTOM:
            length, body = _read_leb(content, start)
            if body + length > end:
                raise ModuleError("the name of a custom section reaches beyond the section")
            name = content[body : body + length].decode("utf-8", "replace")
            yield name, content[body + length : end], before, end
        before = end


def _sections(content: bytes) -> Iterator[tuple[int, int, int]]:
    """The kind of each section, and where its content is."""
    position = _HEADER_BYTES
    while position < len(content):
        size, start = _read_leb(content, position + 1)
        end = start + size
        if end > len(content):
            raise ModuleError("the module is cut off in the middle of a section")
        yield content[position], start, end
        position = end


def _read_leb(content: bytes, position: int) -> tuple[int, int]:
    value = 0
    for count in range(_MAX_LEB_BYTES):
        if position >= len(content):
            break
        byte = content[position]
        position += 1
        value |= (byte & 0x7F) << (7 * count)
        if not byte & 0x80:
            return value, position
    raise ModuleError("the module is cut off, or has a number that is too long")


def _leb(value: int) -> bytes:
    written = bytearray()
    while value > 0x7F:
        written.append((value & 0x7F) | 0x80)
        value >>= 7
    written.append(value)
    return bytes(written)
