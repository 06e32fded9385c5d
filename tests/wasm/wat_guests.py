"""Small guests written as WAT: one for each thing that a policy in Wasm may do right or wrong."""

import functools

WAPC_IMPORTS = """
  (import "wapc" "__guest_request" (func $request (param i32 i32)))
  (import "wapc" "__guest_response" (func $respond (param i32 i32)))
  (import "wapc" "__guest_error" (func $complain (param i32 i32)))
  (import "wapc" "__host_call" (func $ask (param i32 i32 i32 i32 i32 i32 i32 i32) (result i32)))
  (import "wapc" "__host_response_len" (func $response_len (result i32)))
  (import "wapc" "__host_response" (func $take_response (param i32)))
  (import "wapc" "__host_error_len" (func $error_len (result i32)))
  (import "wapc" "__host_error" (func $take_error (param i32)))
  (import "wapc" "__console_log" (func $log (param i32 i32)))
"""
WASI_IMPORTS = """
  (import "wasi_snapshot_preview1" "fd_write" (func $write (param i32 i32 i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "fd_read" (func $read (param i32 i32 i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "proc_exit" (func $exit (param i32)))
"""
ACCEPT = '{"accepted":true}'
VALID = '{"valid":true}'
LOOP = "(loop $again (br $again))"
# The payload of a request stands here; texts of the guest stand below it.
PAYLOAD = 65536


def wat_bytes(text: str) -> str:
    return "".join(f"\\{byte:02x}" for byte in text.encode())


def data(address: int, text: str) -> str:
    return f'(data (i32.const {address}) "{wat_bytes(text)}")'


def wapc(
    validate: str = "",
    *,
    answer: str = ACCEPT,
    settings: str = "",
    valid: str = VALID,
    extra: str = "",
) -> bytes:
    """A waPC guest that answers with `answer`, unless the code `validate` returned before."""
    return assemble(f"""(module {WAPC_IMPORTS}
      (memory (export "memory") 8)
      {data(1024, answer)} {data(32768, valid)} {extra}
      (func (export "__guest_call") (param $operation i32) (param $payload i32) (result i32)
        (call $request (i32.const 0) (i32.const {PAYLOAD}))
        (if (i32.eq (local.get $operation) (i32.const {len("validate")})) (then
          {validate}
          (call $respond (i32.const 1024) (i32.const {len(answer.encode())}))
          (return (i32.const 1))))
        {settings}
        (call $respond (i32.const 32768) (i32.const {len(valid.encode())}))
        (i32.const 1)))""")


def wasi(
    start: str = "", *, answer: str = '{"accepted":true,"valid":true}', extra: str = ""
) -> bytes:
    """A WASI command that writes `answer`, unless the code `start` ended it before."""
    return assemble(f"""(module {WASI_IMPORTS}
      (memory (export "memory") 8)
      {data(1024, answer)} {extra}
      (func $print (param $file i32) (param $address i32) (param $length i32)
        (i32.store (i32.const 0) (local.get $address))
        (i32.store (i32.const 4) (local.get $length))
        (drop (call $write (local.get $file) (i32.const 0) (i32.const 1) (i32.const 8))))
      (func (export "_start")
        {start}
        (call $print (i32.const 1) (i32.const 1024) (i32.const {len(answer.encode())}))))""")


@functools.cache
def assemble(text: str) -> bytes:
    import wasmtime

    return bytes(wasmtime.wat2wasm(text))
