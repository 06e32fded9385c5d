"""What is known of a module, and what is written into it: metadata, signatures, its protocol."""

from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path

import msgspec
import orjson

from lictor.addons.kubewarden.cli.chosen_modules import (
    SignerFlags,
    SourceFlags,
    find_module,
    open_store,
)
from lictor.addons.kubewarden.cli.metadata_files import (
    complete_metadata,
    read_metadata_file,
    render_kubewarden_version,
)
from lictor.addons.kubewarden.cli.module_metadata import TextSection
from lictor.addons.kubewarden.family.capabilities import read_capabilities
from lictor.addons.kubewarden.modules.module_address import ModuleScheme, parse_module_address
from lictor.addons.kubewarden.modules.module_folder import (
    check_module,
    find_cache_folder,
    find_module_folder,
    write_whole,
)
from lictor.addons.kubewarden.modules.module_verification import find_module_signatures
from lictor.addons.kubewarden.runtime.metadata import read_metadata, write_metadata
from lictor.core.errors import (
    CompileError,
    GuestError,
    HostCallError,
    LookupFailedError,
    ModuleError,
)
from lictor.core.files import read_bytes
from lictor.core.lang.wasm_module import ModuleMetadata, WasmModule
from lictor.core.lang.wasm_records import ExecutionMode, GuestLimits, NoHostCalls
from lictor.core.signatures.records import FoundSignature, SignedImage

_SIGNATURES = "Sigstore signatures"
_REGO_MODES = (ExecutionMode.OPA, ExecutionMode.GATEKEEPER)
PROTOCOL_SECONDS = 5.0
_KNOWN_PROTOCOL = "v1"


class DescribedModule(msgspec.Struct, frozen=True):
    """A module with metadata."""

    address: str
    metadata: ModuleMetadata


def read_described(
    word: str, sources: SourceFlags, signers: SignerFlags | None = None, *, pulls: bool = False
) -> DescribedModule:
    """The module that a word names; ModuleError where it has no metadata."""
    found = find_module(word, sources, signers, pulls=pulls)
    check_module(found.content, word)
    metadata = read_metadata(found.content)
    if metadata is None:
        raise ModuleError(f"{found.address} has no metadata of Kubewarden: annotate it first")
    return DescribedModule(found.address, metadata)


def warn_of_context(metadata: ModuleMetadata, *, granted: bool) -> Iterator[str]:
    """What to look at where a policy wants to read objects of the cluster."""
    if not metadata.context_aware_resources:
        return
    if granted:
        yield "the policy is granted what it wants to read: look at contextAwareResources"
    else:
        yield (
            "the policy wants to read objects of the cluster, and is not granted that: see "
            "`inspect`, then fill contextAwareResources or give --allow-context-aware"
        )


def describe_signatures(address: str, flags: SourceFlags) -> TextSection:
    """The signers of the module that the registry has now, or why they are unknown."""
    parsed = parse_module_address(address)
    if parsed.scheme is not ModuleScheme.REGISTRY:
        return _describe_failure("only what is in a registry can have signatures")
    store = open_store(flags)
    try:
        image = SignedImage(parsed.repository, store.resolve(address))
        found = find_module_signatures(image, store.registries)
    except LookupFailedError as error:
        return _describe_failure(str(error))
    if not found:
        return TextSection(
            _SIGNATURES, (f"The policy is not signed: {image.repository}@{image.digest}",)
        )
    return TextSection(_SIGNATURES, tuple(line for one in found for line in _list_facts(one)))


def _describe_failure(why: str) -> TextSection:
    return TextSection(_SIGNATURES, (f"Cannot determine whether the policy is signed: {why}",))


def _list_facts(found: FoundSignature) -> Iterator[str]:
    kind = found.payload_type or "application/vnd.dev.cosign.simplesigning.v1+json"
    yield f"Digest: sha256:{sha256(found.payload).hexdigest()}"
    yield f"Media type: {kind}"
    yield f"Size: {len(found.payload)}"
    if found.fault:
        yield f"Fault: {found.fault}"
    if found.layer_annotations:
        yield "Annotations"
        yield from (f"{name} {text}" for name, text in sorted(found.layer_annotations.items()))


def describe_installation() -> Iterator[str]:
    """Versions, builtins and folders."""
    from lictor.core.lang.rego import list_builtins

    yield f"does the work of Kubewarden: {render_kubewarden_version()}"
    yield ""
    yield "Builtins that policies in Rego may call (those that OPA leaves to its host):"
    yield from (f"  - {name}" for name in list_builtins())
    yield ""
    yield f"Policy store: {find_module_folder()}"
    yield f"Compiled modules: {find_cache_folder() / 'lictor' / 'modules'}"


def annotate_file(module_path: str, metadata_path: str, usage_path: str, output: str) -> list[str]:
    """Write the module with its metadata; what the author should look at is returned."""
    file = read_metadata_file(metadata_path)
    content = read_bytes(module_path)
    check_module(content, module_path)
    usage = read_bytes(usage_path).decode() if usage_path else None
    module = open_store(SourceFlags()).load(Path(module_path).absolute().as_uri())
    protocol = find_protocol(module, file.metadata.execution_mode)
    metadata = complete_metadata(file.metadata, protocol_version=protocol, usage=usage)
    write_whole(Path(output), write_metadata(content, metadata))
    unknown = [f"{metadata_path}: {name} is no field, and is left out" for name in file.unknown]
    return unknown + _check_capabilities(metadata)


def find_protocol(module: WasmModule, mode: ExecutionMode) -> str:
    """The protocol that a module speaks; ModuleError where it cannot be run in this mode."""
    if is_rego(module) != (mode in _REGO_MODES):
        made = "comes from Rego" if is_rego(module) else "does not come from Rego"
        raise ModuleError(f"executionMode is {mode}, but the module {made}")
    return _ask_protocol(module) if mode is ExecutionMode.WAPC else "Unknown"


def is_rego(module: WasmModule) -> bool:
    """Was it compiled by OPA?"""
    return any(each.module == "env" and each.name == "opa_abort" for each in module.native.imports)


def _ask_protocol(module: WasmModule) -> str:
    from lictor.addons.kubewarden.runtime.wapc import WapcGuest

    try:
        limits = GuestLimits(seconds=PROTOCOL_SECONDS)
        reason = WapcGuest(module, limits, NoHostCalls()).protocol_version()
        protocol = orjson.loads(reason)
    except (GuestError, HostCallError, orjson.JSONDecodeError) as error:
        raise ModuleError(f"the module does not report its protocol: {error}") from error
    if protocol != _KNOWN_PROTOCOL:
        raise ModuleError(f"the module speaks protocol {reason[:80]}, not {_KNOWN_PROTOCOL}")
    return _KNOWN_PROTOCOL


def _check_capabilities(metadata: ModuleMetadata) -> list[str]:
    try:
        read_capabilities(metadata.host_capabilities, "hostCapabilities")
    except CompileError as error:
        return [str(error)]
    return []
