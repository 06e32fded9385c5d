"""Modules of policies in WebAssembly: fetched, verified, kept and compiled."""
