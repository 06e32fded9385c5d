"""The language server `lictor lsp`: diagnostics and help for open files, by the LSP.

Findings and fixes come from `lint`; no rule about policies is made here, and no file is written.
"""
