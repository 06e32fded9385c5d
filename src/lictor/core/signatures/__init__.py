"""Verifies who signed an image, and what they attest.

`find_*` lists the signatures of an image without verification; `verify_*` returns who made one, or
raises SignatureRefusedError. The caller defines what is trusted; data is read only through
`ports.Registries`.
"""
