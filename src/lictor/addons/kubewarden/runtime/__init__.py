"""Policies in WebAssembly: modules in, answers out. Protocols waPC, WASI and Rego compiled to Wasm.

Nothing here starts threads or reads files: whoever loads modules ticks their engine and keeps what
was compiled.
"""
