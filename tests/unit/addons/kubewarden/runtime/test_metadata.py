"""What a module tells of itself is read as it was written, and nothing unclear is taken."""

import pytest
from wat_guests import assemble, wapc

from lictor.addons.kubewarden.runtime.engine import (
    compile_module,
    deserialize,
    make_engine,
    serialize,
)
from lictor.addons.kubewarden.runtime.metadata import SECTION_NAME, read_metadata, write_metadata
from lictor.core.errors import ModuleError
from lictor.core.lang.wasm_module import ModuleMetadata
from lictor.core.lang.wasm_records import ExecutionMode

_BARE = assemble("(module)")
_FULL = ModuleMetadata(
    protocol_version="v1",
    rules=({"apiGroups": [""], "resources": ["pods"], "operations": ["CREATE"]},),
    annotations={"io.kubewarden.policy.title": "no-latest", "long": "x" * 300},
    mutating=True,
    background_audit=False,
    execution_mode=ExecutionMode.GATEKEEPER,
    policy_type="raw",
    context_aware_resources=({"apiVersion": "v1", "kind": "Namespace"},),
    host_capabilities=("oci/*",),
    minimum_kubewarden_version="1.20.0",
)


def section(name: str, body: bytes) -> bytes:
    content = bytes([len(name)]) + name.encode() + body
    assert len(content) < 128
    return bytes([0, len(content)]) + content


@pytest.mark.parametrize("metadata", [ModuleMetadata(), _FULL])
def test_what_is_written_is_read(metadata):
    content = write_metadata(wapc(), metadata)
    assert read_metadata(content) == metadata
    # Written again, it takes the place of the first, and the code stays what it was.
    again = write_metadata(content, ModuleMetadata(protocol_version="v1"))
    assert read_metadata(again) == ModuleMetadata(protocol_version="v1")
    assert write_metadata(again, metadata) == content
    assert compile_module(again, make_engine()).metadata == ModuleMetadata(protocol_version="v1")


def test_a_module_that_tells_nothing():
    assert read_metadata(_BARE) is None
    assert read_metadata(_BARE + section("name", b"{}")) is None
    assert compile_module(_BARE, make_engine()).execution_mode is ExecutionMode.WAPC


@pytest.mark.parametrize(
    ("tail", "told"),
    [
        (section(SECTION_NAME, b"{no json"), "cannot be read"),
        (section(SECTION_NAME, b"[]"), "cannot be read"),
        (section(SECTION_NAME, b'{"executionMode":"magic"}'), "executionMode"),
        (section(SECTION_NAME, b'{"policyType":"magic"}'), "policyType"),
        (section(SECTION_NAME, b'{"mutating":"yes"}'), "mutating"),
        (section(SECTION_NAME, b"{}") * 2, "2 sections"),
        (section(SECTION_NAME, b"{}")[:-1], "cut off"),
        (b"\x00", "cut off"),
        (b"\x00\xff\xff\xff\xff\xff\xff", "too long"),
        (b"\x00\x01\x7f", "reaches beyond"),
    ],
)
def test_unreadable_metadata(tail, told):
    with pytest.raises(ModuleError, match=told):
        read_metadata(_BARE + tail)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"some text",
        b"(module)",
        b"\x00asm",
        b"\x00asm\x0d\x00\x01\x00",
        b"\x00asm\x01\x00\x00\x00\x63",
    ],
)
def test_what_is_no_module(content):
    with pytest.raises(ModuleError):
        compile_module(content, make_engine())


def test_features_that_no_policy_needs_are_refused():
    for text in (
        "(module (memory i64 1))",
        "(module (memory 1) (memory 1))",
        "(module (memory 1 1 shared))",
    ):
        with pytest.raises(ModuleError, match="cannot be compiled"):
            compile_module(assemble(text), make_engine())


def test_lists_without_end_are_refused():
    names = "".join(f'(export "{number}" (func 0))' for number in range(10_001))
    for text in (
        f"(module (func) {names})",
        "(module {})".format('(import "a" "b" (func))' * 10_001),
    ):
        with pytest.raises(ModuleError, match="more than 10000"):
            compile_module(assemble(text), make_engine())
    with pytest.raises(ModuleError, match="table"):
        compile_module(assemble("(module (table 10000000 funcref))"), make_engine())


def test_modules_of_equal_code_and_other_metadata_are_two():
    engine = make_engine()
    one = compile_module(write_metadata(wapc(), ModuleMetadata()), engine)
    two = compile_module(
        write_metadata(wapc(), ModuleMetadata(execution_mode=ExecutionMode.WASI)), engine
    )
    assert one.digest != two.digest
    assert (one.execution_mode, two.execution_mode) == (ExecutionMode.WAPC, ExecutionMode.WASI)


def test_machine_code_is_kept():
    content = write_metadata(wapc(), _FULL)
    module = compile_module(content, make_engine())
    again = deserialize(content, serialize(module), make_engine())
    assert (again.digest, again.metadata) == (module.digest, _FULL)
    with pytest.raises(ModuleError, match="cannot be used"):
        deserialize(content, b"no machine code", make_engine())
