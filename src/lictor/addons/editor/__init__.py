"""What `lictor lsp` tells editors about open files, in the Language Server Protocol.

Findings and fixes come from `lint`; no rule about policies is made here, and no file is written.
"""
