"""Kubewarden: its policies in WebAssembly, their modules, servers and commands."""
