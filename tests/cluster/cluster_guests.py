"""Modules for tests on a cluster: small guests that refuse, change and accept."""

import json
import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[1] / "wasm"))

from wat_guests import ACCEPT, PAYLOAD, wapc

from lictor.addons.kubewarden.runtime.metadata import write_metadata
from lictor.core.lang.wasm_module import ModuleMetadata

REFUSAL = "not in this cluster"
_REFUSE = '{"accepted":false,"message":"not in this cluster"}'
# Pods with this word somewhere in the request are refused by `refuse_marked`.
MARK = "forbidden-pod"
# Whatever Pod comes, it becomes this one.
CHANGED = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "changed", "namespace": "red", "labels": {"by": "a-policy"}},
    "spec": {"containers": [{"name": "c", "image": "ghcr.io/acme/web:1"}]},
}
_CHANGE = json.dumps({"accepted": True, "mutated_object": CHANGED})
_METADATA = ModuleMetadata(protocol_version="v1")


def write_guests(folder: Path) -> Path:
    """The folder with one module for each thing that tests need."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in (
        ("refuse", wapc(answer=_REFUSE)),
        ("refuse_marked", make_marked(_REFUSE, ACCEPT)),
        ("accept", wapc()),
        ("change", wapc(answer=_CHANGE)),
        ("invalid", wapc(valid='{"valid":false,"message":"team is missing"}')),
    ):
        (folder / f"{name}.wasm").write_bytes(write_metadata(content, _METADATA))
    return folder


def make_marked(found: str, else_: str) -> bytes:
    """A guest that answers `found` where the request holds MARK, and `else_` where it does not."""
    text = "".join(f"\\{byte:02x}" for byte in found.encode())
    mark = "".join(f"\\{byte:02x}" for byte in MARK.encode())
    extra = f"""
      (data (i32.const 4096) "{text}") (data (i32.const 8192) "{mark}")
      (func $holds (param $length i32) (result i32) (local $at i32) (local $step i32)
        (block $end (loop $next
          (br_if $end (i32.gt_s (i32.add (local.get $at) (i32.const {len(MARK)}))
                                (local.get $length)))
          (local.set $step (i32.const 0))
          (block $differs
            (loop $same
              (br_if $differs (i32.ne
                (i32.load8_u (i32.add (i32.const {PAYLOAD})
                                      (i32.add (local.get $at) (local.get $step))))
                (i32.load8_u (i32.add (i32.const 8192) (local.get $step)))))
              (local.set $step (i32.add (local.get $step) (i32.const 1)))
              (br_if $same (i32.lt_s (local.get $step) (i32.const {len(MARK)}))))
            (return (i32.const 1)))
          (local.set $at (i32.add (local.get $at) (i32.const 1)))
          (br $next)))
        (i32.const 0))"""
    check = f"""
      (if (call $holds (local.get $payload)) (then
        (call $respond (i32.const 4096) (i32.const {len(found.encode())}))
        (return (i32.const 1))))"""
    return wapc(check, answer=else_, extra=extra)
